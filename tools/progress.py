"""One line on standard error that says how far a long command is; nothing where nobody looks."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TextIO

INTERVAL = 0.1  # seconds between two drawings
UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class ProgressLine:
    """``line(done, total)`` in bytes draws ``LABEL 42% 1.3 GiB/3.0 GiB``; leaving clears it.

    Nothing is written where the stream is not a terminal. ``label`` must be safe to print.
    """

    def __init__(self, label: str, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        self._stream = stream or sys.stderr
        self._label = label
        self._shown = not quiet and self._stream.isatty()
        self._width = 0
        self._next = 0.0

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if not self._shown or now < self._next:
            return
        self._next = now + INTERVAL
        percent = 100 * done // total if total else 100
        self._draw(f"{self._label} {percent}% {human(done)}/{human(total)}")

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._width:
            self._draw("")
            self._stream.write("\r")
            self._stream.flush()

    def _draw(self, text: str) -> None:
        # Blanks over what the last drawing left; terminals without escape sequences know them too.
        self._stream.write("\r" + text.ljust(self._width))
        self._stream.flush()
        self._width = len(text)


def human(size: int) -> str:
    """A number of bytes for people: ``72 B``, ``1.5 MiB``."""
    value = float(size)
    for unit in UNITS[:-1]:
        if value < 1024:
            return f"{value:.1f} {unit}" if unit != "B" else f"{size} B"
        value /= 1024
    return f"{value:.1f} {UNITS[-1]}"
