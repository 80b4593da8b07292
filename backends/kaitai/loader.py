"""The loader over the parser that is generated from spec/weig.ksy. An oracle, never the fast path.

It shares no check with another loader: what the .ksy says is checked by generated code (parser.py),
the rest by rules.py, and what concerns the file itself here.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import mmap
import os
import stat
import sys
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING

from weig.backends.interface import Mode, Progress, Record
from weig.spec.dtypes import BY_CODE
from weig.spec.errors import WeigError, escape
from weig.spec.foreign import kind_of
from weig.spec.layout import MAGIC_BYTES, MIN_FILE_SIZE, RECORD_SIZE, ByteOrder

if TYPE_CHECKING:
    import numpy as np
    from kaitaistruct import KaitaiStream

NAME = "kaitai"

_POPULATE_READ = 22  # MADV_POPULATE_READ: Linux 5.14, and no name in the mmap module
_COPY = 1 << 26


def available() -> bool:
    """Whether kaitaistruct is installed (the extra ``kaitai``)."""
    return importlib.util.find_spec("kaitaistruct") is not None


def open(path: str, mode: Mode) -> KaitaiFile:
    """Opens a file and checks all of level *open*. Raises WeigError alone for what the file is."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise _not_opened(path, error) from None
    try:
        return KaitaiFile(descriptor, mode)
    except OSError as error:
        _close(descriptor)
        code = "TOO_LARGE" if error.errno == errno.ENOMEM else "IO"
        raise WeigError(code, f"{escape(path)}: {error.strerror or error}") from None
    except BaseException:
        _close(descriptor)
        raise


def _close(descriptor: int) -> None:
    with contextlib.suppress(OSError):  # nothing was written that could be lost
        os.close(descriptor)


def _not_opened(path: str, error: Exception) -> WeigError:
    """OPEN-1 where the refusal is for the kind of the file (a socket has no open), else OPEN-11."""
    if isinstance(error, OSError):
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):
                return WeigError(
                    "NOT_REGULAR_FILE", f"{escape(path)}: {error.strerror}", rule="OPEN-1"
                )
        except OSError:
            pass  # the first error says more
        return WeigError("IO", f"{escape(path)}: {error.strerror}", rule="OPEN-11")
    return WeigError("IO", f"{escape(path)}: not a path: {error}", rule="OPEN-11")


