"""A badge: the JSON that an endpoint badge of shields.io is drawn from."""

from __future__ import annotations

import json

from weig.conformance.outcome import Bucket
from weig.conformance.results import Results, counts

__all__ = ["badge"]


def badge(results: Results) -> str:
    """One JSON object, without a line end behind it.

    Green only where the run conforms and something was passed: a run that skipped everything has
    shown nothing.
    """
    found = counts(results)
    passed, failed = found[Bucket.PASSED], found[Bucket.FAILED]
    if not all(adapter.started for adapter in results.adapters):
        message, colour = "did not start", "red"
    elif failed:
        message, colour = f"{failed} of {passed + failed} failed", "red"
    elif any(adapter.problem for adapter in results.adapters):
        message, colour = "not guarded", "orange"
    elif results.problems:
        message, colour = "known failures out of date", "orange"
    elif not passed:
        message, colour = "nothing run", "lightgrey"
    else:
        message, colour = f"{passed} passed", "brightgreen"
    return json.dumps(
        {
            "schemaVersion": 1,
            "label": f"{results.format} suite {results.suite}",
            "message": message,
            "color": colour,
        }
    )
