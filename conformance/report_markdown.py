"""A table for a README: a row a chapter, a column a loader, how much of it was passed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from weig.conformance.manifest import Manifest
from weig.conformance.outcome import Bucket, Outcome, Result, bucket
from weig.conformance.results import Results
from weig.conformance.text import printable

__all__ = ["matrix"]


def matrix(results: Results, manifest: Manifest) -> str:
    """The table, in Markdown, without a line end behind it.

    A cell is *passed/run*: ``98/98``; what was not run is told beside it and never counts as
    passed: ``49/49, 49 not claimed``.
    """
    return "\n".join(_rows(results, manifest))


def _rows(results: Results, manifest: Manifest) -> Iterator[str]:
    chapter = {case.ident: case.chapter for case in manifest.cases}
    chapters = list(dict.fromkeys(chapter[item.case] for item in results.results))
    mine = {
        adapter.label: [item for item in results.results if item.adapter == adapter.label]
        for adapter in results.adapters
    }
    yield _row("", [adapter.label for adapter in results.adapters])
    yield _row("---", ["---:"] * len(results.adapters))
    yield _row("language", [adapter.language for adapter in results.adapters])
    if any(adapter.guarded or adapter.unguarded for adapter in results.adapters):
        guards = [", ".join(adapter.guarded) for adapter in results.adapters]
        yield _row("guarded by", [text or "not guarded" for text in guards])
    for name in chapters:
        parts = [[item for item in items if chapter[item.case] == name] for items in mine.values()]
        yield _row(name, [_cell(items, results.strict_codes) for items in parts])
    yield _row("**all**", [_cell(items, results.strict_codes) for items in mine.values()])


def _row(first: str, cells: Sequence[str]) -> str:
    return "| " + " | ".join(_text(cell) for cell in (first, *cells)) + " |"


def _text(text: str) -> str:
    """A loader's own words, made safe for a table."""
    return printable(text).replace("|", "\\|")


def _cell(items: Sequence[Result], strict_codes: bool) -> str:
    buckets = [bucket(item.outcome, strict_codes) for item in items]
    skipped = [item.outcome for item in items if bucket(item.outcome) is Bucket.SKIPPED]
    parts = [f"{buckets.count(Bucket.PASSED)}/{len(items) - len(skipped)}"]
    for outcome in (Outcome.NOT_CLAIMED, Outcome.NOT_RUN, Outcome.KNOWN):
        if outcome in skipped:
            parts.append(f"{skipped.count(outcome)} {outcome.replace('-', ' ')}")
    return ", ".join(parts if len(items) > len(skipped) else parts[1:]) or "not started"
