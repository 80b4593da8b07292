"""How long a case may take: by the byte, as long as a smaller one of its kind took the adapter.

A file of very many records must not take a loader more than time in proportion (n log n) to their
number. Seconds would say nothing of that: they are many on a slow machine and few in a fast
language. So such a case names a smaller one (``pace``), which the adapter is given first.
"""

from __future__ import annotations

from collections.abc import Sequence

from weig.conformance.process import Fault, StartError, Worker

__all__ = ["TRIES", "allowed", "shortest"]

TRIES = 3  # times that the smaller case is loaded; the shortest counts
FLOOR = 2.0  # seconds that everybody has
# The time by the byte may be so many times that of the smaller case: a table that has outgrown the
# processor's caches costs three times as much, a machine that is busy for a while as much again.
SLACK = 10.0
LONGEST = 6.0  # and at most so many times as long as other cases have


def allowed(seconds: float, growth: float, timeout: float) -> float:
    """Seconds for a case ``growth`` times the size of one that took ``seconds``."""
    return min(FLOOR + SLACK * growth * seconds, LONGEST * timeout)


def shortest(command: Sequence[str], request: bytes, tries: int, timeout: float) -> float | None:
    """Seconds of the quickest answer of a process of its own; None where one of them is none."""
    best = timeout
    try:
        worker = Worker(command)
    except StartError:
        return None
    try:
        for left in reversed(range(tries)):
            reply = worker.ask(request, timeout, last=left == 0)
            if isinstance(reply, Fault):
                return None
            best = min(best, reply.seconds)
    finally:
        worker.kill()
    return best
