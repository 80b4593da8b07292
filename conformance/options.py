"""How a run is made: its options, its cases under their numbers, and what it can afford."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from weig.conformance.guard.setup import Guard
from weig.conformance.manifest import Case
from weig.conformance.outcome import Outcome
from weig.conformance.process import FaultKind

__all__ = ["FAULTS", "Budget", "Job", "Options"]

MAX_HANGS = 5  # cases of one adapter that hang; then the rest is not run
MAX_REPEATS = 25  # wrong answers of one adapter that are repeated alone

FAULTS = {
    FaultKind.CRASH: Outcome.CRASH,
    FaultKind.HANG: Outcome.HANG,
    FaultKind.GARBAGE: Outcome.GARBAGE,
}


@dataclass(frozen=True, slots=True)
class Options:
    """How to run. ``timeout`` is in seconds a case, ``memory`` in bytes over the base line.

    With ``memory`` None nobody's memory is measured.
    After so many ``hangs``, or so many ``faults`` (crashes, hangs, garbage), of one adapter the
    rest is not run; so many of its wrong answers (``repeats``) are repeated alone.
    """

    isolation: str = "auto"
    jobs: int = 1
    timeout: float = 10.0
    seed: int = 0
    strict_codes: bool = False
    via: str | None = None
    memory: int | None = 64 << 20
    repeats: int = MAX_REPEATS
    hangs: int = MAX_HANGS
    faults: int | None = None
    guard: Guard | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A case under its number; the order of the numbers is the shuffled one."""

    number: str
    case: Case


@dataclass
class Budget:
    """What is left, for one adapter, of the repeats, hangs and faults that a run can afford."""

    repeats: int
    hangs: int
    faults: int | None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def repeat(self) -> bool:
        """Takes one repeat; False where none is left."""
        with self.lock:
            self.repeats -= 1
            return self.repeats >= 0

    def count(self, outcome: Outcome) -> None:
        """Counts one result."""
        with self.lock:
            self.hangs -= outcome is Outcome.HANG
            if self.faults is not None:
                self.faults -= outcome in FAULTS.values()

    @property
    def spent(self) -> bool:
        """Whether no further case is worth its time."""
        return self.hangs <= 0 or (self.faults is not None and self.faults <= 0)
