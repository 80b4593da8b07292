"""``results.jsonl``: a header, a line a case, a footer with the counts. No footer: a broken run.

Every report is made of what this file holds (and of the manifest), so a run can be reported,
compared and merged on another day and another machine.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from weig.conformance.outcome import Bucket, Difference, Outcome, Result, bucket
from weig.conformance.runner import Run
from weig.conformance.text import read_text

__all__ = [
    "AdapterInfo",
    "Changes",
    "Results",
    "ResultsError",
    "compare",
    "conforms",
    "counts",
    "lines",
    "merge",
    "of_run",
    "read",
    "write",
]

LAYOUT = 1  # of the file; a reader refuses another one


class ResultsError(Exception):
    """A results file that cannot be read; the text says why."""


@dataclass(frozen=True, slots=True)
class AdapterInfo:
    """An adapter of a run. ``problem`` says why it did not start, or was not guarded as it had to
    be; mostly it is empty.

    ``again`` selects the adapter on the suite's command line, ``order`` the same cases in the same
    order. ``guarded`` names the guards that it ran under, ``unguarded`` says of others why not.
    """

    label: str
    command: tuple[str, ...]
    again: tuple[str, ...]
    loader: str = ""
    version: str = ""
    language: str = ""
    profiles: tuple[str, ...] = ()
    problem: str = ""
    stderr: str = ""
    order: tuple[str, ...] = ()
    guarded: tuple[str, ...] = ()
    unguarded: tuple[str, ...] = ()

    @property
    def started(self) -> bool:
        """Whether it ran, be it without a guard that it had to have."""
        return not self.problem or bool(self.unguarded)


@dataclass(frozen=True, slots=True)
class Results:
    """A whole run. ``problems`` are faults of a known-failures list; they fail the run."""

    format: str
    suite: str
    seed: int
    isolation: str
    strict_codes: bool
    seconds: float
    adapters: tuple[AdapterInfo, ...]
    results: tuple[Result, ...]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Changes:
    """What differs between two runs; each entry is ``adapter case: was -> is``."""

    fixed: tuple[str, ...]
    broken: tuple[str, ...]
    changed: tuple[str, ...]
    new: tuple[str, ...]
    gone: tuple[str, ...]


def of_run(
    run: Run,
    results: Sequence[Result],
    problems: Sequence[str] = (),
    selection: Sequence[str] = (),
) -> Results:
    """The results of a run, after known failures were applied.

    ``selection`` is what chose its cases on the command line.
    """
    order = ("--seed", str(run.options.seed), "--isolation", run.options.isolation, *selection)
    adapters = tuple(
        AdapterInfo(
            one.adapter.label,
            one.adapter.command,
            one.adapter.again,
            one.hello.loader if one.hello else "",
            one.hello.version if one.hello else "",
            one.hello.language if one.hello else "",
            tuple(sorted(one.hello.profiles)) if one.hello else (),
            one.problem,
            one.stderr,
            order,
            one.guarded,
            one.unguarded,
        )
        for one in run.started
    )
    return Results(
        run.manifest.format,
        run.manifest.suite,
        run.options.seed,
        run.options.isolation,
        run.options.strict_codes,
        run.seconds,
        adapters,
        tuple(results),
        tuple(problems),
    )


def counts(results: Results) -> dict[Bucket, int]:
    """How many passed, failed and were skipped."""
    found = Counter(bucket(item.outcome, results.strict_codes) for item in results.results)
    return {one: found[one] for one in Bucket}


def conforms(results: Results) -> bool:
    """Whether nothing failed, every adapter started, and the known failures are what they were.

    Where nothing was run, nothing conforms.
    """
    started = all(not adapter.problem for adapter in results.adapters)
    nothing = {Outcome.NOT_CLAIMED, Outcome.NOT_RUN}
    ran = any(result.outcome not in nothing for result in results.results)
    return started and ran and not results.problems and counts(results)[Bucket.FAILED] == 0


def lines(results: Results) -> Iterable[str]:
    """The lines of the file, each a JSON object."""
    head = {
        "type": "header",
        "layout": LAYOUT,
        "format": results.format,
        "suite": results.suite,
        "seed": results.seed,
        "isolation": results.isolation,
        "strict_codes": results.strict_codes,
        "adapters": [asdict(adapter) for adapter in results.adapters],
    }
    yield json.dumps(head)
    for result in results.results:
        item = {key: value for key, value in asdict(result).items() if value not in ("", ())}
        yield json.dumps({"type": "case", **item, "seconds": round(result.seconds, 6)})
    foot = {
        "type": "footer",
        "counts": counts(results),
        "outcomes": Counter(result.outcome for result in results.results),
        "problems": results.problems,
        "seconds": round(results.seconds, 3),
        "conforms": conforms(results),
    }
    yield json.dumps(foot)


def write(results: Results, path: Path) -> None:
    """Writes the file; raises OSError."""
    path.write_text("".join(line + "\n" for line in lines(results)), "utf-8")


def read(path: Path) -> Results:
    """Reads a file; raises ResultsError."""
    try:
        items = [json.loads(line) for line in read_text(path).split("\n") if line]
        if len(items) < 2:
            raise ResultsError(f"{path}: not a results file, or one that was cut")
        head, *middle, foot = items
        if head["type"] != "header" or head["layout"] != LAYOUT:
            raise ResultsError(f"{path}: not results of layout {LAYOUT}")
        if foot["type"] != "footer":
            raise ResultsError(f"{path}: no footer, so the run did not come to its end")
        return Results(
            _is(str, head["format"]),
            _is(str, head["suite"]),
            _is(int, head["seed"]),
            _is(str, head["isolation"]),
            _is(bool, head["strict_codes"]),
            _is(float, foot["seconds"]),
            tuple(_adapter(item) for item in head["adapters"]),
            tuple(_result(item) for item in middle),
            _strings(foot["problems"]),
        )
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}") from None
    except (KeyError, TypeError, ValueError, IndexError, RecursionError) as error:
        raise ResultsError(f"{path}: not a results file ({error})") from None


def _adapter(item: dict[str, Any]) -> AdapterInfo:
    later = ("order", "guarded", "unguarded")  # older files have none
    item = {**{key: [] for key in later}, **item}
    for key in ("command", "again", "profiles", *later):
        item[key] = _strings(item[key])
    for key in item.keys() - {"command", "again", "profiles", *later}:
        _is(str, item[key])
    return AdapterInfo(**item)


def _result(item: dict[str, Any]) -> Result:
    return Result(
        _is(str, item["adapter"]),
        _is(str, item["case"]),
        Outcome(item["outcome"]),
        _is(float, item["seconds"]),
        _is(str, item.get("detail", "")),
        tuple(_difference(one) for one in item.get("differences", ())),
        _is(str, item.get("stderr", "")),
        _is(str, item.get("guard", "")),
    )


def _difference(item: dict[str, Any]) -> Difference:
    return Difference(*(_is(str, item[key]) for key in ("where", "want", "got")))


def _strings(items: Any) -> tuple[str, ...]:
    return tuple(_is(str, item) for item in _is(list, items))


def _is(kind: type, value: Any) -> Any:
    """The value, where it is of the kind (a whole number is a float too); raises TypeError."""
    if kind is float and type(value) is int:
        return value
    if type(value) is not kind:
        raise TypeError(f"{value!r:.60} is no {kind.__name__}")
    return value


def merge(many: Sequence[Results]) -> Results:
    """One set of results out of several of the same suite, with no case of an adapter twice.

    Raises ResultsError where they are not of one suite, or overlap.
    """
    first = many[0]
    seen: set[tuple[str, str]] = set()
    for part in many:
        if (part.format, part.suite, part.strict_codes) != (
            first.format,
            first.suite,
            first.strict_codes,
        ):
            raise ResultsError(f"not of one suite: {first.suite} and {part.suite}")
        for result in part.results:
            if (result.adapter, result.case) in seen:
                raise ResultsError(f"twice: {result.adapter} {result.case}")
            seen.add((result.adapter, result.case))
    adapters = {adapter.label: adapter for part in many for adapter in part.adapters}
    return Results(
        first.format,
        first.suite,
        first.seed,
        first.isolation,
        first.strict_codes,
        sum(part.seconds for part in many),
        tuple(adapters.values()),
        tuple(result for part in many for result in part.results),
        tuple(problem for part in many for problem in part.problems),
    )


def compare(old: Results, new: Results) -> Changes:
    """What became of the results of ``old`` in ``new``.

    Fixed: failed, now does not. Broken: did not fail, now does. Changed: another outcome on the
    same side. New and gone: on one side alone.
    """
    before = {(item.adapter, item.case): item.outcome for item in old.results}
    after = {(item.adapter, item.case): item.outcome for item in new.results}
    found: dict[str, list[str]] = {name: [] for name in Changes.__dataclass_fields__}
    for key in sorted(before.keys() | after.keys()):
        was, now = before.get(key), after.get(key)
        if was == now:
            continue
        text = f"{key[0]} {key[1]}: "
        if was is None:
            found["new"].append(text + str(now))
        elif now is None:
            found["gone"].append(text + f"was {was}")
        else:
            failed = bucket(was, old.strict_codes) is Bucket.FAILED
            fails = bucket(now, new.strict_codes) is Bucket.FAILED
            name = "changed" if failed == fails else "fixed" if failed else "broken"
            found[name].append(text + f"{was} -> {now}")
    return Changes(**{name: tuple(items) for name, items in found.items()})
