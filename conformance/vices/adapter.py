"""The adapter of a wrong loader: ``python -I -S adapter.py VICE``; "none" is the right one.

A vice is a table of `vices.toml`: ``drop`` names checks, ``check`` replaces some by an expression
in ``f`` (the file) and ``r`` (the record), ``part`` replaces parts by a function. The expressions
are evaluated among the names of `loader.py` and the `WORDS` below.
"""

from __future__ import annotations

import importlib
import itertools
import json
import re
import resource
import signal
import sys
import time
import tomllib
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER))
loader = importlib.import_module("loader")

HELLO = {
    "protocol": 1, "loader": "vice", "version": "1", "language": "python", "spec": ["1"],
    "profiles": ["core", "data", "big-endian", "deep", "mmap", "held-mmap", "held-read"],
}  # fmt: skip
# A vice that eats memory or descriptors hurts nobody but itself.
LIMITS = ((resource.RLIMIT_DATA, 512 << 20), (resource.RLIMIT_NOFILE, 256))


def main(ident: str) -> None:
    """Answers requests until the end of standard input."""
    for kind, value in LIMITS:
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (value, hard))
    made = build(find(ident))
    made.parts["start"]()
    for request in sys.stdin:
        answer = respond(made, request.rstrip("\n").split("\t"))
        made.parts["send"](json.dumps(answer).encode() + b"\n")


def find(ident: str) -> Mapping[str, Any]:
    """The table of a vice; raises KeyError where there is none."""
    if ident == "none":
        return {}
    text = (FOLDER / "vices.toml").read_text("utf-8")
    line = f'\nid = "{ident}"\n'
    # One table alone: reading all of them would take longer than everything else at the start.
    for table in text.split("[[vice]]"):
        if table.startswith(line):
            return tomllib.loads(table)
    raise KeyError(ident)


def build(vice: Mapping[str, Any]) -> Any:
    """The loader with one vice; raises KeyError for a check or a part that there is not."""
    checks, parts = dict(loader.CHECKS), dict(loader.PARTS)
    for name in vice.get("drop", ()):
        del checks[name]
    for name, text in vice.get("check", {}).items():
        arguments = "f, r" if checks[name].stage == "record" else "f"
        checks[name] = checks[name]._replace(broken=evaluate(f"lambda {arguments}: {text}"))
    for name, text in vice.get("part", {}).items():
        del parts[name]
        parts[name] = evaluate(text)
    return loader.Loader(checks, parts)


def evaluate(text: str) -> Any:
    """A function written among the names of the loader and of `WORDS`."""
    return eval(" ".join(text.split()), {**vars(loader), **WORDS})


def change(item: Any, **fields: object) -> Any:
    """A file or record with other fields."""
    for name, value in fields.items():
        setattr(item, name, value)
    return item


def sound(f: Any, r: Any) -> bool:
    """Whether a record breaks nothing."""
    checks = (check for check in loader.CHECKS.values() if check.stage == "record")
    return not any(check.broken(f, r) for check in checks)


def utf8(raw: bytes, more: bytes = b"(?!)") -> bool:
    """Whether bytes are UTF-8, or sequences of another pattern (in which C is 80 to BF)."""
    pattern = (
        rb"[\x00-\x7f]|[\xc2-\xdf]C|\xe0[\xa0-\xbf]C|[\xe1-\xec\xee\xef]CC|\xed[\x80-\x9f]C"
        rb"|\xf0[\x90-\xbf]CC|[\xf1-\xf3]CCC|\xf4[\x80-\x8f]CC|" + more
    )
    return bool(re.fullmatch(b"(?:" + pattern.replace(b"C", rb"[\x80-\xbf]") + b")*", raw))


# What the expressions of vices.toml may say beside the names of the loader.
WORDS: dict[str, Any] = {
    "U32": 2**32,
    "U64": 2**64,
    "signed": lambda number: number - 2**64 if number >= 2**63 else number,
    "change": change,
    "sound": sound,
    "utf8": utf8,
    "kept": [],  # what a vice keeps from one file to the next
    "itertools": itertools,
    "signal": signal,
    "time": time,
    "unicodedata": unicodedata,
}


def respond(made: Any, fields: list[str]) -> dict[str, Any]:
    """The answer to one request."""
    if fields[0] == "hello":
        return HELLO
    options = dict(field.split("=", 1) for field in fields if "=" in field)
    try:
        match fields:
            case ["load" | "open" as verb, _, path, *_]:
                via = options.get("via", "mmap")
                content, level = options["data"], options["level"]
                answer = made.answer(path, content, level, via, verb == "open")
            case ["check", _] if made.held is not None:
                answer = made.check(made.held)
            case ["access", *_] if made.held is not None:
                answer = made.access(made.held, options["data"])
            case _:
                answer = {"status": "unsupported"}
    except Exception as error:  # what no check foresaw
        answer = {"status": "internal", "message": repr(error)}
    return {"id": fields[1] if len(fields) > 1 else "", **answer}


if __name__ == "__main__":
    main(sys.argv[1])
