"""Gives each case a neutral path, and tells afterwards whether the adapter wrote to the file.

An adapter must not be able to see what is expected, so a case stands alone in an empty directory
under a number. Small files are copied (an adapter that writes to one spoils nothing but its copy);
large ones are hard-linked where the file system allows it, else used where they are.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from weig.conformance.manifest import Case, Manifest
from weig.conformance.outcome import SuiteError

__all__ = [
    "NotStageableError",
    "Sources",
    "Staged",
    "clear",
    "content",
    "restaged",
    "stage",
    "stage_room",
]

COPY_LIMIT = 4 << 20  # bytes; larger files are linked
_STAMP = 946684800 * 10**9  # a time stamp (ns) that no write of today leaves


class NotStageableError(Exception):
    """This host cannot give the case (no such device, say): it is not run. The text says why."""


@dataclass(frozen=True, slots=True)
class Staged:
    """A case at the path that the adapter is told.

    ``content`` is what the file must still hold afterwards, None where it is not kept; ``identity``
    is its size and time stamp, None where the path is no regular file of our own.
    """

    path: Path
    content: bytes | None
    identity: tuple[int, int] | None

    def modified(self) -> str | None:
        """What an adapter changed, in words; None where nothing was."""
        if self.identity is None:
            return None
        try:
            status = os.stat(self.path)
            if status.st_size != self.identity[0]:
                return f"the file had {self.identity[0]} bytes and now has {status.st_size}"
            if self.content is not None and self.path.read_bytes() != self.content:
                return "the file holds other bytes than before"
        except OSError as error:
            return f"the file cannot be read any more: {error.strerror}"
        if status.st_mtime_ns != self.identity[1]:
            return "the file was opened for writing and written to"
        return None


@dataclass(frozen=True)
class Sources:
    """The files of a manifest, read once and checked against its digests."""

    manifest: Manifest
    _small: dict[str, bytes]

    @classmethod
    def of(cls, manifest: Manifest) -> Sources:
        """The sources of a manifest; nothing is read yet."""
        return cls(manifest, {})

    def path(self, case: Case) -> Path:
        """Where the file of a case is."""
        return self.manifest.directory / (case.file or "")

    def small(self, case: Case) -> bytes | None:
        """The bytes of a case's file where they are few enough to copy, else None.

        Raises SuiteError where the file is missing or is not the one that the manifest tells of.
        """
        known = self._small.get(case.ident)
        if known is not None:
            return known
        path = self.path(case)
        try:
            if path.stat().st_size > COPY_LIMIT:
                return None
            data = path.read_bytes()
        except OSError as error:
            raise SuiteError(f"case {case.ident}: {path}: {error.strerror}") from None
        if case.sha256 is not None and hashlib.sha256(data).hexdigest() != case.sha256:
            raise SuiteError(
                f"case {case.ident}: {path} is not the file that the manifest tells of"
                " (changed by an editor, or by line-end conversion in a checkout?)"
            )
        self._small[case.ident] = data
        return data


@contextlib.contextmanager
def stage_room(parent: Path | None = None) -> Iterator[Path]:
    """A directory for staged cases, with a path that fits in a request; removed at the end.

    It is made in ``parent``, or where temporary files go.
    """
    room = Path(tempfile.mkdtemp(prefix="weig-", dir=parent))
    try:
        if not str(room).isascii() or " " in str(room) or not str(room).isprintable():
            raise SuiteError(f"the temporary directory {room} has a blank or is not ASCII")
        yield room
    finally:
        shutil.rmtree(room, ignore_errors=True)


def stage(case: Case, sources: Sources, room: Path, number: str) -> Staged:
    """Puts a case at ``room/number.weig``.

    Raises NotStageableError where this host cannot give it, SuiteError where the suite's files are
    not in order.
    """
    path = room / f"{number}.weig"
    try:
        match case.kind:
            case "file" | "sparse":
                return _regular(case, sources, path)
            case "directory":
                path.mkdir()
            case "fifo":
                os.mkfifo(path)
            case "socket":
                os.mknod(path, stat.S_IFSOCK | 0o600)
            case "symlink-loop":
                path.symlink_to(path.name)
            case "symlink":
                return _symlink(case, sources, path)
            case "missing":
                pass
            case _:
                return _of_the_host(case)
    except OSError as error:
        raise NotStageableError(f"cannot make a {case.kind}: {error.strerror}") from None
    return Staged(path, None, None)


def restaged(path: Path) -> Staged:
    """A staged file that the suite itself has changed, or removed, as it is now."""
    if not path.exists():
        return Staged(path, None, None)
    return Staged(path, path.read_bytes(), _identity(path))


def clear(room: Path) -> None:
    """Empties the room: the staged case and whatever an adapter left beside it."""
    for path in room.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def content(case: Case, sources: Sources, offset: int, length: int) -> bytes:
    """Bytes of a case's file, for a report; fewer, or none, where the file has no more."""
    if case.file is None or case.pieces:
        end = min(case.size, offset + length)
        window = bytearray(max(0, end - offset))
        for start, piece in case.pieces:
            low, high = max(start, offset), min(start + len(piece), end)
            if low < high:
                window[low - offset : high - offset] = piece[low - start : high - start]
        return bytes(window)
    try:
        with sources.path(case).open("rb") as file:
            file.seek(offset)
            return file.read(length)
    except OSError:
        return b""


def _regular(case: Case, sources: Sources, path: Path) -> Staged:
    if case.file is None or case.pieces:
        with path.open("xb") as file:
            file.truncate(case.size)
            for series in case.series:
                file.seek(series.offset)
                file.write(series.data())
            for offset, piece in case.pieces:
                file.seek(offset)
                file.write(piece)
        return _stamped(path, None)
    data = sources.small(case)
    if data is not None:
        path.write_bytes(data)
        return _stamped(path, data)
    source = sources.path(case)
    try:
        os.link(source, path)
    except OSError:  # another file system, or one without hard links
        return Staged(source.absolute(), None, _identity(source))
    return _stamped(path, None)


def _symlink(case: Case, sources: Sources, path: Path) -> Staged:
    """A link to a good file, or, where the case has no file, to nothing."""
    target = path.with_suffix(".target")
    path.symlink_to(target.name)
    if case.file is None:
        return Staged(path, None, None)
    return Staged(path, *_only_facts(_regular(case, sources, target)))


def _only_facts(staged: Staged) -> tuple[bytes | None, tuple[int, int] | None]:
    return staged.content, staged.identity


def _of_the_host(case: Case) -> Staged:
    path = Path(case.path or "")
    if not os.path.lexists(path):
        raise NotStageableError(f"this host has no {path}")
    return Staged(path, None, None)


def _stamped(path: Path, data: bytes | None) -> Staged:
    # The time stamp of a write made within the same tick of the clock would not differ from the
    # one of our own write; from one in the past it always does.
    os.utime(path, ns=(_STAMP, _STAMP))
    return Staged(path, data, _identity(path))


def _identity(path: Path) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns
