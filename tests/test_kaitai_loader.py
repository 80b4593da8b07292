"""The loader over the generated parser: one edit of the worked example in SPEC.md a rule.

What is right comes from SPEC.md: the example's bytes, the rules, the codes of section 14.
"""

from __future__ import annotations

import gc
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from weig.backends import loader as backend
from weig.backends.interface import Mode, Opened
from weig.spec.errors import CODES, WeigError
from weig.spec.layout import HEADER_FIELDS, RECORD_FIELDS, ByteOrder

pytest.importorskip("kaitaistruct", reason="the extra kaitai is not installed")

SPEC = Path(__file__).parents[1] / "spec" / "SPEC.md"
ORDERS: tuple[ByteOrder, ...] = ("little", "big")
MAX = 2**53 - 1


def examples() -> dict[ByteOrder, bytes]:
    """The worked example of SPEC.md, section 19."""
    blocks = re.findall(r"```hex\n(.*?)```", SPEC.read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 2
    found = [bytes.fromhex("".join(x[6:] for x in block.splitlines())) for block in blocks]
    return dict(zip(ORDERS, found, strict=True))


EXAMPLE = examples()
PLACES = {f"header.{name}": (at, size) for name, at, size in HEADER_FIELDS}
PLACES |= {
    f"meta[{i}].{name}": (64 + 48 * i + at, size)
    for i in (0, 1)
    for name, at, size in RECORD_FIELDS
}
PLACES |= {"shape 0": (160, 8), "shape 1": (168, 8), "sentinel": (264, 8)}
# Plain bytes, the same in both orders.
PLACES |= {"name 0": (176, 1), "aux from names": (176, 16)}
Edits = dict[str, int | bytes]


def edited(order: ByteOrder, edits: Edits) -> bytes:
    """The example with some fields changed."""
    data = bytearray(EXAMPLE[order])
    for place, value in edits.items():
        at, size = PLACES[place]
        data[at : at + size] = value if isinstance(value, bytes) else value.to_bytes(size, order)
    assert len(data) == 272
    return bytes(data)


def write(folder: Path, data: bytes) -> str:
    path = folder / "case.weig"
    path.write_bytes(data)
    return str(path)


def load(path: str, mode: Mode = "mmap") -> Opened:
    return backend("kaitai").open(path, mode)


@pytest.fixture(params=["mmap", "read"])
def mode(request: pytest.FixtureRequest) -> Mode:
    return request.param


@pytest.fixture(params=ORDERS)
def order(request: pytest.FixtureRequest) -> ByteOrder:
    return request.param


def test_worked_example(tmp_path: Path, order: ByteOrder, mode: Mode) -> None:
    opened = load(write(tmp_path, EXAMPLE[order]), mode)
    assert opened.byte_order == order
    assert (opened.count, opened.file_size) == (2, 272)
    assert opened.names() == ["b", "w"]
    assert opened.records() == [("b", 2, (3,), 192, 6), ("w", 0, (2,), 256, 8)]
    assert opened.record(1) == opened.records()[1]
    assert [opened.index(name) for name in ("b", "w", "x", "")] == [0, 1, -1, -1]
    arrays = opened.arrays()
    assert arrays["w"].tolist() == [1.0, -2.0]
    assert arrays["b"].astype("f4").tolist() == [1.0, 2.0, -1.0]
    assert not any(array.flags.writeable for array in arrays.values())
    assert bytes(opened.buffer()) == EXAMPLE[order]
    opened.verify(None)
    opened.check_unmodified()
    opened.prefetch(True)


# Rule, edits, the field that the error names (None: not looked at).
REJECT: list[tuple[str, Edits, str | None]] = [
    ("HDR-2", {"header.magic": 0x57454948}, "header.magic"),
    ("HDR-2", {"header.magic": 0}, "header.magic"),
    ("HDR-2", {"header.magic": b"GEIW"}, "header.magic"),
    ("HDR-3", {"header.version": 0}, "header.version"),
    ("HDR-3", {"header.version": 2}, "header.version"),
    ("HDR-4", {"header.file_size": 64}, "header.file_size"),
    ("HDR-4", {"header.file_size": 268}, "header.file_size"),
    ("HDR-5", {"header.file_size": 280}, "header.file_size"),
    ("HDR-5", {"header.file_size": MAX - 7}, "header.file_size"),
    ("HDR-6", {"header.file_size": 264}, "header.file_size"),
    ("HDR-7", {"header.flags": 1}, "header.flags"),
    ("HDR-7", {"header.flags": 2**63 + 2**31}, "header.flags"),
    ("HDR-8", {"header.reserved[0]": 1}, "header.reserved"),
    ("HDR-8", {"header.reserved[1]": 2**63}, "header.reserved"),
    ("META-1", {"header.meta_offset": 56}, "header.meta_offset"),
    ("META-1", {"header.meta_offset": 0}, "header.meta_offset"),
    ("META-2", {"header.meta_offset": 68}, "header.meta_offset"),
    ("META-3", {"header.meta_offset": 200}, "header.meta_offset"),
    ("META-3", {"header.tensor_count": 3}, "header.tensor_count"),
    ("META-3", {"header.tensor_count": MAX}, "header.tensor_count"),
    ("META-4", {"meta[1].pad": 1}, "meta[1].pad"),
    ("META-4", {"meta[0].pad": 2**31}, "meta[0].pad"),
    ("REGION-1", {"header.data_offset": 200}, "header.data_offset"),
    ("REGION-2", {"header.data_offset": 320}, "header.data_offset"),
    ("NAME-1", {"meta[0].name_offset": 159}, "meta[0].name_offset"),
    ("NAME-1", {"meta[1].name_offset": 192}, "meta[1].name_offset"),
    ("NAME-1", {"meta[1].name_offset": MAX}, "meta[1].name_offset"),
    ("NAME-2", {"aux from names": b"a" * 16}, "meta[0].name"),
    ("NAME-3", {"meta[1].name_offset": 180}, "meta[1].name"),
    ("NAME-4", {"name 0": b"\x80"}, "meta[0].name"),
    ("NAME-5", {"name 0": b"\n"}, "meta[0].name"),
    ("NAME-5", {"name 0": b"\x1f"}, "meta[0].name"),
    ("NAME-5", {"name 0": b"\x7f"}, "meta[0].name"),
    ("NAME-6", {"meta[1].name_offset": 176}, "meta[1].name"),
    ("DTYPE-1", {"meta[0].dtype": 19}, "meta[0].dtype"),
    ("DTYPE-1", {"meta[1].dtype": 2**32 - 1}, "meta[1].dtype"),
    ("SHAPE-1", {"meta[0].shape_count": 65}, "meta[0].shape_count"),
    ("SHAPE-2", {"meta[0].shape_offset": 159}, "meta[0].shape_offset"),
    ("SHAPE-2", {"meta[0].shape_offset": 193, "meta[0].shape_count": 0}, "meta[0].shape_offset"),
    ("SHAPE-2", {"meta[0].shape_offset": 185}, "meta[0].shape_count"),
    ("SHAPE-2", {"meta[0].shape_count": 5}, "meta[0].shape_count"),
    ("SHAPE-4", {"meta[0].shape_count": 2, "shape 0": 2**52, "shape 1": 2}, "meta[0].shape[1]"),
    ("SHAPE-4", {"shape 0": 2**52}, "meta[0].shape"),
    ("SHAPE-5", {"meta[0].data_size": 5}, "meta[0].data_size"),
    ("SHAPE-5", {"shape 1": 3}, "meta[1].data_size"),
    ("SHAPE-5", {"shape 1": 0}, "meta[1].data_size"),
    ("DATA-1", {"meta[1].data_offset": 224}, "meta[1].data_offset"),
    ("DATA-2", {"meta[0].data_offset": 128}, "meta[0].data_offset"),
    ("DATA-3", {"meta[1].data_offset": 320}, "meta[1].data_offset"),
    ("DATA-3", {"shape 1": 4, "meta[1].data_size": 16}, "meta[1].data_size"),
    ("DATA-4", {"meta[1].data_offset": 192}, "meta[1].data_offset"),
    ("TAIL-1", {"sentinel": 0}, "sentinel"),
    ("TAIL-1", {"sentinel": 0x57454947454E4420}, "sentinel"),
    ("TAIL-1", {"sentinel": 0x57454946454E4421}, "sentinel"),
]
REJECT += [
    ("NUM-2", {f"{part}.{name}": value}, f"{part}.{name}")
    for part, names in (
        ("header", ("tensor_count", "meta_offset", "data_offset", "file_size")),
        ("meta[1]", ("name_offset", "shape_offset", "shape_count", "data_offset", "data_size")),
    )
    for name in names
    for value in (MAX + 1, 2**63, 2**64 - 1)
]
# Behind each of these names, that of the second record is legal.
NOT_UTF_8 = (
    b"\xc0\x80", b"\xc0", b"\xc1\xbf", b"\xc3", b"\xc3a", b"a\xff", b"\xf5\x80\x80\x80",
    b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xe2\x82",
    b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf0\x9f\x98",
)  # fmt: skip
REJECT += [
    (
        "NAME-4",
        {
            "aux from names": (name + b"\0w").ljust(16, b"\0"),
            "meta[1].name_offset": 177 + len(name),
        },
        "meta[0].name",
    )
    for name in NOT_UTF_8
]
REJECT += [("NUM-2", {"shape 1": value}, "meta[1].shape[0]") for value in (MAX + 1, 2**64 - 1)]

RULE_CODES = {  # SPEC.md, section 14
    "HDR-2": "BAD_MAGIC",
    "HDR-3": "BAD_VERSION",
    "HDR-4": "BAD_FILE_SIZE",
    "HDR-5": "TRUNCATED",
    "HDR-6": "TRAILING_DATA",
    "HDR-7": "UNKNOWN_FLAG",
    "HDR-8": "BAD_RESERVED",
    "META-1": "BAD_META_TABLE",
    "META-2": "BAD_META_TABLE",
    "META-3": "BAD_META_TABLE",
    "META-4": "BAD_RESERVED",
    "REGION-1": "MISALIGNED",
    "REGION-2": "BAD_DATA_REGION",
    "NAME-1": "BAD_NAME",
    "NAME-2": "BAD_NAME",
    "NAME-3": "BAD_NAME",
    "NAME-4": "BAD_NAME",
    "NAME-5": "BAD_NAME",
    "NAME-6": "DUPLICATE_NAME",
    "DTYPE-1": "BAD_DTYPE",
    "SHAPE-1": "BAD_SHAPE",
    "SHAPE-2": "BAD_SHAPE",
    "SHAPE-4": "BAD_SHAPE",
    "SHAPE-5": "BAD_DATA_SIZE",
    "DATA-1": "MISALIGNED",
    "DATA-2": "BAD_DATA_RANGE",
    "DATA-3": "BAD_DATA_RANGE",
    "DATA-4": "OVERLAP",
    "TAIL-1": "BAD_SENTINEL",
    "NUM-2": "NUMBER_TOO_LARGE",
}


def case_id(value: object) -> str:
    return re.sub(r"[^\w.-]+", "-", str(value))[:60]


@pytest.mark.parametrize(("rule", "edits", "field"), REJECT, ids=case_id)
def test_one_broken_rule(
    tmp_path: Path, order: ByteOrder, rule: str, edits: Edits, field: str | None
) -> None:
    with pytest.raises(WeigError) as caught:
        load(write(tmp_path, edited(order, edits)))
    assert caught.value.code == RULE_CODES[rule]
    assert caught.value.rule == rule
    assert caught.value.field == field


# What follows is laid out by hand where the example is too small for it.
class Raw(NamedTuple):
    """A record; name and shape are put into the aux area one after another."""

    name: bytes
    code: int
    shape: tuple[int, ...]
    at: int  # data offset, counted from the start of the data region
    size: int


def build(order: ByteOrder, records: list[Raw], data: bytes = b"", shift: int = 0) -> bytes:
    """A file with ``shift`` bytes between the table and the first name; data region aligned."""

    def number(value: int, size: int = 8) -> bytes:
        return value.to_bytes(size, order)

    start = 64 + 48 * len(records)
    aux, places = bytearray(shift), []
    for record in records:
        names = start + len(aux)
        aux += record.name + b"\0"
        places.append((names, start + len(aux)))
        aux += b"".join(map(number, record.shape))
    region = -(-(start + len(aux)) // 64) * 64
    table = b"".join(
        number(name)
        + number(r.code, 4)
        + bytes(4)
        + number(shape)
        + number(len(r.shape))
        + number(region + r.at)
        + number(r.size)
        for r, (name, shape) in zip(records, places, strict=True)
    )
    body = data + bytes(-len(data) % 8)
    size = region + len(body) + 8
    header = number(0x57454947, 4) + number(1, 4)
    header += b"".join(map(number, (len(records), 64, region, size, 0, 0, 0)))
    head = header + table + aux
    return head + bytes(region - len(head)) + body + number(0x57454947454E4421)


ELEMENT_SIZES = (4, 2, 2, 1, 1, 4, 8, 8, 2, 2, 4, 8, 1, 1, 1, 1, 8, 1, 1)  # SPEC.md, section 8

ACCEPT: dict[str, tuple[list[Raw], bytes]] = {
    "no tensors": ([], b""),
    "longest name": ([Raw(b"n" * 1023, 4, (1,), 0, 1)], b"\7"),
    "scalar": ([Raw(b"s", 7, (), 0, 8)], bytes(8)),
    "rank 64": ([Raw(b"r", 4, (1,) * 64, 0, 1)], b"\7"),
    "zero before large": ([Raw(b"z", 4, (0, 2**53 - 1), 0, 0)], b""),
    "zero after large": ([Raw(b"z", 0, (2**49, 0, 2), 0, 0)], b""),
    "64 zeros": ([Raw(b"z", 0, (0,) * 64, 0, 0)], b""),
    "empty inside another": ([Raw(b"a", 4, (99,), 0, 99), Raw(b"e", 0, (0,), 64, 0)], b"\7" * 99),
    "touching": ([Raw(b"a", 4, (64,), 0, 64), Raw(b"b", 4, (1,), 64, 1)], b"\7" * 65),
    "empty at the end": ([Raw(b"e", 6, (3, 0), 0, 0)], b""),
    "aliases": ([Raw(b"a", 4, (2, 3), 0, 6), Raw(b"b", 4, (6,), 0, 6)], bytes(range(6))),
    "UTF-8": (
        [Raw("\x7e\x80\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff".encode(), 4, (1,), 0, 1)],
        b"\7",
    ),
    "not in order": ([Raw(b"b", 4, (1,), 64, 1), Raw(b"a", 4, (1,), 0, 1)], bytes(65)),
}
for code, size in enumerate(ELEMENT_SIZES):
    ACCEPT[f"dtype {code}"] = ([Raw(b"d", code, (3,), 0, 3 * size)], bytes(3 * size))

NOT_ACCEPT: dict[str, tuple[list[Raw], str]] = {
    "name too long": ([Raw(b"n" * 1024, 4, (1,), 0, 1)], "NAME-3"),
    "product with a zero": ([Raw(b"z", 4, (0, 2**52, 2), 0, 0)], "SHAPE-4"),
    "product with a zero last": ([Raw(b"z", 4, (2**52, 2, 0), 0, 0)], "SHAPE-4"),
    "product wraps to the size": ([Raw(b"z", 4, (2**32 + 1, 2**32), 0, 2**32)], "SHAPE-4"),
    "dimension after a zero": ([Raw(b"z", 4, (0, 2**53), 0, 0)], "NUM-2"),
    "rank 65": ([Raw(b"r", 4, (1,) * 65, 0, 1)], "SHAPE-1"),
    "overlap": ([Raw(b"a", 4, (65,), 0, 65), Raw(b"b", 4, (1,), 64, 1)], "DATA-4"),
    "overlap, not in order": ([Raw(b"b", 4, (1,), 64, 1), Raw(b"a", 4, (65,), 0, 65)], "DATA-4"),
    "overlap far apart": (
        [Raw(b"a", 4, (192,), 0, 192), Raw(b"b", 4, (1,), 64, 1), Raw(b"c", 4, (1,), 128, 1)],
        "DATA-4",
    ),
    "alias of another dtype": ([Raw(b"a", 4, (6,), 0, 6), Raw(b"b", 3, (6,), 0, 6)], "DATA-4"),
    "alias of another size": ([Raw(b"a", 4, (6,), 0, 6), Raw(b"b", 4, (5,), 0, 5)], "DATA-4"),
}
for code, size in enumerate(ELEMENT_SIZES):
    NOT_ACCEPT[f"dtype {code}"] = ([Raw(b"d", code, (3,), 0, 3 * size + 1)], "SHAPE-5")


@pytest.mark.parametrize("title", ACCEPT, ids=case_id)
@pytest.mark.parametrize("shift", [0, 1])
def test_legal(tmp_path: Path, order: ByteOrder, title: str, shift: int) -> None:
    records, data = ACCEPT[title]
    made = build(order, records, data, shift)
    opened = load(write(tmp_path, made))
    want = [(r.name.decode(), r.code, r.shape, r.size) for r in records]
    assert [(n, c, s, size) for n, c, s, _, size in opened.records()] == want
    opened.verify(None)
    for (name, array), r in zip(opened.arrays().items(), records, strict=True):
        assert (name, array.shape, array.nbytes) == (r.name.decode(), r.shape, r.size)


@pytest.mark.parametrize("title", NOT_ACCEPT, ids=case_id)
def test_illegal(tmp_path: Path, order: ByteOrder, title: str) -> None:
    records, rule = NOT_ACCEPT[title]
    with pytest.raises(WeigError) as caught:
        load(write(tmp_path, build(order, records, bytes(192))))
    assert (caught.value.rule, caught.value.code) == (rule, RULE_CODES[rule])


def test_flags_that_may_be_ignored(tmp_path: Path, order: ByteOrder) -> None:
    load(write(tmp_path, edited(order, {"header.flags": 2**64 - 2**32})))


def test_names_may_share_storage(tmp_path: Path, order: ByteOrder) -> None:
    edits: Edits = {"aux from names": b"ab\0" + bytes(13), "meta[1].name_offset": 177}
    assert load(write(tmp_path, edited(order, edits))).names() == ["ab", "b"]


C64 = ("3f800000", "c0000000")  # 1.0 and -2.0


def test_swapped_reverses_units(tmp_path: Path) -> None:
    opened = load(write(tmp_path, EXAMPLE["little"]))
    assert bytes(opened.swapped(256, 8, 4)) == bytes.fromhex("3f800000 c0000000")
    assert bytes(opened.swapped(192, 6, 2)) == bytes.fromhex("3f80 4000 bf80")
    assert bytes(opened.swapped(192, 6, 1)) == bytes.fromhex("803f 0040 80bf")
    assert bytes(opened.swapped(192, 0, 8)) == b""
    assert opened.swapped(256, 8, 8).readonly
    for wrong in ((256, 24, 8), (192, 6, 4)):
        with pytest.raises((ValueError, TypeError)):
            opened.swapped(*wrong)


def test_parts_of_complex_numbers_are_swapped_alone(tmp_path: Path, order: ByteOrder) -> None:
    data = b"".join(bytes.fromhex(part)[:: 1 if order == "big" else -1] for part in C64)
    opened = load(write(tmp_path, build(order, [Raw(b"c", 16, (1,), 0, 8)], data)))
    assert opened.arrays()["c"].tolist() == [1 - 2j]


# Deep verification.


def test_padding(tmp_path: Path, order: ByteOrder, mode: Mode) -> None:
    owned = {*range(180), *range(192, 198), *range(256, 272)}  # SPEC.md, section 19
    for at in range(272):
        if at in owned:
            continue
        data = bytearray(EXAMPLE[order])
        data[at] = 1
        opened = load(write(tmp_path, bytes(data)), mode)
        with pytest.raises(WeigError) as caught:
            opened.verify(None)
        assert (caught.value.code, caught.value.rule) == ("NONZERO_PADDING", "PAD-1")
        assert f"byte {at} " in caught.value.message


def test_padding_behind_the_last_tensor(tmp_path: Path, order: ByteOrder) -> None:
    for at in range(1, 8):
        data = bytes(at) + b"\1" + bytes(7 - at)
        opened = load(write(tmp_path, build(order, [Raw(b"t", 4, (1,), 0, 1)], data)))
        with pytest.raises(WeigError) as caught:
            opened.verify(None)
        assert (caught.value.code, caught.value.rule) == ("NONZERO_PADDING", "PAD-1")


def test_bool(tmp_path: Path, order: ByteOrder) -> None:
    record = Raw(b"t", 12, (4,), 0, 4)
    load(write(tmp_path, build(order, [record], bytes([0, 1, 1, 0])))).verify(None)
    opened = load(write(tmp_path, build(order, [record], bytes([0, 1, 2, 0]))))
    with pytest.raises(WeigError) as caught:
        opened.verify(None)
    assert (caught.value.code, caught.value.rule) == ("BAD_BOOL", "BOOL-1")


def test_progress_ends_at_the_total(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    load(write(tmp_path, EXAMPLE["little"])).verify(lambda *now: seen.append(now))
    assert seen == sorted(seen)
    assert seen[-1] == (70, 70)  # 12 + 58 bytes of padding


# What concerns the file itself (SPEC.md, section 13).


def test_every_prefix_is_refused(tmp_path: Path, order: ByteOrder) -> None:
    for n in range(272):
        with pytest.raises(WeigError) as caught:
            load(write(tmp_path, EXAMPLE[order][:n]))
        assert caught.value.code == ("TOO_SMALL" if n < 72 else "TRUNCATED")
    with pytest.raises(WeigError) as caught:
        load(write(tmp_path, EXAMPLE[order] + bytes(8)))
    assert caught.value.code == "TRAILING_DATA"


@pytest.mark.parametrize(
    ("start", "hint"),
    [
        (b"version https://git-lfs.github.com/spec/v1\n", "git-LFS"),
        (b"<!DOCTYPE html>", "HTML"),
        (b"PK\x03\x04", "ZIP"),
        (b"GGUF", "GGUF"),
        (b'\x10\0\0\0\0\0\0\0{"a":', "safetensors"),
        (b"\x1f\x8b\x08\0", "gzip"),
        (b"\x93NUMPY", "npy"),
        (b"\x1b[2J", ""),
    ],
)
def test_foreign_files_get_a_hint(tmp_path: Path, start: bytes, hint: str) -> None:
    for data in (start, start + bytes(100)):
        with pytest.raises(WeigError) as caught:
            load(write(tmp_path, data))
        assert caught.value.code == "BAD_MAGIC"
        assert hint in caught.value.message
        assert caught.value.message.isprintable()


def not_regular(folder: Path) -> Iterator[str]:
    yield str(folder)
    yield "/dev/null"
    os.mkfifo(folder / "fifo")
    yield str(folder / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "socket"))
        yield str(folder / "socket")


def test_only_regular_files(tmp_path: Path) -> None:
    for path in not_regular(tmp_path):
        with pytest.raises(WeigError) as caught:
            load(path)
        assert (caught.value.code, caught.value.rule) == ("NOT_REGULAR_FILE", "OPEN-1")


def test_paths(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for path in ("missing", "loop", "a\0b", "\ud800", "n" * 5000, ""):
        with pytest.raises(WeigError) as caught:
            load(path and str(tmp_path / path))
        assert caught.value.code == "IO"
    odd = tmp_path / os.fsdecode(b"\xff.weig")
    odd.write_bytes(EXAMPLE["little"])
    (tmp_path / "link").symlink_to(odd)
    assert load(str(odd)).names() == load(str(tmp_path / "link")).names() == ["b", "w"]


def test_memory_outlives_the_file(tmp_path: Path, mode: Mode) -> None:
    opened = load(write(tmp_path, EXAMPLE["little"]), mode)
    buffer, arrays = opened.buffer(), opened.arrays()
    opened.close()
    opened.close()
    assert bytes(buffer) == EXAMPLE["little"]
    assert arrays["w"].tolist() == [1.0, -2.0]
    for use in (opened.buffer, opened.arrays, opened.check_unmodified):
        with pytest.raises(WeigError) as caught:
            use()
        assert caught.value.code == "CLOSED"


def test_descriptors_are_closed(tmp_path: Path) -> None:
    good, bad = write(tmp_path, EXAMPLE["little"]), tmp_path / "bad.weig"
    bad.write_bytes(EXAMPLE["little"][:-8])
    gc.collect()  # files of earlier tests
    before = os.listdir("/proc/self/fd")
    closed = load(good)
    closed.close()
    _ = load(good).names()
    with pytest.raises(WeigError):
        load(str(bad))
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_a_copy_survives_what_happens_to_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, EXAMPLE["little"])
    opened = load(path, "read")
    os.truncate(path, 0)
    assert bytes(opened.buffer()) == EXAMPLE["little"]
    with pytest.raises(WeigError) as caught:
        opened.check_unmodified()
    assert caught.value.code == "MODIFIED"


def test_change_of_time_alone_is_a_change(tmp_path: Path) -> None:
    path = write(tmp_path, EXAMPLE["little"])
    opened = load(path)
    os.utime(path, ns=(1, 1))
    with pytest.raises(WeigError) as caught:
        opened.check_unmodified()
    assert caught.value.code == "MODIFIED"


def test_messages_are_printable(tmp_path: Path) -> None:
    with pytest.raises(WeigError) as caught:
        load(write(tmp_path, edited("little", {"name 0": b"\x1b"})))
    assert caught.value.message.isprintable()
    assert "\\x1b" in caught.value.message


def test_boundary_values_give_one_error_or_none(tmp_path: Path, order: ByteOrder) -> None:
    """Whatever stands in a field: a WeigError with a code of the list, or tensors in the file."""
    near = (0, 1, 64, 160, 192, 264, 272, 2**31, 2**32, 2**53, 2**63, 2**64 - 64)
    values = {value + d for value in near for d in (-8, -1, 0, 1, 8)}
    codes: set[str] = set()
    for place, (_, size) in PLACES.items():
        for value in values:
            if not 0 <= value < 1 << (8 * size):
                continue
            path = write(tmp_path, edited(order, {place: value}))
            try:
                found = load(path).records()
            except WeigError as error:
                codes.add(error.code)
                continue
            assert all(192 <= at <= at + nbytes <= 264 for *_, at, nbytes in found)
    assert codes < set(CODES)


def test_no_numpy_for_opening(tmp_path: Path) -> None:
    """An oracle that is asked for a verdict alone needs kaitaistruct alone."""
    path = write(tmp_path, EXAMPLE["little"])
    code = (
        "import sys; from weig.backends import loader; loader('kaitai').open(sys.argv[1], 'mmap');"
        "sys.exit('numpy' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, path], check=True)
