"""``weig conformance run``: cases over adapters, and the reports of what came of them."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from weig.conformance import known, report_text, results, runner
from weig.conformance.adapter import Adapter
from weig.conformance.guard import control
from weig.conformance.guard.build import MissingError
from weig.conformance.manifest import Case, Manifest
from weig.conformance.outcome import Bucket, Result, bucket
from weig.conformance.runner import Options, Run
from weig.conformance.text import printable
from weig.tools import conformance_adapters
from weig.tools.conformance_arguments import (
    ALL_GUARDS,
    add_selection,
    count,
    guard_choice,
    seconds,
    selected,
    selection,
    suite,
)
from weig.tools.conformance_exit import (
    EPILOG,
    EXIT_CONFORMS,
    EXIT_FAILS,
    EXIT_NOT_STARTED,
    UsageError,
    say,
)
from weig.tools.conformance_report import add_files, check_files, write_files

__all__ = ["add_run"]


def add_run(actions: Any) -> None:
    parser = actions.add_parser(
        "run",
        help="run cases over adapters",
        description="Runs the cases over the adapter COMMAND, over adapters of the catalogue, or "
        "over all bundled loaders.",
        epilog=f"{conformance_adapters.HELP}\n{EPILOG}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    conformance_adapters.add_options(parser)
    parser.add_argument(
        "--require-all",
        action="store_true",
        help="with --adapters: one whose tools are missing is a failure too",
    )
    add_selection(parser)
    _add_how(parser)
    parser.add_argument("--strict-codes", action="store_true", help="a wrong code is a failure")
    parser.add_argument("--known", type=Path, metavar="FILE", help="a list of known failures")
    add_files(parser)
    parser.add_argument("--results", type=Path, metavar="FILE", help="write results.jsonl")
    parser.add_argument("--json", action="store_true", help="print results.jsonl, not the report")
    parser.add_argument("-v", "--verbose", action="store_true", help="a line for every result")
    parser.set_defaults(act=_run)


def _add_how(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--isolation",
        choices=("auto", "case"),
        default="auto",
        help="auto: one process for many cases, failures again alone; case: a process each",
    )
    parser.add_argument(
        "--jobs",
        "-j",
        type=count,
        default=os.cpu_count() or 1,
        metavar="N",
        help="adapters at the same time (%(default)s)",
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=10.0,
        metavar="S",
        help="seconds for one case (%(default)s)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        metavar="N",
        help="the order of the cases (default: another one each time)",
    )
    parser.add_argument(
        "--via", choices=conformance_adapters.MODES, help="ask the adapter to map or to read"
    )
    parser.add_argument(
        "--guard",
        nargs="?",
        type=guard_choice,
        const=ALL_GUARDS,
        metavar="MODE,...",
        help="make reads outside of the file visible; --guard: by all means that there are here; "
        "--guard=reserve,abut,poison: by these, or fail",
    )
    parser.add_argument(
        "--memory",
        type=count,
        default=64,
        metavar="MIB",
        help="limit over the base line, for cases that measure (%(default)s)",
    )


def _options(args: argparse.Namespace) -> Options:
    return Options(
        isolation=args.isolation,
        jobs=args.jobs,
        timeout=args.timeout,
        seed=secrets.randbits(32) if args.seed is None else args.seed,
        strict_codes=args.strict_codes,
        via=args.via,
        memory=args.memory << 20,
    )


def _run(args: argparse.Namespace) -> int:
    check_files(args.results, args.html, args.junit, args.badge)
    whole = suite(args.manifest)
    cases = selected(args, whole)
    entries = known.read(args.known) if args.known else ()
    options = _options(args)
    chosen = conformance_adapters.choose(args, args.require_all)
    if not chosen.adapters and not chosen.failed:
        return say("none of these adapters can be run here", EXIT_NOT_STARTED)
    done = _done(args, whole, cases, chosen.adapters, options)
    for one in done.started:
        for profile in one.hello.strange if one.hello else ():
            text = f"claims a profile that there is not: {printable(profile)}"
            print(f"weig: {one.adapter.label} {text}", file=sys.stderr)
    applied = known.apply(entries, done.results, [case.ident for case in whole.cases])
    found = results.of_run(done, applied.results, applied.problems, selection(args))
    found = replace(found, adapters=found.adapters + chosen.failed)
    if args.results:
        results.write(found, args.results)
    write_files(args, found, whole)
    if args.json:
        for line in results.lines(found):
            print(line)
    else:
        print(report_text.report(found, whole, args.verbose), end="")
    if any(adapter.problem for adapter in found.adapters):
        return EXIT_NOT_STARTED
    return EXIT_CONFORMS if results.conforms(found) else EXIT_FAILS


def _done(
    args: argparse.Namespace,
    whole: Manifest,
    cases: Sequence[Case],
    adapters: Sequence[Adapter],
    options: Options,
) -> Run:
    total = len(cases) * len(adapters)
    if args.guard is None:
        with _Bar(total, options.strict_codes) as bar:
            return runner.run(whole, cases, adapters, options, bar)
    try:
        with control.guards(args.guard.modes, args.guard.required) as guards:
            total *= 1 + sum(1 if mode.preloads else 2 for mode in guards.places)
            with _Bar(total, options.strict_codes) as bar:
                return control.run(guards, whole, cases, adapters, options, bar)
    except MissingError as error:
        raise UsageError(str(error)) from None


class _Bar:
    """``123/4800  2 failed`` on one line of standard error, where that is a terminal."""

    INTERVAL = 0.1  # seconds between two drawings

    def __init__(self, total: int, strict_codes: bool) -> None:
        self._total, self._strict = total, strict_codes
        self._done = self._failed = 0
        self._next = 0.0
        self._shown = sys.stderr.isatty()

    def __call__(self, result: Result) -> None:
        self._done += 1
        self._failed += bucket(result.outcome, self._strict) is Bucket.FAILED
        if self._shown and time.monotonic() >= self._next:
            self._next = time.monotonic() + self.INTERVAL
            self._draw(f"{self._done}/{self._total}  {self._failed} failed")

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            self._draw("")
            sys.stderr.write("\r")

    def _draw(self, text: str) -> None:
        sys.stderr.write(f"\r{text:<40}")
        sys.stderr.flush()
