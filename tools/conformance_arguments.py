"""Arguments that several actions of ``weig conformance`` share: which cases, of which suite."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from weig.conformance import manifest
from weig.conformance.guard.setup import Mode
from weig.conformance.manifest import Case, Manifest
from weig.conformance.selection import Selection, choose
from weig.tools.conformance_exit import UsageError

__all__ = [
    "ALL_GUARDS",
    "GuardChoice",
    "add_manifest",
    "add_selection",
    "count",
    "guard_choice",
    "seconds",
    "selected",
    "selection",
    "suite",
]


@dataclass(frozen=True, slots=True)
class GuardChoice:
    """The guards that a command line asks for. ``required``: it named them, and must have them."""

    modes: tuple[Mode, ...]
    required: bool


ALL_GUARDS = GuardChoice(tuple(Mode), required=False)


def add_manifest(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--manifest", type=Path, metavar="PATH", help=text)


# Options that select cases: flags, the name of their globs, what these are matched with.
SELECTING = (
    (("-k", "--case"), "cases", "case ids"),
    (("--chapter",), "chapters", "chapters"),
    (("--rule",), "rules", "rule ids"),
    (("--tag",), "tags", "tags"),
)


def add_selection(parser: argparse.ArgumentParser) -> None:
    add_manifest(parser, "a manifest, or its directory (default: the bundled suite)")
    for flags, dest, text in SELECTING:
        parser.add_argument(
            *flags,
            dest=dest,
            action="append",
            default=[],
            metavar="GLOB",
            help=f"only these {text}; again for more",
        )


def selected(args: argparse.Namespace, whole: Manifest) -> Sequence[Case]:
    """The cases of a suite that the command line names; raises UsageError where that is none."""
    globs = (tuple(globs) for globs in (args.cases, args.chapters, args.rules, args.tags))
    cases = choose(whole.cases, Selection(*globs))
    if not cases:
        raise UsageError("no case is selected")
    return cases


def selection(args: argparse.Namespace) -> list[str]:
    """The words that select the same cases on another command line."""
    pairs = ((flags[0], glob) for flags, dest, _ in SELECTING for glob in getattr(args, dest))
    return [word for pair in pairs for word in pair]


def suite(path: Path | None) -> Manifest:
    """The named manifest, or the one of the bundled suite."""
    if path is None:
        import weig.fixtures

        path = Path(weig.fixtures.__file__).parent / "corpus" / "manifest.json"
    return manifest.read(path)


def count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def guard_choice(text: str) -> GuardChoice:
    """The guards that a list of names means; ArgumentTypeError for one that there is not."""
    try:
        return GuardChoice(tuple(Mode(word) for word in text.split(",")), required=True)
    except ValueError as error:
        names = ", ".join(Mode)
        raise argparse.ArgumentTypeError(f"{error}; the guards are {names}") from None


def seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e6:
        raise ValueError(text)
    return value
