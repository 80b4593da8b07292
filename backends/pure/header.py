"""The header and the sentinel (SPEC.md, sections 4 to 6 and 11), checked before a map is made."""

from __future__ import annotations

import struct
from typing import NamedTuple

from weig.spec.errors import WeigError, escape
from weig.spec.foreign import kind_of
from weig.spec.layout import (
    DATA_ALIGN,
    FILE_SIZE_ALIGN,
    HEADER_FORMAT,
    HEADER_SIZE,
    KNOWN_FLAGS,
    MAGIC_BYTES,
    MAX_NUMBER,
    MIN_FILE_SIZE,
    MUST_UNDERSTAND,
    RECORD_SIZE,
    SENTINEL,
    SENTINEL_SIZE,
    STRUCT_ORDER,
    TABLE_ALIGN,
    VERSION,
    ByteOrder,
)


class Header(NamedTuple):
    """The checked header: every range in it lies inside the file."""

    byte_order: ByteOrder
    tensor_count: int
    meta_offset: int
    data_offset: int
    file_size: int

    @property
    def aux_start(self) -> int:
        return self.meta_offset + RECORD_SIZE * self.tensor_count

    @property
    def end(self) -> int:
        """Where the data region ends and the sentinel starts."""
        return self.file_size - SENTINEL_SIZE


def check(head: bytes, tail: bytes, size: int) -> Header:
    """The header of a file of ``size`` bytes from its first 64 and last 8. Raises WeigError."""
    # HDR-2 comes first, so that a short file of another kind is called by its name.
    byte_order = MAGIC_BYTES.get(head[:4])
    if byte_order is None and len(head) >= 4:
        kind = kind_of(head)
        hint = f"; this looks like {kind}" if kind else ""
        raise _bad("BAD_MAGIC", "magic", f"starts with {escape(head[:4])!r}{hint}", "HDR-2")
    if byte_order is None or size < MIN_FILE_SIZE:
        raise _bad("TOO_SMALL", None, f"{size} bytes; the least is {MIN_FILE_SIZE}", "HDR-1")
    _, version, count, meta_offset, data_offset, file_size, flags, *reserved = struct.unpack(
        STRUCT_ORDER[byte_order] + HEADER_FORMAT, head[:HEADER_SIZE]
    )
    if version != VERSION:
        raise _bad("BAD_VERSION", "version", f"is {version}, not {VERSION}", "HDR-3")
    for field, value in (
        ("tensor_count", count),
        ("meta_offset", meta_offset),
        ("data_offset", data_offset),
        ("file_size", file_size),
    ):
        if value > MAX_NUMBER:
            raise _bad("NUMBER_TOO_LARGE", field, f"is {value}, past {MAX_NUMBER}", "NUM-2")
    _check_size(file_size, size)
    if flags & MUST_UNDERSTAND & ~KNOWN_FLAGS:
        raise _bad("UNKNOWN_FLAG", "flags", f"has unknown bits: {flags:#x}", "HDR-7")
    for i, value in enumerate(reserved):
        if value:
            raise _bad("BAD_RESERVED", f"reserved[{i}]", f"is {value:#x}, not 0", "HDR-8")
    _check_regions(count, meta_offset, data_offset, file_size)
    if tail != SENTINEL.to_bytes(SENTINEL_SIZE, byte_order):
        raise WeigError(
            "BAD_SENTINEL",
            f"the last 8 bytes are {tail.hex(' ')}",
            field="sentinel",
            rule="TAIL-1",
        )
    return Header(byte_order, count, meta_offset, data_offset, file_size)


def _check_size(file_size: int, size: int) -> None:
    if file_size % FILE_SIZE_ALIGN or file_size < MIN_FILE_SIZE:
        raise _bad("BAD_FILE_SIZE", "file_size", f"can be no file's: {file_size}", "HDR-4")
    if size < file_size:
        raise _bad("TRUNCATED", "file_size", f"is {file_size}; the file has {size}", "HDR-5")
    if size > file_size:
        raise _bad("TRAILING_DATA", "file_size", f"is {file_size}; the file has {size}", "HDR-6")


def _check_regions(count: int, meta_offset: int, data_offset: int, file_size: int) -> None:
    if meta_offset < HEADER_SIZE:
        raise _bad("BAD_META_TABLE", "meta_offset", f"is {meta_offset}, in the header", "META-1")
    if meta_offset % TABLE_ALIGN:
        raise _bad("BAD_META_TABLE", "meta_offset", f"{meta_offset} is no multiple of 8", "META-2")
    if data_offset % DATA_ALIGN:
        raise _bad("MISALIGNED", "data_offset", f"{data_offset} is no multiple of 64", "REGION-1")
    end = file_size - SENTINEL_SIZE
    if data_offset > end:
        raise _bad(
            "BAD_DATA_REGION",
            "data_offset",
            f"{data_offset} is past the end of the data, {end}",
            "REGION-2",
        )
    if meta_offset > data_offset or count > (data_offset - meta_offset) // RECORD_SIZE:
        raise _bad(
            "BAD_META_TABLE",
            "tensor_count",
            f"{count} records from {meta_offset} on do not end by data_offset {data_offset}",
            "META-3",
        )


def _bad(code: str, field: str | None, text: str, rule: str) -> WeigError:
    where = f"header.{field}" if field else None
    return WeigError(code, f"{where or 'file'} {text}", field=where, rule=rule)
