"""Signals that ask a command to end: they unwind the stack, so that nothing half-done is left."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["unwinding"]

ASKING = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def unwinding() -> Iterator[None]:
    """Within it SIGTERM and SIGHUP raise SystemExit with the status that a shell gives for them.

    A signal that is ignored (as under nohup) stays so. Elsewhere than in the main thread, where
    handlers cannot be set, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ASKING}
    for number, handler in before.items():
        if handler is signal.SIG_DFL:
            signal.signal(number, _stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is signal.SIG_DFL:
                signal.signal(number, handler)


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
