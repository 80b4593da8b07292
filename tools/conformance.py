"""``weig conformance``: runs the suite over a loader, lists its cases, examines an adapter."""

from __future__ import annotations

import argparse
import json
import secrets
import shlex
import sys
import time
from typing import Any

from weig.conformance import doctor, known, report_junit, report_text, results, runner
from weig.conformance.outcome import Bucket, Result, SuiteError, bucket
from weig.conformance.runner import Options
from weig.tools import conformance_options as options
from weig.tools.conformance_options import UsageError

EXIT_CONFORMS, EXIT_FAILS, EXIT_USAGE, EXIT_NOT_STARTED, EXIT_SUITE = range(5)


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "conformance",
        help="run the conformance suite over a loader, in any language",
        description="Runs the conformance suite over any loader, in any language.",
        epilog=options.EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    actions = parser.add_subparsers(metavar="ACTION", dest="action", required=True)
    options.add_run(actions, _run)
    options.add_list(actions, _list)
    options.add_doctor(actions, _doctor)
    options.add_compare(actions, _compare)


def run(args: argparse.Namespace) -> int:
    """Runs one action; every refusal is one line."""
    try:
        status: int = args.act(args)
        return status
    except (UsageError, known.KnownError, results.ResultsError) as error:
        return _say(str(error), EXIT_USAGE)
    except SuiteError as error:
        return _say(str(error), EXIT_SUITE)
    except BrokenPipeError:
        raise
    except OSError as error:
        return _say(f"{error.filename or 'the suite'}: {error.strerror}", EXIT_SUITE)


def _say(message: str, status: int) -> int:
    print(f"weig: error: {message}", file=sys.stderr)
    return status


def _run(args: argparse.Namespace) -> int:
    suite = options.manifest_of(args)
    cases = options.selected(args, suite)
    entries = known.read(args.known) if args.known else ()
    how = Options(
        isolation=args.isolation,
        jobs=args.jobs,
        timeout=args.timeout,
        seed=secrets.randbits(32) if args.seed is None else args.seed,
        strict_codes=args.strict_codes,
        via=args.via,
        memory=args.memory << 20,
    )
    adapters = options.adapters(args)
    with _Bar(len(cases) * len(adapters), how.strict_codes) as bar:
        done = runner.run(suite, cases, adapters, how, bar)
    applied = known.apply(entries, done.results, [case.ident for case in suite.cases])
    found = results.of_run(done, applied.results, applied.problems)
    if args.results:
        results.write(found, args.results)
    if args.junit:
        report_junit.write(found, suite, args.junit)
    if args.json:
        for line in results.lines(found):
            print(line)
    else:
        print(report_text.report(found, suite, args.verbose), end="")
    if any(adapter.problem for adapter in found.adapters):
        return EXIT_NOT_STARTED
    return EXIT_CONFORMS if results.conforms(found) else EXIT_FAILS


def _list(args: argparse.Namespace) -> int:
    suite = options.manifest_of(args)
    cases = options.selected(args, suite)
    for case in cases:
        if args.json:
            item = {
                "id": case.ident,
                "title": case.title,
                "chapter": case.chapter,
                "rules": case.rules,
                "expect": case.expect,
                "errors": case.errors,
                "level": case.level,
                "profiles": sorted(case.profiles),
                "tags": sorted(case.tags),
            }
            print(json.dumps(item))
        else:
            print(f"{case.ident:<40} {case.expect:<6} {','.join(case.rules):<16} {case.title}")
    return EXIT_CONFORMS


def _doctor(args: argparse.Namespace) -> int:
    adapters = options.adapters(args)
    if len(adapters) != 1:
        raise UsageError("the doctor examines one adapter: -- COMMAND, or --backend NAME/MODE")
    adapter = adapters[0]
    hello = None
    sound = True
    for finding in doctor.examine(adapter.command, args.timeout):
        hello = finding.hello or hello
        sound &= _show(finding)
    if hello is None or not sound:
        print("\nMend that, then ask the doctor again.")
        return EXIT_FAILS if hello else EXIT_NOT_STARTED
    suite = options.manifest_of(args)
    cases = doctor.handful(suite.cases, hello)
    how = Options(isolation="case", timeout=args.timeout)
    done = runner.run(suite, cases, [adapter], how)
    for finding in doctor.of_results(done.results, cases):
        sound &= _show(finding)
    again = shlex.join(["weig", "conformance", "run", *adapter.again])
    print(f"\n{'Sound. Next' if sound else 'It speaks well. For all cases'}: {again}")
    return EXIT_CONFORMS if sound else EXIT_FAILS


def _show(finding: doctor.Finding) -> bool:
    print(f"{'WRONG' if finding.problem else 'ok':<6} {finding.step}")
    if finding.problem:
        print(f"       {finding.problem}")
        for hint in finding.hints:
            print(f"       - {hint}")
    return not finding.problem


def _compare(args: argparse.Namespace) -> int:
    changes = results.compare(results.read(args.old), results.read(args.new))
    table = {name: getattr(changes, name) for name in ("fixed", "broken", "changed", "new", "gone")}
    if args.json:
        print(json.dumps(table))
    else:
        for name, items in table.items():
            for item in items:
                print(f"{name:<8} {item}")
        print(", ".join(f"{len(items)} {name}" for name, items in table.items()))
    return EXIT_FAILS if changes.broken else EXIT_CONFORMS


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
