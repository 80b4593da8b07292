"""How much memory a process took for a case, over what it takes to say hello."""

from __future__ import annotations

import resource
from dataclasses import replace

from weig.conformance.adapter import START_TIMEOUT, Adapter
from weig.conformance.outcome import Outcome, Result
from weig.conformance.protocol import hello_request

__all__ = ["Scales"]


class Scales:
    """Weighs the processes of one adapter against one that only says hello.

    There are two peaks of each, in bytes: its own, and with all that it waited for.
    """

    def __init__(self, adapter: Adapter) -> None:
        worker = adapter.start()
        worker.ask(hello_request(), START_TIMEOUT)
        own = worker.own_peak()
        self._base = (own, worker.finish(START_TIMEOUT).peak_rss)

    def weighed(self, result: Result, peaks: tuple[int, int], allowed: int) -> Result:
        """A result that is right, unless its process needed more than ``allowed`` bytes."""
        # What a process waited for counts what the suite had when it started it: see Ending.
        suite = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        own, waited = self._base
        pairs = zip(peaks, (own, max(waited, suite)), strict=True)
        over, base = max((peak - base, base) for peak, base in pairs if peak and base)
        if result.outcome is not Outcome.PASS or over <= allowed:
            return result
        text = f"{over >> 20} MiB over its base line of {base >> 20} MiB"
        return replace(
            result, outcome=Outcome.MEMORY, detail=f"{text}; the limit is {allowed >> 20} MiB"
        )
