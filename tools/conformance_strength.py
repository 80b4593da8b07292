"""``weig conformance strength``: the suite over deliberately wrong loaders, and what it misses."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from weig.conformance import strength
from weig.conformance.strength import Kill
from weig.tools.conformance_arguments import add_manifest, count, suite
from weig.tools.conformance_exit import EXIT_CONFORMS, EXIT_FAILS, UsageError

__all__ = ["add_strength"]

SHOWN = 3  # case ids a line


def add_strength(actions: Any) -> None:
    parser = actions.add_parser(
        "strength",
        help="run the suite over deliberately wrong loaders: which does it not catch?",
        description="Runs the suite over deliberately wrong loaders and prints what catches each.",
        epilog="exit status: 0 each is caught for the reason it should be; 1 one survives.",
    )
    parser.add_argument(
        "--vice",
        action="append",
        default=[],
        metavar="GLOB",
        help="only these wrong loaders; again for more",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a wrong loader")
    parser.add_argument(
        "--jobs", "-j", type=count, default=os.cpu_count() or 1, metavar="N",
        help="loaders at the same time (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, metavar="N", help="the order of the cases")
    add_manifest(parser, "a manifest, or its directory (default: the bundled suite)")
    parser.set_defaults(act=_run)


def _run(args: argparse.Namespace) -> int:
    whole = suite(args.manifest)
    vices = strength.selected(strength.read(), args.vice)
    if not vices:
        raise UsageError("no wrong loader is selected")
    seed = secrets.randbits(32) if args.seed is None else args.seed
    progress = _Progress()
    kills = strength.measure(whole, vices, strength.options(args.jobs, seed), progress)
    progress.clear()
    for line in _objects(kills) if args.json else _table(kills, seed):
        print(line)
    return EXIT_FAILS if any(kill.survived for kill in kills) else EXIT_CONFORMS


def _objects(kills: Sequence[Kill]) -> Iterator[str]:
    for kill in kills:
        yield json.dumps(
            {
                "vice": kill.vice.ident,
                "what": kill.vice.what,
                "kind": kill.vice.kind,
                "rules": kill.vice.rules,
                "survived": kill.survived,
                "cases": kill.cases,
                "outcomes": kill.outcomes,
                "others": kill.others,
            }
        )


def _table(kills: Sequence[Kill], seed: int) -> Iterator[str]:
    """Vice, cases that catch it, how, the first of them; then the survivors."""
    width = max(len(kill.vice.ident) for kill in kills)
    right, *wrong = kills
    for kill in wrong:
        shown = " ".join(kill.cases[:SHOWN]) or "-"
        how = ",".join(kill.outcomes) or "-"
        yield f"{kill.vice.ident:<{width}} {len(kill.cases):>5}  {how:<28}  {shown}"
    yield ""
    if right.survived:
        failed = (right.cases + right.others)[:SHOWN]
        yield f"WRONG     {right.vice.ident:<{width}}  the right loader fails {' '.join(failed)}"
    survivors = [kill for kill in wrong if kill.survived]
    for kill in survivors:
        yield f"SURVIVES  {kill.vice.ident:<{width}}  {kill.vice.what}"
        if kill.others:
            yield f"{'':10}{'':<{width}}  (for another reason: {' '.join(kill.others[:SHOWN])})"
    yield f"{len(wrong) - len(survivors)} caught, {len(survivors)} survive (seed {seed})"


class _Progress:
    """How many loaders are done, on one line of standard error where that is a terminal."""

    WIDTH = 20

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()

    def __call__(self, done: int, total: int) -> None:
        self._write(f"{done}/{total}".ljust(self.WIDTH))

    def clear(self) -> None:
        self._write(f"{'':<{self.WIDTH}}\r")

    def _write(self, text: str) -> None:
        if self._shown:
            sys.stderr.write(f"\r{text}")
            sys.stderr.flush()
