"""Generated code that writes: right to the byte, and what it writes is a file for our loaders.

What cannot be written again is listed in spec/generated/known-failures.toml; the list is strict.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import kaitai_writing
import ml_dtypes
import numpy as np
import pytest
from kaitai_verdicts import GENERATED, RULE_OF, kaitaistruct
from test_kaitai_languages import CASES, CORPUS, LISTED, NOT_RUN
from test_kaitai_loader import (
    ACCEPT,
    EXAMPLE,
    NOT_ACCEPT,
    ORDERS,
    Raw,
    build,
    case_id,
    edited,
    write,
)

import weig
from weig.spec.layout import ByteOrder

# Checks that need another part of the file, or its size: they are made by reading alone.
READING_ALONE = {"TAIL-1", "HDR-1", "HDR-5", "HDR-6", "NAME-2", "NAME-3", "NAME-4"}
READING_ALONE |= {"SHAPE-4", "SHAPE-5"}  # SHAPE-4: with the element's size; without, it is made


@pytest.fixture(params=ORDERS)
def order(request: pytest.FixtureRequest) -> ByteOrder:
    return request.param


@pytest.mark.parametrize("title", ACCEPT, ids=case_id)
def test_written_from_nothing(order: ByteOrder, title: str) -> None:
    for shift in (0, 1):
        file = kaitai_writing.file(order, *ACCEPT[title], shift)
        assert kaitai_writing.written(file) == build(order, *ACCEPT[title], shift)


def test_loaders_read_it(tmp_path: Path, order: ByteOrder, backend: str, mode: weig.Mode) -> None:
    sign = "<" if order == "little" else ">"
    floats = np.array([[1.5, -2.0, 3.0], [0.25, np.inf, -0.0]], sign + "f4")
    halves = np.array([1.0, -2.5], ml_dtypes.bfloat16)
    raw = {
        "w": (0, floats.shape, floats.tobytes()),
        "größe": (2, halves.shape, halves.view("u2").astype(sign + "u2").tobytes()),
        "scalar": (7, (), (-(2**62) - 1).to_bytes(8, order, signed=True)),
        "empty": (6, (0, 7), b""),
        "flags": (12, (3,), b"\1\0\1"),
    }
    records, data = [], b""
    for name, (code, shape, elements) in raw.items():
        data += bytes(-len(data) % 64)
        records.append(Raw(name.encode(), code, shape, len(data), len(elements)))
        data += elements
    records.append(Raw(b"alias of w", 0, (3, 2), 0, 24))
    path = write(tmp_path, kaitai_writing.written(kaitai_writing.file(order, records, data)))
    with weig.open(path, mode=mode, backend=backend) as model:
        model.verify()
        assert list(model) == [*raw, "alias of w"]
        assert model["w"].numpy().tobytes() in (floats.tobytes(), floats.byteswap().tobytes())
        assert model["w"].numpy().tolist() == floats.tolist()
        assert model["alias of w"].numpy().tolist() == floats.reshape(3, 2).tolist()
        assert model["größe"].numpy().astype("f4").tolist() == [1.0, -2.5]
        assert model["scalar"].numpy().tolist() == -(2**62) - 1
        assert model["empty"].numpy().shape == (0, 7)
        assert model["flags"].numpy().tolist() == [True, False, True]


def test_the_checks_before_writing() -> None:
    """Which checks of weig.ksy generated code makes before it writes."""
    text = (GENERATED / "python_write" / "weig.py").read_text("utf-8")
    found = {
        stream: set(re.findall(rf'Validation\w+\([^\n]*, {stream}, u"([^"]+)"', text))
        for stream in ("self._io", "None")
    }
    assert found["self._io"] | {"/instances/first_byte"} == set(RULE_OF)
    assert {RULE_OF[path] for path in found["self._io"] - found["None"]} == READING_ALONE


@pytest.mark.parametrize("title", NOT_ACCEPT, ids=case_id)
def test_what_breaks_a_rule_is_not_written(order: ByteOrder, title: str) -> None:
    records, rule = NOT_ACCEPT[title]
    file = kaitai_writing.file(order, records, bytes(192))
    if rule in ("NAME-3", "SHAPE-5"):
        kaitai_writing.check(file)
        return
    with pytest.raises(kaitaistruct.KaitaiStructError) as caught:
        kaitai_writing.check(file)
    assert RULE_OF[caught.value.src_path] == rule


def test_not_written_before_it_is_checked(order: ByteOrder) -> None:
    file = kaitai_writing.read(EXAMPLE[order])
    file.body.header.version = 1
    with pytest.raises(kaitaistruct.ConsistencyNotCheckedError):
        file._write(kaitaistruct.KaitaiStream(kaitaistruct.BytesIO(bytes(272))))


def test_the_corpus_is_written_again() -> None:
    listed = [glob for entry in LISTED["not-written"] for glob in entry["cases"]]
    cases = [c for c in CASES if c["expect"] == "accept" and c["kind"] not in NOT_RUN]
    wrong = []
    for case in cases:
        data = (CORPUS / case["file"]).read_bytes()
        got = kaitai_writing.written(kaitai_writing.read(data))
        if (got == data) == any(fnmatchcase(case["id"], glob) for glob in listed):
            wrong.append(case["id"])
        # Listed or not: what is not the same is zero.
        assert all(new in (0, old) for old, new in zip(data, got, strict=True)), case["id"]
    assert not wrong
    assert len(cases) > 500
    assert all(any(fnmatchcase(c["id"], glob) for c in cases) for glob in listed)


def test_a_change_is_written(order: ByteOrder) -> None:
    file = kaitai_writing.read(EXAMPLE[order])
    file.body.tensors[0].shape.dims[0].len = 2
    file.body.tensors[0].len_data = 4
    file.body.tensors[0].data = EXAMPLE[order][192:196]
    want = edited(order, {"shape 0": 2, "meta[0].data_size": 4})
    assert kaitai_writing.written(file) == want[:196] + bytes(2) + want[198:]
