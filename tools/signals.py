"""Signals that ask a command to end: they unwind the stack, so that nothing half-done is left."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

__all__ = ["unwinding"]

ASKING = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def unwinding() -> Iterator[None]:
    """Within it SIGTERM and SIGHUP raise SystemExit with the status that a shell gives for them.

    A signal that is ignored (as under nohup) stays so. Elsewhere than in the main thread, where
    handlers cannot be set, nothing changes.
    """
    free = [number for number in ASKING if signal.getsignal(number) is signal.SIG_DFL]
    _handle(free, _stop)
    try:
        yield
    finally:
        _handle(free, signal.SIG_DFL)


def _handle(
    numbers: Sequence[signal.Signals],
    handler: signal.Handlers | Callable[[int, FrameType | None], None],
) -> None:
    with suppress(ValueError):  # not the main thread
        for number in numbers:
            signal.signal(number, handler)


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