class KaitaiFile:
    """A checked file; `weig.backends.interface.Opened` says what its methods give."""

    byte_order: ByteOrder
    count: int
    file_size: int

    def __init__(self, descriptor: int, mode: Mode) -> None:
        """Takes over the descriptor, unless it raises (WeigError or OSError)."""
        from kaitaistruct import KaitaiStream

        from weig.backends.kaitai import parser, rules

        self._identity = _identity(os.fstat(descriptor))
        size = _checked_size(descriptor)
        # Header and sentinel by plain reads first: a map would fault in far more, and a copy of a
        # huge file of something else would be for nothing.
        parser.parse_header(KaitaiStream(_Reader(descriptor, size)))
        self._memory: mmap.mmap | None = (
            _copy(descriptor, size) if mode == "read" else _map(descriptor, size)
        )
        self._mapped = mode == "mmap"
        self.file_size = size
        source = parser.Source(self._memory)
        try:
            self._parse(KaitaiStream(source))
        finally:
            source.drop()
        self._records: list[Record] = [item.record for item in self._parsed]
        self._index = rules.index_names(self._records)
        rules.check_apart(self._records)
        self._descriptor = descriptor
        self._release = weakref.finalize(self, _close, descriptor)

    def _parse(self, stream: KaitaiStream) -> None:
        """Keeps what the generated parser finds, and nothing of its objects."""
        from weig.backends.kaitai import parser, rules

        root = parser.parse_header(stream)
        header = root.body.header
        self.byte_order, self.count = parser.byte_order(root), header.num_tensors
        self._table = (header.ofs_tensors, header.ofs_tensors + self.count * RECORD_SIZE)
        self._data_offset = header.ofs_data
        self._parsed = []
        for i, item in enumerate(parser.parse_records(root, stream)):
            rules.check_name(i, item.record[0])
            self._parsed.append(item)

    def buffer(self) -> memoryview:
        return memoryview(self._live()).toreadonly()

    def names(self) -> list[str]:
        return [record[0] for record in self._records]

    def index(self, name: str) -> int:
        return self._index.get(name, -1)

    def record(self, i: int) -> Record:
        return self._records[i]

    def records(self) -> list[Record]:
        return list(self._records)

    def verify(self, progress: Progress | None) -> None:
        from weig.backends.kaitai import rules

        owned = rules.owned_ranges(self._parsed, self._table, self.file_size)
        rules.check_deep(self.buffer(), owned, self._records, progress)

    def check_unmodified(self) -> None:
        self._live()
        try:
            now = _identity(os.fstat(self._descriptor))
        except OSError as error:
            raise WeigError("IO", f"fstat: {error.strerror}", rule="OPEN-11") from None
        if now != self._identity:
            raise WeigError("MODIFIED", f"was {self._identity}, is {now}", rule="OPEN-10")

    def prefetch(self, wait: bool) -> None:
        memory = self._live()
        start = self._data_offset // mmap.PAGESIZE * mmap.PAGESIZE
        if not self._mapped or start >= self.file_size:
            return
        try:
            memory.madvise(_POPULATE_READ if wait else mmap.MADV_WILLNEED, start)
        except OSError:
            if wait:  # an older kernel, or a file that was cut: reading tells, touching kills
                for at in range(start, self.file_size, _COPY):
                    _pread(self._descriptor, min(_COPY, self.file_size - at), at)

    def swapped(self, offset: int, nbytes: int, unit: int) -> memoryview:
        """Raises ValueError where the bytes do not all lie in the file or are no whole units."""
        import numpy as np

        if nbytes % unit:
            raise ValueError(f"{nbytes} bytes are no multiple of {unit}")
        units = np.ndarray((nbytes // unit,), f"u{unit}", self.buffer(), offset)
        try:
            units = units.byteswap()
        except MemoryError:
            raise WeigError(
                "TOO_LARGE", f"no memory for a copy of {nbytes} bytes", rule="OPEN-9"
            ) from None
        return units.view(np.uint8).data.toreadonly()

    def arrays(self) -> dict[str, np.ndarray]:
        return dict(self._arrays())

    def _arrays(self) -> Iterator[tuple[str, np.ndarray]]:
        import numpy as np

        buffer = np.frombuffer(self.buffer(), np.uint8)
        for name, code, shape, offset, nbytes in self._records:
            dtype = BY_CODE[code]
            if self.byte_order == sys.byteorder or dtype.unit == 1:
                yield name, np.ndarray(shape, dtype.to_numpy(), buffer, offset)
            else:
                fresh = np.frombuffer(self.swapped(offset, nbytes, dtype.unit), np.uint8)
                yield name, np.ndarray(shape, dtype.to_numpy(), fresh)

    def close(self) -> None:
        self._memory = None
        self._release()

    def _live(self) -> mmap.mmap:
        if self._memory is None:
            raise WeigError("CLOSED", "the file is closed")
        return self._memory


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    """OPEN-10: device, inode, size, time of last modification in nanoseconds."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _checked_size(descriptor: int) -> int:
    """OPEN-1, HDR-2 with its hint, HDR-1; the rest of the header is the parser's."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise WeigError("NOT_REGULAR_FILE", stat.filemode(status.st_mode), rule="OPEN-1")
    start = os.pread(descriptor, MIN_FILE_SIZE, 0)
    if len(start) >= 4 and start[:4] not in MAGIC_BYTES:
        kind = kind_of(start)
        hint = f"; it looks like {kind}" if kind else ""
        message = f"the file starts with {start[:4].hex(' ')}{hint}"
        raise WeigError("BAD_MAGIC", message, field="header.magic", rule="HDR-2")
    if status.st_size < MIN_FILE_SIZE:
        message = f"{status.st_size} bytes; the smallest file has {MIN_FILE_SIZE}"
        raise WeigError("TOO_SMALL", message, rule="HDR-1")
    return status.st_size


class _Reader:
    """The file for the generated parser, by plain reads; of the size that fstat told."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self._size = size
        self._at = 0

    def read(self, size: int) -> bytes:
        data = _pread(self._descriptor, min(size, self._size - self._at), self._at)
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at


def _pread(descriptor: int, size: int, at: int) -> bytes:
    """All of ``size`` bytes (OPEN-11). Raises OSError, or WeigError TRUNCATED."""
    data = b""
    while len(data) < size:
        piece = os.pread(descriptor, size - len(data), at + len(data))
        if not piece:
            raise _cut(at + len(data))
        data += piece
    return data


def _cut(at: int) -> WeigError:
    return WeigError("TRUNCATED", f"the file ends at byte {at} now", rule="OPEN-11")


def _map(descriptor: int, size: int) -> mmap.mmap:
    try:
        return mmap.mmap(descriptor, size, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)
    except OverflowError:
        raise WeigError("TOO_LARGE", f"{size} bytes", rule="OPEN-9") from None
    except ValueError as error:  # the file became shorter
        raise WeigError("TRUNCATED", str(error), rule="OPEN-11") from None


def _copy(descriptor: int, size: int) -> mmap.mmap:
    """The file copied into private memory (OPEN-14)."""
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OverflowError:
        raise WeigError("TOO_LARGE", f"{size} bytes", rule="OPEN-9") from None
    with memoryview(memory) as target:
        at = 0
        while at < size:
            at, end = _data(descriptor, at, size)
            while at < end:
                n = os.preadv(descriptor, [target[at : min(end, at + _COPY)]], at)
                if not n:
                    raise _cut(at)
                at += n
    return memory


def _data(descriptor: int, at: int, size: int) -> tuple[int, int]:
    """The next range from ``at`` on that is no hole of the file: the copy has its zeros already."""
    try:
        start = os.lseek(descriptor, at, os.SEEK_DATA)
        return min(start, size), min(os.lseek(descriptor, start, os.SEEK_HOLE), size)
    except OSError as error:
        if error.errno == errno.ENXIO and os.fstat(descriptor).st_size >= size:
            return size, size  # a hole up to the end
        return at, size  # cut meanwhile, or a file system that does not tell
