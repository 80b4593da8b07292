"""``weig conformance compare``, ``merge``, ``report``: what results.jsonl files say later."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from weig.conformance import (
    report_badge,
    report_html,
    report_junit,
    report_markdown,
    report_text,
    results,
)
from weig.conformance.manifest import Manifest
from weig.conformance.results import Results
from weig.conformance.text import printable
from weig.tools.conformance_arguments import add_manifest, suite
from weig.tools.conformance_exit import EXIT_CONFORMS, EXIT_FAILS, UsageError

__all__ = ["add_compare", "add_files", "add_merge", "add_report", "check_files", "write_files"]


def add_compare(actions: Any) -> None:
    parser = actions.add_parser(
        "compare",
        help="what changed between two results.jsonl",
        description="Prints what changed from one run to another: what was fixed, broken (it "
        "passed, and fails now), changed otherwise, is new, is gone. Adapters are known by their "
        "label, the name of their program.",
        epilog="exit status: 0 nothing is broken; 1 something is.",
    )
    parser.add_argument("old", type=Path, metavar="A", help="results of the earlier run")
    parser.add_argument("new", type=Path, metavar="B", help="results of the later run")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(act=_compare)


def add_merge(actions: Any) -> None:
    parser = actions.add_parser(
        "merge",
        help="one results.jsonl out of several",
        description="Writes one results.jsonl out of several of the same suite: of other loaders, "
        "or of other cases of the same ones.",
    )
    parser.add_argument("out", type=Path, metavar="OUT", help="the file to write: a new one")
    parser.add_argument("files", nargs="+", type=Path, metavar="IN", help="what --results wrote")
    parser.add_argument("--force", action="store_true", help="write over OUT")
    parser.set_defaults(act=_merge)


def add_report(actions: Any) -> None:
    parser = actions.add_parser(
        "report",
        help="make reports of one or more results.jsonl",
        description="Prints the report of one or more results.jsonl of the same suite, together, "
        "or writes it in other forms.",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="RESULTS")
    parser.add_argument(
        "--markdown", action="store_true", help="only a table for a README: chapters by loaders"
    )
    add_files(parser)
    add_manifest(parser, "the manifest of the suite that was run (default: the bundled one)")
    parser.set_defaults(act=_report)


def add_files(parser: argparse.ArgumentParser) -> None:
    """The reports that are files."""
    for flag, text in (
        ("--html", "write one HTML file with everything in it"),
        ("--junit", "write JUnit XML"),
        ("--badge", "write JSON for a badge of shields.io"),
    ):
        parser.add_argument(flag, type=Path, metavar="FILE", help=text)


def check_files(*files: Path | None) -> None:
    """Raises UsageError, before long work, where a report could not be written after it."""
    for file in files:
        if file is None:
            continue
        if not file.parent.is_dir():
            raise UsageError(f"{file}: there is no folder {file.parent}")
        if file.is_dir():
            raise UsageError(f"{file}: is a folder")


def write_files(args: argparse.Namespace, found: Results, whole: Manifest) -> bool:
    """Writes what `add_files` lets one ask for; gives whether that was anything."""
    if args.html:
        report_html.write(found, whole, args.html)
    if args.junit:
        report_junit.write(found, whole, args.junit)
    if args.badge:
        args.badge.write_text(report_badge.badge(found) + "\n", "utf-8")
    return bool(args.html or args.junit or args.badge)


def _compare(args: argparse.Namespace) -> int:
    changes = results.compare(results.read(args.old), results.read(args.new))
    table = {name: getattr(changes, name) for name in ("fixed", "broken", "changed", "new", "gone")}
    if args.json:
        print(json.dumps(table))
    else:
        for name, items in table.items():
            for item in items:
                print(f"{name:<8} {printable(item)}")
        print(", ".join(f"{len(items)} {name}" for name, items in table.items()))
    return EXIT_FAILS if changes.broken else EXIT_CONFORMS


def _merge(args: argparse.Namespace) -> int:
    check_files(args.out)
    if args.out.exists() and not args.force:
        raise UsageError(f"{args.out}: is there already (--force writes over it)")
    found = results.merge([results.read(path) for path in args.files])
    results.write(found, args.out)
    print(report_text.summary(found))
    return EXIT_CONFORMS


def _report(args: argparse.Namespace) -> int:
    check_files(args.html, args.junit, args.badge)
    found = results.merge([results.read(path) for path in args.files])
    whole = suite(args.manifest)
    unknown = {item.case for item in found.results} - {case.ident for case in whole.cases}
    if unknown:
        raise results.ResultsError(f"no case {min(unknown)} in {whole.path}: another suite?")
    written = write_files(args, found, whole)
    if args.markdown:
        print(report_markdown.matrix(found, whole))
    elif written:
        print(report_text.summary(found))
    else:
        print(report_text.report(found, whole), end="")
    return EXIT_CONFORMS if results.conforms(found) else EXIT_FAILS
