"""Every rule that an image breaks, found the slow and plain way, from SPEC.md alone.

It shares no code with any loader or with the builder: struct, Python's big integers and its own
UTF-8 decoder. It goes on after a broken rule as long as the next one can be read at all, so that
it finds every code that is right for a file.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

LIMIT = 9007199254740991
SIZES = [4, 2, 2, 1, 1, 4, 8, 8, 2, 2, 4, 8, 1, 1, 1, 1, 8, 1, 1]
BOOL = 12

Read = Callable[[int, int], bytes]


class Record(NamedTuple):
    """One record as it stands in the file, with what it points to where that can be read."""

    name_offset: int
    dtype: int
    pad: int
    shape_offset: int
    shape_count: int
    data_offset: int
    data_size: int


class Header(NamedTuple):
    """The header's fields behind the magic."""

    version: int
    tensor_count: int
    meta_offset: int
    data_offset: int
    file_size: int
    flags: int
    reserved0: int
    reserved1: int


Broken = tuple[str, str]


def broken(read: Read, size: int, *, deep: bool = False) -> set[Broken]:
    """The pairs of rule and code that are right for the file; empty for a good one."""
    found = set(_open(read, size))
    if deep and not found:
        found = set(_deep(read, size))
    return found


def tensors(read: Read) -> list[tuple[str, int, tuple[int, ...], int, int]]:
    """Name, dtype, shape, data offset and data size of each record of a good file."""
    mark = _mark(read)
    header = _header(read, mark)
    out = []
    for record in _records(read, mark, header):
        name = _name(read, record, header.data_offset)
        shape = _shape(read, mark, record)
        out.append((name.decode(), record.dtype, shape, record.data_offset, record.data_size))
    return out


def _mark(read: Read) -> str:
    return "<" if read(0, 4) == b"GIEW" else ">"


def _header(read: Read, mark: str) -> Header:
    return Header(*struct.unpack(mark + "I7Q", read(4, 60)))


def _records(read: Read, mark: str, header: Header) -> Iterator[Record]:
    for index in range(header.tensor_count):
        raw = read(header.meta_offset + 48 * index, 48)
        yield Record(*struct.unpack(mark + "QIIQQQQ", raw))


def _name(read: Read, record: Record, aux_end: int) -> bytes:
    raw = read(record.name_offset, min(1025, aux_end - record.name_offset))
    return raw.split(b"\0")[0]


def _shape(read: Read, mark: str, record: Record) -> tuple[int, ...]:
    raw = read(record.shape_offset, 8 * record.shape_count)
    return struct.unpack(f"{mark}{record.shape_count}Q", raw)


def _open(read: Read, size: int) -> Iterator[Broken]:
    if size < 72:
        yield "HDR-1", "TOO_SMALL"
    magic = read(0, min(4, size))
    if magic not in (b"GIEW", b"WEIG"):
        yield "HDR-2", "BAD_MAGIC"
        return
    mark = "<" if magic == b"GIEW" else ">"
    if size < 40:
        return
    header = Header(*struct.unpack(mark + "I7Q", read(4, min(60, size - 4)).ljust(60, b"\0")))
    if size < header.file_size:
        yield "HDR-5", "TRUNCATED"
    if size < 72:
        return
    yield from _header_rules(read, size, mark, header)
    if _table_fits(header, size):
        yield from _record_rules(read, mark, header, size)


def _header_rules(read: Read, size: int, mark: str, h: Header) -> Iterator[Broken]:
    if h.version != 1:
        yield "HDR-3", "BAD_VERSION"
    if h.version == 0x01000000:
        yield "NUM-1", "BAD_VERSION"
    if any(n > LIMIT for n in (h.tensor_count, h.meta_offset, h.data_offset, h.file_size)):
        yield "NUM-2", "NUMBER_TOO_LARGE"
    if h.file_size % 8 or h.file_size < 72:
        yield "HDR-4", "BAD_FILE_SIZE"
    if size > h.file_size:
        yield "HDR-6", "TRAILING_DATA"
    if h.flags & 0xFFFFFFFF:
        yield "HDR-7", "UNKNOWN_FLAG"
    if h.reserved0 or h.reserved1:
        yield "HDR-8", "BAD_RESERVED"
    if h.meta_offset < 64:
        yield "META-1", "BAD_META_TABLE"
    if h.meta_offset % 8:
        yield "META-2", "BAD_META_TABLE"
    if h.meta_offset + 48 * h.tensor_count > h.data_offset:
        yield "META-3", "BAD_META_TABLE"
        yield "META-3", "BAD_DATA_REGION"
    if h.data_offset % 64:
        yield "REGION-1", "MISALIGNED"
    if h.data_offset > h.file_size - 8:
        yield "REGION-2", "BAD_DATA_REGION"
    yield from _sentinel_rules(read, size, mark, h)


def _sentinel_rules(read: Read, size: int, mark: str, h: Header) -> Iterator[Broken]:
    right = b"WEIGEND!" if mark == ">" else b"!DNEGIEW"
    if read(size - 8, 8) == right[::-1]:  # a loader may look at the end that is really there
        yield "NUM-1", "BAD_SENTINEL"
    if h.file_size <= size:
        last = read(h.file_size - 8, 8) if h.file_size >= 8 else b""
        if last != right:
            yield "TAIL-1", "BAD_SENTINEL"


