"""The records (SPEC.md, sections 5 and 7 to 10), a column at a time.

They are taken a block at a time, so that a table of a hundred million bad records is refused after
the first block. NUM-2 is checked first: from then on every number fits an int64, and the sums and
differences below cannot wrap.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weig.backends.pure import names
from weig.backends.pure.header import Header
from weig.spec.dtypes import DTYPES
from weig.spec.errors import WeigError
from weig.spec.layout import DATA_ALIGN, MAX_NUMBER, MAX_RANK, RECORD_SIZE, record_dtype

BLOCK = 1 << 18  # records
ELEMENT_SIZE = np.array([dtype.size for dtype in DTYPES], np.int64)
Int64 = np.ndarray  # of int64


class Table(NamedTuple):
    """All records of a checked file; each column has the shape (count,)."""

    names: list[str]
    name_offset: Int64
    name_end: Int64
    dtype: Int64
    shape_offset: Int64
    rank: Int64
    dims: Int64  # all shapes, one after another in record order
    data_offset: Int64
    data_size: Int64


class _Block(NamedTuple):
    """Some records in a row; ``first`` is the number of the first of them."""

    buffer: memoryview
    header: Header
    first: int
    rows: int

    def refuse(
        self, bad: np.ndarray, code: str, rule: str, field: str, values: np.ndarray, text: str
    ) -> None:
        """Raises WeigError for the first record for which ``bad`` is true."""
        if bad.any():
            row = int(bad.argmax())
            where = f"meta[{self.first + row}].{field}"
            raise WeigError(code, f"{where} {int(values[row])} {text}", field=where, rule=rule)


def read(buffer: memoryview, header: Header) -> Table:
    """Reads and checks the table, the names and the shapes. Raises WeigError."""
    count = header.tensor_count
    parts = [
        _table(_Block(buffer, header, first, min(BLOCK, count - first)))
        for first in range(0, max(count, 1), BLOCK)
    ]
    texts, *columns = zip(*parts, strict=True)
    table = Table(
        [name for part in texts for name in part], *(np.concatenate(column) for column in columns)
    )
    names.check_unique(table.names)
    _check_overlap(table.data_offset, table.data_size, table.dtype)
    return table


def _table(block: _Block) -> Table:
    """All that can be said of each record by itself."""
    buffer, header, refuse = block.buffer, block.header, block.refuse
    place = header.meta_offset + RECORD_SIZE * block.first
    raw = np.frombuffer(buffer, record_dtype(header.byte_order), block.rows, place)
    columns = {
        field: _number(block, raw, field)
        for field in ("name_offset", "shape_offset", "shape_count", "data_offset", "data_size")
    }
    refuse(raw["pad"] != 0, "BAD_RESERVED", "META-4", "pad", raw["pad"], "is not 0")
    dtype = raw["dtype"].astype(np.int64)
    refuse(dtype >= len(DTYPES), "BAD_DTYPE", "DTYPE-1", "dtype", dtype, "is not a dtype's code")
    name_offset = columns["name_offset"]
    outside = (name_offset < header.aux_start) | (name_offset >= header.data_offset)
    refuse(outside, "BAD_NAME", "NAME-1", "name_offset", name_offset, "is not in the aux area")
    texts, name_end = names.read(buffer, header, name_offset, block.first)
    rank, shape_offset = columns["shape_count"], columns["shape_offset"]
    dims, size = _shapes(block, shape_offset, rank, ELEMENT_SIZE[dtype])
    data_offset, data_size = columns["data_offset"], columns["data_size"]
    refuse(
        data_size != size,
        "BAD_DATA_SIZE",
        "SHAPE-5",
        "data_size",
        data_size,
        "is not the product of the dimensions times the element size",
    )
    _check_data(block, data_offset, data_size)
    return Table(
        texts, name_offset, name_end, dtype, shape_offset, rank, dims, data_offset, data_size
    )


def _number(block: _Block, raw: np.ndarray, field: str) -> Int64:
    """A column as int64, after NUM-2."""
    values = raw[field]
    block.refuse(
        values > MAX_NUMBER, "NUMBER_TOO_LARGE", "NUM-2", field, values, f"is past {MAX_NUMBER}"
    )
    return values.astype(np.int64)


def _shapes(block: _Block, offset: Int64, rank: Int64, element: Int64) -> tuple[Int64, Int64]:
    """All dimensions in record order, and the size in bytes that each shape means."""
    buffer, header, refuse = block.buffer, block.header, block.refuse
    refuse(rank > MAX_RANK, "BAD_SHAPE", "SHAPE-1", "shape_count", rank, f"is past {MAX_RANK}")
    outside = (offset < header.aux_start) | (offset > header.data_offset)
    refuse(outside, "BAD_SHAPE", "SHAPE-2", "shape_offset", offset, "is not in the aux area")
    too_long = rank > (header.data_offset - offset) // 8
    refuse(too_long, "BAD_SHAPE", "SHAPE-2", "shape_offset", offset, "leaves no room for the shape")
    first = np.cumsum(rank) - rank
    dims = np.empty(int(rank.sum()), np.int64)
    product, has_zero = element.copy(), np.zeros(len(rank), bool)
    # SHAPE-3: a u64 at every byte of the file, so that any alignment is read the same way.
    words = np.ndarray(
        (header.file_size - 7,), record_dtype(header.byte_order)["data_size"], buffer, 0, (1,)
    )
    for axis in range(int(rank.max(initial=0))):
        active = np.flatnonzero(rank > axis)
        column = words[offset[active] + 8 * axis]
        wide = np.zeros(len(rank), np.uint64)
        wide[active] = column
        refuse(
            wide > MAX_NUMBER,
            "NUMBER_TOO_LARGE",
            "NUM-2",
            f"shape[{axis}]",
            wide,
            f"is past {MAX_NUMBER}",
        )
        column = column.astype(np.int64)
        dims[first[active] + axis] = column
        zero = column == 0
        has_zero[active] |= zero
        factor = np.where(zero, 1, column)
        wraps = np.zeros(len(rank), bool)
        wraps[active] = factor > MAX_NUMBER // product[active]
        refuse(
            wraps,
            "BAD_SHAPE",
            "SHAPE-4",
            f"shape[{axis}]",
            wide,
            f"makes a product past {MAX_NUMBER} bytes",
        )
        product[active] *= factor
    return dims, np.where(has_zero, 0, product)


def _check_data(block: _Block, offset: Int64, size: Int64) -> None:
    header, refuse = block.header, block.refuse
    refuse(
        offset % DATA_ALIGN != 0,
        "MISALIGNED",
        "DATA-1",
        "data_offset",
        offset,
        "is no multiple of 64",
    )
    refuse(
        offset < header.data_offset,
        "BAD_DATA_RANGE",
        "DATA-2",
        "data_offset",
        offset,
        f"is before the data region, {header.data_offset}",
    )
    refuse(
        (offset > header.end) | (size > header.end - offset),
        "BAD_DATA_RANGE",
        "DATA-3",
        "data_offset",
        offset,
        f"and data_size reach past the end of the data, {header.end}",
    )


def _check_overlap(offset: Int64, size: Int64, dtype: Int64) -> None:
    """DATA-4. Sorted, with aliases of one another side by side, only neighbours can overlap."""
    used = np.flatnonzero(size > 0)
    if (offset[used][1:] < offset[used][:-1] + size[used][:-1]).any():
        used = used[np.lexsort((dtype[used], size[used], offset[used]))]
    before, after = used[:-1], used[1:]
    alias = (
        (offset[before] == offset[after])
        & (size[before] == size[after])
        & (dtype[before] == dtype[after])
    )
    bad = np.flatnonzero(~alias & (offset[after] < offset[before] + size[before]))
    if len(bad):
        a, b = int(before[bad[0]]), int(after[bad[0]])
        raise WeigError(
            "OVERLAP",
            f"meta[{a}] ({size[a]} bytes at {offset[a]}) and meta[{b}] ({size[b]} bytes at "
            f"{offset[b]}) share bytes and are not aliases",
            field=f"meta[{b}].data_offset",
            rule="DATA-4",
        )
