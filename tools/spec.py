"""``weig spec``: the rules of the format, and which cases cover them."""

from __future__ import annotations

import argparse
import json
import textwrap
from typing import Any


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "spec",
        help="print the rules of the format, or which cases cover them",
        description="The rules of SPEC.md: their sentences, and the cases that show them.",
        epilog="Exit status: 0 done; 1 a rule lacks a case; 2 bad usage.",
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    for name, run, text in (
        ("rules", _rules, "print each rule with its level and codes"),
        ("coverage", _coverage, "count the accepted and rejected cases of each rule"),
    ):
        action = actions.add_parser(name, help=text, description=text.capitalize() + ".")
        action.add_argument("--json", action="store_true", help="for machines")
        action.set_defaults(run=run)
    actions.choices["coverage"].add_argument(
        "--cases", action="store_true", help="name the cases too"
    )


def _rules(args: argparse.Namespace) -> int:
    from weig.spec.rules import rules

    if args.json:
        fields = ("text", "section", "level", "codes", "profile", "since", "tests")
        table = {
            name: {key: getattr(rule, key) for key in fields} for name, rule in rules().items()
        }
        print(json.dumps(table, ensure_ascii=False, indent=1))
        return 0
    for name, rule in rules().items():
        codes = " or ".join(rule.codes) or "-"
        print(f"{name:<9} {rule.level:<7} {codes}")
        print(textwrap.fill(rule.text, 96, initial_indent="  ", subsequent_indent="  "))
    return 0


def coverage() -> dict[str, dict[str, Any]]:
    """The cases that accept and that reject, for each rule that a file can keep or break.

    ``complete`` is false where one of the two is missing. A rule without codes says what a loader
    must take: nothing can be rejected for it.
    """
    from weig.fixtures.cases import load
    from weig.spec.rules import rules

    table: dict[str, dict[str, Any]] = {}
    for rule in rules().values():
        if rule.level not in ("open", "deep"):
            continue
        cases = [c for c in load() if rule.id in c.rules and c.level == rule.level]
        accepted = [case.id for case in cases if case.expect == "accept"]
        rejected = [case.id for case in cases if case.expect == "reject"]
        complete = bool(accepted) and bool(rejected or not rule.codes)
        table[rule.id] = {"accepted": accepted, "rejected": rejected, "complete": complete}
    return table


def _coverage(args: argparse.Namespace) -> int:
    table = coverage()
    if args.json:
        print(json.dumps(table, indent=1))
    else:
        print(f"{'rule':<9} {'accepted':>8} {'rejected':>8}")
        for rule, row in table.items():
            note = "" if row["complete"] else "  INCOMPLETE"
            print(f"{rule:<9} {len(row['accepted']):>8} {len(row['rejected']):>8}{note}")
            if args.cases:
                for kind in ("accepted", "rejected"):
                    for case in row[kind]:
                        print(f"          {kind}  {case}")
    return 0 if all(row["complete"] for row in table.values()) else 1
