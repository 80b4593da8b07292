"""A small right loader that is made to be broken.

Written from SPEC.md for this purpose alone: it imports no other part of weig and no package. All
that it refuses stands in `CHECKS`, all that it works out in `PARTS`. A *vice* (`vices.toml`) drops
or replaces an entry of one of the two tables, so everything looks its parts up there.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

LIMIT = 2**53 - 1
SENTINEL = 0x57454947454E4421
MAX_HEX = 4096  # bytes of a tensor that may be told in an answer
DTYPES = (
    ("F32", 4, 4), ("F16", 2, 2), ("BF16", 2, 2), ("I8", 1, 1), ("U8", 1, 1), ("I32", 4, 4),
    ("F64", 8, 8), ("I64", 8, 8), ("I16", 2, 2), ("U16", 2, 2), ("U32", 4, 4), ("U64", 8, 8),
    ("BOOL", 1, 1), ("F8_E4M3", 1, 1), ("F8_E5M2", 1, 1), ("F8_E8M0", 1, 1), ("C64", 8, 4),
    ("F8_E4M3FNUZ", 1, 1), ("F8_E5M2FNUZ", 1, 1),
)  # fmt: skip
BOOL = 12


class RefusedError(Exception):
    """A deliberate refusal: the code of the specification, and the check that said so."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Check(NamedTuple):
    """One check. ``broken`` is given the file, at stage "record" the record too.

    Stages in their order: file (before the header can be read), header, record (for each), table
    (all records together), deep.
    """

    rule: str
    code: str
    stage: str
    broken: Callable[..., object]


class File:
    """An open file: its header's fields, its records, and where its parts stand.

    ``via`` is how its bytes are had: mmap, or read.
    """

    def __init__(self, path: str, parts: Parts, via: str) -> None:
        self.parts = parts
        self.path = path
        self.via = via
        self.fd: int = parts["open"](path)
        self.facts: object = parts["facts"](self)
        self.records: list[Record] = []

    def read_header(self) -> None:
        self.mark: str = self.parts["mark"](self.magic)
        head = os.pread(self.fd, 64, 0)
        (
            self.version, self.count, self.meta_offset, self.data_offset, self.file_size,
            self.flags, self.reserved0, self.reserved1,
        ) = struct.unpack(self.mark + "I7Q", head[4:64])  # fmt: skip
        self.aux_start = self.meta_offset + 48 * self.count
        self.end = self.file_size - 8
        self.parts["header"](self)

    @cached_property
    def size(self) -> int:
        size: int = self.parts["size"](self)
        return size

    @cached_property
    def magic(self) -> bytes:
        return os.pread(self.fd, 4, 0)

    @cached_property
    def sentinel(self) -> int:
        value: int = self.parts["sentinel"](self)
        return value

    @cached_property
    def bytes(self) -> Any:
        return self.parts["map" if self.via == "mmap" else "copy"](self)

    def close(self) -> None:
        self.parts["close"](self)


class Record:
    """One record of the table. What it points to is read when a check first asks for it."""

    def __init__(self, f: File, index: int) -> None:
        self.f = f
        self.index = index
        (
            self.name_offset, self.dtype, self.pad, self.shape_offset, self.shape_count,
            self.data_offset, self.data_size,
        ) = struct.unpack_from(f.mark + "QIIQQQQ", f.bytes, f.meta_offset + 48 * index)  # fmt: skip

    @cached_property
    def _name(self) -> tuple[bytes, bytes]:
        found: tuple[bytes, bytes] = self.f.parts["name"](self.f, self)
        return found

    @property
    def raw(self) -> bytes:
        """The bytes of the name, without its NUL."""
        return self._name[0]

    @property
    def nul(self) -> bytes:
        """The NUL that ends the name; empty where there is none within reach."""
        return self._name[1]

    @cached_property
    def name(self) -> str:
        text: str = self.f.parts["text"](self.raw)
        return text

    @cached_property
    def dims(self) -> tuple[int, ...]:
        dims: tuple[int, ...] = self.f.parts["dims"](self.f, self)
        return dims

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return DTYPES[self.dtype][1]

    @cached_property
    def span(self) -> int:
        """The product of the dimensions that are not zero, in bytes."""
        return prod(dim for dim in self.dims if dim) * self.item

    @property
    def nbytes(self) -> int:
        """The product of all dimensions, in bytes."""
        return 0 if 0 in self.dims else self.span


