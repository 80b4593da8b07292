"""Deep verification (SPEC.md, section 12)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from weig.backends.interface import Progress
from weig.backends.pure.header import Header
from weig.backends.pure.records import Table
from weig.spec.dtypes import BY_NAME
from weig.spec.errors import WeigError
from weig.spec.layout import HEADER_SIZE

CHUNK = 8 << 20


def verify(
    buffer: memoryview, header: Header, table: Table, progress: Progress | None = None
) -> None:
    """PAD-1 and BOOL-1. Raises WeigError; ``progress`` is called with bytes (done, total)."""
    gaps = _gaps(header, table)
    bools = _bools(table)
    total = sum(end - start for start, end in [*gaps, *((a, b) for _, a, b in bools)])
    done = 0
    for start, end in gaps:
        for offset, chunk in _chunks(buffer, start, end):
            if chunk.any():
                at = offset + int((chunk != 0).argmax())
                raise WeigError(
                    "NONZERO_PADDING", f"the padding byte at {at} is {buffer[at]:#x}", rule="PAD-1"
                )
            done += len(chunk)
            if progress:
                progress(done, total)
    for i, start, end in bools:
        for offset, chunk in _chunks(buffer, start, end):
            if (chunk > 1).any():
                at = offset + int((chunk > 1).argmax())
                raise WeigError(
                    "BAD_BOOL",
                    f"element {at - start} of meta[{i}] is {buffer[at]}, not 0 or 1",
                    field=f"meta[{i}]",
                    rule="BOOL-1",
                )
            done += len(chunk)
            if progress:
                progress(done, total)


def _gaps(header: Header, table: Table) -> list[tuple[int, int]]:
    """The ranges that nothing owns, in file order."""
    starts = [
        np.array([0, header.meta_offset, header.end]),
        table.name_offset,
        table.shape_offset,
        table.data_offset,
    ]
    ends = [
        np.array([HEADER_SIZE, header.aux_start, header.file_size]),
        table.name_end + 1,
        table.shape_offset + 8 * table.rank,
        table.data_offset + table.data_size,
    ]
    start, end = np.concatenate(starts), np.concatenate(ends)
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    free = np.flatnonzero(start[1:] > end[:-1])
    return list(zip(end[free].tolist(), start[free + 1].tolist(), strict=True))


def _bools(table: Table) -> list[tuple[int, int, int]]:
    """(record, start, end) of each BOOL tensor that has bytes; of aliases the first."""
    used = np.flatnonzero((table.dtype == BY_NAME["BOOL"].code) & (table.data_size > 0))
    ranges: dict[tuple[int, int], int] = {}
    for i in used.tolist():
        start = int(table.data_offset[i])
        ranges.setdefault((start, start + int(table.data_size[i])), i)
    return [(i, start, end) for (start, end), i in ranges.items()]


def _chunks(buffer: memoryview, start: int, end: int) -> Iterator[tuple[int, np.ndarray]]:
    for offset in range(start, end, CHUNK):
        yield offset, np.frombuffer(buffer, np.uint8, min(CHUNK, end - offset), offset)
