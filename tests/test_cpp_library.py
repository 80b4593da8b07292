"""The C++ loader by itself: its rules, its memory, and the library without Python.

What all loaders have in common is in test_contract.py; the files here are made with `struct` alone.
"""

from __future__ import annotations

import gc
import itertools
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from weig.spec import dtypes, errors, layout
from weig.spec.errors import WeigError

_cpp = pytest.importorskip("weig.backends._cpp")

ORDERS = {"little": "<", "big": ">"}
HOST = ORDERS[sys.byteorder]
MAX = 2**53 - 1


@dataclass(frozen=True)
class Made:
    """A file of records that say what they like: each (name, dtype, shape, data)."""

    records: list[tuple[bytes, int, tuple[int, ...], bytes]]
    order: str = HOST
    header: dict[int, int] = field(default_factory=dict)  # number of the field: value
    meta: dict[tuple[int, int], int] = field(default_factory=dict)  # record and field: value
    gap: int = 0  # bytes of padding before the shapes: an odd number moves them all
    tail: bytes | None = None

    def bytes(self) -> bytes:
        o, n = self.order, len(self.records)
        aux = bytearray(self.gap)
        rows = []
        for name, code, shape, _ in self.records:
            shape_at = 64 + 48 * n + len(aux)
            aux += struct.pack(f"{o}{len(shape)}Q", *shape)
            rows.append([64 + 48 * n + len(aux), code, 0, shape_at, len(shape), 0, 0])
            aux += name + b"\0"
        data_at = (64 + 48 * n + len(aux) + 63) // 64 * 64
        data = bytearray()
        for row, record in zip(rows, self.records, strict=True):
            data += bytes(-len(data) % 64)
            row[5], row[6] = data_at + len(data), len(record[3])
            data += record[3]
        data += bytes(-len(data) % 8)
        head = [layout.MAGIC, 1, n, 64, data_at, data_at + len(data) + 8, 0, 0, 0]
        for i, value in self.header.items():
            head[i] = value
        for (i, j), value in self.meta.items():
            rows[i][j] = value
        out = struct.pack(o + "IIQQQQQQQ", *head)
        out += b"".join(struct.pack(o + "QIIQQQQ", *row) for row in rows) + aux
        return (
            out.ljust(data_at, b"\0") + data + (self.tail or struct.pack(o + "Q", layout.SENTINEL))
        )


F32, U8, BOOL = 0, 4, 12
TWO = Made([(b"a", F32, (2,), bytes(8)), (b"b", U8, (3,), b"xyz")])
# TWO: table 64 to 160, shapes at 160 and 170, names at 168 and 178, data at 192 and 256, 272 bytes.


def put(path: Path, content: bytes) -> str:
    file = path / "file.weig"
    file.write_bytes(content)
    return str(file)


def refusal(path: str, mode: str = "mmap") -> WeigError:
    with pytest.raises(WeigError) as caught:
        _cpp.open(path, mode)
    assert caught.value.code in errors.CODES
    assert caught.value.message.isascii()
    assert caught.value.message.isprintable()
    return caught.value


def test_the_tables_are_those_of_the_specification() -> None:
    assert _cpp.CODES == tuple(errors.CODES)
    assert _cpp.DTYPES == tuple((d.code, d.name, d.size, d.unit) for d in dtypes.DTYPES)
    assert len(_cpp.LAYOUT) == 15
    assert {name: getattr(layout, name) for name in _cpp.LAYOUT} == _cpp.LAYOUT


