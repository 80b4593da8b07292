"""A file's descriptor, its identity and its bytes: everything that asks the operating system."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
from typing import NamedTuple

from weig.backends.interface import Mode
from weig.spec.errors import WeigError, escape
from weig.spec.layout import HEADER_SIZE, MIN_FILE_SIZE, SENTINEL_SIZE

READ_CHUNK = 8 << 20


class Identity(NamedTuple):
    """What tells one state of a file from another (OPEN-10)."""

    device: int
    inode: int
    size: int
    mtime_ns: int


class Source:
    """An open regular file. Closes its descriptor when it goes."""

    __slots__ = ("fd", "identity", "path", "size")

    def __init__(self, path: str) -> None:
        """Opens without blocking (OPEN-2) and takes regular files alone (OPEN-1)."""
        self.fd = -1
        self.path = path
        try:
            # A FIFO opens at once with O_NONBLOCK; a terminal must not become ours.
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
            self.fd = os.open(path, flags)
            status = os.fstat(self.fd)
        except (OSError, ValueError) as error:
            raise self._refused(error) from None
        if not stat.S_ISREG(status.st_mode):
            raise WeigError(
                "NOT_REGULAR_FILE", f"{escape(path)}: not a regular file", rule="OPEN-1"
            )
        # OPEN-3: the size of the very file that is read.
        self.size = status.st_size
        self.identity = _identity(status)

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):  # nothing was written that could be lost
                os.close(fd)

    def ends(self) -> tuple[bytes, bytes]:
        """The first 64 and the last 8 bytes (fewer of a file that is shorter than 72).

        By pread: faulting them in through a map makes the kernel read far more than it needs.
        """
        head = self._read(min(HEADER_SIZE, self.size), 0)
        if self.size < MIN_FILE_SIZE:
            return head, b""
        return head, self._read(SENTINEL_SIZE, self.size - SENTINEL_SIZE)

    def memory(self, mode: Mode) -> memoryview:
        """The whole file: mapped, or copied."""
        try:
            if mode == "mmap":
                return memoryview(mmap.mmap(self.fd, self.size, prot=mmap.PROT_READ))
            return self._copied()
        except ValueError:  # how Python refuses to map more than the file has
            raise self._cut(os.fstat(self.fd).st_size) from None
        except (OSError, OverflowError) as error:
            raise self._too_large(error) from None

    def read_through(self, start: int) -> None:
        """Reads the file from ``start`` to its end into nothing. Raises WeigError."""
        for offset in range(start, self.size, READ_CHUNK):
            self._read(min(READ_CHUNK, self.size - offset), offset)

    def check_unmodified(self) -> None:
        try:
            now = _identity(os.fstat(self.fd))
        except OSError as error:
            raise self._refused(error) from None
        if now != self.identity:
            raise WeigError(
                "MODIFIED",
                f"{escape(self.path)} changed since it was opened: size {self.identity.size} -> "
                f"{now.size}, mtime_ns {self.identity.mtime_ns} -> {now.mtime_ns}",
                rule="OPEN-10",
            )

    def _copied(self) -> memoryview:
        target = fresh(self.size)
        done = 0
        while done < self.size:
            start, end = self._extent(done)
            done = max(done, start)
            while done < end:
                count = os.preadv(self.fd, [target[done : min(end, done + READ_CHUNK)]], done)
                if count == 0:
                    raise self._cut(done)
                done += count
        return target.toreadonly()

    def _extent(self, offset: int) -> tuple[int, int]:
        """The next range at or after ``offset`` that is not a hole: fresh memory has its zeros."""
        try:
            start = min(os.lseek(self.fd, offset, os.SEEK_DATA), self.size)
            return start, min(os.lseek(self.fd, start, os.SEEK_HOLE), self.size)
        except OSError as error:
            if error.errno == errno.ENXIO and os.fstat(self.fd).st_size >= self.size:
                return self.size, self.size  # nothing but a hole up to the end
            if error.errno == errno.ENXIO:
                raise self._cut(offset) from None
            return offset, self.size  # a file system that does not tell

    def _read(self, size: int, offset: int) -> bytes:
        result = b""
        try:
            while len(result) < size:
                piece = os.pread(self.fd, size - len(result), offset + len(result))
                if not piece:
                    raise self._cut(offset + len(result))
                result += piece
        except OSError as error:
            raise self._refused(error) from None
        return result

    def _cut(self, offset: int) -> WeigError:
        return WeigError(
            "TRUNCATED",
            f"{escape(self.path)} ended at byte {offset} while it was read; it had {self.size}",
            rule="OPEN-11",
        )

    def _refused(self, error: OSError | ValueError) -> WeigError:
        reason = getattr(error, "strerror", None) or str(error)
        return WeigError("IO", f"{escape(self.path)}: {escape(reason)}", rule="OPEN-11")

    def _too_large(self, error: OSError | OverflowError) -> WeigError:
        if isinstance(error, OSError) and error.errno not in (errno.ENOMEM, errno.EOVERFLOW):
            return self._refused(error)
        return WeigError(
            "TOO_LARGE",
            f"{escape(self.path)}: this process cannot address {self.size} bytes more",
            rule="OPEN-9",
        )


def fresh(size: int) -> memoryview:
    """Writable memory of ``size`` bytes, in huge pages where the kernel has them.

    The page faults of small pages cost more than the copy that fills them.
    """
    if size == 0:
        return memoryview(bytearray())
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= 2 << 20 and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages: slower, not wrong
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(memory)


def _identity(status: os.stat_result) -> Identity:
    return Identity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
