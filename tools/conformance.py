"""``weig conformance``: runs the suite over a loader, lists its cases, examines an adapter."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weig.conformance import doctor, known, manifest, report_junit, report_text, results, runner
from weig.conformance.manifest import Manifest
from weig.conformance.outcome import Bucket, Result, SuiteError, bucket
from weig.conformance.runner import Adapter, Options
from weig.conformance.selection import Selection, choose

EXIT_CONFORMS, EXIT_FAILS, EXIT_USAGE, EXIT_NOT_STARTED, EXIT_SUITE = range(5)
MODES = ("mmap", "read")

EPILOG = """\
exit status:
  0  conforms
  1  does not, or a known failure is not what it was
  2  bad usage, or no case is selected
  3  an adapter did not start
  4  a fault of the suite itself

An adapter is a program that answers lines of text with lines of JSON: conformance/PROTOCOL.md.
"""


class UsageError(Exception):
    """The command line asks for something that there is not (exit status 2)."""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "conformance",
        help="run the conformance suite over a loader, in any language",
        description="Runs the conformance suite over any loader, in any language.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    actions = parser.add_subparsers(metavar="ACTION", dest="action", required=True)
    _add_run(actions)
    _add_list(actions)
    _add_doctor(actions)
    _add_compare(actions)


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


def _add_run(actions: Any) -> None:
    parser = actions.add_parser(
        "run",
        help="run cases over adapters",
        description="Runs the cases over the adapter COMMAND, or over all bundled loaders.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_backend(parser)
    _add_selection(parser)
    parser.add_argument(
        "--isolation",
        choices=("auto", "case"),
        default="auto",
        help="auto: one process for many cases, failures again alone; case: a process each",
    )
    parser.add_argument(
        "--jobs",
        "-j",
        type=_count,
        default=os.cpu_count() or 1,
        metavar="N",
        help="adapters at the same time (%(default)s)",
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
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
    parser.add_argument("--via", choices=MODES, help="ask the adapter to map or to read")
    parser.add_argument(
        "--memory",
        type=_count,
        default=64,
        metavar="MIB",
        help="limit over the base line, for cases that measure (%(default)s)",
    )
    parser.add_argument("--strict-codes", action="store_true", help="a wrong code is a failure")
    parser.add_argument("--known", type=Path, metavar="FILE", help="a list of known failures")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit XML")
    parser.add_argument("--results", type=Path, metavar="FILE", help="write results.jsonl")
    parser.add_argument("--json", action="store_true", help="print results.jsonl, not the report")
    parser.add_argument("-v", "--verbose", action="store_true", help="a line for every result")
    _add_command(parser, "*")
    parser.set_defaults(act=_run)


def _add_list(actions: Any) -> None:
    parser = actions.add_parser("list", help="print the cases")
    _add_selection(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.set_defaults(act=_list)


def _add_doctor(actions: Any) -> None:
    parser = actions.add_parser(
        "doctor", help="examine a new adapter step by step, with hints for what is wrong"
    )
    _add_backend(parser)
    parser.add_argument("--manifest", type=Path, metavar="PATH", help="cases to try at the end")
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=5.0,
        metavar="S",
        help="seconds for one answer (%(default)s)",
    )
    _add_command(parser, "*")
    parser.set_defaults(act=_doctor)


def _add_compare(actions: Any) -> None:
    parser = actions.add_parser("compare", help="what changed between two results.jsonl")
    parser.add_argument("old", type=Path, metavar="A")
    parser.add_argument("new", type=Path, metavar="B")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(act=_compare)


def _add_backend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--backend",
        action="append",
        default=[],
        metavar="NAME[/MODE]",
        help="a bundled loader, as c or c/mmap; again for more",
    )


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--manifest",
        type=Path,
        metavar="PATH",
        help="a manifest, or its directory (default: the bundled suite)",
    )
    for flags, dest, text in (
        (("-k", "--case"), "cases", "case ids"),
        (("--chapter",), "chapters", "chapters"),
        (("--rule",), "rules", "rule ids"),
        (("--tag",), "tags", "tags"),
    ):
        parser.add_argument(
            *flags,
            dest=dest,
            action="append",
            default=[],
            metavar="GLOB",
            help=f"only these {text}; again for more",
        )


def _add_command(parser: argparse.ArgumentParser, nargs: str) -> None:
    parser.add_argument(
        "adapter_command", nargs=nargs, metavar="-- COMMAND", help="the adapter, after two dashes"
    )


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e6:
        raise ValueError(text)
    return value


def _run(args: argparse.Namespace) -> int:
    suite = _manifest(args.manifest)
    cases = choose(suite.cases, _selection(args))
    if not cases:
        raise UsageError("no case is selected")
    entries = known.read(args.known) if args.known else ()
    options = Options(
        isolation=args.isolation,
        jobs=args.jobs,
        timeout=args.timeout,
        seed=secrets.randbits(32) if args.seed is None else args.seed,
        strict_codes=args.strict_codes,
        via=args.via,
        memory=args.memory << 20,
    )
    adapters = _adapters(args)
    with _Bar(len(cases) * len(adapters), options.strict_codes) as bar:
        done = runner.run(suite, cases, adapters, options, bar)
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
    suite = _manifest(args.manifest)
    cases = choose(suite.cases, _selection(args))
    if not cases:
        raise UsageError("no case is selected")
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
    adapters = _adapters(args)
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
    suite = _manifest(args.manifest)
    cases = doctor.handful(suite.cases, hello)
    options = Options(isolation="case", timeout=args.timeout)
    done = runner.run(suite, cases, [adapter], options)
    for finding in doctor.of_results(done.results, cases):
        sound &= _show(finding)
    again = " ".join(["weig conformance run", *adapter.again])
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


def _selection(args: argparse.Namespace) -> Selection:
    return Selection(
        *(tuple(globs) for globs in (args.cases, args.chapters, args.rules, args.tags))
    )


def _manifest(path: Path | None) -> Manifest:
    """The named manifest, or the one of the bundled suite."""
    if path is None:
        import weig.fixtures

        path = Path(weig.fixtures.__file__).parent / "corpus" / "manifest.json"
    return manifest.read(path)


def _adapters(args: argparse.Namespace) -> Sequence[Adapter]:
    """The adapter of the command line, or the bundled ones that were named: all where none was."""
    extra = ("--manifest", str(args.manifest)) if args.manifest else ()
    if args.adapter_command:
        if args.backend:
            raise UsageError("either --backend or -- COMMAND")
        command = tuple(args.adapter_command)
        return [Adapter(_label(command), command, (*extra, "--", *command))]
    return [
        Adapter(
            f"{name}/{mode}",
            (sys.executable, "-m", "weig.tools.cli", "adapter", "--backend", name, "--mode", mode),
            (*extra, "--backend", f"{name}/{mode}"),
        )
        for name, mode in _bundled(args.backend)
    ]


def _label(command: Sequence[str]) -> str:
    """A short name for a command: of the script that an interpreter runs, or of the program."""
    script = next((word for word in command[1:] if Path(word).is_file()), command[0])
    return Path(script).name


def _bundled(wanted: Sequence[str]) -> list[tuple[str, str]]:
    """(backend, mode) of the bundled adapters; raises UsageError for one that is not there."""
    from weig.backends import available

    built = available()
    pairs = [(name, mode) for name in built for mode in MODES]
    if not wanted:
        return pairs
    chosen = []
    for word in wanted:
        found = [pair for pair in pairs if word in (pair[0], "/".join(pair))]
        if not found:
            raise UsageError(f"no bundled loader {word!r}; built are {', '.join(built)}")
        chosen += found
    return list(dict.fromkeys(chosen))


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