REFUSED: list[tuple[str, str, str | None, Made]] = [
    ("HDR-3", "BAD_VERSION", "header.version", replace(TWO, header={1: 2})),
    ("NUM-2", "NUMBER_TOO_LARGE", "header.tensor_count", replace(TWO, header={2: MAX + 1})),
    ("NUM-2", "NUMBER_TOO_LARGE", "header.meta_offset", replace(TWO, header={3: 2**63})),
    ("NUM-2", "NUMBER_TOO_LARGE", "header.data_offset", replace(TWO, header={4: 2**64 - 64})),
    ("NUM-2", "NUMBER_TOO_LARGE", "header.file_size", replace(TWO, header={5: 2**64 - 8})),
    ("HDR-4", "BAD_FILE_SIZE", "header.file_size", replace(TWO, header={5: 271})),
    ("HDR-4", "BAD_FILE_SIZE", "header.file_size", replace(TWO, header={5: 64})),
    ("HDR-5", "TRUNCATED", "header.file_size", replace(TWO, header={5: 280})),
    ("HDR-6", "TRAILING_DATA", "header.file_size", replace(TWO, header={5: 264})),
    ("HDR-7", "UNKNOWN_FLAG", "header.flags", replace(TWO, header={6: 1 << 31})),
    ("HDR-8", "BAD_RESERVED", "header.reserved[0]", replace(TWO, header={7: 1})),
    ("HDR-8", "BAD_RESERVED", "header.reserved[1]", replace(TWO, header={8: 1 << 63})),
    ("META-1", "BAD_META_TABLE", "header.meta_offset", replace(TWO, header={3: 56})),
    ("META-2", "BAD_META_TABLE", "header.meta_offset", replace(TWO, header={3: 68})),
    ("META-3", "BAD_META_TABLE", "header.meta_offset", replace(TWO, header={3: 200})),
    ("META-3", "BAD_META_TABLE", "header.tensor_count", replace(TWO, header={2: 3})),
    ("META-3", "BAD_META_TABLE", "header.tensor_count", replace(TWO, header={2: MAX})),
    ("REGION-1", "MISALIGNED", "header.data_offset", replace(TWO, header={4: 184})),
    ("REGION-2", "BAD_DATA_REGION", "header.data_offset", replace(TWO, header={4: 320})),
    ("TAIL-1", "BAD_SENTINEL", "sentinel", replace(TWO, tail=b"WEIGEND?")),
    ("NUM-2", "NUMBER_TOO_LARGE", "meta[1].name_offset", replace(TWO, meta={(1, 0): MAX + 1})),
    ("NUM-2", "NUMBER_TOO_LARGE", "meta[1].shape_offset", replace(TWO, meta={(1, 3): 2**63})),
    ("NUM-2", "NUMBER_TOO_LARGE", "meta[1].shape_count", replace(TWO, meta={(1, 4): 2**61})),
    ("NUM-2", "NUMBER_TOO_LARGE", "meta[1].data_offset", replace(TWO, meta={(1, 5): 2**64 - 64})),
    ("NUM-2", "NUMBER_TOO_LARGE", "meta[1].data_size", replace(TWO, meta={(1, 6): 2**64 - 1})),
    ("META-4", "BAD_RESERVED", "meta[0].pad", replace(TWO, meta={(0, 2): 1})),
    ("DTYPE-1", "BAD_DTYPE", "meta[0].dtype", replace(TWO, meta={(0, 1): 19})),
    ("NAME-1", "BAD_NAME", "meta[0].name_offset", replace(TWO, meta={(0, 0): 159})),
    ("NAME-1", "BAD_NAME", "meta[0].name_offset", replace(TWO, meta={(0, 0): 192})),
    ("NAME-3", "BAD_NAME", "meta[0].name", replace(TWO, meta={(0, 0): 169})),
    ("SHAPE-1", "BAD_SHAPE", "meta[0].shape_count", replace(TWO, meta={(0, 4): 65})),
    ("SHAPE-2", "BAD_SHAPE", "meta[0].shape_offset", replace(TWO, meta={(0, 3): 152})),
    ("SHAPE-2", "BAD_SHAPE", "meta[0].shape_offset", replace(TWO, meta={(0, 3): 185})),
    ("SHAPE-2", "BAD_SHAPE", "meta[0].shape_offset", replace(TWO, meta={(0, 3): 193, (0, 4): 0})),
    ("SHAPE-5", "BAD_DATA_SIZE", "meta[0].data_size", replace(TWO, meta={(0, 6): 12})),
    ("DATA-1", "MISALIGNED", "meta[0].data_offset", replace(TWO, meta={(0, 5): 200})),
    ("DATA-2", "BAD_DATA_RANGE", "meta[0].data_offset", replace(TWO, meta={(0, 5): 128})),
    ("DATA-3", "BAD_DATA_RANGE", "meta[0].data_offset", replace(TWO, meta={(0, 5): 320})),
    ("DATA-4", "OVERLAP", "meta[1].data_offset", replace(TWO, meta={(1, 5): 192})),
]  # fmt: skip
BIG_SHAPES = [
    ("NUM-2", "NUMBER_TOO_LARGE", (0, MAX + 1)),
    ("NUM-2", "NUMBER_TOO_LARGE", (2**64 - 1,)),
    ("SHAPE-4", "BAD_SHAPE", (2**32, 2**32)),  # wraps to 0
    ("SHAPE-4", "BAD_SHAPE", (2**51,)),  # 2^53 bytes
    ("SHAPE-4", "BAD_SHAPE", (0, 2**32, 2**32)),
    ("SHAPE-4", "BAD_SHAPE", (2**32, 2**32, 0)),
]


