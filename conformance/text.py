"""Text that others wrote, made fit to be shown."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path

__all__ = ["cut", "excerpt", "printable", "read_text"]


def read_text(path: Path) -> str:
    """A file of UTF-8; raises OSError, also for a device (which may never end), and ValueError."""
    mode = os.stat(path).st_mode
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        raise OSError(errno.EINVAL, "a device, not a file", str(path))
    return path.read_text("utf-8")


def printable(text: str) -> str:
    """Text from an adapter or a file made safe for a terminal, a log or XML.

    Whatever is not printable (control characters, line breaks, bidirectional overrides, lone
    surrogates) becomes a backslash escape.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def cut(text: str, limit: int = 300) -> str:
    """Text of any length, cut to one that a report can hold."""
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


def excerpt(value: object, limit: int = 60) -> str:
    """A value as it stands in an answer, or bytes as they came, cut to a readable length."""
    if value is None:
        return "missing"
    if isinstance(value, bytes):
        return repr(value[:limit])[1:] + ("..." if len(value) > limit else "")
    text = json.dumps(value)
    return text if len(text) <= limit else text[:limit] + "..."
