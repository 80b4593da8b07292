"""``weig verify``: every rule of the format over files at rest, a line for each file."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from weig.spec.errors import WeigError, escape
from weig.tools.progress import ProgressLine, human

if TYPE_CHECKING:
    import weig

DESCRIPTION = """\
Checks files against every rule of the format: all that a loader checks when it opens a file, then
deep verification (padding is zero, BOOL elements are 0 or 1), which reads the whole file.
One line a file; goes on after a bad one."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from weig.backends import BACKENDS

    parser = commands.add_parser(
        "verify",
        help="check files deeply; exit 1 where one is bad",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Exit status: 0 all are good; 1 one is bad; 2 bad usage.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument(
        "--open-only", action="store_true", help="check what opening checks; read no tensor byte"
    )
    parser.add_argument("--backend", choices=BACKENDS, help="the loader (else: the fastest)")
    parser.add_argument("--quiet", action="store_true", help="say nothing of good files")
    parser.add_argument("--json", action="store_true", help="a JSON object a line, for each file")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Verifies each file; gives 1 where one is bad."""
    if args.backend:
        from weig.backends import loader

        loader(args.backend)  # a loader that is not there is no fault of the files
    bad = False
    for path in args.files:
        facts = _verify(path, args)
        bad = bad or not facts["ok"]
        if args.json:
            import json

            print(json.dumps(facts), flush=True)
        elif not (args.quiet and facts["ok"]):
            print(_line(facts), flush=True)
    return int(bad)


def _verify(path: str, args: argparse.Namespace) -> dict[str, Any]:
    import weig

    facts: dict[str, Any] = {
        "file": path,
        "ok": False,
        "level": "open" if args.open_only else "deep",
    }
    try:
        with weig.open(path, backend=args.backend) as file:
            facts |= _facts(file)
            if not args.open_only:
                with ProgressLine(f"verify {escape(path)}", quiet=args.quiet) as line:
                    file.verify(line)
    except WeigError as error:
        facts["error"] = {
            "code": error.code,
            "message": error.message,
            "field": error.field,
            "rule": error.rule,
        }
    else:
        facts["ok"] = True
    return facts


def _facts(file: weig.ModelFile) -> dict[str, Any]:
    return {
        "backend": file.backend,
        "byte_order": file.byte_order,
        "tensors": len(file),
        "bytes": file.file_size,
    }


def _line(facts: dict[str, Any]) -> str:
    name = escape(facts["file"])
    if not facts["ok"]:
        error = facts["error"]
        # The message may begin with the path already.
        text = error["message"].removeprefix(f"{name}: ")
        rule = f" [{error['rule']}]" if error["rule"] else ""
        return f"{name}: {error['code']}: {text}{rule}"
    opened = " (opened only)" if facts["level"] == "open" else ""
    return f"{name}: ok, {facts['tensors']} tensors, {human(facts['bytes'])}{opened}"
