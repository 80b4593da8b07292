"""The options of ``weig conformance``, and what they name: a manifest, cases, adapters."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from weig.conformance import manifest
from weig.conformance.manifest import Case, Manifest
from weig.conformance.runner import Adapter
from weig.conformance.selection import Selection, choose

MODES = ("mmap", "read")
Action = Callable[[argparse.Namespace], int]

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


def add_run(actions: Any, act: Action) -> None:
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
    _add_command(parser)
    parser.set_defaults(act=act)


def add_list(actions: Any, act: Action) -> None:
    parser = actions.add_parser("list", help="print the cases")
    _add_selection(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.set_defaults(act=act)


def add_doctor(actions: Any, act: Action) -> None:
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
    _add_command(parser)
    parser.set_defaults(act=act)


def add_compare(actions: Any, act: Action) -> None:
    parser = actions.add_parser("compare", help="what changed between two results.jsonl")
    parser.add_argument("old", type=Path, metavar="A")
    parser.add_argument("new", type=Path, metavar="B")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(act=act)


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


def _add_command(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "adapter_command", nargs="*", metavar="-- COMMAND", help="the adapter, after two dashes"
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


def selected(args: argparse.Namespace, suite: Manifest) -> list[Case]:
    """The cases that the options select; raises UsageError where there is none."""
    globs = (args.cases, args.chapters, args.rules, args.tags)
    cases = choose(suite.cases, Selection(*(tuple(words) for words in globs)))
    if not cases:
        raise UsageError("no case is selected")
    return cases


def manifest_of(args: argparse.Namespace) -> Manifest:
    """The named manifest, or the one of the bundled suite."""
    path = args.manifest
    if path is None:
        import weig.fixtures

        path = Path(weig.fixtures.__file__).parent / "corpus" / "manifest.json"
    return manifest.read(path)


def adapters(args: argparse.Namespace) -> Sequence[Adapter]:
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