@pytest.mark.parametrize("mode", ["mmap", "read"])
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize(("rule", "code", "where", "made"), REFUSED)
def test_one_broken_rule(
    tmp_path: Path, rule: str, code: str, where: str, made: Made, order: str, mode: str
) -> None:
    error = refusal(put(tmp_path, replace(made, order=order).bytes()), mode)
    assert (error.rule, error.code, error.field) == (rule, code, where)


@pytest.mark.parametrize(("rule", "code", "shape"), BIG_SHAPES)
def test_shapes_that_are_too_large(
    tmp_path: Path, rule: str, code: str, shape: tuple[int, ...]
) -> None:
    error = refusal(put(tmp_path, Made([(b"a", F32, shape, b"")]).bytes()))
    assert (error.rule, error.code) == (rule, code)


@pytest.mark.parametrize(
    ("content", "code", "hint"),
    [
        (b"", "TOO_SMALL", "0 bytes"),
        (b"\0\0\0", "TOO_SMALL", ""),
        (TWO.bytes()[:71], "TOO_SMALL", ""),
        (b"GIEW" + bytes(68), "BAD_VERSION", ""),
        (b"version https://git-lfs.github.com/spec/v1\n", "BAD_MAGIC", "git-LFS"),
        (b"<!DOCTYPE html><html>", "BAD_MAGIC", "HTML"),
        (b"PK\3\4" + bytes(90), "BAD_MAGIC", "ZIP"),
        (b"GGUF\3\0\0\0", "BAD_MAGIC", "GGUF"),
        (struct.pack("<Q", 40) + b'{"a":{}}', "BAD_MAGIC", "safetensors"),
        (b"\x1f\x8b\x08\0\0", "BAD_MAGIC", "gzip"),
        (b"\x93NUMPY\1\0", "BAD_MAGIC", "npy"),
        (b"\x1b[2J" + bytes(90), "BAD_MAGIC", r"\x1b[2J"),
    ],
)
def test_what_is_no_weig_file(tmp_path: Path, content: bytes, code: str, hint: str) -> None:
    error = refusal(put(tmp_path, content))
    assert error.code == code
    assert hint in error.message


def names_of(path: str) -> list[str]:
    return _cpp.open(path, "mmap").names()


LEADS = (
    *(0x80, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF),
    *range(0xF0, 0x100),
)


@pytest.mark.parametrize("before", [0, 5, 6, 7])
def test_utf8_is_that_of_python(tmp_path: Path, before: int) -> None:
    """The lead bytes at the edges of the table with the continuations at its edges, across words."""
    edges = (0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0)
    accepted = 0
    for lead in LEADS:
        for rest in ((), (0x80,), *((e, 0x80) for e in edges), *((e, 0xBF, 0x80) for e in edges)):
            name = b"n" * before + bytes([lead, *rest]) + b"z"
            path = put(tmp_path, Made([(name, U8, (), b"x")]).bytes())
            try:
                expected = name.decode() if 0x7F not in rest else None
            except UnicodeDecodeError:
                expected = None
            if expected is not None:
                accepted += 1
                assert names_of(path) == [expected]
            else:
                assert refusal(path).rule in ("NAME-4", "NAME-5")
    assert accepted > 0


@pytest.mark.parametrize("before", [0, 6, 7, 8])
def test_control_bytes(tmp_path: Path, before: int) -> None:
    for byte in range(1, 0x80):
        path = put(tmp_path, Made([(b"n" * before + bytes([byte]) + b"z", U8, (), b"x")]).bytes())
        if 0x20 <= byte < 0x7F:
            assert names_of(path) == ["n" * before + chr(byte) + "z"]
        else:
            assert refusal(path).rule == "NAME-5"


