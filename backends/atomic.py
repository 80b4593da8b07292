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
DESCRIPTORS = "/proc/self/fd"


def write_all(fd: int, data: memoryview, offset: int) -> None:
    """Writes all of ``data`` (one dimension, bytes) at ``offset``. Raises OSError."""
    while data:
        done = os.pwrite(fd, data[:WRITE_CHUNK], offset)
        data, offset = data[done:], offset + done


@contextlib.contextmanager
def replacing(path: str, size: int) -> Iterator[int]:
    """A descriptor of a new file of ``size`` zero bytes that takes ``path``'s place at the end.

    The new file lies in the same folder, without a name where the file system can do that (a
    process that is killed then leaves nothing behind), until the block ends well; then it is
    synced, named, and the folder is synced. Where the block raises, the new file goes and ``path``
    is untouched. A link is followed: the file that it names is replaced. An existing file's owner,
    group and mode are kept as far as we may; a new one gets what the umask leaves. Raises WeigError
    (IO, NOT_REGULAR_FILE), also for an OSError of the block.
    """
    outcome = "nothing was written"
    try:
        old = existing(path)
        target = os.path.realpath(path)
        folder, name = os.path.split(target)
        # A name of 255 bytes is legal; ours must not become longer.
        start = os.fsdecode(os.fsencode(name)[:60])
        temporary = os.path.join(folder, f".{start}.{secrets.token_hex(8)}.tmp")
        fd = -1
        try:
            fd, named = _new_file(folder, temporary)
            if old is not None:
                _take_over(fd, old)
            _reserve(fd, size)
            yield fd
            os.fsync(fd)
            if named:
                os.replace(temporary, target)
            else:
                _name(fd, temporary, target)
        except BaseException:  # a signal's too, at whatever moment it came
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        finally:
            if fd >= 0:
                with contextlib.suppress(OSError):  # fsync has told what there is to tell
                    os.close(fd)
        outcome = "it was written, but a loss of power may undo that"
        _sync_folder(folder)
    except OSError as error:
        reason = error.strerror or str(error)
        raise WeigError("IO", f"{escape(path)}: {escape(reason)}; {outcome}") from None


def existing(path: str) -> os.stat_result | None:
    """The state of the file at ``path``, or None where there is none.

    Raises WeigError NOT_REGULAR_FILE for what no file can take the place of, and OSError.
    """
    try:
        status = os.stat(path)  # of the path itself: a pipe behind /dev/stdout has no real path
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise WeigError("NOT_REGULAR_FILE", f"{escape(path)} is there and not a regular file")
    return status


def _take_over(fd: int, old: os.stat_result) -> None:
    """Owner, group and permissions of the old file; what was for its group is for no other."""
    mode = old.st_mode & 0o777
    with contextlib.suppress(OSError):
        os.fchown(fd, old.st_uid, -1)
    try:
        os.fchown(fd, -1, old.st_gid)
    except OSError:
        mode &= ~0o070
    os.fchmod(fd, mode)


def _new_file(folder: str, temporary: str) -> tuple[int, bool]:
    """A new file, and whether it has a name (``temporary``): not where the file system can."""
    if hasattr(os, "O_TMPFILE") and os.path.isdir(DESCRIPTORS):
        # Many answers mean that it cannot; what is wrong otherwise, the other way tells.
        with contextlib.suppress(OSError):
            return os.open(folder, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o666), False
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    return os.open(temporary, flags, 0o666), True


def _name(fd: int, temporary: str, target: str) -> None:
    """Gives a file without a name that of ``target``, which may be there already."""

    def link(name: str) -> None:
        # With a folder given (which an absolute path has no need of), Python follows the link.
        os.link(f"{DESCRIPTORS}/{fd}", name, src_dir_fd=fd)

    try:
        link(target)
    except FileExistsError:  # only a rename replaces a file, and needs a name for that moment
        link(temporary)
        os.replace(temporary, target)


def _reserve(fd: int, size: int) -> None:
    """Takes the disk space now, so that a full disk is known before the work is done."""
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):  # a file system that cannot
            raise
        os.ftruncate(fd, size)


def _sync_folder(folder: str) -> None:
    """Makes the new name last. A folder that we may not read, or of a file system that cannot, is
    left alone: what is at the name after a loss of power is whole there too."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        return
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
    finally:
        os.close(fd)
