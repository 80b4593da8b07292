"""The mutants of the pure loader that survive are explained, and what is explained is still there.

`make mutation` finds whether each of them does survive; this is what can be told without it.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

FOLDER = Path(__file__).with_name("mutation")
sys.path.insert(0, str(FOLDER))
import survivors  # noqa: E402

sys.path.remove(str(FOLDER))

KEYS = {"module", "function", "line", "kind", "why", "mutants"}
KINDS = {"equivalent", "implied", "message", "speed", "size"}  # as the file says


def test_the_explanations_are_well_formed() -> None:
    entries = survivors.entries()
    assert entries
    for entry in entries:
        assert entry.keys() == KEYS, entry
        assert entry["kind"] in KINDS, entry
        assert len(str(entry["why"])) > 10, entry
        mutants = entry["mutants"]
        assert isinstance(mutants, list), entry
        assert mutants, entry
        assert entry["line"] not in mutants, entry
    mutants = survivors.read()
    assert len(set(mutants)) == len(mutants)


def test_what_is_explained_is_still_there(checkout: Path) -> None:
    for one in survivors.read():
        text = (checkout / one.module).read_text("utf-8")
        assert one.line in (line.strip() for line in text.splitlines()), one
        assert not one.function or f"def {one.function}(" in text or f"class {one.function}" in text


def test_what_is_mutated_is_still_there(checkout: Path) -> None:
    config = tomllib.loads((FOLDER / "cosmic-ray.toml").read_text("utf-8"))["cosmic-ray"]
    assert config["module-path"]
    for path in config["module-path"]:
        assert (checkout / path).exists(), path


@pytest.mark.parametrize(
    ("found", "missing", "stale"),
    [([0, 1], [], []), ([0], [], [1]), ([0, 1, 2], [2], []), ([], [], [0, 1]), ([2], [2], [0, 1])],
)
def test_survivors_and_explanations_must_be_the_same(
    found: list[int], missing: list[int], stale: list[int]
) -> None:
    mutants = [survivors.Mutant("m.py", "f", "a < b", text) for text in ("a <= b", "a > b", "a")]
    there, explained = [mutants[i] for i in found], mutants[:2]
    assert survivors.unexplained(there, explained) == [mutants[i] for i in missing]
    assert set(survivors.unused(there, explained)) == {mutants[i] for i in stale}
