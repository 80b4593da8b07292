"""A file that appears under its name complete or not at all (WRITE-4)."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator

from weig.spec.errors import WeigError, escape

WRITE_CHUNK = 8 << 20


def write_all(fd: int, data: memoryview, offset: int) -> None:
    """Writes all of ``data`` (one dimension, bytes) at ``offset``. Raises OSError."""
    while data:
        done = os.pwrite(fd, data[:WRITE_CHUNK], offset)
        data, offset = data[done:], offset + done


@contextlib.contextmanager
def replacing(path: str, size: int) -> Iterator[int]:
    """A descriptor of a new file of ``size`` zero bytes that takes ``path``'s place at the end.

    The new file lies in the same folder until the block ends well; then it is synced, renamed, and
    the folder is synced. Where the block raises, the new file goes and ``path`` is untouched. A
    link is followed: the file that it names is replaced. An existing file's mode is kept; a new one
    gets what the umask leaves. Raises WeigError (IO, NOT_REGULAR_FILE), also for an OSError of the
    block.
    """
    target = os.path.realpath(path)
    try:
        mode = _existing_mode(target)
        folder, name = os.path.split(target)
        # A name of 255 bytes is legal; ours must not become longer.
        start = os.fsdecode(os.fsencode(name)[:60])
        temporary = os.path.join(folder, f".{start}.{secrets.token_hex(8)}.tmp")
        fd = -1
        try:
            fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            if mode is not None:
                os.fchmod(fd, mode)
            _reserve(fd, size)
            yield fd
            os.fsync(fd)
            os.replace(temporary, target)
        except BaseException:  # a signal's too, at whatever moment it came
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        finally:
            if fd >= 0:
                os.close(fd)
        _sync_folder(folder)
    except OSError as error:
        reason = error.strerror or str(error)
        raise WeigError("IO", f"{escape(path)}: {escape(reason)}; nothing was written") from None


def _existing_mode(target: str) -> int | None:
    try:
        status = os.stat(target)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise WeigError("NOT_REGULAR_FILE", f"{escape(target)} is there and not a regular file")
    return stat.S_IMODE(status.st_mode)


def _reserve(fd: int, size: int) -> None:
    """Takes the disk space now, so that a full disk is known before the work is done."""
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):  # a file system that cannot
            raise
        os.ftruncate(fd, size)


def _sync_folder(folder: str) -> None:
    fd = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
