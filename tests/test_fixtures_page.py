"""The page for loader authors (fixtures/CORPUS.md) tells of everything that the manifest has."""

from __future__ import annotations

import re
import struct

import pytest

from weig.fixtures import materialize
from weig.fixtures.manifest import build
from weig.fixtures.series import Series
from weig.spec.dtypes import DTYPES

PAGE = materialize.PAGE.read_text(encoding="utf-8")


def column(head: str) -> set[str]:
    """The names in back quotes of the first column of the table that starts with ``head``."""
    table = PAGE.split(f"| {head} |", 1)[1].split("\n\n", 1)[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_fields() -> None:
    manifest = build()
    assert column("field") == {key for row in manifest["cases"] for key in row}
    for key in {*manifest, *(key for rule in manifest["rules"].values() for key in rule)}:
        assert f"`{key}`" in PAGE


def test_kinds_and_tags() -> None:
    rows = build()["cases"]
    assert column("kind") == {row["kind"] for row in rows}
    assert column("tag") == {tag for row in rows for tag in row["tags"]}
    assert {profile for row in rows for profile in row["profiles"]} == {
        "core",
        "big-endian",
        "deep",
        "held-mmap",
        "held-read",
    }


@pytest.mark.parametrize("unit", [1, 2, 4, 8])
def test_units_of_the_digest(unit: int) -> None:
    (names,) = re.findall(rf"^ +(?:unit\(dtype\) = )?{unit} for (.*?)(?:  +#.*)?$", PAGE, re.M)
    told = set(re.split(", | and ", names))
    if "every F8_…" in told:
        told = told - {"every F8_…"} | {d.name for d in DTYPES if d.name.startswith("F8_")}
    assert told == {d.name for d in DTYPES if d.unit == unit}


def test_the_example_of_a_series() -> None:
    series = Series(0, (10, 0), (2, 3), ((100, 0), (1, 7)))
    words = struct.unpack("<12Q", series.data())
    pairs = ", ".join(f"{a} {b}" for a, b in zip(words[::2], words[1::2], strict=True))
    assert pairs == "10 0, 11 7, 12 14, 110 0, 111 7, 112 14"
    assert f"are the pairs {pairs}," in PAGE
