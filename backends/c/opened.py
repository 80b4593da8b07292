"""A file opened by the C library: every answer is one call into C, however many tensors it has."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any

from weig.backends._buffer import Exporter
from weig.backends._c import ffi, lib
from weig.backends.interface import Mode, Progress, Record
from weig.spec.dtypes import BY_CODE
from weig.spec.errors import WeigError, escape
from weig.spec.layout import ByteOrder

if TYPE_CHECKING:
    import numpy as np


class OpenedC:
    """A ``weig_file``; its methods are those of `weig.backends.interface.Opened`.

    A method holds the C object while it runs, so `close` in another thread takes effect after it.
    """

    def __init__(self, path: str, mode: Mode) -> None:
        raw_path = os.fsencode(path)
        if b"\0" in raw_path:
            raise WeigError("IO", "a path cannot hold a NUL")
        file = ffi.new("weig_file **")
        error = ffi.new("weig_error *")
        if lib.weig_open(raw_path, lib.WEIG_READ if mode == "read" else lib.WEIG_MMAP, file, error):
            raise _exception(error, prefix=f"{escape(raw_path)}: ")
        self._file = ffi.gc(file[0], lib.weig_close)
        self._memory = _view(lib.weig_share(file[0]))
        self.byte_order: ByteOrder = "big" if lib.weig_is_big_endian(file[0]) else "little"
        self.count: int = lib.weig_count(file[0])
        self.file_size: int = lib.weig_size(file[0])

    def buffer(self) -> memoryview:
        self._live()
        return self._memory

    def names(self) -> list[str]:
        file = self._live()
        names = ffi.new("char[]", lib.weig_names_size(file))
        _fill(file, names=names)
        return _split(names)

    def index(self, name: str) -> int:
        # A lone surrogate becomes bytes that no name has (NAME-4).
        raw = name.encode("utf-8", "surrogatepass")
        index: int = lib.weig_find(self._live(), raw, len(raw))
        return index

    def record(self, i: int) -> Record:
        tensor = ffi.new("weig_tensor *")
        _call(lib.weig_tensor_at, self._live(), i, tensor)
        name = ffi.unpack(tensor.name, tensor.name_size).decode()
        shape = tuple(ffi.unpack(tensor.shape, tensor.rank))
        return name, tensor.dtype, shape, tensor.offset, tensor.size

    def records(self) -> list[Record]:
        file = self._live()
        count = self.count
        names = ffi.new("char[]", lib.weig_names_size(file))
        dims = ffi.new("uint64_t[]", lib.weig_dims_count(file))
        ranks = ffi.new("uint32_t[]", count)
        dtypes = ffi.new("uint32_t[]", count)
        offsets = ffi.new("uint64_t[]", count)
        sizes = ffi.new("uint64_t[]", count)
        _fill(
            file, names=names, dims=dims, ranks=ranks, dtypes=dtypes, offsets=offsets, sizes=sizes
        )
        dimensions = iter(ffi.unpack(dims, len(dims)))
        shapes = (tuple(islice(dimensions, rank)) for rank in ffi.unpack(ranks, count))
        columns = (ffi.unpack(column, count) for column in (dtypes, offsets, sizes))
        codes, starts, nbytes = columns
        return list(zip(_split(names), codes, shapes, starts, nbytes, strict=True))

    def verify(self, progress: Progress | None) -> None:
        file = self._live()
        if progress is None:
            _call(lib.weig_verify, file, ffi.NULL, ffi.NULL)
            return
        failures: list[BaseException] = []

        def report(done: int, total: int) -> int:
            try:
                progress(done, total)
            except BaseException as failure:  # through C as an answer, then raised below
                failures.append(failure)
            return len(failures)

        handle = ffi.new_handle(report)
        error = ffi.new("weig_error *")
        code = lib.weig_verify(file, lib.weig_on_progress, handle, error)
        if failures:
            raise failures[0]
        if code:
            raise _exception(error)

    def check_unmodified(self) -> None:
        _call(lib.weig_check_unmodified, self._live())

    def prefetch(self, wait: bool) -> None:
        _call(lib.weig_prefetch, self._live(), wait)

    def swapped(self, offset: int, nbytes: int, unit: int) -> memoryview:
        memory = ffi.new("weig_memory **")
        _call(lib.weig_swapped, self._live(), offset, nbytes, unit, memory)
        return _view(memory[0])

    def arrays(self) -> dict[str, np.ndarray]:
        from numpy import ndarray

        records = self.records()
        data, start = self._host_data()
        dtypes = {code: BY_CODE[code].to_numpy() for code in {record[1] for record in records}}
        try:
            return {
                name: ndarray(shape, dtypes[code], data, offset - start)
                for name, code, shape, offset, _ in records
            }
        except ValueError as error:  # more dimensions than this numpy knows
            raise WeigError("UNSUPPORTED", f"numpy cannot hold a tensor: {error}") from error

    def close(self) -> None:
        self._file = None
        self._memory = memoryview(b"")

    def _live(self) -> Any:
        file = self._file
        if file is None:
            raise WeigError("CLOSED", "the file is closed")
        return file

    def _host_data(self) -> tuple[memoryview, int]:
        """All tensors in the host's byte order, and the offset in the file of the first byte."""
        file = self._live()
        if not lib.weig_is_foreign(file):
            return self._memory, 0
        memory = ffi.new("weig_memory **")
        _call(lib.weig_swapped_data, file, memory)
        return _view(memory[0]), lib.weig_data_offset(file)


@ffi.def_extern(error=1)
def weig_on_progress(user: Any, done: int, total: int) -> int:
    """The progress function that C calls; ``user`` is the handle of the Python one."""
    stop: int = ffi.from_handle(user)(done, total)
    return stop


def _call(function: Callable[..., int], *arguments: Any) -> None:
    """Calls a function whose last argument is the error and whose answer is a code."""
    error = ffi.new("weig_error *")
    if function(*arguments, error):
        raise _exception(error)


def _exception(error: Any, prefix: str = "") -> WeigError:
    return WeigError(
        ffi.string(lib.weig_code_name(error.code)).decode(),
        prefix + ffi.string(error.message).decode(),
        field=ffi.string(error.field).decode() or None,
        rule=ffi.string(error.rule).decode() or None,
    )


def _fill(file: Any, **columns: Any) -> None:
    _call(lib.weig_fill, file, ffi.new("weig_columns *", columns))


def _split(names: Any) -> list[str]:
    """The names of a blob in which each ends with a NUL."""
    return bytes(ffi.buffer(names)).decode().split("\0")[:-1]


class _ReadOnly(Exporter):
    """A buffer that nobody gets to write to. (ffi.buffer is one that all may write to, and numpy
    looks through a memoryview at what it was made from.)"""

    def __init__(self, buffer: Any) -> None:
        self._view = memoryview(buffer).toreadonly()

    def __buffer__(self, flags: int, /) -> memoryview:
        return self._view


def _view(memory: Any) -> memoryview:
    """The bytes of a ``weig_memory``, which is released when the last view of them is gone.

    The view holds its buffer, the buffer holds the pointer, and the pointer's end is the release.
    """
    data = ffi.gc(lib.weig_memory_data(memory), lambda _: lib.weig_memory_release(memory))
    return memoryview(_ReadOnly(ffi.buffer(data, lib.weig_memory_size(memory))))
