"""``weig conformance``: runs the suite over a loader, lists its cases, examines an adapter."""

from __future__ import annotations

import argparse
import json
from typing import Any

from weig.conformance import doctor, known, results, runner
from weig.conformance.outcome import SuiteError
from weig.conformance.runner import Options
from weig.conformance.text import printable
from weig.tools import conformance_adapters, conformance_init
from weig.tools.conformance_arguments import (
    add_manifest,
    add_selection,
    seconds,
    selected,
    suite,
)
from weig.tools.conformance_exit import (
    EPILOG,
    EXIT_CONFORMS,
    EXIT_FAILS,
    EXIT_NOT_STARTED,
    EXIT_SUITE,
    EXIT_USAGE,
    UsageError,
    say,
)
from weig.tools.conformance_report import add_compare, add_merge, add_report
from weig.tools.conformance_run import add_run
from weig.tools.conformance_strength import add_strength


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
    add_run(actions)
    _add_list(actions)
    _add_doctor(actions)
    conformance_init.add_init(actions)
    conformance_adapters.add_list(actions)
    add_compare(actions)
    add_merge(actions)
    add_report(actions)
    add_strength(actions)


def run(args: argparse.Namespace) -> int:
    """Runs one action; every refusal is one line."""
    try:
        status: int = args.act(args)
        return status
    except (UsageError, known.KnownError, results.ResultsError) as error:
        return say(str(error), EXIT_USAGE)
    except SuiteError as error:
        return say(str(error), EXIT_SUITE)
    except BrokenPipeError:
        raise
    except OSError as error:
        return say(f"{error.filename or 'the suite'}: {error.strerror}", EXIT_SUITE)


def _add_list(actions: Any) -> None:
    parser = actions.add_parser("list", help="print the cases")
    add_selection(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.set_defaults(act=_list)


def _list(args: argparse.Namespace) -> int:
    for case in selected(args, suite(args.manifest)):
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
            rules = ",".join(case.rules)
            print(printable(f"{case.ident:<40} {case.expect:<6} {rules:<16} {case.title}"))
    return EXIT_CONFORMS


def _add_doctor(actions: Any) -> None:
    parser = actions.add_parser(
        "doctor", help="examine a new adapter step by step, with hints for what is wrong"
    )
    conformance_adapters.add_options(parser)
    add_manifest(parser, "cases to try at the end")
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=5.0,
        metavar="S",
        help="seconds for one answer (%(default)s)",
    )
    parser.set_defaults(act=_doctor)


def _doctor(args: argparse.Namespace) -> int:
    chosen = conformance_adapters.choose(args, require_all=True)
    if len(chosen.adapters) + len(chosen.failed) != 1:
        raise UsageError("the doctor examines one adapter: -- COMMAND, or --backend NAME/MODE")
    if chosen.failed:  # it was said why
        return EXIT_NOT_STARTED
    adapter = chosen.adapters[0]
    hello = None
    sound = True
    for finding in doctor.examine(adapter.command, args.timeout):
        hello = finding.hello or hello
        sound &= _show(finding)
    if hello is None or not sound:
        print("\nMend that, then ask the doctor again.")
        return EXIT_FAILS if hello else EXIT_NOT_STARTED
    whole = suite(args.manifest)
    cases = doctor.handful(whole.cases, hello)
    options = Options(isolation="case", timeout=args.timeout)
    done = runner.run(whole, cases, [adapter], options)
    for finding in doctor.of_results(done.results, cases):
        sound &= _show(finding)
    again = " ".join(["weig conformance run", *adapter.again])
    print(f"\n{'Sound. Next' if sound else 'It speaks. For all cases'}: {again}")
    return EXIT_CONFORMS if sound else EXIT_FAILS


def _show(finding: doctor.Finding) -> bool:
    print(f"{'WRONG' if finding.problem else 'ok':<6} {finding.step}")
    if finding.problem:
        print(f"       {finding.problem}")
        for hint in finding.hints:
            print(f"       - {hint}")
    return not finding.problem
