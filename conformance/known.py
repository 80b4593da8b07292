"""Known failures: a strict list beside a loader of what it is known to get wrong.

    [[known]]
    case = "hdr.*"               # a glob over case ids
    adapter = "c/*"              # a glob over labels; optional
    outcome = "wrong-code"
    reason = "says BAD_MAGIC for short files"
    link = "https://..."         # optional

Strict: a known failure that passes (*fixed*), that fails in another way, or an entry that matches
no case at all fails the run. So the list can only tell the truth.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from weig.conformance.outcome import Outcome, Result
from weig.conformance.text import read_text

__all__ = ["Applied", "Known", "KnownError", "apply", "read"]

_KEYS = {"case", "adapter", "outcome", "reason", "link"}
_UNTOUCHED = frozenset({Outcome.NOT_CLAIMED, Outcome.NOT_RUN})


class KnownError(Exception):
    """The list itself cannot be read; the text says why."""


@dataclass(frozen=True, slots=True)
class Known:
    """One entry of the list."""

    case: str
    outcome: Outcome
    reason: str
    adapter: str = "*"
    link: str = ""


@dataclass(frozen=True, slots=True)
class Applied:
    """The results with what is known taken into account, and what is wrong with the list."""

    results: tuple[Result, ...]
    problems: tuple[str, ...]


def read(path: Path) -> tuple[Known, ...]:
    """Reads a list; raises KnownError."""
    try:
        table = tomllib.loads(read_text(path))
    except OSError as error:
        raise KnownError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise KnownError(f"{path}: {error}") from None
    items = table.get("known", [])  # none where the last one was mended
    if set(table) - {"known"} or not isinstance(items, list):
        raise KnownError(f"{path}: only tables [[known]] stand here")
    return tuple(_entry(item, f"{path}: entry {i + 1}") for i, item in enumerate(items))


def _entry(item: object, where: str) -> Known:
    if not isinstance(item, dict) or not all(isinstance(value, str) for value in item.values()):
        raise KnownError(f"{where}: a table of strings is wanted")
    if unknown := sorted(set(item) - _KEYS):
        raise KnownError(f"{where}: no such key: {', '.join(unknown)}")
    if missing := sorted({"case", "outcome", "reason"} - set(item)):
        raise KnownError(f"{where}: says no {', '.join(missing)}")
    try:
        outcome = Outcome(item["outcome"])
    except ValueError:
        raise KnownError(f"{where}: no such outcome: {item['outcome']}") from None
    return Known(
        item["case"], outcome, item["reason"], item.get("adapter", "*"), item.get("link", "")
    )


def apply(known: Sequence[Known], results: Sequence[Result], all_cases: Sequence[str]) -> Applied:
    """Marks what is known as *known* and what no longer fails as *fixed*.

    ``all_cases`` are the ids of the whole manifest: an entry for a case that was only not selected
    this time is no problem, nor one for an adapter that did not run.
    """
    labels = {result.adapter for result in results}
    problems = [
        f"known failure {entry.case!r} matches no case"
        for entry in known
        if any(fnmatchcase(label, entry.adapter) for label in labels)
        and not any(fnmatchcase(case, entry.case) for case in all_cases)
    ]
    marked: list[Result] = []
    for result in results:
        entry = _entry_for(result, known)
        if entry is None or result.outcome in _UNTOUCHED:
            marked.append(result)
            continue
        marked.append(_marked(result, entry))
        if result.outcome not in (entry.outcome, Outcome.PASS):
            problems.append(
                f"{result.adapter} {result.case}: known as {entry.outcome}, now {result.outcome}"
            )
    return Applied(tuple(marked), tuple(problems))


def _entry_for(result: Result, known: Sequence[Known]) -> Known | None:
    for entry in known:
        if fnmatchcase(result.case, entry.case) and fnmatchcase(result.adapter, entry.adapter):
            return entry
    return None


def _marked(result: Result, entry: Known) -> Result:
    reason = entry.reason + (f" ({entry.link})" if entry.link else "")
    if result.outcome is Outcome.PASS:
        text = f"passes, but is listed as a known failure ({entry.outcome}): {reason}"
        return replace(result, outcome=Outcome.FIXED, detail=text)
    if result.outcome is entry.outcome:
        return replace(result, outcome=Outcome.KNOWN, detail=f"{entry.outcome}: {reason}")
    return result