def test_name_lengths(tmp_path: Path) -> None:
    for length in (1, 7, 8, 9, 1022, 1023):
        path = put(tmp_path, Made([(b"x" * length, U8, (), b"x")]).bytes())
        assert names_of(path) == ["x" * length]
    path = put(tmp_path, Made([(b"x" * 1024, U8, (), b"x")]).bytes())
    assert refusal(path).rule == "NAME-3"


def test_a_name_without_nul_at_the_end_of_the_aux_area(tmp_path: Path) -> None:
    for length in range(1, 20):  # header 64, record 48, no shape: the aux area ends at 128
        name = b"x" * length
        out = struct.pack(HOST + "IIQQQQQQQ", layout.MAGIC, 1, 1, 64, 192, 200, 0, 0, 0)
        out += struct.pack(HOST + "QIIQQQQ", 192 - length, U8, 0, 112, 1, 192, 0)
        out += bytes(8)
        out = out.ljust(192 - length, b"\0") + name + struct.pack(HOST + "Q", layout.SENTINEL)
        assert refusal(put(tmp_path, out)).rule == "NAME-2"
        out = out[:191] + b"\0" + out[192:]
        if length > 1:
            assert names_of(put(tmp_path, out)) == ["x" * (length - 1)]


LEGAL = [
    ("may-ignore flags", replace(TWO, header={6: 0xFFFF_FFFF << 32})),
    ("shapes at odd places", replace(TWO, gap=3)),
    ("a scalar whose shape is at the end", replace(TWO, meta={(0, 3): 192, (0, 4): 0, (0, 6): 4})),
    ("empty, beside a zero", Made([(b"a", F32, (2**31, 0, 2**19), b"")])),
    ("rank 64", Made([(b"a", F32, (1,) * 64, bytes(4))])),
    ("data backwards", replace(TWO, meta={(0, 5): 256, (1, 5): 192})),
    ("aliases of other shapes", Made(
        [(b"a", U8, (4,), b"wxyz"), (b"b", U8, (2, 2), b""), (b"c", U8, (1, 4), b"")],
        meta={(i, j): v for i in (1, 2) for j, v in ((5, 256), (6, 4))})),
    ("an empty tensor inside another", Made(
        [(b"a", U8, (100,), bytes(100)), (b"b", U8, (0,), b"")], meta={(1, 5): 256})),
]  # fmt: skip


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("made", [made for _, made in LEGAL], ids=[title for title, _ in LEGAL])
def test_legal(tmp_path: Path, made: Made, order: str) -> None:
    opened = _cpp.open(put(tmp_path, replace(made, order=order).bytes()), "mmap")
    for i, (name, code, shape, _) in enumerate(made.records):
        got = opened.record(i)
        expected = () if made.meta.get((i, 4)) == 0 else shape
        assert got[:3] == (name.decode(), code, expected)
        array = opened.arrays()[name.decode()]
        assert (array.shape, array.nbytes) == (expected, got[4])
    assert opened.records() == [opened.record(i) for i in range(opened.count)]


def test_overlap_by_one_byte_whatever_the_order(tmp_path: Path) -> None:
    made = Made([(b"a", U8, (65,), bytes(65)), (b"b", U8, (1,), b"x"), (b"c", U8, (2,), b"xy")])
    first = 64 + 3 * 48 + 3 * 10
    first = (first + 63) // 64 * 64
    for places in itertools.permutations((0, 64, 128)):
        meta = {(i, 5): first + place for i, place in enumerate(places)}
        path = put(tmp_path, replace(made, meta=meta).bytes())
        if places[0] == 128:  # the long one is the last
            assert _cpp.open(path, "mmap").count == 3
        else:
            assert refusal(path).code == "OVERLAP"


@pytest.mark.parametrize("sort", [True, False])
def test_look_up(tmp_path: Path, sort: bool) -> None:
    names = [f"layer.{i}.weight" for i in range(1000)]
    names.sort() if sort else random.Random(7).shuffle(names)
    made = Made([(name.encode(), U8, (), b"x") for name in names])
    opened = _cpp.open(put(tmp_path, made.bytes()), "mmap")
    assert opened.names() == names
    assert [opened.index(name) for name in names] == list(range(1000))
    absent = ["", "layer", "layer.5.weigh", "layer.5.weight\0", "zzz", "é", "\ud800", "a" * 5000]
    assert [opened.index(name) for name in absent] == [-1] * len(absent)


