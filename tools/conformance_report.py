"""``weig conformance compare`` and ``report``: what results.jsonl files say, on another day."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from weig.conformance import report_markdown, report_text, results
from weig.tools.conformance_arguments import add_manifest, suite
from weig.tools.conformance_exit import EXIT_CONFORMS, EXIT_FAILS

__all__ = ["add_compare", "add_report"]


def add_compare(actions: Any) -> None:
    parser = actions.add_parser("compare", help="what changed between two results.jsonl")
    parser.add_argument("old", type=Path, metavar="A")
    parser.add_argument("new", type=Path, metavar="B")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(act=_compare)


def add_report(actions: Any) -> None:
    parser = actions.add_parser(
        "report",
        help="print the report of one or more results.jsonl",
        description="Prints the report of one or more results.jsonl of the same suite, together.",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="RESULTS")
    parser.add_argument(
        "--markdown", action="store_true", help="only a table for a README: chapters by loaders"
    )
    add_manifest(parser, "the manifest of the suite that was run (default: the bundled one)")
    parser.set_defaults(act=_report)


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


def _report(args: argparse.Namespace) -> int:
    found = results.merge([results.read(path) for path in args.files])
    whole = suite(args.manifest)
    unknown = {item.case for item in found.results} - {case.ident for case in whole.cases}
    if unknown:
        raise results.ResultsError(f"no case {min(unknown)} in {whole.path}: another suite?")
    if args.markdown:
        print(report_markdown.matrix(found, whole))
    else:
        print(report_text.report(found, whole), end="")
    return EXIT_CONFORMS if results.conforms(found) else EXIT_FAILS
