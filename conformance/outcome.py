"""What can come of one case: the outcomes, and the facts that one result holds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Bucket", "Difference", "Outcome", "Result", "SuiteError", "bucket"]


class Outcome(StrEnum):
    """What came of one case. The order is the one in which reports count them."""

    PASS = "pass"
    WRONG_CODE = "wrong-code"
    WRONG_VERDICT = "wrong-verdict"
    WRONG_CONTENT = "wrong-content"
    OVER_READ = "over-read"
    CRASH = "crash"
    HANG = "hang"
    MEMORY = "memory"
    GARBAGE = "garbage"
    INTERNAL = "internal"
    ORDER_DEPENDENT = "order-dependent"
    MODIFIED_INPUT = "modified-input"
    FIXED = "fixed"
    KNOWN = "known"
    NOT_CLAIMED = "not-claimed"
    NOT_RUN = "not-run"


class Bucket(StrEnum):
    """How an outcome counts in the last line of a report."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


_SKIPPED = frozenset({Outcome.KNOWN, Outcome.NOT_CLAIMED, Outcome.NOT_RUN})


def bucket(outcome: Outcome, strict_codes: bool = False) -> Bucket:
    """Whether an outcome counts as passed, failed or skipped.

    A wrong code is a warning, so it passes, unless ``strict_codes``. What is not claimed, not run
    or known to fail never counts as passed.
    """
    if outcome in _SKIPPED:
        return Bucket.SKIPPED
    if outcome is Outcome.PASS or (outcome is Outcome.WRONG_CODE and not strict_codes):
        return Bucket.PASSED
    return Bucket.FAILED


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where an answer is not the expected one."""

    where: str
    want: str
    got: str


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one case with one adapter.

    ``seconds`` is the time from the request to the answer. ``detail`` is one line that says what
    happened, ``stderr`` the end of what the adapter wrote on standard error, where the case failed.
    ``guard`` is the guard that it took to show the failure, where it took one.
    """

    adapter: str
    case: str
    outcome: Outcome
    seconds: float = 0.0
    detail: str = ""
    differences: tuple[Difference, ...] = ()
    stderr: str = ""
    guard: str = ""


class SuiteError(Exception):
    """The suite itself cannot work (exit status 4): a bad manifest, no room, a missing file."""
