"""The C library through its binding, over files that are laid out here by hand with struct."""

from __future__ import annotations

import gc
import os
import random
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path

import pytest

from weig.backends.c.loader import available
from weig.spec import errors, foreign, layout
from weig.spec.dtypes import DTYPES

if not available():
    pytest.skip("the C library is not built", allow_module_level=True)

from weig.backends._c import ffi, lib
from weig.backends.c.opened import OpenedC

MODES = ("mmap", "read")
ORDERS = ("<", ">")
F32, U8, BOOL = 0, 4, 12
MAX = 2**53 - 1


class Record:
    """A tensor to build; ``data`` is its offset in the data region where the next free is not."""

    def __init__(
        self, name: bytes, shape: tuple[int, ...] = (4,), dtype: int = U8, data: int | None = None
    ) -> None:
        self.name = name
        self.shape = shape
        self.dtype = dtype
        self.data_offset = data


def build(records: list[Record], order: str = "<", room: int = 0) -> bytearray:
    """A legal file: meta at 64, then shapes, then names, then tensors of bytes 1, 1, 1...

    A record without a data offset takes the next multiple of 64. ``room`` more bytes are data.
    """
    table = 64 + 48 * len(records)
    shapes = b"".join(struct.pack(f"{order}{len(r.shape)}Q", *r.shape) for r in records)
    names = b"".join(r.name + b"\0" for r in records)
    data_offset = -(-(table + len(shapes) + len(names)) // 64) * 64
    name_at, shape_at, data_at = table + len(shapes), table, data_offset
    rows: list[bytes] = []
    spans: set[tuple[int, int]] = set()
    for r in records:
        size = DTYPES[r.dtype].size
        for dimension in r.shape:
            size *= dimension
        at = data_at if r.data_offset is None else data_offset + r.data_offset
        numbers = (name_at, r.dtype, 0, shape_at, len(r.shape), at, size)
        rows.append(struct.pack(f"{order}QIIQQQQ", *numbers))
        name_at += len(r.name) + 1
        shape_at += 8 * len(r.shape)
        spans.add((at, size))
        data_at = max(data_at, -(-(at + size) // 64) * 64)
    end = data_at + room
    file = bytearray(end + 8)
    file[64:table] = b"".join(rows)
    file[table : table + len(shapes)] = shapes
    file[table + len(shapes) : table + len(shapes) + len(names)] = names
    for at, size in spans:
        file[at : at + size] = b"\1" * size
    struct.pack_into(f"{order}Q", file, end, layout.SENTINEL)
    struct.pack_into(
        f"{order}IIQQQQQQQ",
        file,
        0,
        layout.MAGIC,
        1,
        len(records),
        64,
        data_offset,
        end + 8,
        0,
        0,
        0,
    )
    return file


Opener = Callable[..., OpenedC]


@pytest.fixture
def opener(tmp_path: Path) -> Opener:
    path = tmp_path / "file.weig"

    def open_bytes(content: bytes | bytearray, mode: str = "mmap") -> OpenedC:
        path.unlink(missing_ok=True)  # who still has the last one mapped keeps it
        path.write_bytes(content)
        return OpenedC(str(path), mode)  # type: ignore[arg-type]

    return open_bytes


def refusal(opener: Opener, content: bytes | bytearray, mode: str = "mmap") -> errors.WeigError:
    with pytest.raises(errors.WeigError) as caught:
        opener(content, mode)
    return caught.value


# --- the tables that C repeats ---


def test_codes_are_those_of_the_spec() -> None:
    enumerators = ffi.typeof("weig_code").relements
    names = {ffi.string(lib.weig_code_name(value)).decode() for value in enumerators.values()}
    assert {f"WEIG_{name}" for name in names} == set(enumerators)
    assert names == {*errors.CODES, "OK", "STOPPED"}


def test_dtypes_are_those_of_the_spec() -> None:
    for dtype in DTYPES:
        row = lib.weig_dtype_of(dtype.code)
        assert (ffi.string(row.name).decode(), row.size, row.unit) == (
            dtype.name,
            dtype.size,
            dtype.unit,
        )
    assert lib.weig_dtype_of(len(DTYPES)) == ffi.NULL
    assert lib.weig_dtype_of(2**32 - 1) == ffi.NULL


def test_limits_are_those_of_the_spec() -> None:
    assert lib.WEIG_MAX_RANK == layout.MAX_RANK
    assert lib.WEIG_MAX_NAME == layout.MAX_NAME_BYTES


@pytest.mark.parametrize(("offset", "start", "kind"), foreign.SIGNATURES)
def test_files_of_other_kinds_are_named(
    opener: Opener, offset: int, start: bytes, kind: str
) -> None:
    error = refusal(opener, (b"\x07" * offset + start).ljust(200, b"\x07"))
    assert error.code == "BAD_MAGIC"
    assert kind in error.message


# --- files that are right ---

# SPEC.md, section 19.
EXAMPLE = {
    "<": """
        4749455701000000 0200000000000000 4000000000000000 c000000000000000
        1001000000000000 0000000000000000 0000000000000000 0000000000000000
        b000000000000000 0200000000000000 a000000000000000 0100000000000000
        c000000000000000 0600000000000000 b200000000000000 0000000000000000
        a800000000000000 0100000000000000 0001000000000000 0800000000000000
        0300000000000000 0200000000000000 6200770000000000 0000000000000000
        803f004080bf0000 0000000000000000 0000000000000000 0000000000000000
        0000000000000000 0000000000000000 0000000000000000 0000000000000000
        0000803f000000c0 21444e4547494557""",
    ">": """
        5745494700000001 0000000000000002 0000000000000040 00000000000000c0
        0000000000000110 0000000000000000 0000000000000000 0000000000000000
        00000000000000b0 0000000200000000 00000000000000a0 0000000000000001
        00000000000000c0 0000000000000006 00000000000000b2 0000000000000000
        00000000000000a8 0000000000000001 0000000000000100 0000000000000008
        0000000000000003 0000000000000002 6200770000000000 0000000000000000
        3f804000bf800000 0000000000000000 0000000000000000 0000000000000000
        0000000000000000 0000000000000000 0000000000000000 0000000000000000
        3f800000c0000000 57454947454e4421""",
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("order", ORDERS)
def test_the_example_of_the_spec(opener: Opener, order: str, mode: str) -> None:
    content = bytes.fromhex(EXAMPLE[order])
    file = opener(content, mode)
    assert (file.count, file.file_size) == (2, 272)
    assert file.byte_order == {"<": "little", ">": "big"}[order]
    assert file.buffer() == content
    assert file.buffer().readonly
    assert file.names() == ["b", "w"]
    assert file.records() == [("b", 2, (3,), 192, 6), ("w", 0, (2,), 256, 8)]
    assert [file.record(i) for i in range(2)] == file.records()
    assert [file.index(name) for name in ("b", "w", "", "a", "bb", "x", "\udc80")] == [
        0, 1, -1, -1, -1, -1, -1,
    ]  # fmt: skip
    file.verify(None)
    file.check_unmodified()
    file.prefetch(wait=False)
    file.prefetch(wait=True)
    arrays = file.arrays()
    assert {name: array.astype("f8").tolist() for name, array in arrays.items()} == {
        "b": [1.0, 2.0, -1.0],
        "w": [1.0, -2.0],
    }
    assert not any(array.flags.writeable for array in arrays.values())


@pytest.mark.parametrize("mode", MODES)
def test_a_file_without_tensors(opener: Opener, mode: str) -> None:
    smallest = struct.pack("<IIQQQQQQQ", layout.MAGIC, 1, 0, 64, 64, 72, 0, 0, 0)
    file = opener(smallest + struct.pack("<Q", layout.SENTINEL), mode)
    assert (file.names(), file.records(), file.arrays(), file.index("a")) == ([], [], {}, -1)
    file.verify(None)
    file.prefetch(wait=True)


def test_may_ignore_flags_are_ignored(opener: Opener) -> None:
    content = build([Record(b"a")])
    struct.pack_into("<Q", content, 40, 0xFFFFFFFF_00000000)
    assert opener(content).names() == ["a"]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("shift", range(8))
def test_a_shape_array_may_have_any_alignment(opener: Opener, order: str, shift: int) -> None:
    name = b"n" * shift + b"\0" + b"s" * 40
    content = build([Record(b"x" * 70, (2, 3, 4))], order)
    aux = 64 + 48
    content[aux : aux + 94] = bytes(94)
    struct.pack_into(f"{order}3Q", content, aux + shift, 2, 3, 4)
    content[aux + 40 : aux + 40 + len(name)] = name
    struct.pack_into(f"{order}Q", content, 64, aux + 40 + shift + 1)
    struct.pack_into(f"{order}Q", content, 64 + 16, aux + shift)
    assert opener(content).record(0)[:3] == ("s" * 40, U8, (2, 3, 4))


def test_names_and_shapes_may_share_storage(opener: Opener) -> None:
    content = build([Record(b"abc"), Record(b"xx")])
    names = 64 + 2 * 48 + 2 * 8
    struct.pack_into("<Q", content, 64 + 48, names + 1)  # "bc", the tail of "abc"
    struct.pack_into("<Q", content, 64 + 48 + 16, 64 + 2 * 48)
    file = opener(content)
    assert file.names() == ["abc", "bc"]
    assert [record[2] for record in file.records()] == [(4,), (4,)]


# --- one broken rule a file ---

BASE = [Record(b"a", (2, 3), F32), Record(b"b", (5,))]
DATA, END = 192, 320  # the data region of BASE; its table ends at 160, its names stand at 184
META = (64, 112)
H = 2**53  # the first number that is too large

# what is set (offset, format, value), code, rule, field
BROKEN = [
    (0, "I", 0x57454948, "BAD_MAGIC", "HDR-2", "header.magic"),
    (4, "I", 0, "BAD_VERSION", "HDR-3", "header.version"),
    (4, "I", 2, "BAD_VERSION", "HDR-3", "header.version"),
    (4, "I", 1 << 24, "BAD_VERSION", "HDR-3", "header.version"),
    (8, "Q", H, "NUMBER_TOO_LARGE", "NUM-2", "header.tensor_count"),
    (16, "Q", H, "NUMBER_TOO_LARGE", "NUM-2", "header.meta_offset"),
    (24, "Q", H, "NUMBER_TOO_LARGE", "NUM-2", "header.data_offset"),
    (32, "Q", H, "NUMBER_TOO_LARGE", "NUM-2", "header.file_size"),
    (32, "Q", END + 9, "BAD_FILE_SIZE", "HDR-4", "header.file_size"),
    (32, "Q", 64, "BAD_FILE_SIZE", "HDR-4", "header.file_size"),
    (32, "Q", MAX - 7, "TRUNCATED", "HDR-5", "header.file_size"),
    (32, "Q", END + 16, "TRUNCATED", "HDR-5", "header.file_size"),
    (32, "Q", END, "TRAILING_DATA", "HDR-6", "header.file_size"),
    (40, "Q", 1, "UNKNOWN_FLAG", "HDR-7", "header.flags"),
    (40, "Q", 1 << 31, "UNKNOWN_FLAG", "HDR-7", "header.flags"),
    (48, "Q", 1 << 63, "BAD_RESERVED", "HDR-8", "header.reserved[0]"),
    (56, "Q", 1, "BAD_RESERVED", "HDR-8", "header.reserved[1]"),
    (16, "Q", 56, "BAD_META_TABLE", "META-1", "header.meta_offset"),
    (16, "Q", 68, "BAD_META_TABLE", "META-2", "header.meta_offset"),
    (16, "Q", DATA + 8, "BAD_META_TABLE", "META-3", "header.meta_offset"),
    (8, "Q", 3, "BAD_META_TABLE", "META-3", "header.tensor_count"),
    (8, "Q", MAX, "BAD_META_TABLE", "META-3", "header.tensor_count"),
    (8, "Q", 2**53 // 48 + 1, "BAD_META_TABLE", "META-3", "header.tensor_count"),
    (24, "Q", DATA - 32, "MISALIGNED", "REGION-1", "header.data_offset"),
    (24, "Q", END + 64, "BAD_DATA_REGION", "REGION-2", "header.data_offset"),
    (24, "Q", MAX - 63, "BAD_DATA_REGION", "REGION-2", "header.data_offset"),
    (META[1], "Q", H, "NUMBER_TOO_LARGE", "NUM-2", "meta[1].name_offset"),
    (META[1] + 16, "Q", H, "NUMBER_TOO_LARGE", "NUM-2", "meta[1].shape_offset"),
    (META[1] + 24, "Q", 2**63, "NUMBER_TOO_LARGE", "NUM-2", "meta[1].shape_count"),
    (META[1] + 32, "Q", 2**64 - 64, "NUMBER_TOO_LARGE", "NUM-2", "meta[1].data_offset"),
    (META[1] + 40, "Q", 2**64 - 1, "NUMBER_TOO_LARGE", "NUM-2", "meta[1].data_size"),
    (META[0] + 12, "I", 1, "BAD_RESERVED", "META-4", "meta[0].pad"),
    (META[1], "Q", 159, "BAD_NAME", "NAME-1", "meta[1].name_offset"),
    (META[1], "Q", DATA, "BAD_NAME", "NAME-1", "meta[1].name_offset"),
    (META[1], "Q", MAX, "BAD_NAME", "NAME-1", "meta[1].name_offset"),
    (META[1], "Q", 185, "BAD_NAME", "NAME-3", "meta[1].name_offset"),
    (META[1], "Q", 184, "DUPLICATE_NAME", "NAME-6", "meta[1].name_offset"),
    (META[1] + 8, "I", 19, "BAD_DTYPE", "DTYPE-1", "meta[1].dtype"),
    (META[1] + 8, "I", 2**32 - 1, "BAD_DTYPE", "DTYPE-1", "meta[1].dtype"),
    (META[1] + 24, "Q", 65, "BAD_SHAPE", "SHAPE-1", "meta[1].shape_count"),
    (META[1] + 24, "Q", MAX, "BAD_SHAPE", "SHAPE-1", "meta[1].shape_count"),
    (META[1] + 16, "Q", 159, "BAD_SHAPE", "SHAPE-2", "meta[1].shape_offset"),
    (META[1] + 16, "Q", DATA - 7, "BAD_SHAPE", "SHAPE-2", "meta[1].shape_offset"),
    (META[1] + 16, "Q", MAX, "BAD_SHAPE", "SHAPE-2", "meta[1].shape_offset"),
    (176, "Q", H, "NUMBER_TOO_LARGE", "NUM-2", "meta[1].shape"),
    (160, "Q", 2**51 // 3 + 1, "BAD_SHAPE", "SHAPE-4", "meta[0].shape"),
    (160, "Q", MAX, "BAD_SHAPE", "SHAPE-4", "meta[0].shape"),
    (176, "Q", 0, "BAD_DATA_SIZE", "SHAPE-5", "meta[1].data_size"),
    (176, "Q", 6, "BAD_DATA_SIZE", "SHAPE-5", "meta[1].data_size"),
    (META[1] + 40, "Q", 4, "BAD_DATA_SIZE", "SHAPE-5", "meta[1].data_size"),
    (META[1] + 24, "Q", 0, "BAD_DATA_SIZE", "SHAPE-5", "meta[1].data_size"),
    (META[1] + 32, "Q", DATA + 72, "MISALIGNED", "DATA-1", "meta[1].data_offset"),
    (META[1] + 32, "Q", DATA - 64, "BAD_DATA_RANGE", "DATA-2", "meta[1].data_offset"),
    (META[1] + 32, "Q", 0, "BAD_DATA_RANGE", "DATA-2", "meta[1].data_offset"),
    (META[1] + 32, "Q", END, "BAD_DATA_RANGE", "DATA-3", "meta[1].data_size"),
    (META[1] + 32, "Q", END + 64, "BAD_DATA_RANGE", "DATA-3", "meta[1].data_offset"),
    (META[1] + 32, "Q", MAX - 63, "BAD_DATA_RANGE", "DATA-3", "meta[1].data_offset"),
    (META[1] + 32, "Q", DATA, "OVERLAP", "DATA-4", "meta[1].data_offset"),
    (END, "Q", 0, "BAD_SENTINEL", "TAIL-1", "sentinel"),
    (END, "Q", 0x21444E4547494557, "BAD_SENTINEL", "TAIL-1", "sentinel"),
]  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("offset", "form", "value", "code", "rule", "field"), BROKEN)
def test_a_broken_rule_is_told(
    opener: Opener, mode: str, order: str, offset: int, form: str, value: int, code: str,
    rule: str, field: str,
) -> None:  # fmt: skip
    content = build(BASE, order)
    assert len(content) == END + 8
    assert opener(content, mode).names() == ["a", "b"]
    struct.pack_into(order + form, content, offset, value)
    error = refusal(opener, content, mode)
    assert (error.code, error.rule, error.field) == (code, rule, field)
    assert error.message.isascii()
    assert error.message.isprintable()


def test_the_data_region_does_not_reach_into_the_sentinel(opener: Opener) -> None:
    content = build(BASE, room=56)
    assert len(content) % 64 == 0
    struct.pack_into("<Q", content, 24, len(content))
    error = refusal(opener, content)
    assert (error.code, error.rule) == ("BAD_DATA_REGION", "REGION-2")


@pytest.mark.parametrize("mode", MODES)
def test_every_cut_is_refused(opener: Opener, mode: str) -> None:
    content = build(BASE)
    for size in range(len(content)):
        expected = "TOO_SMALL" if size < 72 else "TRUNCATED"
        assert refusal(opener, content[:size], mode).code == expected
    assert refusal(opener, content + b"\0", mode).code == "TRAILING_DATA"


# --- names ---


def is_name(raw: bytes) -> bool:
    """NAME-3 to NAME-5, with Python's own strict UTF-8."""
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return 1 <= len(raw) <= 1023 and all(byte >= 0x20 and byte != 0x7F for byte in raw)


def name_candidates() -> Iterator[bytes]:
    edges = (0x01, 0x1F, 0x20, 0x41, 0x7E, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF)
    for byte in range(1, 256):
        yield bytes([byte])
        yield b"abcdefg" + bytes([byte])  # at the end of a word of eight
        yield b"abcdefgh" + bytes([byte]) + b"tail"
    for lead in range(0xC0, 0x100):
        for second in edges:
            yield bytes([lead, second])
            yield bytes([lead, second, 0x80])
            yield bytes([lead, second, 0xBF, 0x80]) + b"-"
    for place in range(2, 4):
        for byte in edges:
            sequence = bytearray(b"\xf1\x80\x80\x80")
            sequence[place] = byte
            yield bytes(sequence)
    for size in (1, 7, 8, 9, 1015, 1022, 1023, 1024, 1025, 1100):
        yield b"n" * size
        yield b"n" * (size - 1) + b"\xc3\xa9"
    yield "имя.重み.🏋".encode()


def test_names_are_strict_utf8_without_control_bytes(opener: Opener) -> None:
    accepted = refused = 0
    for raw in name_candidates():
        content = build([Record(raw)])
        if is_name(raw):
            file = opener(content)
            assert file.names() == [raw.decode()]
            assert file.record(0)[0] == raw.decode()
            assert file.index(raw.decode()) == 0
            accepted += 1
        else:
            assert refusal(opener, content).code == "BAD_NAME", raw
            refused += 1
    assert accepted > 500
    assert refused > 1000


@pytest.mark.parametrize(
    ("raw", "rule"),
    [
        (b"", "NAME-3"),
        (b"n" * 1024, "NAME-3"),
        (b"abc\xff", "NAME-4"),
        (b"abc\x1f", "NAME-5"),
        (b"abc\x7f", "NAME-5"),
    ],
)
def test_a_refused_name_tells_its_rule(opener: Opener, raw: bytes, rule: str) -> None:
    error = refusal(opener, build([Record(raw)]))
    assert (error.code, error.rule, error.field) == ("BAD_NAME", rule, "meta[0].name_offset")


@pytest.mark.parametrize("tail", [b"", b"n" * 7, b"\xf0\x9f\x8f\x8b", b"\xf0\x9f\x8f", b"\xc3"])
def test_a_name_must_end_inside_the_aux_area(opener: Opener, tail: bytes) -> None:
    """The data that follow would be a good continuation: a NUL there is too late."""
    content = build([Record(b"x" * 60)])
    data = struct.unpack_from("<Q", content, 24)[0]
    struct.pack_into("<Q", content, 64, data - 20)
    content[data - 20 : data] = (b"n" * 20 + tail)[-20:]
    content[data : data + 4] = b"\xbf\0\0\0"
    error = refusal(opener, content)
    assert error.code == "BAD_NAME"
    assert error.rule in ("NAME-2", "NAME-4")


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 300, 5000])
@pytest.mark.parametrize("shuffled", [False, True])
def test_every_name_is_found(opener: Opener, count: int, shuffled: bool) -> None:
    names = sorted({f"layer.{i}.{'w' * (i % 40)}" for i in range(count)}, key=str.encode)
    if shuffled:
        random.Random(1).shuffle(names)
    file = opener(build([Record(name.encode(), ()) for name in names]))
    assert file.names() == names
    assert [file.index(name) for name in names] == list(range(count))
    for name in names[:50]:
        for other in (name + "w", name[:-1], name + "\0", "é" + name, name * 200, "w" * 1023):
            assert file.index(other) == -1


@pytest.mark.parametrize("count", [2, 3, 8, 9, 10, 40, 1000])
@pytest.mark.parametrize("shuffled", [False, True])
def test_equal_names_are_found(opener: Opener, count: int, shuffled: bool) -> None:
    generator = random.Random(count)
    for _ in range(20):
        names = [f"n{i:04}" for i in range(count)]
        if shuffled:
            generator.shuffle(names)
        first, second = sorted(generator.sample(range(count), 2))
        names[second] = names[first]
        error = refusal(opener, build([Record(name.encode(), ()) for name in names]))
        assert (error.code, error.rule) == ("DUPLICATE_NAME", "NAME-6")
        assert {f"meta[{second}].name_offset", f"meta[{first}]"} <= set(
            error.message.replace(":", "").split()
        )


def test_what_a_name_holds_is_escaped(opener: Opener) -> None:
    error = refusal(opener, build([Record("\u202e\\é".encode()), Record("\u202e\\é".encode())]))
    assert r'"\xe2\x80\xae\x5c\xc3\xa9"' in error.message


def test_equal_long_names_fit_the_message(opener: Opener) -> None:
    error = refusal(opener, build([Record("é".encode() * 500)] * 2))
    assert error.code == "DUPLICATE_NAME"
    assert '..." is the name of meta[0] too' in error.message


# --- shapes ---

SHAPES = [
    ((), True),
    ((1,) * 64, True),
    ((0,), True),
    ((4, 0), True),
    ((0, MAX), True),
    ((MAX, 0), True),
    ((MAX, 1, 0, 1), True),
    ((2**26, 2**26, 0), True),
    ((2**26, 0, 2**27), False),  # 2^53
    ((0, 2**27, 2**26), False),
    ((2**32, 2**32, 0), False),  # 2^64: zero, where it wraps
    ((0, 2**32, 2**32), False),
    ((MAX, MAX, 0), False),
    ((0, MAX, MAX), False),
    ((2**63, 2, 0), False),  # NUM-2
    ((0, 2**53), False),
    ((2**64 - 1, 0), False),
    ((2**22,) * 2 + (0,) + (2**22,) * 62, None),
]


@pytest.mark.parametrize(("shape", "legal"), SHAPES)
def test_the_product_is_that_of_the_other_dimensions(
    opener: Opener, shape: tuple[int, ...], legal: bool | None
) -> None:
    content = build([Record(b"a", shape)])
    if legal:
        assert opener(content).record(0)[2] == shape
    else:
        code = "NUMBER_TOO_LARGE" if max(shape) > MAX else "BAD_SHAPE"
        assert refusal(opener, content).code == code


@pytest.mark.parametrize("dtype", [dtype.code for dtype in DTYPES])
@pytest.mark.parametrize("order", ORDERS)
def test_the_element_counts_in_the_product(opener: Opener, dtype: int, order: str) -> None:
    size = DTYPES[dtype].size
    most = MAX // size
    assert opener(build([Record(b"a", (most, 0), dtype)], order)).record(0)[2] == (most, 0)
    error = refusal(opener, build([Record(b"a", (most + 1, 0), dtype)], order))
    assert error.code in ("BAD_SHAPE", "NUMBER_TOO_LARGE")
    assert opener(build([Record(b"a", (3,), dtype)], order)).record(0)[4] == 3 * size


# --- data ---


def overlap(a: tuple[int, int, int], b: tuple[int, int, int]) -> bool:
    """DATA-4, word for word: (offset, size, dtype) each."""
    shared = a[0] < b[0] + b[1] and b[0] < a[0] + a[1]
    return a[1] > 0 and b[1] > 0 and shared and a != b


def test_overlaps_are_found_in_any_order(opener: Opener) -> None:
    generator = random.Random(4)
    verdicts = set()
    for _ in range(1500):
        spans = [
            (64 * generator.randrange(12), generator.choice((0, 1, 64, 65, 128)), U8 + i % 2 * 8)
            for i in range(generator.randrange(2, 6))
        ]
        if generator.random() < 0.5:
            spans.append(generator.choice(spans))
        if generator.random() < 0.5:
            spans.sort()
        records = [
            Record(b"%d" % i, (size,), dtype, data=offset)
            for i, (offset, size, dtype) in enumerate(spans)
        ]
        legal = not any(overlap(a, b) for a, b in combinations(spans, 2))
        content = build(records, room=1024)
        if legal:
            assert [record[4] for record in opener(content).records()] == [s[1] for s in spans]
        else:
            error = refusal(opener, content)
            assert (error.code, error.rule) == ("OVERLAP", "DATA-4"), spans
        verdicts.add(legal)
    assert verdicts == {True, False}


@pytest.mark.parametrize("unit", [1, 2, 4, 8])
def test_swapped_reverses_every_unit(opener: Opener, unit: int) -> None:
    generator = random.Random(unit)
    data = generator.randbytes(
        2 * 2**20 + 40
    )  # past the size from which stores go around the cache
    content = build([Record(b"a", (len(data),))])
    start = struct.unpack_from("<Q", content, 24)[0]
    content[start : start + len(data)] = data
    file = opener(content)
    for size in (0, 8, 24, 120, 128, 136, 4096, 300_000, 2**21 + 40):
        for skip in (0, 3, 64):
            if skip + size > len(data):
                continue
            piece = data[skip : skip + size]
            expected = bytearray(size)
            for byte in range(unit):
                expected[byte::unit] = piece[unit - 1 - byte :: unit]
            view = file.swapped(start + skip, size, unit)
            assert view.readonly
            assert view == expected


def test_swapped_refuses_what_cannot_be(opener: Opener) -> None:
    file = opener(build([Record(b"a", (64,))]))
    for offset, size, unit, code in (
        (0, 64, 3, "UNSUPPORTED"),
        (0, 64, 16, "UNSUPPORTED"),
        (0, 7, 2, "UNSUPPORTED"),
        (0, file.file_size + 8, 8, "BAD_DATA_RANGE"),
        (file.file_size + 1, 0, 1, "BAD_DATA_RANGE"),
        (2**64 - 8, 16, 8, "BAD_DATA_RANGE"),
    ):
        with pytest.raises(errors.WeigError) as caught:
            file.swapped(offset, size, unit)
        assert caught.value.code == code


@pytest.mark.parametrize("mode", MODES)
def test_both_byte_orders_give_the_same_arrays(opener: Opener, mode: str) -> None:
    np = pytest.importorskip("numpy")
    pytest.importorskip("ml_dtypes")
    records = [Record(dtype.name.encode(), (3, 5), dtype.code) for dtype in DTYPES]
    records += [Record(b"alias", (15,), F32, data=0), Record(b"empty", (2, 0), F32)]
    twins = {}
    for order in ORDERS:
        content = build(records, order)
        for name, code, _, offset, size in opener(content, mode).records():
            unit = DTYPES[code].unit
            values = bytes((7 * i + code) % 2 if code == BOOL else (7 * i + code) % 251
                           for i in range(size))  # fmt: skip
            if order == ">":
                values = b"".join(values[i : i + unit][::-1] for i in range(0, size, unit))
            if name != "alias":
                content[offset : offset + size] = values
        twins[order] = opener(content, mode).arrays()
    assert twins["<"].keys() == twins[">"].keys()
    for name, little in twins["<"].items():
        big = twins[">"][name]
        assert (little.shape, little.dtype) == (big.shape, big.dtype)
        assert little.tobytes() == big.tobytes()
        assert little.dtype.isnative
        assert not big.flags.writeable
    assert np.array_equal(twins[">"]["alias"], twins[">"]["F32"].reshape(-1), equal_nan=True)


# --- deep verification ---


def test_every_byte_of_padding_is_looked_at(opener: Opener) -> None:
    clean = build(
        [Record(b"bb", (3,)), Record(b"a", (2, 2), F32), Record(b"t", (5,), BOOL)], room=24
    )
    opener(clean).verify(None)
    records = opener(clean).records()
    owned = set(range(64 + 3 * 48 + 8 * 4 + 7)) | set(range(len(clean) - 8, len(clean)))
    for _, _, _, offset, size in records:
        owned |= set(range(offset, offset + size))
    padding = set(range(len(clean))) - owned
    assert len(padding) > 100
    for byte in padding:
        content = bytearray(clean)
        content[byte] = 0x80
        with pytest.raises(errors.WeigError) as caught:
            opener(content).verify(None)
        assert (caught.value.code, caught.value.rule) == ("NONZERO_PADDING", "PAD-1")
        assert caught.value.field == f"padding[{byte}]"


def test_the_gap_before_the_table_is_padding(opener: Opener) -> None:
    content = build([Record(b"a")])
    table = content[64 : 64 + 48]
    for filler, code in ((0, None), (1, "NONZERO_PADDING")):
        moved = bytearray(content[:64]) + bytes([filler] * 64) + table + content[112:]
        struct.pack_into("<3Q", moved, 16, 128, 192, len(moved))
        data = struct.unpack_from("<Q", content, 24)[0]
        struct.pack_into("<Q", moved, 24, data + 64)
        for field in (0, 16, 32):
            value = struct.unpack_from("<Q", moved, 128 + field)[0]
            struct.pack_into("<Q", moved, 128 + field, value + 64)
        file = opener(moved)
        if code is None:
            file.verify(None)
        else:
            with pytest.raises(errors.WeigError) as caught:
                file.verify(None)
            assert (caught.value.code, caught.value.field) == (code, "padding[64]")


@pytest.mark.parametrize("value", [2, 0x80, 0xFF])
@pytest.mark.parametrize("place", [0, 4095, 4096, 9999])
def test_a_bool_is_0_or_1(opener: Opener, value: int, place: int) -> None:
    content = build([Record(b"t", (10000,), BOOL)])
    content[opener(content).record(0)[3] + place] = value
    with pytest.raises(errors.WeigError) as caught:
        opener(content).verify(None)
    assert (caught.value.code, caught.value.rule) == ("BAD_BOOL", "BOOL-1")
    assert f"element {place} is {value}" in caught.value.message


def test_progress_comes_and_can_stop_the_work(opener: Opener) -> None:
    file = opener(build([Record(b"t", (20 * 2**20,), BOOL)]))
    calls: list[tuple[int, int]] = []
    file.verify(lambda done, total: calls.append((done, total)))
    done = [call[0] for call in calls]
    assert len(done) >= 5
    assert done == sorted(set(done))
    assert calls[-1] == (file.file_size, file.file_size)

    def stop(done: int, total: int) -> None:
        calls.append((done, total))
        raise KeyboardInterrupt

    calls.clear()
    with pytest.raises(KeyboardInterrupt):
        file.verify(stop)
    assert len(calls) == 1


def test_aliases_cost_nothing(opener: Opener) -> None:
    """100,000 tied tensors of 1 MiB: looked at one by one, or swapped so, they are 100 GiB."""
    records = [Record(b"%06d" % i, (2**20,), BOOL, data=0) for i in range(100_000)]
    started = time.process_time()
    file = opener(build(records, ">"))
    built = time.process_time()
    file.verify(None)
    assert len(file.names()) == 100_000
    lib_memory = ffi.new("weig_memory **")
    assert lib.weig_swapped_data(file._file, lib_memory, ffi.NULL) == lib.WEIG_OK
    lib.weig_memory_release(lib_memory[0])
    assert time.process_time() - built < max(2.0, built - started)


# --- the life of the memory ---


def mapped(path: Path) -> bool:
    return str(path) in Path("/proc/self/maps").read_text()


def descriptors(path: Path) -> int:
    links = (Path("/proc/self/fd") / entry for entry in os.listdir("/proc/self/fd"))
    return sum(os.path.realpath(link) == str(path) for link in links)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_the_map_goes_with_the_last_view(opener: Opener, tmp_path: Path) -> None:
    content = build([Record(b"a", (1000,))])
    file = opener(content)
    path = tmp_path / "file.weig"
    assert mapped(path)
    view = file.buffer()[10:20]
    other = memoryview(file.buffer())
    file.close()
    assert descriptors(path) == 0
    del file
    gc.collect()
    assert view == content[10:20]
    assert mapped(path)
    del view
    assert other == content
    other.release()
    gc.collect()
    assert not mapped(path)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("order", ORDERS)
def test_arrays_outlive_the_file(opener: Opener, mode: str, order: str) -> None:
    pytest.importorskip("numpy")
    file = opener(build([Record(b"a", (100_000,), F32)], order), mode)
    array = file.arrays()["a"]
    view = file.swapped(0, 64, 4)
    first = bytes(view)
    total = array.view("u4").sum()
    file.close()
    del file
    gc.collect()
    assert array.view("u4").sum() == total == 0x01010101 * 100_000
    assert view == first


def test_views_may_die_in_a_cycle_of_garbage(opener: Opener, tmp_path: Path) -> None:
    for _ in range(50):
        view = opener(build([Record(b"a", (3,))])).buffer()
        cycle: dict[str, object] = {"view": view, "part": view[3:], "second": memoryview(view)}
        cycle["self"] = cycle
        del view, cycle
        gc.collect()
    assert not mapped(tmp_path / "file.weig")


@pytest.mark.parametrize("mode", MODES)
def test_nobody_gets_to_write(opener: Opener, mode: str) -> None:
    """Not even through what a memoryview was made from, where numpy looks."""
    np = pytest.importorskip("numpy")
    file = opener(build([Record(b"a", (3,))]), mode)
    view = file.buffer()
    with pytest.raises(TypeError):
        view[0] = 1
    assert memoryview(view.obj).readonly
    for array in (file.arrays()["a"], np.frombuffer(view, "u1"), np.ndarray((3,), "u1", view)):
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True


@pytest.mark.parametrize("mode", MODES)
def test_a_closed_file_says_so(opener: Opener, mode: str) -> None:
    file = opener(build([Record(b"a")]), mode)
    file.close()
    file.close()
    for use in (
        file.buffer, file.names, file.records, file.arrays, file.check_unmodified,
        lambda: file.index("a"), lambda: file.record(0), lambda: file.verify(None),
        lambda: file.prefetch(True), lambda: file.swapped(0, 8, 8),
    ):  # fmt: skip
        with pytest.raises(errors.WeigError) as caught:
            use()
        assert caught.value.code == "CLOSED"


def test_no_record_past_the_last(opener: Opener) -> None:
    with pytest.raises(errors.WeigError) as caught:
        opener(build([Record(b"a")])).record(1)
    assert caught.value.code == "NO_SUCH_TENSOR"


def test_a_copy_survives_the_end_of_the_file(opener: Opener, tmp_path: Path) -> None:
    content = build([Record(b"a", (5 * 2**20 + 77,))])
    file = opener(content, "read")
    os.truncate(tmp_path / "file.weig", 0)
    assert file.buffer() == content
    assert file.names() == ["a"]
    file.verify(None)
    file.prefetch(wait=True)
    with pytest.raises(errors.WeigError) as caught:
        file.check_unmodified()
    assert caught.value.code == "MODIFIED"


@pytest.mark.parametrize("mode", MODES)
def test_a_change_is_told(opener: Opener, tmp_path: Path, mode: str) -> None:
    path = tmp_path / "file.weig"
    file = opener(build([Record(b"a")]), mode)
    file.check_unmodified()
    path.rename(tmp_path / "other.weig")  # the file itself is what it was
    file.check_unmodified()
    status = os.stat(tmp_path / "other.weig")
    os.utime(tmp_path / "other.weig", ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    with pytest.raises(errors.WeigError) as caught:
        file.check_unmodified()
    assert (caught.value.code, caught.value.rule) == ("MODIFIED", "OPEN-10")


def test_a_map_that_changes_leads_nowhere(opener: Opener, tmp_path: Path) -> None:
    """Records are checked again when they are used: nothing outside the file is ever touched."""
    records = [Record(b"name%d" % (i * 7 % 10), (64,)) for i in range(10)]
    content = build(records)
    generator = random.Random(7)
    codes: set[str] = set()
    for _ in range(300):
        file = opener(content)
        with (tmp_path / "file.weig").open("r+b") as writer:
            writer.seek(64 + generator.randrange(600))
            writer.write(generator.randbytes(generator.choice((1, 8, 200))))
        for use in (file.names, file.records, lambda f=file: f.verify(None),
                    lambda f=file: [f.record(i) for i in range(10)]):  # fmt: skip
            try:
                use()
            except errors.WeigError as error:
                codes.add(error.code)
        assert -1 <= file.index("name3") < 10
    assert {"MODIFIED"} <= codes <= {"MODIFIED", "NONZERO_PADDING", "BAD_BOOL"}


# --- opening ---


@pytest.mark.parametrize("mode", MODES)
def test_only_regular_files_are_opened(tmp_path: Path, mode: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
    (tmp_path / "link").symlink_to("fifo")
    for path in (tmp_path, "/dev/null", tmp_path / "fifo", tmp_path / "socket", tmp_path / "link"):
        with pytest.raises(errors.WeigError) as caught:
            OpenedC(str(path), mode)  # type: ignore[arg-type]
        assert (caught.value.code, caught.value.rule) == ("NOT_REGULAR_FILE", "OPEN-1"), path


def test_what_the_system_refuses_is_io(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for path in ("missing", "loop", "n" * 300, "with\0nul", "not\udcff\x1butf8", ""):
        with pytest.raises(errors.WeigError) as caught:
            OpenedC(path and f"{tmp_path}/{path}", "mmap")
        assert caught.value.code == "IO"
        assert caught.value.message.isprintable()


@pytest.mark.parametrize("mode", MODES)
def test_a_path_need_not_be_utf8(tmp_path: Path, mode: str) -> None:
    raw = os.fsencode(tmp_path) + b"/\xff\xe9.weig"
    Path(os.fsdecode(raw)).write_bytes(build([Record(b"a")]))
    assert OpenedC(os.fsdecode(raw), mode).names() == ["a"]  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", MODES)
def test_a_refusal_leaves_nothing_open(opener: Opener, tmp_path: Path, mode: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for content in (b"", b"GGUF" * 30, build([Record(b"a")] * 2), build([Record(b"a")])[:-8]):
        refusal(opener, content, mode)
    assert len(os.listdir("/proc/self/fd")) == before
    assert not mapped(tmp_path / "file.weig")


def test_random_damage_never_leads_outside(opener: Opener) -> None:
    generator = random.Random(99)
    base = build([Record(b"b", (3, 2), F32), Record(b"a", (0, 9)), Record(b"c", (8,), BOOL)])
    verdicts = {True: 0, False: 0}
    codes: set[str] = set()
    for _ in range(3000):
        content = bytearray(base)
        for _ in range(generator.choice((1, 1, 2, 5))):
            place = generator.randrange(min(len(content), 330))
            content[place] = generator.choice((0, 1, 64, 128, 255, generator.randrange(256)))
        try:
            records = opener(content).records()
        except errors.WeigError as error:
            verdicts[False] += 1
            codes.add(error.code)
        else:
            for name, code, shape, offset, size in records:
                assert is_name(name.encode())
                assert len(shape) <= 64
                assert code < len(DTYPES)
                assert offset % 64 == 0
                assert 0 <= offset <= offset + size <= len(content) - 8
            verdicts[True] += 1
    assert min(verdicts.values()) > 100
    assert codes <= errors.CODES.keys()
    assert len(codes) > 10


# --- the library without Python ---

SOURCES = Path(__file__).parents[1] / "backends" / "c"
COMPILER = shutil.which("cc") or shutil.which("gcc")


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
@pytest.mark.parametrize("flags", [["-O2"], ["-O1", "-g", "-fsanitize=address,undefined"]])
def test_the_parts_in_c(tmp_path: Path, flags: list[str]) -> None:
    """tests/c/parts.c: the checked arithmetic, the swap and the memory, called directly."""
    program = tmp_path / "parts"
    source = Path(__file__).parent / "c" / "parts.c"
    strict = ["-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]
    sources = [str(path) for path in sorted(SOURCES.glob("*.c"))]
    built = subprocess.run(
        [str(COMPILER), *strict, *flags, f"-I{SOURCES}", str(source), *sources, "-o", str(program)],
        capture_output=True,
        text=True,
    )
    if "sanitize" in built.stderr and built.returncode:
        pytest.skip("the compiler has no sanitizers")
    assert built.returncode == 0, built.stderr
    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    result = subprocess.run([str(program)], capture_output=True, text=True, env=environment)
    assert (result.returncode, result.stderr) == (0, "")
