"""A suite of a toy format, small enough to see through, and runs of miniature adapters over it."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from weig.conformance import manifest, runner
from weig.conformance.manifest import Manifest
from weig.conformance.outcome import Result

MINIATURES = Path(__file__).with_name("miniatures.py")
BODIES = {"good-1": bytes(range(16)), "good-2": bytes(range(100, 124))}
RULES = {"TOY-1": {"text": "A file must start with GOOD.", "section": "1"}}


def command(behaviour: str) -> tuple[str, ...]:
    """The command line of a miniature adapter; the interpreter starts as fast as it can."""
    return (sys.executable, "-I", "-S", str(MINIATURES), behaviour)


def _good(ident: str, body: bytes, **more: Any) -> tuple[dict[str, Any], bytes]:
    tensor = {
        "name": "w",
        "dtype": "U8",
        "shape": [2, len(body) // 2],
        "nbytes": len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
    }
    want = {"byte_order": "little", "count": 1, "tensors": [tensor]}
    row = {"expect": "accept", "want": want, "dtypes": ["U8"], "max_rank": 2, "rules": []}
    return {"id": ident, "chapter": "good", **row, **more}, b"GOOD" + body


def _bad(ident: str, **more: Any) -> tuple[dict[str, Any], bytes]:
    row = {"expect": "reject", "errors": ["BAD"], "rules": ["TOY-1"], "dtypes": ["U8"]}
    mark = {"offset": 0, "length": 4, "field": "magic"}
    row |= {"edit": ['set magic = "EVIL"'], "marks": [mark], "fields": [mark]}
    return {"id": ident, "chapter": "bad", **row, **more}, b"EVIL" + ident.encode()


_AGAIN = [{"op": "truncate", "number": 0}, {"op": "restore"}]


def _held(
    ident: str, via: str, changes: list[dict[str, Any]], check: list[str], access: bool
) -> tuple[dict[str, Any], bytes]:
    held = {"via": via, "changes": changes, "check": check, "access": access}
    return _good(ident, BODIES["good-2"], profiles=["core", f"held-{via}"], held=held)


def _held_rows() -> list[tuple[dict[str, Any], bytes]]:
    return [
        _held("left-alone", "read", [], ["unmodified"], True),
        _held("cut-read", "read", [{"op": "truncate", "number": 0}], ["CHANGED"], True),
        _held("cut-mmap", "mmap", [{"op": "truncate", "number": 6}], ["CHANGED"], False),
        _held("written", "read", [{"op": "write", "number": 5, "hex": "abcd"}], ["CHANGED"], True),
        _held("again", "mmap", _AGAIN, ["CHANGED"], True),
        _held("touched", "mmap", [{"op": "times", "number": 1}], ["CHANGED"], True),
        _held("mode", "mmap", [{"op": "chmod", "number": 0o400}], ["unmodified"], True),
        _held("renamed", "mmap", [{"op": "rename", "number": 24}], ["unmodified", "CHANGED"], True),
        _held("removed", "mmap", [{"op": "unlink"}], ["unmodified", "CHANGED"], True),
    ]


def write(directory: Path, held: bool = False) -> Path:
    """Writes the toy suite, or the cases of files held open; gives the path of its manifest."""
    rows = [
        _good("good-1", BODIES["good-1"]),
        _good("good-2", BODIES["good-2"]),
        _bad("bad-1"),
        _bad("bad-2"),
        _bad("choice", expect="either"),
        _bad("heavy", tags=["memory"]),
        _good("deep", BODIES["good-1"], level="deep"),
        _good("other-end", BODIES["good-1"], profiles=["core", "big-endian"]),
        _bad("bad-end", profiles=["core", "big-endian"]),
    ]
    cases = []
    for row, data in _held_rows() if held else rows:
        name = f"{row['id']}.toy"
        (directory / name).write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        row |= {"file": name, "size": len(data), "sha256": digest, "title": f"case {row['id']}"}
        row.setdefault("profiles", ["core"])
        cases.append(row)
    path = directory / "manifest.json"
    path.write_text(json.dumps({"format": "toy", "suite": "7", "rules": RULES, "cases": cases}))
    return path


def run(
    suite: Manifest,
    behaviour: str,
    cases: Sequence[str] = ("good-1", "good-2", "bad-1", "bad-2"),
    **options: Any,
) -> Mapping[str, Result]:
    """The results of one miniature, by case."""
    chosen = [case for case in suite.cases if case.ident in cases]
    adapter = runner.Adapter(behaviour, command(behaviour), ("--", *command(behaviour)))
    done = runner.run(suite, chosen, [adapter], runner.Options(**options))
    assert not done.started[0].problem
    return {result.case: result for result in done.results}


def read(directory: Path) -> Manifest:
    """Writes the toy suite into a directory and reads it."""
    return manifest.read(write(directory))