@pytest.mark.parametrize("others", [0, 1, 50, 1000])
def test_duplicates_wherever_they_stand(tmp_path: Path, others: int) -> None:
    names = [b"%d" % i for i in range(others)] + [b"twice\xc2\x9b", b"twice\xc2\x9b"]
    for seed in range(3):
        random.Random(seed).shuffle(names)
        error = refusal(put(tmp_path, Made([(name, U8, (), b"x") for name in names]).bytes()))
        assert (error.code, error.rule) == ("DUPLICATE_NAME", "NAME-6")
        assert r"twice\xc2\x9b" in error.message


def map_count(path: str) -> int:
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        return sum(path in line for line in maps)


GIVEN: list[Callable[[object], object]] = [
    lambda opened: opened.buffer(),
    lambda opened: opened.buffer()[10:20],
    lambda opened: opened.arrays(),
    lambda opened: opened.arrays()["a"][1:],
]


@pytest.mark.parametrize("give", GIVEN)
def test_memory_stays_until_the_last_view_is_gone(
    tmp_path: Path, give: Callable[[object], object]
) -> None:
    path = put(tmp_path, TWO.bytes())
    opened = _cpp.open(path, "mmap")
    view = give(opened)
    opened.close()
    del opened
    gc.collect()
    assert map_count(path) == 1
    del view
    gc.collect()
    assert map_count(path) == 0


