"""Files that a loader holds open while the suite changes them (PROTOCOL.md, section 7).

A case is a talk of one or more `Step`s. Most have one, ``load``; a held case has ``open``, and
after the change ``check`` and ``access``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from weig.conformance.manifest import Case, Change
from weig.conformance.outcome import SuiteError
from weig.conformance.protocol import Answer, access_request, check_request, open_request
from weig.conformance.staging import Staged, restaged
from weig.conformance.verdict import Verdict, judge_check

__all__ = ["Step", "alter", "describe", "talk"]


@dataclass(frozen=True, slots=True)
class Step:
    """One request and what its answer is judged by. ``before`` is done to the file first.

    ``where`` says in words which step it is, for a case of several.
    """

    request: bytes
    judge: Callable[[Answer], Verdict]
    where: str = ""
    before: tuple[Change, ...] = ()


def talk(
    case: Case, ident: str, path: str, data: str, judge: Callable[[Answer, bool], Verdict]
) -> Iterator[Step]:
    """The steps of a held case. ``judge`` is told whether digests were asked for."""
    held = case.held
    assert held is not None
    after = f", after {describe(held.changes)}"
    yield Step(
        open_request(ident, path, case.level, held.via), lambda answer: judge(answer, False), "open"
    )
    yield Step(
        check_request(ident),
        lambda answer: judge_check(held.check, answer),
        f"check{after}",
        held.changes,
    )
    if held.access:
        yield Step(
            access_request(ident, data),
            lambda answer: judge(answer, data != "none"),
            f"access{after}",
        )


def describe(changes: tuple[Change, ...]) -> str:
    """What was done to the file, in words."""
    return " and ".join(map(_in_words, changes)) or "nothing"


def _in_words(change: Change) -> str:
    match change.op:
        case "truncate":
            return f"a cut to {change.number} bytes"
        case "write":
            return f"a write of {len(change.data)} bytes at {change.number}"
        case "rename":
            return f"a rename of another file, of {change.number} bytes, over it"
        case "restore":
            return "writing its bytes again"
        case "times":
            return f"setting the time of last modification to {change.number} ns later"
        case "chmod":
            return f"a change of its mode to {change.number:o}"
    return "its removal"


def alter(staged: Staged, changes: tuple[Change, ...]) -> Staged:
    """Changes the staged file; gives it as it is now.

    Raises OSError, and SuiteError for a file that is no copy of the suite's own.
    """
    if not changes:
        return staged
    if staged.content is None:
        raise SuiteError("only a small regular file can be changed while it is held open")
    path = staged.path
    modified = os.stat(path).st_mtime_ns
    for change in changes:
        match change.op:
            case "truncate":
                os.truncate(path, change.number)
            case "write":
                _write(path, change.number, change.data)
            case "restore":
                _write(path, 0, staged.content)
            case "rename":
                other = path.with_suffix(".other")
                other.write_bytes(bytes(change.number))
                other.replace(path)
            case "unlink":
                path.unlink()
            case "times":
                os.utime(path, ns=(modified + change.number,) * 2)
            case "chmod":
                path.chmod(change.number)
    return restaged(path)


def _write(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)
