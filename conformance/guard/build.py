"""What this host has for guarding: the library and a loader that it must catch, a place to poison.

Both are built of the C sources beside this module, once, and kept in the user's cache folder.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from weig.conformance.guard.setup import poison
from weig.conformance.guard.tail import behind_end

__all__ = ["OVERREAD", "PRELOAD", "MissingError", "built", "tmpfs"]

PRELOAD = Path(__file__).with_name("preload.c")
OVERREAD = Path(__file__).parent.parent / "vices" / "overread.c"
FLAGS = ("-std=gnu11", "-O1")
LIBRARY = ("-shared", "-fPIC")
POISON = 0xA5
BUILD_TIMEOUT = 120.0  # seconds


class MissingError(Exception):
    """This host does not have what a guard needs; the text says what."""


def built(source: Path, room: Path) -> Path:
    """The library or program of a C source, from the cache or into it, else into ``room``.

    Raises MissingError.
    """
    if not sys.platform.startswith("linux"):
        raise MissingError("the library that guards maps is for Linux")
    compiler = _compiler()
    flags = (*FLAGS, *(LIBRARY if source == PRELOAD else ()))
    key = hashlib.sha256(source.read_bytes())
    key.update(repr((compiler, flags, platform.machine(), sys.maxsize)).encode())
    name = f"{source.stem}-{key.hexdigest()[:16]}"
    cached = _cache() / name
    if cached.is_file():
        return cached
    fresh = room / name
    _compile([*compiler, *flags, "-o", str(fresh), str(source), "-ldl"])
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        # Renamed into place: another run may look for it at this moment.
        handle, other = tempfile.mkstemp(dir=cached.parent)
        os.close(handle)
        shutil.copy(fresh, other)
        os.replace(other, cached)
        return cached
    except OSError:  # no cache to be had
        return fresh


def _compiler() -> tuple[str, ...]:
    """The machine's C compiler, with words of its own where ``CC`` has some."""
    named = shlex.split(os.environ.get("CC", ""))
    for words in (named, ["cc"], ["gcc"], ["clang"]):
        path = shutil.which(words[0]) if words else None
        if path:
            return (path, *words[1:])
    raise MissingError("no C compiler (cc, gcc, clang or $CC) is installed here")


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME", "")
    folder = Path(home) if home.startswith("/") else Path(os.path.expanduser("~/.cache"))
    path = folder / "weig"
    # What is preloaded is named in a list that blanks and colons divide.
    return Path(os.devnull) if " " in str(path) or ":" in str(path) else path


def _compile(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=BUILD_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingError(f"the C compiler does not work: {error}") from None
    if done.returncode:
        words = done.stdout.decode("utf-8", "backslashreplace").strip().splitlines()
        raise MissingError(f"the C compiler does not build it: {(words or ['silently'])[0]}")


def tmpfs() -> Path:
    """A folder where poison sticks: the temporary one, or /dev/shm; raises MissingError."""
    tried = dict.fromkeys((tempfile.gettempdir(), "/dev/shm"))
    for folder in tried:
        if _sticks(folder):
            return Path(folder)
    raise MissingError(f"no file system in memory (tmpfs) to write to at {' or '.join(tried)}")


def _sticks(folder: str) -> bool:
    """Whether a new map shows poison, also after the file was written back."""
    try:
        with tempfile.NamedTemporaryFile(prefix="weig-", dir=folder) as file:
            file.write(b"GOOD")
            file.flush()
            poison(Path(file.name), POISON)
            os.fsync(file.fileno())
            found = behind_end(Path(file.name))
    except (OSError, ValueError):
        return False
    return bool(found) and set(found) == {POISON}
