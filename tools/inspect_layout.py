"""How a checked file is laid out: its regions, their padding, and whether it is canonical."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from weig.spec.layout import (
    DATA_ALIGN,
    FILE_SIZE_ALIGN,
    HEADER_FIELDS,
    HEADER_FORMAT,
    HEADER_SIZE,
    RECORD_FIELDS,
    RECORD_FORMAT,
    RECORD_SIZE,
    SENTINEL_SIZE,
    STRUCT_ORDER,
    WRITER_DATA_ALIGN,
    align_up,
)

if TYPE_CHECKING:
    from weig.backends import ModelFile, TensorView


class Row(NamedTuple):
    """A tensor with the fields of its record that only a look at the table gives."""

    view: TensorView
    code: int
    name_offset: int
    shape_offset: int
    alias_of: str | None


class Region(NamedTuple):
    """Bytes [start, end) of the file, of which ``used`` are owned by what the region holds."""

    name: str
    start: int
    end: int
    used: int


def header(file: ModelFile) -> dict[str, int]:
    """The header's fields by name."""
    numbers = struct.unpack(
        STRUCT_ORDER[file.byte_order] + HEADER_FORMAT, file.read(0, HEADER_SIZE)
    )
    return {name: number for (name, _, _), number in zip(HEADER_FIELDS, numbers, strict=True)}


def rows(file: ModelFile, head: dict[str, int]) -> list[Row]:
    """The tensors in file order. An alias names the first record of its group in that order."""
    table = file.read(head["meta_offset"], RECORD_SIZE * len(file))
    records = struct.iter_unpack(STRUCT_ORDER[file.byte_order] + RECORD_FORMAT, table)
    names = [name for name, _, _ in RECORD_FIELDS]
    first: dict[int, str] = {}
    result = []
    for view, numbers in zip(file.views(), records, strict=True):
        record = dict(zip(names, numbers, strict=True))
        # Non-empty tensors at one offset are aliases (DATA-4).
        owner = first.setdefault(view.offset, view.name) if view.nbytes else view.name
        result.append(
            Row(
                view,
                record["dtype"],
                record["name_offset"],
                record["shape_offset"],
                owner if owner != view.name else None,
            )
        )
    return result


def regions(head: dict[str, int], tensors: Sequence[Row]) -> list[Region]:
    """The parts of the file (SPEC.md, section 2), the gap only where there is one."""
    table, data = head["meta_offset"], head["data_offset"]
    aux, end = table + RECORD_SIZE * len(tensors), head["file_size"] - SENTINEL_SIZE
    result = [
        Region("header", 0, HEADER_SIZE, HEADER_SIZE),
        Region("gap", HEADER_SIZE, table, 0),
        Region("meta table", table, aux, aux - table),
        Region("aux area", aux, data, _covered(_aux_ranges(tensors))),
        Region("data region", data, end, _covered(_data_ranges(tensors))),
        Region("sentinel", end, end + SENTINEL_SIZE, SENTINEL_SIZE),
    ]
    return [region for region in result if region.name != "gap" or region.start < region.end]


def largest_gap(head: dict[str, int], tensors: Sequence[Row]) -> tuple[int, int]:
    """The widest run of the data region that no tensor owns: (offset, size); size 0 for none."""
    position, best = head["data_offset"], (head["data_offset"], 0)
    for start, end in [*sorted(_data_ranges(tensors)), (head["file_size"] - SENTINEL_SIZE,) * 2]:
        best = max(best, (position, start - position), key=lambda gap: gap[1])
        position = max(position, end)
    return best


def alignment(numbers: Sequence[int]) -> int:
    """The largest power of two that divides all the numbers; 0 where there are none but zeros."""
    bits = 0
    for number in numbers:
        bits |= number
    return bits & -bits


def not_canonical(head: dict[str, int], tensors: Sequence[Row]) -> str | None:
    """The first way in which the file is not that of SPEC.md, section 16; None for canonical.

    The order in which the tensors lie is taken for the access order. Padding is not looked at.
    """
    if head["meta_offset"] != HEADER_SIZE:
        return f"meta_offset is {head['meta_offset']}, not {HEADER_SIZE}"
    if head["flags"]:
        return f"flags is {head['flags']:#x}, not 0"
    names = [row.view.name.encode() for row in tensors]
    for i, (left, right) in enumerate(itertools.pairwise(names)):
        if left > right:
            return f"meta[{i + 1}] is not in the order of names"
    return _aux_differs(head, tensors, names) or _data_differs(head, tensors)


def in_record_order(tensors: Sequence[Row]) -> bool:
    """Whether the tensors lie in the order of their records (aliases and empty ones aside)."""
    offsets = [row.view.offset for row in tensors if row.view.nbytes and row.alias_of is None]
    return offsets == sorted(offsets)


def _aux_differs(
    head: dict[str, int], tensors: Sequence[Row], names: Sequence[bytes]
) -> str | None:
    position = HEADER_SIZE + RECORD_SIZE * len(tensors)
    for i, row in enumerate(tensors):
        if row.shape_offset != position:
            return f"meta[{i}].shape_offset is {row.shape_offset}, not {position}"
        position += 8 * len(row.view.shape)
    for i, (row, name) in enumerate(zip(tensors, names, strict=True)):
        if row.name_offset != position:
            return f"meta[{i}].name_offset is {row.name_offset}, not {position}"
        position += len(name) + 1
    data_offset = align_up(position, WRITER_DATA_ALIGN)
    if head["data_offset"] != data_offset:
        return f"data_offset is {head['data_offset']}, not {data_offset}"
    return None


def _data_differs(head: dict[str, int], tensors: Sequence[Row]) -> str | None:
    position = head["data_offset"]
    # An empty tensor takes the offset of the one that follows it.
    order = sorted(
        range(len(tensors)), key=lambda i: (tensors[i].view.offset, tensors[i].view.nbytes > 0)
    )
    seen: set[int] = set()
    for i in order:
        view = tensors[i].view
        if view.offset in seen:  # an alias
            continue
        if view.nbytes:
            seen.add(view.offset)
        start = align_up(position, DATA_ALIGN)
        if view.offset != start:
            return f"meta[{i}].data_offset is {view.offset}, not {start}"
        position = start + view.nbytes
    ends = [row.view.offset + row.view.nbytes for row in tensors]
    file_size = align_up(max(ends, default=head["data_offset"]), FILE_SIZE_ALIGN) + SENTINEL_SIZE
    if head["file_size"] != file_size:
        return f"file_size is {head['file_size']}, not {file_size}"
    return None


def _aux_ranges(tensors: Sequence[Row]) -> list[tuple[int, int]]:
    result = []
    for row in tensors:
        result.append((row.name_offset, row.name_offset + len(row.view.name.encode()) + 1))
        result.append((row.shape_offset, row.shape_offset + 8 * len(row.view.shape)))
    return result


def _data_ranges(tensors: Sequence[Row]) -> list[tuple[int, int]]:
    return [
        (row.view.offset, row.view.offset + row.view.nbytes) for row in tensors if row.view.nbytes
    ]


def _covered(ranges: list[tuple[int, int]]) -> int:
    """How many bytes lie in at least one range."""
    total = position = 0
    for start, end in sorted(ranges):
        total += max(0, end - max(start, position))
        position = max(position, end)
    return total
