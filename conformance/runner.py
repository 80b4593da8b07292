"""Runs cases through adapters, some at the same time, and gathers what came of each."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from weig.conformance.adapter import Adapter, Started, greet
from weig.conformance.lane import Lane
from weig.conformance.manifest import Case, Manifest
from weig.conformance.options import Budget, Job, Options
from weig.conformance.outcome import Outcome, Result
from weig.conformance.process import Worker, no_core_files
from weig.conformance.protocol import Hello
from weig.conformance.staging import Sources, stage_room

__all__ = ["Adapter", "Options", "Run", "Started", "run"]


@dataclass(frozen=True)
class Run:
    """All that came of a run. Results stand in the order of the adapters, then of the manifest."""

    manifest: Manifest
    options: Options
    started: tuple[Started, ...]
    results: tuple[Result, ...]
    seconds: float


def run(
    manifest: Manifest,
    cases: Sequence[Case],
    adapters: Sequence[Adapter],
    options: Options,
    progress: Callable[[Result], None] = lambda result: None,
) -> Run:
    """Runs the cases through every adapter.

    With isolation ``auto`` an adapter has one worker, and as many adapters as ``options.jobs`` run
    at a time. With isolation ``case`` the cases of one adapter are shared out too. ``progress`` is
    called with each result as it comes, by one thread at a time (a later case may still change
    one). Raises SuiteError where the suite itself cannot go on.
    """
    start = time.monotonic()
    sources = Sources.of(manifest)
    jobs = shuffled(cases, options.seed)
    share_count = 1
    if options.isolation == "case":
        share_count = max(1, options.jobs // max(1, len(adapters)))
    lock = threading.Lock()
    stop = threading.Event()

    def report(result: Result) -> None:
        with lock:
            progress(result)

    def work(adapter: Adapter) -> tuple[Started, list[Result]]:
        started, worker = greet(adapter)
        hello = started.hello
        if hello is None:
            return started, []
        if options.guard is not None:
            hello = options.guard.claims(hello)
        budget = Budget(options.repeats, options.hangs, options.faults)
        shares = [jobs[i::share_count] for i in range(share_count)]
        with ThreadPoolExecutor(share_count) as shared:
            parts = [
                shared.submit(run_share, started, hello, worker if i == 0 else None, share, budget)
                for i, share in enumerate(shares)
            ]
            return started, [result for part in parts for result in part.result()]

    def run_share(
        started: Started, hello: Hello, worker: Worker | None, share: Sequence[Job], budget: Budget
    ) -> list[Result]:
        with stage_room(options.guard.rooms if options.guard else None) as room:
            lane = Lane(
                started.adapter, hello, started.seconds, sources, options, room, budget, worker
            )
            return lane.run(share, report, stop)

    with no_core_files(), ThreadPoolExecutor(options.jobs) as pool:
        futures = [pool.submit(work, adapter) for adapter in adapters]
        try:
            done = [future.result() for future in futures]
        except BaseException:
            stop.set()
            raise
    results = _in_order(done, cases)
    return Run(
        manifest,
        options,
        tuple(started for started, _ in done),
        results,
        time.monotonic() - start,
    )


def shuffled(cases: Sequence[Case], seed: int) -> list[Job]:
    """The cases in an order that depends on the seed alone, under numbers that tell nothing."""
    order = list(cases)
    random.Random(seed).shuffle(order)
    return [Job(f"{number:04d}", case) for number, case in enumerate(order)]


def _in_order(
    done: Sequence[tuple[Started, list[Result]]], cases: Sequence[Case]
) -> tuple[Result, ...]:
    """One result for each adapter and case; *not-run* where there is none."""
    results: list[Result] = []
    for started, found in done:
        by_case = {result.case: result for result in found}
        reason = started.problem or "the run was stopped"
        label = started.adapter.label
        results += [
            by_case.get(case.ident) or Result(label, case.ident, Outcome.NOT_RUN, detail=reason)
            for case in cases
        ]
    return tuple(results)