def test_closed(tmp_path: Path) -> None:
    opened = _cpp.open(put(tmp_path, TWO.bytes()), "mmap")
    opened.close()
    opened.close()
    assert (opened.count, opened.file_size, opened.byte_order) == (2, 272, sys.byteorder)
    calls: list[Callable[[], object]] = [
        opened.buffer, opened.names, opened.records, opened.arrays, opened.check_unmodified,
        lambda: opened.index("a"), lambda: opened.record(0), lambda: opened.verify(None),
        lambda: opened.prefetch(True), lambda: opened.swapped(0, 8, 8),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(WeigError) as caught:
            call()
        assert caught.value.code == "CLOSED"


@pytest.mark.parametrize("mode", ["mmap", "read"])
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_arrays_of_every_dtype(tmp_path: Path, order: str, mode: str) -> None:
    """Each dtype's bits, unit by unit, against struct."""
    made, expected = [], {}
    for d in dtypes.DTYPES:
        units = [((i * 0x9E3779B97F4A7C15) >> 3) % 2 ** (8 * d.unit) for i in range(3, 45)]
        units = units[: len(units) * d.unit // d.size * d.size // d.unit]
        kind = {1: "B", 2: "H", 4: "I", 8: "Q"}[d.unit]
        count = len(units) * d.unit // d.size
        made.append(
            (d.name.encode(), d.code, (count,), struct.pack(f"{order}{len(units)}{kind}", *units))
        )
        expected[d.name] = struct.pack(f"{HOST}{len(units)}{kind}", *units)
    opened = _cpp.open(put(tmp_path, Made(made, order).bytes()), mode)
    arrays = opened.arrays()
    assert list(arrays) == [d.name for d in dtypes.DTYPES]
    for d in dtypes.DTYPES:
        array = arrays[d.name]
        assert array.dtype == d.to_numpy()
        assert array.tobytes() == expected[d.name]
        assert array.flags.c_contiguous
        assert array.flags.aligned
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_aliases_share_memory_in_either_order(tmp_path: Path, order: str) -> None:
    value = b"\1\2\3\4"
    made = Made(
        [(b"a", F32, (1,), value), (b"b", F32, (), b"")], order, meta={(1, 5): 192, (1, 6): 4}
    )
    arrays = _cpp.open(put(tmp_path, made.bytes()), "mmap").arrays()
    assert arrays["a"].ctypes.data == arrays["b"].ctypes.data
    assert arrays["b"].tobytes() == (value if order == HOST else value[::-1])


@pytest.mark.parametrize("unit", [1, 2, 4, 8])
def test_swapped(tmp_path: Path, unit: int) -> None:
    content = Made([(b"a", U8, (4096,), random.Random(1).randbytes(4096))]).bytes()
    opened = _cpp.open(put(tmp_path, content), "mmap")
    for offset, size in ((0, 0), (0, 8), (5, 24), (64, 32), (67, 4000), (len(content), 0)):
        view = opened.swapped(offset, size, unit)
        part = content[offset : offset + size]
        assert bytes(view) == b"".join(part[i : i + unit][::-1] for i in range(0, size, unit))
        assert (view.readonly, view.format, view.ndim) == (True, "B", 1)
    for bad in ((0, 8, 3), (0, 8, 0), (0, 8, 16), (len(content), 8, 1), (2**64 - 1, 8, 1)):
        with pytest.raises(ValueError, match="the (range|unit)"):
            opened.swapped(*bad)
    if unit > 1:
        with pytest.raises(ValueError, match="unit"):
            opened.swapped(0, unit + 1, unit)


def test_bad_indices(tmp_path: Path) -> None:
    opened = _cpp.open(put(tmp_path, TWO.bytes()), "mmap")
    for i in (-1, 2, 2**62):
        with pytest.raises(IndexError):
            opened.record(i)


def test_every_byte_of_padding_is_looked_at(tmp_path: Path) -> None:
    content = replace(TWO, gap=5).bytes()
    owned = {*range(160), *range(165, 174), *range(174, 175), *range(175, 185)}
    owned |= {*range(192, 200), *range(256, 259), *range(264, 272)}
    for i in range(160, len(content)):
        changed = bytearray(content)
        changed[i] |= 0x80
        if i in owned:
            continue
        opened = _cpp.open(put(tmp_path, bytes(changed)), "mmap")
        with pytest.raises(WeigError, match=f"byte at {i} ") as caught:
            opened.verify(None)
        assert (caught.value.code, caught.value.rule) == ("NONZERO_PADDING", "PAD-1")
    _cpp.open(put(tmp_path, content), "mmap").verify(None)


def test_every_bool_is_looked_at(tmp_path: Path) -> None:
    for size, bad in ((1, 0), (300, 0), (300, 255), (300, 256), (300, 299)):
        data = bytearray(i % 2 for i in range(size))
        _cpp.open(put(tmp_path, Made([(b"a", BOOL, (size,), bytes(data))]).bytes()), "mmap").verify(
            None
        )
        data[bad] = 2
        opened = _cpp.open(
            put(tmp_path, Made([(b"a", BOOL, (size,), bytes(data))]).bytes()), "mmap"
        )
        with pytest.raises(WeigError) as caught:
            opened.verify(None)
        assert (caught.value.code, caught.value.rule) == ("BAD_BOOL", "BOOL-1")


def sparse_bools(path: Path, aliases: int, size: int) -> str:
    """Many aliases of one large BOOL tensor, which is a hole."""
    made = Made([(b"%d" % i, BOOL, (size,), b"") for i in range(aliases)])
    content = made.bytes()
    data_at = len(content) - 8
    meta = {(i, j): v for i in range(aliases) for j, v in ((5, data_at), (6, size))}
    content = replace(made, meta=meta, header={5: data_at + size + 8}).bytes()
    file = put(path, content[:data_at])
    with open(file, "r+b") as f:
        f.seek(data_at + size)
        f.write(content[data_at:])
    return file


def test_verification_is_linear_and_tells_how_far_it_is(tmp_path: Path) -> None:
    size = 40 << 20
    opened = _cpp.open(sparse_bools(tmp_path, 5000, size), "mmap")
    seen: list[tuple[int, int]] = []
    start = time.monotonic()
    opened.verify(lambda done, total: seen.append((done, total)))
    assert time.monotonic() - start < 10  # 5000 times would take minutes
    assert {total for _, total in seen} == {opened.file_size}
    done = [d for d, _ in seen]
    assert done == sorted(done)
    assert done[-1] == opened.file_size
    assert len(done) >= 3

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        opened.verify(stop)


def test_names_that_share_storage_are_linear(tmp_path: Path) -> None:
    """Each record points into the one long name, so that all but 1023 are duplicates."""
    n = 1023
    made = Made([(b"x" * 1023 if i == 0 else b"y", U8, (), b"") for i in range(n)])
    first = 64 + 48 * n
    meta = {(i, j): v for i in range(n) for j, v in ((0, first + i), (4, 1), (6, 0))}
    zero = first + 1023 + 1 + 2 * (n - 1)  # padding after the names: zeros, so a dimension of 0
    meta |= {(i, 3): zero for i in range(n)}
    content = replace(made, meta=meta).bytes()
    data_at = int.from_bytes(content[24:32], sys.byteorder)
    if data_at - zero < 8:
        pytest.skip("no padding for the shape")
    assert names_of(put(tmp_path, content)) == ["x" * (n - i) for i in range(n)]


@pytest.mark.parametrize("change", ["append", "touch", "cut"])
def test_modified(tmp_path: Path, change: str) -> None:
    path = put(tmp_path, TWO.bytes())
    opened = _cpp.open(path, "read")
    opened.check_unmodified()
    if change == "append":
        with open(path, "ab") as file:
            file.write(b"x")
    elif change == "touch":
        status = os.stat(path)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    else:
        os.truncate(path, 0)
    with pytest.raises(WeigError) as caught:
        opened.check_unmodified()
    assert caught.value.code == "MODIFIED"
    assert bytes(opened.buffer()) == TWO.bytes()
    assert opened.arrays()["b"].tobytes() == b"xyz"


def test_a_replaced_file_is_not_a_modified_one(tmp_path: Path) -> None:
    path = put(tmp_path, TWO.bytes())
    opened = _cpp.open(path, "mmap")
    other = tmp_path / "other"
    other.write_bytes(b"x")
    os.replace(other, path)
    opened.check_unmodified()
    assert bytes(opened.buffer()) == TWO.bytes()


def test_a_number_is_never_trusted_again_from_the_map(tmp_path: Path) -> None:
    path = put(tmp_path, TWO.bytes())
    opened = _cpp.open(path, "mmap")
    with open(path, "r+b") as file:
        file.seek(160)
        file.write(struct.pack(HOST + "Q", 2**40))  # the shape of a
        file.seek(178)
        file.write(b"\xff")  # the name of b
        file.seek(64)
        file.write(struct.pack(HOST + "QIIQQQQ", *[0xFFFF_FFFF] * 7))  # the record of a
    for call in (opened.arrays, opened.records, lambda: opened.record(0), opened.names):
        with pytest.raises(WeigError) as caught:
            call()
        assert caught.value.code == "MODIFIED"


@pytest.mark.parametrize("mode", ["mmap", "read"])
@pytest.mark.parametrize("wait", [True, False])
def test_prefetch(tmp_path: Path, mode: str, wait: bool) -> None:
    opened = _cpp.open(put(tmp_path, TWO.bytes()), mode)
    opened.prefetch(wait)
    assert bytes(opened.buffer()) == TWO.bytes()


def test_prefetch_of_a_file_that_was_cut(tmp_path: Path) -> None:
    path = put(tmp_path, Made([(b"a", U8, (100_000,), bytes(100_000))]).bytes())
    opened = _cpp.open(path, "mmap")
    os.truncate(path, 5000)
    with pytest.raises(WeigError) as caught:
        opened.prefetch(True)
    assert caught.value.code == "TRUNCATED"


def test_what_is_no_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
    (tmp_path / "link").symlink_to(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path / "link", tmp_path / "socket", tmp_path, "/dev/null"):
        assert refusal(str(path)).code == "NOT_REGULAR_FILE"
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path in (tmp_path / "loop", tmp_path / "missing", "x\0y", "\ud800", "x" * 5000, ""):
        assert refusal(str(path)).code == "IO"


def test_a_path_that_is_not_utf8(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff\n.weig"
    with open(path, "wb") as file:
        file.write(TWO.bytes())
    assert names_of(os.fsdecode(path)) == ["a", "b"]
    os.remove(path)
    assert r"\xff\x0a" in refusal(os.fsdecode(path)).message


def test_no_descriptor_is_lost(tmp_path: Path) -> None:
    path, bad = put(tmp_path, TWO.bytes()), str(tmp_path / "bad")
    Path(bad).write_bytes(replace(TWO, meta={(0, 1): 99}).bytes())
    before = len(os.listdir("/proc/self/fd"))
    for mode in ("mmap", "read"):
        _cpp.open(path, mode).close()
        refusal(bad, mode)
    assert len(os.listdir("/proc/self/fd")) == before
    assert map_count(bad) == 0


def test_a_lying_count_takes_no_memory(tmp_path: Path) -> None:
    """A terabyte of hole whose table would fit: the first record is a bad one."""
    path = put(tmp_path, b"")
    size = 2**40
    data_at = size - 64
    with open(path, "r+b") as file:
        file.write(
            struct.pack(
                HOST + "IIQQQQQQQ",
                layout.MAGIC,
                1,
                (data_at - 64) // 48,
                64,
                data_at,
                size,
                0,
                0,
                0,
            )
        )
        file.seek(size - 8)
        file.write(struct.pack(HOST + "Q", layout.SENTINEL))
    assert refusal(path).code == "BAD_NAME"


def test_import_takes_no_numpy() -> None:
    code = "import sys, weig.backends.cpp.loader as m; assert m.available(); print('numpy' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


def test_numpy_gets_all_facts(tmp_path: Path) -> None:
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    opened = _cpp.open(
        put(tmp_path, Made([(b"a", F32, (2, 3, 4), values.tobytes())]).bytes()), "mmap"
    )
    array = opened.arrays()["a"]
    np.testing.assert_array_equal(array, values)
    assert array.strides == values.strides


# ---- Without Python ------------------------------------------------------------------------------

PROGRAM = r"""
// Prints what a file says. FAULT in the environment makes the system less kind.
#include "weig.hpp"
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>

static const std::string fault = std::getenv("FAULT") ? std::getenv("FAULT") : "";
static const char *path;

extern "C" ssize_t pread64(int fd, void *to, size_t size, off64_t at) {
    static bool interrupted;
    if (fault == "cut" && truncate(path, 100) != 0)
        std::abort();
    if (fault == "eio")
        return errno = EIO, -1;
    if (fault == "short") {
        if ((interrupted = !interrupted))
            return errno = EINTR, -1;
        size = size < 3 ? size : 3;
    }
    return syscall(SYS_pread64, fd, to, size, at);
}

int main(int, char **arguments) try {
    path = arguments[1];
    const weig::File file =
        weig::File::open(path, std::strcmp(arguments[2], "read") ? weig::Mode::mmap : weig::Mode::read);
    for (std::size_t i = 0; i < file.count(); ++i) {
        const weig::Tensor tensor = file.tensor(i);
        std::printf("%.*s %s", int(tensor.name.size()), tensor.name.data(),
                    std::string(weig::info(tensor.dtype).name).c_str());
        for (const std::uint64_t dimension : tensor.shape.dimensions())
            std::printf(" %llu", static_cast<unsigned long long>(dimension));
        std::printf("\n");
    }
    for (const float x : file.elements<float>(*file.find("a")))
        std::printf("%g\n", static_cast<double>(x));
    file.elements<float>(*file.find("b"));
} catch (const weig::Error &error) {
    std::printf("%s\n", std::string(to_string(error.code())).c_str());
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> Path:
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None or not sys.platform.startswith("linux") or sys.maxsize < 2**32:
        pytest.skip("needs a C++ compiler and a 64-bit Linux")
    folder = tmp_path_factory.mktemp("program")
    (folder / "main.cpp").write_text(PROGRAM)
    sources = [
        checkout / f"backends/cpp/{s}.cpp" for s in ("loader", "validate", "verify", "byteswap")
    ]
    flags = ["-std=c++20", "-O0", "-D_FILE_OFFSET_BITS=64", f"-I{checkout / 'backends/cpp'}"]
    subprocess.run(
        [compiler, *flags, "main.cpp", *sources, "-o", "program"], cwd=folder, check=True
    )
    return folder / "program"


def run_program(program: Path, path: str, mode: str, fault: str = "") -> list[str]:
    run = subprocess.run(
        [program, path, mode], env={"FAULT": fault}, capture_output=True, text=True, check=True
    )
    return run.stdout.splitlines()


@pytest.mark.parametrize("mode", ["mmap", "read"])
def test_the_library_alone(tmp_path: Path, program: Path, mode: str) -> None:
    made = replace(
        TWO, records=[(b"a", F32, (2,), struct.pack(HOST + "2f", 1.5, -2)), TWO.records[1]]
    )
    path = put(tmp_path, made.bytes())
    expected = ["a F32 2", "b U8 3", "1.5", "-2", "UNSUPPORTED"]  # b is not float
    assert run_program(program, path, mode) == expected
    assert run_program(program, path, mode, "short") == expected
    assert run_program(program, path, mode, "eio") == ["IO"]
    assert run_program(program, path, mode, "cut") == ["TRUNCATED"]
    other = replace(made, order=">" if HOST == "<" else "<")
    assert run_program(program, put(tmp_path, other.bytes()), mode)[2:] == ["UNSUPPORTED"]
