"""Which byte of a file is which field: for annotated dumps, of broken files above all.

Nothing is checked here and nothing is refused. Every number of the file is taken as a hint: what it
points to is shown where it lies inside the file, and left out where it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple

from weig.spec.dtypes import BY_CODE
from weig.spec.errors import escape
from weig.spec.layout import (
    HEADER_FIELDS,
    HEADER_SIZE,
    MAGIC_BYTES,
    MAX_NAME_BYTES,
    MAX_RANK,
    RECORD_FIELDS,
    RECORD_SIZE,
    SENTINEL_SIZE,
    ByteOrder,
)

# read(offset, size) -> those bytes of the file; fewer where the file ends.
Read = Callable[[int, int], bytes]


class Field(NamedTuple):
    """A run of bytes with a meaning; ``text`` is its value, safe to print."""

    offset: int
    length: int
    path: str
    text: str


class _File(NamedTuple):
    read: Read
    size: int
    order: ByteOrder


def fields(read: Read, size: int, max_records: int = 1000) -> Iterator[Field]:
    """The fields of a file of ``size`` bytes: header, records, what they point to, sentinel.

    Header and records come in file order, then names, dimensions and data sorted by offset (they
    may coincide, in a good file too), then the sentinel. Only the first ``max_records`` records are
    looked at; one more field stands for the others. A field that the file cuts off has the length
    that is left. Nothing is raised for what the file says; the reader's own errors pass through.
    """
    file = _File(read, size, MAGIC_BYTES.get(read(0, 4), "little"))
    header = yield from _structure(file, 0, "header", HEADER_FIELDS)
    table, count = header.get("meta_offset", 0), header.get("tensor_count", 0)
    fitting = min(count, max(0, size - table) // RECORD_SIZE + 1)
    # A table inside the header would only name its bytes a second time.
    shown = min(fitting, max_records) if table >= HEADER_SIZE else 0
    found: list[Field] = []
    for i in range(shown):
        record = yield from _structure(file, table + i * RECORD_SIZE, f"meta[{i}]", RECORD_FIELDS)
        found.extend(_targets(file, f"meta[{i}]", record))
    if 0 < shown < fitting:
        rest = Field(
            table + shown * RECORD_SIZE,
            (count - shown) * RECORD_SIZE,
            f"meta[{shown}...]",
            f"{count - shown} more records",
        )
        yield from _inside(file, rest)
    yield from sorted(found)
    yield from _sentinel(file, header.get("file_size", 0))


def _structure(
    file: _File, start: int, path: str, layout: Sequence[tuple[str, int, int]]
) -> Generator[Field, None, dict[str, int]]:
    """The fields of a header or a record; returns the numbers of those that are whole."""
    numbers: dict[str, int] = {}
    for name, at, size in layout:
        data = file.read(start + at, size) if start + at < file.size else b""
        if not data:
            break
        where = f"{path}.{name}"
        if len(data) == size:
            numbers[name] = int.from_bytes(data, file.order)
            yield Field(start + at, size, where, _number(name, numbers[name]))
        else:
            yield Field(start + at, len(data), where, f"cut: {data.hex(' ')}")
    return numbers


def _targets(file: _File, path: str, record: dict[str, int]) -> Iterator[Field]:
    """What a record points to, as far as it lies in the file."""
    if len(record) < len(RECORD_FIELDS):
        return
    at = record["name_offset"]
    if at < file.size:
        name, nul, _ = file.read(at, MAX_NAME_BYTES + 1).partition(b"\0")
        text = f'"{escape(name)}"' if nul else f'"{escape(name)}" without a NUL'
        yield Field(at, len(name) + len(nul), f"{path}.name", text)
    for k in range(min(record["shape_count"], MAX_RANK)):
        at = record["shape_offset"] + 8 * k
        data = file.read(at, 8) if at < file.size else b""
        if len(data) < 8:
            break
        yield Field(at, 8, f"{path}.shape[{k}]", str(int.from_bytes(data, file.order)))
    data_size = record["data_size"]
    dtype = BY_CODE.get(record["dtype"])
    what = f"{data_size} bytes of {dtype.name if dtype else 'unknown dtype'}"
    yield from _inside(file, Field(record["data_offset"], data_size, f"{path}.data", what))


def _sentinel(file: _File, file_size: int) -> Iterator[Field]:
    """The last eight bytes that the header tells of, or else those of the file."""
    smallest = HEADER_SIZE + SENTINEL_SIZE
    end = file_size if smallest <= file_size <= file.size else file.size
    if end >= smallest:
        data = file.read(end - SENTINEL_SIZE, SENTINEL_SIZE)
        value = int.from_bytes(data, file.order)
        yield Field(end - SENTINEL_SIZE, SENTINEL_SIZE, "sentinel", f"{value:#x}")


def _number(name: str, value: int) -> str:
    if name == "dtype":
        return f"{value} ({BY_CODE[value].name if value in BY_CODE else 'unknown'})"
    return f"{value:#x}" if name in ("magic", "flags") else str(value)


def _inside(file: _File, field: Field) -> Iterator[Field]:
    """The field, cut to the file; nothing where it is empty or lies outside."""
    length = min(field.length, file.size - field.offset)
    if length > 0:
        yield field._replace(length=length)