def open_path(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def map_file(f: File) -> mmap.mmap:
    return mmap.mmap(f.fd, 0, mmap.MAP_SHARED, mmap.PROT_READ)


def copy_file(f: File) -> bytes:
    return os.pread(f.fd, f.size, 0)


def facts(f: File) -> object:
    """What tells one state of the open file from another."""
    found = os.fstat(f.fd)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def close_file(f: File) -> None:
    os.close(f.fd)


def records(f: File) -> Iterator[Record]:
    for index in range(f.count):
        yield Record(f, index)


def find_name(f: File, r: Record) -> tuple[bytes, bytes]:
    window = f.bytes[r.name_offset : min(r.name_offset + 1024, f.data_offset)]
    raw, nul, _ = window.partition(b"\0")
    return raw, nul


def dims(f: File, r: Record) -> tuple[int, ...]:
    return struct.unpack_from(f"{f.mark}{r.shape_count}Q", f.bytes, r.shape_offset)


def is_text(r: Record) -> bool:
    try:
        return r.name is not None
    except UnicodeDecodeError:
        return False


def overlap(found: Sequence[Record]) -> bool:
    """Whether two tensors share a byte and are no aliases of each other."""
    taken = sorted({(r.data_offset, r.data_size, r.dtype) for r in found if r.data_size})
    return any(a[0] + a[1] > b[0] for a, b in zip(taken, taken[1:], strict=False))


def unowned(f: File) -> Iterator[bytes]:
    """The runs of bytes that nothing owns."""
    owners = [(0, 64), (f.meta_offset, f.aux_start), (f.end, f.file_size)]
    for r in f.records:
        owners.append((r.name_offset, r.name_offset + len(r.raw) + 1))
        owners.append((r.shape_offset, r.shape_offset + 8 * r.shape_count))
        owners.append((r.data_offset, r.data_offset + r.data_size))
    at = 0
    for start, end in sorted(owner for owner in owners if owner[0] < owner[1]):
        if start > at:
            yield f.bytes[at:start]
        at = max(at, end)


def swap(data: bytes, unit: int) -> bytes:
    """Each ``unit`` bytes reversed."""
    out = bytearray(len(data))
    for i in range(unit):
        out[i::unit] = data[unit - 1 - i :: unit]
    return bytes(out)


def payload(f: File, r: Record) -> bytes:
    """The bytes of a tensor in little-endian order."""
    data = f.bytes[r.data_offset : r.data_offset + r.data_size]
    unit = f.parts["unit"](r)
    return f.parts["swap"](data, unit) if f.mark == ">" and unit > 1 else data


def describe(f: File, r: Record, content: str) -> dict[str, Any]:
    told = {
        "name": r.name, "dtype": DTYPES[r.dtype][0], "shape": r.dims, "nbytes": r.data_size,
        "backing": "mmap" if f.via == "mmap" and f.mark == "<" else "copy",
        "align": f.parts["align"](r),
    }  # fmt: skip
    if content == "none":
        return told
    data = f.parts["payload"](f, r)
    if content == "hex" and len(data) <= MAX_HEX:
        return {**told, "data": data.hex()}
    return {**told, "sha256": hashlib.sha256(data).hexdigest()}


def accept(f: File, content: str) -> dict[str, Any]:
    return {
        "status": "accepted",
        "byte_order": "big" if f.mark == ">" else "little",
        "count": f.parts["count"](f),
        "tensors": [f.parts["describe"](f, r, content) for r in f.parts["listing"](f)],
    }


def refuse(code: str, message: str) -> dict[str, Any]:
    return {"status": "rejected", "error": code, "message": message}


Parts = Mapping[str, Callable[..., Any]]

PARTS: dict[str, Callable[..., Any]] = {
    "open": open_path,
    "size": lambda f: os.fstat(f.fd).st_size,
    "mark": lambda magic: "<" if magic == b"GIEW" else ">",
    "header": lambda f: None,  # once its fields are known
    "sentinel": lambda f: struct.unpack(f.mark + "Q", os.pread(f.fd, 8, f.file_size - 8))[0],
    "map": map_file,
    "copy": copy_file,
    "facts": facts,
    "changed": lambda f: facts(f) != f.facts,
    "modified": lambda: refuse("MODIFIED", "changed since it was opened"),
    "same": lambda: {"status": "unmodified"},
    "close": close_file,
    "records": records,
    "name": find_name,
    "text": lambda raw: raw.decode("utf-8"),
    "dims": dims,
    "unit": lambda r: DTYPES[r.dtype][2],
    "swap": swap,
    "payload": payload,
    # A map begins with a page, the smallest of which has 4096 bytes.
    "align": lambda r: min(r.data_offset & -r.data_offset, 4096),
    "describe": describe,
    "count": lambda f: len(f.records),
    "listing": lambda f: f.records,
    "accept": accept,
    "access": accept,
    "refuse": refuse,
    "start": lambda: None,  # before the first request
    "before": lambda path: None,  # before a file is opened
    "send": lambda line: os.write(1, line),
}

CHECKS: dict[str, Check] = {
    "regular": Check(
        "OPEN-1", "NOT_REGULAR_FILE", "file", lambda f: not stat.S_ISREG(os.fstat(f.fd).st_mode)
    ),
    "small": Check("HDR-1", "TOO_SMALL", "file", lambda f: f.size < 72),
    "magic": Check("HDR-2", "BAD_MAGIC", "file", lambda f: f.magic not in (b"GIEW", b"WEIG")),
    "version": Check("HDR-3", "BAD_VERSION", "header", lambda f: f.version != 1),
    "flags": Check("HDR-7", "UNKNOWN_FLAG", "header", lambda f: f.flags & 0xFFFFFFFF),
    "reserved-0": Check("HDR-8", "BAD_RESERVED", "header", lambda f: f.reserved0),
    "reserved-1": Check("HDR-8", "BAD_RESERVED", "header", lambda f: f.reserved1),
    "header-numbers": Check(
        "NUM-2", "NUMBER_TOO_LARGE", "header",
        lambda f: max(f.count, f.meta_offset, f.data_offset, f.file_size) > LIMIT,
    ),
    "file-size-multiple": Check("HDR-4", "BAD_FILE_SIZE", "header", lambda f: f.file_size % 8),
    "file-size-least": Check("HDR-4", "BAD_FILE_SIZE", "header", lambda f: f.file_size < 72),
    "truncated": Check("HDR-5", "TRUNCATED", "header", lambda f: f.size < f.file_size),
    "trailing": Check("HDR-6", "TRAILING_DATA", "header", lambda f: f.size > f.file_size),
    "meta-least": Check("META-1", "BAD_META_TABLE", "header", lambda f: f.meta_offset < 64),
    "meta-multiple": Check("META-2", "BAD_META_TABLE", "header", lambda f: f.meta_offset % 8),
    "region-multiple": Check("REGION-1", "MISALIGNED", "header", lambda f: f.data_offset % 64),
    "region-end": Check(
        "REGION-2", "BAD_DATA_REGION", "header", lambda f: f.data_offset > f.file_size - 8
    ),
    "table-start": Check(
        "META-3", "BAD_META_TABLE", "header", lambda f: f.meta_offset > f.data_offset
    ),
    "table-room": Check(
        "META-3", "BAD_META_TABLE", "header",
        lambda f: f.count > (f.data_offset - f.meta_offset) // 48,
    ),
    "sentinel": Check("TAIL-1", "BAD_SENTINEL", "header", lambda f: f.sentinel != SENTINEL),
    "record-numbers": Check(
        "NUM-2", "NUMBER_TOO_LARGE", "record",
        lambda f, r: max(
            r.name_offset, r.shape_offset, r.shape_count, r.data_offset, r.data_size
        ) > LIMIT,
    ),
    "pad": Check("META-4", "BAD_RESERVED", "record", lambda f, r: r.pad),
    "dtype": Check("DTYPE-1", "BAD_DTYPE", "record", lambda f, r: r.dtype >= len(DTYPES)),
    "name-start": Check("NAME-1", "BAD_NAME", "record", lambda f, r: r.name_offset < f.aux_start),
    "name-end": Check("NAME-1", "BAD_NAME", "record", lambda f, r: r.name_offset >= f.data_offset),
    "name-nul": Check(
        "NAME-2", "BAD_NAME", "record",
        lambda f, r: not r.nul and r.name_offset + len(r.raw) == f.data_offset,
    ),
    "name-empty": Check("NAME-3", "BAD_NAME", "record", lambda f, r: not r.raw),
    "name-long": Check("NAME-3", "BAD_NAME", "record", lambda f, r: len(r.raw) > 1023),
    "name-utf8": Check("NAME-4", "BAD_NAME", "record", lambda f, r: not is_text(r)),
    "name-control": Check("NAME-5", "BAD_NAME", "record", lambda f, r: min(r.raw, default=0x20) < 0x20),
    "name-delete": Check("NAME-5", "BAD_NAME", "record", lambda f, r: 0x7F in r.raw),
    "rank": Check("SHAPE-1", "BAD_SHAPE", "record", lambda f, r: r.shape_count > 64),
    "shape-start": Check(
        "SHAPE-2", "BAD_SHAPE", "record", lambda f, r: r.shape_offset < f.aux_start
    ),
    "shape-end": Check(
        "SHAPE-2", "BAD_SHAPE", "record", lambda f, r: r.shape_offset > f.data_offset
    ),
    "shape-room": Check(
        "SHAPE-2", "BAD_SHAPE", "record",
        lambda f, r: r.shape_count > (f.data_offset - r.shape_offset) // 8,
    ),
    "dimensions": Check(
        "NUM-2", "NUMBER_TOO_LARGE", "record", lambda f, r: max(r.dims, default=0) > LIMIT
    ),
    "product": Check("SHAPE-4", "BAD_SHAPE", "record", lambda f, r: r.span > LIMIT),
    "data-size": Check("SHAPE-5", "BAD_DATA_SIZE", "record", lambda f, r: r.data_size != r.nbytes),
    "data-multiple": Check("DATA-1", "MISALIGNED", "record", lambda f, r: r.data_offset % 64),
    "data-start": Check(
        "DATA-2", "BAD_DATA_RANGE", "record", lambda f, r: r.data_offset < f.data_offset
    ),
    "data-past": Check("DATA-3", "BAD_DATA_RANGE", "record", lambda f, r: r.data_offset > f.end),
    "data-end": Check(
        "DATA-3", "BAD_DATA_RANGE", "record", lambda f, r: r.data_size > f.end - r.data_offset
    ),
    "unique": Check(
        "NAME-6", "DUPLICATE_NAME", "table",
        lambda f: len({r.raw for r in f.records}) != len(f.records),
    ),
    "overlap": Check("DATA-4", "OVERLAP", "table", lambda f: overlap(f.records)),
    "padding": Check(
        "PAD-1", "NONZERO_PADDING", "deep", lambda f: any(run.strip(b"\0") for run in unowned(f))
    ),
    "bool": Check(
        "BOOL-1", "BAD_BOOL", "deep",
        lambda f: any(
            r.dtype == BOOL and max(payload(f, r), default=0) > 1 for r in f.records
        ),
    ),
}  # fmt: skip


class Loader:
    """The loader that the two tables make."""

    def __init__(self, checks: Mapping[str, Check], parts: Parts) -> None:
        self.stages: dict[str, list[tuple[str, Check]]] = {}
        for name, check in checks.items():
            self.stages.setdefault(check.stage, []).append((name, check))
        self.parts = parts
        self.held: File | None = None

    def answer(
        self, path: str, content: str, level: str, via: str = "mmap", hold: bool = False
    ) -> dict[str, Any]:
        """What the loader says to one file, without the id of the request.

        With ``hold`` a file that it accepts stays open, for `check` and `access`.
        """
        self.parts["before"](path)
        if self.held is not None:
            self.held.close()
            self.held = None
        f = None
        try:
            f = File(path, self.parts, via)
            self._check(f, level)
            accepted: dict[str, Any] = self.parts["accept"](f, content)
            if hold:
                self.held = f
            return accepted
        except RefusedError as error:
            refused: dict[str, Any] = self.parts["refuse"](error.code, str(error))
            return refused
        except OSError as error:
            return {"status": "rejected", "error": "IO", "message": str(error.strerror)}
        finally:
            if f is not None and f is not self.held:
                f.close()

    def check(self, f: File) -> dict[str, Any]:
        """Whether the file that is held was changed."""
        state: dict[str, Any] = self.parts["modified" if self.parts["changed"](f) else "same"]()
        return state

    def access(self, f: File, content: str) -> dict[str, Any]:
        """The tensors of the file that is held."""
        accessed: dict[str, Any] = self.parts["access"](f, content)
        return accessed

    def _check(self, f: File, level: str) -> None:
        self._stage("file", f)
        f.read_header()
        self._stage("header", f)
        for r in self.parts["records"](f):
            self._stage("record", f, r)
            f.records.append(r)
        self._stage("table", f)
        if level == "deep":
            self._stage("deep", f)

    def _stage(self, stage: str, *args: object) -> None:
        for name, check in self.stages.get(stage, ()):
            if check.broken(*args):
                raise RefusedError(check.code, name)
