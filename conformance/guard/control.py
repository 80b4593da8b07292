"""A guarded run: the guards that there are here, each shown to work, then the cases under them."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from weig.conformance import runner
from weig.conformance.adapter import Adapter, Started
from weig.conformance.guard import build, tail
from weig.conformance.guard.build import MissingError
from weig.conformance.guard.passes import Place, Watched, watch
from weig.conformance.guard.setup import Mode
from weig.conformance.manifest import Case, Manifest
from weig.conformance.options import Options
from weig.conformance.outcome import Bucket, Outcome, Result, SuiteError, bucket
from weig.conformance.protocol import Hello
from weig.conformance.runner import Run

__all__ = ["Guards", "guards", "run"]

# What the controls read; the first one shows that a guard reaches them.
CASES = (
    Case("good", "", "", "file", "accept", size=16, pieces=((0, b"GOOD and twelve"),)),
    Case("bad", "", "", "file", "either", size=16, pieces=((0, b"EVIL and twelve"),)),
)
HELLO = Hello("control", "1", "", ("1",), frozenset({"core"}))
# What each guard must catch: a vice of vices/overread.c, or of tail.py.
VICES = {Mode.RESERVE: "past-map", Mode.ABUT: "past-end", Mode.POISON: "tail"}


@dataclass(frozen=True)
class Guards:
    """The guards of a run. ``absent`` says of others that were asked for why there are none here.

    ``required``: an adapter that one of them does not reach fails the run.
    """

    places: Mapping[Mode, Place]
    absent: Mapping[Mode, str]
    required: bool


@contextlib.contextmanager
def guards(modes: Sequence[Mode], required: bool) -> Iterator[Guards]:
    """Sets guards up, and shows that each catches a loader that it must catch.

    Raises MissingError where one is ``required`` and cannot be had here, and SuiteError where one
    does not catch: then a run under it would say nothing.
    """
    with contextlib.ExitStack() as stack:
        places: dict[Mode, Place] = {}
        absent: dict[Mode, str] = {}
        for mode in Mode:
            if mode not in modes:
                continue
            try:
                places[mode] = _place(mode, stack)
            except MissingError as error:
                if required:
                    raise MissingError(f"guard {mode}: {error}") from None
                absent[mode] = str(error)
            else:
                _show_that_it_works(mode, places[mode])
        yield Guards(places, absent, required)


def _place(mode: Mode, stack: contextlib.ExitStack) -> Place:
    parent = None if mode.preloads else build.tmpfs()
    folder = Path(tempfile.mkdtemp(prefix="weig-guard-", dir=parent))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    library = None
    if mode.preloads:
        if " " in str(folder) or ":" in str(folder):
            raise MissingError(f"the temporary directory {folder} has a blank or a colon")
        tools = folder / "tools"
        tools.mkdir()
        library = build.built(build.PRELOAD, tools)
    return Place(folder, library)


def _show_that_it_works(mode: Mode, place: Place) -> None:
    """The positive control; the same loader without its vice is the negative one."""
    program: tuple[str, ...] = (sys.executable, "-I", "-S", tail.__file__)
    if mode.preloads:
        program = (str(build.built(build.OVERREAD, place.folder / "tools")),)
    adapters = [Adapter(vice, (*program, vice), ()) for vice in (VICES[mode], "none")]
    manifest = Manifest(place.folder, "control", "1", {}, CASES)
    started = [(Started(adapter, HELLO), CASES) for adapter in adapters]
    found = watch(mode, place, manifest, started, Options())
    caught, spared = (found[adapter.label] for adapter in adapters)
    result = caught.found.get("bad")
    void = f"this run would be void: the guard {mode}"
    if result is None or result.outcome is not Outcome.OVER_READ:
        reason = caught.problem or (result.detail if result else "it saw nothing")
        raise SuiteError(f"{void} does not catch a loader that over-reads ({reason})")
    if spared.problem or spared.found:
        raise SuiteError(f"{void} finds fault with a loader that does not over-read")


def run(
    guards: Guards,
    manifest: Manifest,
    cases: Sequence[Case],
    adapters: Sequence[Adapter],
    options: Options,
    progress: Callable[[Result], None] = lambda result: None,
) -> Run:
    """Runs the cases without a guard, then under each what passed before; raises SuiteError."""

    start = time.monotonic()

    def seen(item: Result) -> None:
        progress(replace(item, outcome=Outcome.PASS))  # what it tells is known only at the end

    done = runner.run(manifest, cases, adapters, options, progress)
    results = {(item.adapter, item.case): item for item in done.results}
    by_ident = {case.ident: case for case in cases}
    started = {one.adapter.label: one for one in done.started}
    for mode, place in guards.places.items():
        passed = [
            (
                one,
                [
                    by_ident[item.case]
                    for item in results.values()
                    if item.adapter == one.adapter.label and _passed(item, options)
                ],
            )
            for one in started.values()
            if one.hello is not None
        ]
        for label, watched in watch(mode, place, manifest, passed, options, seen).items():
            results |= {(label, case): item for case, item in watched.found.items()}
            started[label] = _told(started[label], mode, watched)
    for mode, reason in guards.absent.items():
        for label, one in started.items():
            started[label] = _told(one, mode, Watched(problem=reason))
    if guards.required:
        started = {label: _failed(one) for label, one in started.items()}
    return replace(
        done,
        started=tuple(started.values()),
        results=tuple(results.values()),
        seconds=time.monotonic() - start,
    )


def _passed(item: Result, options: Options) -> bool:
    return bucket(item.outcome, options.strict_codes) is Bucket.PASSED


def _told(one: Started, mode: Mode, watched: Watched) -> Started:
    """An adapter with what came of one guard."""
    if one.hello is None:
        return one
    if watched.problem:
        return replace(one, unguarded=(*one.unguarded, f"{mode}: {watched.problem}"))
    note = f" ({watched.note})" if watched.note else ""
    return replace(one, guarded=(*one.guarded, f"{mode}{note}"))


def _failed(one: Started) -> Started:
    """An adapter that had to be guarded, and is not, counts as one that did not start."""
    if one.unguarded and not one.problem:
        return replace(one, problem=f"not guarded: {'; '.join(one.unguarded)}")
    return one
