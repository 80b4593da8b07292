"""``weig conformance init-adapter``: the skeleton of an adapter, in one of several languages."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import weig.conformance
from weig.tools.conformance_exit import EXIT_CONFORMS, UsageError

__all__ = ["add_init"]

TEMPLATES = Path(weig.conformance.__file__).parent / "templates"
# Every template has it, so that no tool that looks at this project takes one for a source of it.
SUFFIX = ".tmpl"


def add_init(actions: Any) -> None:
    languages = sorted(path.name for path in TEMPLATES.iterdir() if path.is_dir())
    parser = actions.add_parser(
        "init-adapter",
        help="write the skeleton of an adapter: the protocol done, the loader left to fill in",
        description="Writes the skeleton of an adapter into the folder DIR, which must be empty or "
        "not there yet. It speaks the protocol; the loader is left to fill in. "
        "It needs nothing but the language's own tools.",
    )
    parser.add_argument("language", choices=languages, metavar="LANG", help=", ".join(languages))
    parser.add_argument("directory", type=Path, metavar="DIR", help="where to write it")
    parser.set_defaults(act=_init)


def _init(args: argparse.Namespace) -> int:
    directory: Path = args.directory
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"{directory} is there already, and is no empty folder")
    template = TEMPLATES / args.language
    for source in sorted(template.rglob(f"*{SUFFIX}")):
        path = directory / source.relative_to(template).with_suffix("")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(source.read_bytes())
        print(path)
    print(f"\nNext: {directory / 'README.md'}")
    return EXIT_CONFORMS
