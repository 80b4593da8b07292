"""Which adapters a command line means, and ``weig conformance adapters``, which lists them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import weig.conformance
from weig.conformance import catalogue
from weig.conformance.adapter import Adapter, label_of
from weig.conformance.catalogue import BuildError, Entry
from weig.conformance.results import AdapterInfo
from weig.conformance.text import printable
from weig.tools.conformance_exit import EXIT_CONFORMS, UsageError, say

__all__ = ["Chosen", "add_list", "add_options", "choose"]

MODES = ("mmap", "read")
CATALOGUE = Path(weig.conformance.__file__).parent / "adapters"

HELP = """\
The adapters of conformance/adapters are built where they stand, so they are for a checkout of the
project, or another place that you may write to. Each builds and starts in its own folder.
"""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The adapters of a command line: those to run, and those that cannot be and must fail it."""

    adapters: tuple[Adapter, ...]
    failed: tuple[AdapterInfo, ...] = ()


def add_options(parser: argparse.ArgumentParser) -> None:
    """The three ways to name adapters: a bundled loader, one of the catalogue, a command."""
    parser.add_argument(
        "--backend",
        action="append",
        default=[],
        metavar="NAME[/MODE]",
        help="a bundled loader, as c or c/mmap; again for more",
    )
    parser.add_argument(
        "--adapters",
        metavar="all|NAME[,NAME...]",
        help="build and run these of conformance/adapters (see: weig conformance adapters)",
    )
    parser.add_argument(
        "adapter_command", nargs="*", metavar="-- COMMAND", help="the adapter, after two dashes"
    )


def choose(args: argparse.Namespace, require_all: bool) -> Chosen:
    """The adapters of the command line: all bundled ones where it names none.

    Builds those of the catalogue, and says on standard error which of them are not there to run.
    One that cannot be built fails the run; so does one whose tools are missing if ``require_all``.
    Raises UsageError.
    """
    if bool(args.adapter_command) + bool(args.backend) + (args.adapters is not None) > 1:
        raise UsageError("either --backend or -- COMMAND, or --adapters")
    extra = ("--manifest", str(args.manifest)) if args.manifest else ()
    if getattr(args, "via", None):  # the doctor asks for none
        extra = (*extra, "--via", args.via)
    if args.adapters is not None:
        return _of_catalogue(_named(args.adapters), require_all, extra)
    if args.adapter_command:
        command = tuple(args.adapter_command)
        return Chosen((Adapter(label_of(command), command, (*extra, "--", *command)),))
    return Chosen(
        tuple(
            Adapter(
                f"{name}/{mode}",
                (
                    sys.executable,
                    *("-m", "weig.tools.cli", "adapter"),
                    *("--backend", name, "--mode", mode),
                ),
                (*extra, "--backend", f"{name}/{mode}"),
            )
            for name, mode in _bundled(args.backend)
        )
    )


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


def _named(words: str) -> Sequence[Entry]:
    """The adapters of the catalogue that ``all`` or a list of names means."""
    entries = catalogue.read(CATALOGUE)
    if words == "all":
        return entries
    chosen = []
    for word in words.split(","):
        entry = catalogue.find(entries, word)
        if entry is None:
            there = ", ".join(entry.folder.name for entry in entries)
            raise UsageError(f"no adapter {word!r} in the catalogue; there are {there}")
        chosen.append(entry)
    return list(dict.fromkeys(chosen))


def _of_catalogue(entries: Sequence[Entry], require_all: bool, extra: Sequence[str]) -> Chosen:
    """Builds what can be built."""
    adapters, failed = [], []
    for entry in entries:
        adapter = catalogue.started(entry, (*extra, "--adapters", entry.folder.name))
        problem = _why_not(entry)
        if not problem:
            try:
                catalogue.build(entry)
                adapters.append(adapter)
                continue
            except BuildError as error:
                problem = f"the build failed: {printable(str(error))}"
                _show(error.output)
        if catalogue.missing(entry) and not require_all:
            print(f"weig: not run: {entry.name}: {problem}", file=sys.stderr)
            continue
        say(f"{entry.name}: {problem}", 0)
        failed.append(AdapterInfo(adapter.label, adapter.command, adapter.again, problem=problem))
    return Chosen(tuple(adapters), tuple(failed))


def _why_not(entry: Entry) -> str:
    absent = catalogue.missing(entry)
    return f"not installed here: {', '.join(absent)}" if absent else ""


def _show(output: str) -> None:
    """What a failed build wrote, so that it can be told from our own lines."""
    for line in output.splitlines():
        print(f"  | {printable(line)}", file=sys.stderr)


def add_list(actions: Any) -> None:
    parser = actions.add_parser(
        "adapters",
        help="list the adapters that come with the suite, and what they need",
        description="Lists the adapters that come with the suite, what they need, and what of it "
        "is installed here.",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.set_defaults(act=_list)


def _list(args: argparse.Namespace) -> int:
    for entry in catalogue.read(CATALOGUE):
        if args.json:
            print(json.dumps(_facts(entry)))
        else:
            print("\n".join(_lines(entry)))
    return EXIT_CONFORMS


def _facts(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "language": entry.language,
        "folder": str(entry.folder),
        "build": entry.build,
        "run": entry.run,
        "needs": [
            {"tool": tool.name, "path": tool.path, "version": tool.version}
            for tool in catalogue.tools(entry)
        ],
        "built": entry.built,
    }


def _lines(entry: Entry) -> Iterator[str]:
    yield f"{entry.folder.name:<12} {entry.name:<14} {_state(entry)}"
    for tool in catalogue.tools(entry):
        yield f"  needs      {tool.name:<8} {'MISSING' if tool.path is None else tool.version}"
    yield f"  run        weig conformance run --adapters {entry.folder.name}"


def _state(entry: Entry) -> str:
    if catalogue.missing(entry):
        return "cannot be run here"
    if not entry.build:
        return "ready (nothing to build)"
    return "built" if entry.built else "not built yet"
