"""The loader in Python and numpy: the map of the file, checked a column of the table at a time."""

from __future__ import annotations

import importlib.util
import mmap
import sys
from typing import TYPE_CHECKING

from weig.backends.interface import Mode, Progress, Record
from weig.spec.dtypes import BY_CODE
from weig.spec.errors import WeigError
from weig.spec.layout import ByteOrder

if TYPE_CHECKING:
    import numpy as np

    from weig.backends.pure.header import Header
    from weig.backends.pure.records import Table
    from weig.backends.pure.source import Source

NAME = "pure"
POPULATE_READ = 22  # MADV_POPULATE_READ: Linux 5.14, and no name in the mmap module


def available() -> bool:
    return importlib.util.find_spec("numpy") is not None


def open(path: str, mode: Mode) -> PureFile:
    """Opens and checks a file. Raises WeigError."""
    from weig.backends.pure import header, records
    from weig.backends.pure.source import Source

    source = Source(path)
    head, tail = source.ends()
    checked = header.check(head, tail, source.size)
    buffer = source.memory(mode)
    if mode == "read":
        # The file may have changed while it was copied: what is checked is the copy.
        copied = bytes(buffer[: len(head)]), bytes(buffer[-len(tail) :])
        checked = header.check(*copied, source.size)
    return PureFile(source, checked, records.read(buffer, checked), buffer)


class PureFile:
    """A checked file; see `weig.backends.interface.Opened`."""

    def __init__(self, source: Source, header: Header, table: Table, buffer: memoryview) -> None:
        self._source = source
        self._header = header
        self._table = table
        self._buffer = buffer
        self._first_dim: list[int] | None = None
        self._indices: dict[str, int] | None = None
        self.byte_order: ByteOrder = header.byte_order
        self.count = header.tensor_count
        self.file_size = header.file_size

    def buffer(self) -> memoryview:
        return self._buffer

    def names(self) -> list[str]:
        return list(self._table.names)

    def index(self, name: str) -> int:
        if self._indices is None:
            self._indices = {known: i for i, known in enumerate(self._table.names)}
        return self._indices.get(name, -1)

    def record(self, i: int) -> Record:
        table = self._table
        if self._first_dim is None:
            self._first_dim = [0, *table.rank.cumsum().tolist()]
        shape = tuple(table.dims[self._first_dim[i] : self._first_dim[i + 1]].tolist())
        return (
            table.names[i],
            int(table.dtype[i]),
            shape,
            int(table.data_offset[i]),
            int(table.data_size[i]),
        )

    def records(self) -> list[Record]:
        table = self._table
        dims = table.dims.tolist()
        result: list[Record] = []
        start = 0
        for name, code, rank, offset, size in zip(
            table.names,
            table.dtype.tolist(),
            table.rank.tolist(),
            table.data_offset.tolist(),
            table.data_size.tolist(),
            strict=True,
        ):
            result.append((name, code, tuple(dims[start : start + rank]), offset, size))
            start += rank
        return result

    def verify(self, progress: Progress | None) -> None:
        from weig.backends.pure import deep

        deep.verify(self._buffer, self._header, self._table, progress)

    def check_unmodified(self) -> None:
        self._source.check_unmodified()

    def prefetch(self, wait: bool) -> None:
        memory = self._buffer.obj
        start = self._header.data_offset & -mmap.PAGESIZE
        if not isinstance(memory, mmap.mmap):
            return
        advice = POPULATE_READ if wait else mmap.MADV_WILLNEED
        try:
            memory.madvise(advice, start, self.file_size - start)
        except OSError:
            if wait:  # an older kernel, or a file that was cut: reading tells, touching kills
                self._source.read_through(start)

    def swapped(self, offset: int, nbytes: int, unit: int) -> memoryview:
        import numpy as np

        from weig.backends.pure.source import fresh

        try:
            target = fresh(nbytes)
        except OSError:
            raise WeigError(
                "TOO_LARGE", f"no memory for a copy of {nbytes} bytes", rule="OPEN-9"
            ) from None
        swapped = np.frombuffer(self._buffer, f"u{unit}", nbytes // unit, offset).view(
            np.dtype(f"u{unit}").newbyteorder()
        )
        # A copy between byte orders runs at the speed of memory; ndarray.byteswap does not.
        np.copyto(np.frombuffer(target, f"u{unit}"), swapped)
        return target.toreadonly()

    def arrays(self) -> dict[str, np.ndarray]:
        import numpy as np

        dtypes = {code: BY_CODE[code].to_numpy() for code in set(self._table.dtype.tolist())}
        foreign = self.byte_order != sys.byteorder
        # Over a memoryview, numpy would hold the writable memory behind it and let it be opened up.
        buffer, array = np.frombuffer(self._buffer, np.uint8), np.ndarray
        result = {}
        for name, code, shape, offset, size in self.records():
            if foreign and BY_CODE[code].unit > 1:
                data = np.frombuffer(self.swapped(offset, size, BY_CODE[code].unit), np.uint8)
                result[name] = array(shape, dtypes[code], data)
            else:
                result[name] = array(shape, dtypes[code], buffer, offset)
        return result

    def close(self) -> None:
        self._source.close()