def _table_fits(h: Header, size: int) -> bool:
    end = h.meta_offset + 48 * h.tensor_count
    return end <= h.data_offset and h.data_offset <= size and h.tensor_count < 1 << 17


def _record_rules(read: Read, mark: str, h: Header, size: int) -> Iterator[Broken]:
    aux_start = h.meta_offset + 48 * h.tensor_count
    end = h.file_size - 8
    names: list[bytes] = []
    extents: list[tuple[int, int, int]] = []
    for r in _records(read, mark, h):
        if max(r[0], *r[3:]) > LIMIT:
            yield "NUM-2", "NUMBER_TOO_LARGE"
        if r.pad:
            yield "META-4", "BAD_RESERVED"
        name, faults = _name_rules(read, r, aux_start, h.data_offset)
        yield from faults
        if name:
            names.append(name)
        yield from _shape_rules(read, mark, r, aux_start, h.data_offset)
        if r.data_offset % 64:
            yield "DATA-1", "MISALIGNED"
        if r.data_offset < h.data_offset:
            yield "DATA-2", "BAD_DATA_RANGE"
        if r.data_offset + r.data_size > end:
            yield "DATA-3", "BAD_DATA_RANGE"
        if r.data_size:
            extents.append((r.data_offset, r.data_size, r.dtype))
    if len(set(names)) < len(names):
        yield "NAME-6", "DUPLICATE_NAME"
    if _overlap(extents):
        yield "DATA-4", "OVERLAP"


def _name_rules(read: Read, r: Record, aux_start: int, aux_end: int) -> tuple[bytes, list[Broken]]:
    if not aux_start <= r.name_offset < aux_end:
        return b"", [("NAME-1", "BAD_NAME")]
    faults = []
    raw = read(r.name_offset, min(4096, aux_end - r.name_offset))
    name = raw.split(b"\0")[0]
    if b"\0" not in raw:
        faults.append(("NAME-2", "BAD_NAME"))
    if not 1 <= len(name) <= 1023:
        faults.append(("NAME-3", "BAD_NAME"))
    if not _utf8(name):
        faults.append(("NAME-4", "BAD_NAME"))
    if any(byte < 0x20 or byte == 0x7F for byte in name):
        faults.append(("NAME-5", "BAD_NAME"))
    return name, faults


def _utf8(text: bytes) -> bool:
    """RFC 3629 by its arithmetic: decode each sequence, then encode it the shortest way."""
    at = 0
    while at < len(text):
        lead = text[at]
        ones = 8 - (~lead & 0xFF).bit_length()
        length = {0: 1, 2: 2, 3: 3, 4: 4}.get(ones, 0)
        tail = text[at + 1 : at + length]
        if length == 0 or len(tail) != length - 1 or any(byte >> 6 != 2 for byte in tail):
            return False
        point = lead if length == 1 else lead & (1 << (7 - length)) - 1
        for byte in tail:
            point = point << 6 | byte & 0x3F
        shortest = 1 + (point >= 0x80) + (point >= 0x800) + (point >= 0x10000)
        if length != shortest or 0xD800 <= point <= 0xDFFF or point > 0x10FFFF:
            return False
        at += length
    return True


def _shape_rules(
    read: Read, mark: str, r: Record, aux_start: int, aux_end: int
) -> Iterator[Broken]:
    known = r.dtype < len(SIZES)
    if not known:
        yield "DTYPE-1", "BAD_DTYPE"
    readable = True
    if r.shape_count > 64:
        yield "SHAPE-1", "BAD_SHAPE"
        readable = False
    if r.shape_offset < aux_start or r.shape_offset + 8 * r.shape_count > aux_end:
        yield "SHAPE-2", "BAD_SHAPE"
        readable = r.shape_count == 0  # no dimensions, wherever they are not
    if not readable:
        return
    dims = _shape(read, mark, r)
    if any(dim > LIMIT for dim in dims):
        yield "NUM-2", "NUMBER_TOO_LARGE"
    if not known:
        return
    product = SIZES[r.dtype]
    for dim in dims:
        product *= dim or 1
    if product > LIMIT:
        yield "SHAPE-4", "BAD_SHAPE"
    if (0 if 0 in dims else product) != r.data_size:
        yield "SHAPE-5", "BAD_DATA_SIZE"


def _overlap(extents: list[tuple[int, int, int]]) -> bool:
    distinct = sorted(set(extents))
    for index, a in enumerate(distinct):
        for b in islice(distinct, index + 1, None):
            if b[0] >= a[0] + a[1]:
                break  # and so does every later one
            return True
    return False


def _deep(read: Read, size: int) -> Iterator[Broken]:
    mark = _mark(read)
    header = _header(read, mark)
    owned = bytearray(size)

    def own(start: int, length: int) -> None:
        owned[start : start + length] = b"\1" * length

    own(0, 64)
    own(header.meta_offset, 48 * header.tensor_count)
    own(size - 8, 8)
    for r in _records(read, mark, header):
        own(r.name_offset, len(_name(read, r, header.data_offset)) + 1)
        own(r.shape_offset, 8 * r.shape_count)
        own(r.data_offset, r.data_size)
        if r.dtype == BOOL and any(byte > 1 for byte in read(r.data_offset, r.data_size)):
            yield "BOOL-1", "BAD_BOOL"
    data = read(0, size)
    if any(byte and not mine for byte, mine in zip(data, owned, strict=True)):
        yield "PAD-1", "NONZERO_PADDING"
