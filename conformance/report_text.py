"""The report for a terminal: a matrix, every failure with what is needed to mend it, the counts."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from weig.conformance.hexdump import annotated
from weig.conformance.manifest import Case, Manifest
from weig.conformance.outcome import Bucket, Outcome, Result, bucket
from weig.conformance.results import AdapterInfo, Results, counts
from weig.conformance.staging import Sources
from weig.conformance.text import printable

__all__ = ["again", "alike_failures", "failure", "not_started", "report", "summary", "wanted"]

STDERR_LINES = 12


def report(results: Results, manifest: Manifest, verbose: bool = False) -> str:
    """The whole report; ``verbose`` adds a line for each result that did not fail."""
    cases = {case.ident: case for case in manifest.cases}
    return "\n".join(_report(results, manifest, cases, verbose)) + "\n"


def summary(results: Results) -> str:
    """The last line: ``N passed, N failed, N skipped``."""
    found = counts(results)
    return ", ".join(f"{found[one]} {one}" for one in Bucket)


def _report(
    results: Results, manifest: Manifest, cases: dict[str, Case], verbose: bool
) -> Iterator[str]:
    sources = Sources.of(manifest)
    yield f"{results.format} suite {results.suite}, {len(results.adapters)} loaders"
    yield ""
    yield from _matrix(results, cases)
    if verbose:
        yield ""
        for result in results.results:
            yield f"{result.outcome:<15} {result.adapter:<14} {result.case}  {result.detail}"
    for alike in alike_failures(results):
        yield ""
        yield from failure(alike, results, manifest, cases[alike[0].case], sources)
    yield from _warnings(results)
    yield from _guards(results)
    for adapter in results.adapters:
        if adapter.problem:
            yield ""
            yield from not_started(adapter)
    for problem in results.problems:
        yield ""
        yield f"KNOWN FAILURES  {printable(problem)}"
    yield ""
    how = f"{results.seconds:.1f} s, seed {results.seed}, isolation {results.isolation}"
    yield how + (", strict codes" if results.strict_codes else "")
    yield summary(results)


def not_started(adapter: AdapterInfo) -> Iterator[str]:
    """The lines about an adapter that did not start, and how to find out why."""
    if adapter.started:
        yield f"NOT GUARDED  {adapter.label}: that fails the run, for the guard was named"
        return
    yield f"NOT STARTED  {adapter.label}: {printable(adapter.problem)}"
    yield f"  command    {shlex.join(adapter.command)}"
    yield from _stderr(adapter.stderr)
    yield f"  help       weig conformance doctor -- {shlex.join(adapter.command)}"


def _matrix(results: Results, cases: dict[str, Case]) -> Iterator[str]:
    """Loaders by chapters: how many of the cases that count were passed."""
    chapters = list(dict.fromkeys(cases[item.case].chapter for item in results.results))
    rows = [["", *chapters, "all"]]
    for adapter in results.adapters:
        mine = [item for item in results.results if item.adapter == adapter.label]
        cells = [
            _cell([item for item in mine if cases[item.case].chapter == chapter], results)
            for chapter in chapters
        ]
        rows.append([adapter.label, *cells, _cell(mine, results)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        first = row[0].ljust(widths[0])
        rest = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        yield "  ".join([first, *rest]).rstrip()


def _cell(items: Sequence[Result], results: Results) -> str:
    buckets = [bucket(item.outcome, results.strict_codes) for item in items]
    ran = len(buckets) - buckets.count(Bucket.SKIPPED)
    return f"{buckets.count(Bucket.PASSED)}/{ran}" if ran else "-"


def alike_failures(results: Results) -> list[list[Result]]:
    """The failed results; those that say the same of the same case stand together."""
    alike: dict[tuple[object, ...], list[Result]] = {}
    for item in results.results:
        if bucket(item.outcome, results.strict_codes) is Bucket.FAILED:
            key = (item.case, item.outcome, item.differences, item.guard)
            alike.setdefault(key, []).append(item)
    return list(alike.values())


def failure(
    alike: Sequence[Result], results: Results, manifest: Manifest, case: Case, sources: Sources
) -> Iterator[str]:
    """The lines about results that failed alike in one case: all that is needed to mend it."""
    first = alike[0]
    yield f"FAILED  {first.case}  {first.outcome}  {', '.join(item.adapter for item in alike)}"
    if case.title:
        yield f"  title      {printable(case.title)}"
    for ident in case.rules:
        rule = manifest.rules.get(ident)
        yield f"  rule       {ident}  {printable(rule.text) if rule else ''}".rstrip()
    for edit in case.edit:
        yield f"  edit       {printable(edit)}"
    if case.weakness:
        yield f"  weakness   {case.weakness}"
    if first.outcome is Outcome.OVER_READ:
        yield "  want       nothing outside of the file is read"
    elif not first.differences:
        yield f"  want       {wanted(case)}"
    if first.detail:
        yield f"  {'got' if not first.differences else 'note':<10} {printable(first.detail)}"
    for item in first.differences:
        yield f"  at         {printable(item.where)}"
        yield f"    want     {printable(item.want)}"
        yield f"    got      {printable(item.got)}"
    for line in annotated(case, sources):
        yield f"  {line}"
    yield from _stderr(first.stderr)
    yield f"  repeat     {again(first, results)}"


def wanted(case: Case) -> str:
    """What the case expects, in words."""
    if case.held is not None:
        access = "; then the same tensors" if case.held.access else ""
        return f"accepted; after the change {' or '.join(case.held.check)}{access}"
    if case.expect == "reject":
        return f"rejected with {' or '.join(case.errors) or 'any code'}"
    return "accepted" if case.expect == "accept" else "accepted or rejected"


def again(result: Result, results: Results) -> str:
    """The one command that repeats a failure."""
    adapter = next(item for item in results.adapters if item.label == result.adapter)
    words = ["weig", "conformance", "run"]
    if result.outcome is Outcome.ORDER_DEPENDENT:  # it takes the cases before to show it
        words += adapter.order
    else:
        words += ["-k", result.case, "--isolation", "case"]
    if result.guard:
        words.append(f"--guard={result.guard}")
    if results.strict_codes:
        words.append("--strict-codes")
    return shlex.join([*words, *adapter.again])


def _guards(results: Results) -> Iterator[str]:
    """What was guarded, and what was not, where that was asked for."""
    told = [adapter for adapter in results.adapters if adapter.guarded or adapter.unguarded]
    if told:
        yield ""
    for adapter in told:
        if adapter.guarded:
            yield f"guarded      {adapter.label}: {printable(', '.join(adapter.guarded))}"
        for text in adapter.unguarded:
            yield f"not guarded  {adapter.label}: {printable(text)}"


def _stderr(text: str) -> Iterator[str]:
    for line in text.splitlines()[-STDERR_LINES:]:
        yield f"  stderr   | {printable(line)}"


def _warnings(results: Results) -> Iterator[str]:
    """One line for each wrong code that is no failure."""
    if results.strict_codes:
        return
    for item in results.results:
        if item.outcome is Outcome.WRONG_CODE:
            yield ""
            for difference in item.differences:
                got = printable(difference.got)
                yield f"WARNING  {item.case}  {item.outcome}  {item.adapter}"
                yield f"  want {difference.want}, got {got}"
