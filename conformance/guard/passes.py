"""One guard over the cases that passed without it: what it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from weig.conformance.adapter import Started
from weig.conformance.guard import proof
from weig.conformance.guard.proof import Proof
from weig.conformance.guard.setup import LARGEST, Guard, Mode
from weig.conformance.manifest import Case, Manifest
from weig.conformance.options import Options
from weig.conformance.outcome import Bucket, Difference, Outcome, Result, bucket
from weig.conformance.protocol import Accepted, Answer, Rejected, TensorAnswer
from weig.conformance.runner import Run, run, shuffled
from weig.conformance.text import cut
from weig.conformance.verdict import describe, unclaimed

__all__ = ["Watched", "watch"]

# Adapters that said hello, and the cases that each passed without a guard.
Passed = Sequence[tuple[Started, Sequence[Case]]]
FILLS = (0x00, 0xA5)  # of the bytes behind the end of a file
# What a wrong loader may do at other bytes; a hang or a busy machine must not look like one.
_TELLING = frozenset(
    {
        Outcome.CRASH,
        Outcome.GARBAGE,
        Outcome.INTERNAL,
        Outcome.WRONG_VERDICT,
        Outcome.WRONG_CONTENT,
        Outcome.WRONG_CODE,
        Outcome.ORDER_DEPENDENT,
    }
)


@dataclass(frozen=True)
class Watched:
    """What one guard showed of one adapter.

    ``found`` are the results to count instead of those without the guard, by case. ``problem`` says
    why the adapter was not guarded, or not in all cases, ``note`` what the guard could not judge.
    """

    found: Mapping[str, Result] = field(default_factory=dict)
    problem: str = ""
    note: str = ""


@dataclass(frozen=True)
class Place:
    """Where passes leave their files: a new folder for each, and the library that they preload."""

    folder: Path
    library: Path | None

    def guard(self, mode: Mode, fill: int = 0) -> Guard:
        folder = self.folder / f"{sum(1 for _ in self.folder.iterdir())}"
        guard = Guard(mode, folder, self.library, fill)
        guard.rooms.mkdir(parents=True)
        return guard


def watch(
    mode: Mode,
    place: Place,
    manifest: Manifest,
    passed: Passed,
    options: Options,
    progress: Callable[[Result], None] = lambda result: None,
) -> dict[str, Watched]:
    """Runs for each adapter the cases that it passed without a guard; gives what came by label."""
    # Copies and margins are no memory of the loader's.
    options = replace(options, memory=None)
    possible = [(one, [case for case in cases if mode.applies(case)]) for one, cases in passed]
    watcher = _preloaded if mode.preloads else _poisoned
    return watcher(mode, place, manifest, possible, options, progress)


_Progress = Callable[[Result], None]


def _union(passed: Passed) -> list[Case]:
    """The cases of all adapters, once each."""
    return list({case.ident: case for _, cases in passed for case in cases}.values())


def _preloaded(
    mode: Mode,
    place: Place,
    manifest: Manifest,
    passed: Passed,
    options: Options,
    progress: _Progress,
) -> dict[str, Watched]:
    watched = {}
    guarded = []
    for one, cases in passed:
        problem = _unreached(mode, place, manifest, one, options)
        if problem:
            watched[one.adapter.label] = Watched(problem=problem)
        else:
            guarded.append((one, cases))
    if not guarded:
        return watched
    guard = place.guard(mode)
    cases = _union(guarded)
    armed = [guard.armed(one.adapter, i) for i, (one, _) in enumerate(guarded)]
    done = run(manifest, cases, armed, replace(options, guard=guard), progress)
    number = {job.case.ident: job.number for job in shuffled(cases, options.seed)}
    for i, (one, mine) in enumerate(guarded):
        seen = proof.read(guard.proof(i))
        keys = {(one.adapter.label, case.ident) for case in mine}
        results = [item for item in done.results if (item.adapter, item.case) in keys]
        watched[one.adapter.label] = _touched(mode, results, seen, number, options.strict_codes)
    return watched


def _unreached(
    mode: Mode,
    place: Place,
    manifest: Manifest,
    one: Started,
    options: Options,
) -> str:
    """Why the library does not reach the adapter's maps; empty where it does.

    A wrong library is only a warning to the system, and a static program never hears of it: so it
    counts as there only where it tells so, from inside, of the smallest or the largest good file.
    """
    good = [
        case
        for case in manifest.cases
        if case.expect == "accept"
        and mode.applies(case)
        and case.held is None
        and case.size <= LARGEST
        and one.hello is not None
        and unclaimed(case, one.hello) is None
    ]
    good.sort(key=lambda case: case.size)
    if not good:
        return "it loads no file that could show whether it is guarded"
    guard = place.guard(mode)
    alone = replace(options, guard=guard, isolation="case", jobs=1)
    done = run(manifest, [good[0], *good[1:][-1:]], [guard.armed(one.adapter, 0)], alone)
    seen = proof.read(guard.proof(0))
    if seen.mapped:
        return ""
    if done.started[0].problem:
        return f"with the library it does not start: {done.started[0].problem}"
    if seen.bare:
        return "it maps files at places of its own choice, or there is no room for margins"
    if not seen.loaded:
        return "the library was not loaded (a static program, or one for other processors)"
    return (
        "it maps no file through the C library"
        " (it reads them, or is static, or makes system calls itself, as Go does)"
    )


def _not_run(results: Sequence[Result]) -> str:
    """What was run without a guard and not under it, in words; empty where nothing was."""
    missing = [item for item in results if item.outcome is Outcome.NOT_RUN]
    if not missing:
        return ""
    return f"{len(missing)} of {len(results)} cases were not run under it: {missing[0].detail}"


def _touched(
    mode: Mode, results: Sequence[Result], seen: Proof, number: Mapping[str, str], strict: bool
) -> Watched:
    """The results that a guard changed."""
    found = {}
    otherwise = []
    bare = 0
    for item in results:
        hit = seen.hits.get(number[item.case])
        bare += number[item.case] in seen.bare
        failed = bucket(item.outcome, strict) is Bucket.FAILED
        if hit is not None:
            how = f"; it {item.detail}" if item.outcome is Outcome.CRASH else ""
            text = f"{hit} (guard {mode}){how}"
            found[item.case] = replace(
                item, outcome=Outcome.OVER_READ, detail=text, differences=(), guard=str(mode)
            )
        elif failed and mode is Mode.ABUT:
            otherwise.append(item)  # a loader may refuse an odd address, or not bear it
        elif failed:
            text = f"{item.detail} (guard {mode}; not without it)".strip()
            found[item.case] = replace(item, detail=text, guard=str(mode))
    notes = []
    if otherwise:
        first = otherwise[0]
        notes.append(
            f"{len(otherwise)} cases not judged: maps begin within a page there"
            f" ({first.case}: {first.outcome}{f', {first.detail}' if first.detail else ''})"
        )
    if bare:
        notes.append(f"{bare} cases with maps that could not be guarded")
    return Watched(found, _not_run(results), "; ".join(notes))


def _poisoned(
    mode: Mode,
    place: Place,
    manifest: Manifest,
    passed: Passed,
    options: Options,
    progress: _Progress,
) -> dict[str, Watched]:
    def both(some: Passed, options: Options, progress: _Progress) -> list[_Told]:
        adapters = [one.adapter for one, _ in some]
        told = []
        for fill in FILLS:
            guard = place.guard(mode, fill)
            how = replace(options, guard=guard)
            told.append(_Told.of(guard, run(manifest, _union(some), adapters, how, progress)))
        return told

    told = both(passed, options, progress)
    watched = {}
    for one, cases in passed:
        label = one.adapter.label
        found = {}
        suspects = [case for case in cases if _changed(told, label, case)]
        if suspects:  # it may be another answer each time
            again = both([(one, suspects)], replace(options, isolation="case"), lambda _: None)
            found = {case.ident: _changed(again, label, case) for case in suspects}
        results = [part.results[label, case.ident] for part in told for case in cases]
        watched[label] = Watched(
            {case: item for case, item in found.items() if item}, _not_run(results)
        )
    return watched


@dataclass(frozen=True)
class _Told:
    """What came of one pass over poisoned files: results, and answers, by label and case."""

    results: Mapping[tuple[str, str], Result]
    answers: Mapping[tuple[str, str], Answer]

    @classmethod
    def of(cls, guard: Guard, done: Run) -> _Told:
        return cls({(item.adapter, item.case): item for item in done.results}, guard.answers)


def _changed(told: Sequence[_Told], label: str, case: Case) -> Result | None:
    """The result of a case whose answer depends on the poison; None where it does not."""
    key = label, case.ident
    first, second = (one.results[key] for one in told)
    before, after = (one.answers.get(key) for one in told)
    text = "the answer depends on the bytes behind the end of the file (guard poison)"
    result = replace(second, outcome=Outcome.OVER_READ, guard=str(Mode.POISON))
    if second.outcome is not first.outcome and {first.outcome, second.outcome} & _TELLING:
        said = (_said(one, answer) for one, answer in ((first, before), (second, after)))
        return replace(result, detail=text, differences=(_difference("outcome", *said),))
    if before is None or after is None:
        return None
    differences = tuple(_differences(before, after))
    return replace(result, detail=text, differences=differences) if differences else None


def _said(result: Result, answer: Answer | None) -> str:
    text = describe(answer) if answer is not None else result.detail
    return f"{result.outcome}: {text}"


def _difference(where: str, zeros: str, poison: str) -> Difference:
    zero, fill = (f"with {value:02X} there: " for value in FILLS)
    return Difference(where, zero + cut(zeros), fill + cut(poison))


def _differences(before: Answer, after: Answer) -> Iterator[Difference]:
    """Where two answers differ in anything but words for people and addresses."""
    if isinstance(before, Accepted) and isinstance(after, Accepted):
        if (before.byte_order, before.count) != (after.byte_order, after.count):
            yield _difference("status", describe(before), describe(after))
        for i, (one, other) in enumerate(zip(before.tensors, after.tensors, strict=False)):
            yield from _tensor_differences(f"tensors[{i}]", one, other)
    elif type(before) is not type(after):
        yield _difference("status", describe(before), describe(after))
    elif isinstance(before, Rejected) and isinstance(after, Rejected):
        codes = [(one.error, one.field) for one in (before, after)]
        if codes[0] != codes[1]:
            yield _difference("error", describe(before), describe(after))


def _tensor_differences(at: str, one: TensorAnswer, other: TensorAnswer) -> Iterator[Difference]:
    for item in fields(TensorAnswer):
        values = getattr(one, item.name), getattr(other, item.name)
        if item.name not in ("backing", "align") and values[0] != values[1]:
            yield _difference(f"{at}.{item.name}", *(_shown(value) for value in values))


def _shown(value: object) -> str:
    return value.hex(" ") if isinstance(value, bytes) else str(value)
