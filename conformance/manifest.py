"""The cases, read from a manifest (``manifest.json``): files, expectations, rules.

Keys that are not known are ignored, so that a newer suite can say more. What is known is checked
here once; the rest of the engine trusts it.
"""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from weig.conformance.outcome import SuiteError
from weig.conformance.text import excerpt, read_text

__all__ = [
    "Case",
    "Change",
    "Held",
    "Manifest",
    "Rule",
    "Series",
    "Span",
    "Want",
    "WantTensor",
    "read",
]

KINDS = (
    "file",
    "sparse",
    "directory",
    "fifo",
    "symlink-loop",
    "symlink",
    "device",
    "socket",
    "missing",
    "host-path",
)
EXPECTATIONS = ("accept", "reject", "either")
LEVELS = ("open", "deep")
WAYS = ("mmap", "read")
CHANGES = ("truncate", "write", "restore", "rename", "unlink", "times", "chmod")


@dataclass(frozen=True, slots=True)
class Rule:
    """One sentence of the specification."""

    ident: str
    text: str
    section: str


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes of a file that have a name."""

    offset: int
    length: int
    field: str


@dataclass(frozen=True, slots=True)
class WantTensor:
    """One tensor that an accepted answer must list; ``sha256`` is over the canonical bytes.

    None for the digest: the content is not compared (a file too large to read in a test).
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    sha256: str | None


@dataclass(frozen=True, slots=True)
class Want:
    """What an accepted answer must say."""

    byte_order: str
    count: int
    tensors: tuple[WantTensor, ...]


@dataclass(frozen=True, slots=True)
class Series:
    """Little-endian 64-bit words, again and again with something added, at a place in a file.

    ``times`` counts nested loops, the outermost first; ``steps`` says for each loop what every turn
    of it adds to each word.
    """

    offset: int
    words: tuple[int, ...]
    times: tuple[int, ...]
    steps: tuple[tuple[int, ...], ...]

    def data(self) -> bytes:
        """The bytes, which may be many millions: a word of all rows at a time, which is fast."""
        rows = array("Q", bytes(8 * len(self.words) * prod(self.times)))
        for i, word in enumerate(self.words):
            column = [word]
            for turns, step in zip(self.times, self.steps, strict=True):
                more = range(0, turns * step[i], step[i]) if step[i] else (0,) * turns
                column = [value + extra for value in column for extra in more]
            rows[i :: len(self.words)] = array("Q", column)
        if sys.byteorder == "big":
            rows.byteswap()
        return rows.tobytes()


@dataclass(frozen=True, slots=True)
class Change:
    """What the suite does to a file that a loader holds open.

    ``op`` is *truncate* (to ``number`` bytes), *write* (``data`` at the offset ``number``),
    *restore* (all its bytes written again), *rename* (of another file, of ``number`` zeros, over
    it), *unlink*, *times* (of last modification: what it was plus ``number`` nanoseconds) or
    *chmod* (to the mode ``number``).
    """

    op: str
    number: int = 0
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Held:
    """What happens to a case's file after it was opened, and what a loader says of it then.

    ``via`` is the way to open it. ``check`` holds the answers, *unmodified* or an error code, of
    which any is right when it is asked whether the file was changed. With ``access`` it must still
    give the tensors.
    """

    via: str
    changes: tuple[Change, ...]
    check: tuple[str, ...]
    access: bool


@dataclass(frozen=True, slots=True)
class Case:
    """One file and what a conforming loader says to it.

    ``file`` is relative to the manifest: the file itself, or what a symbolic link points to; None
    where there is no such file. ``limits`` are the numbers of the case that a loader may claim a
    limit for: ``max_size`` (of the file, in bytes) and whatever the manifest calls ``max_...``.
    ``pace`` is the smaller case that says how long this one may take (`weig.conformance.pace`).
    A sparse file is zeros, overlaid by ``series`` and then by ``pieces`` (offset and bytes).
    """

    ident: str
    title: str
    chapter: str
    kind: str
    expect: str
    level: str = "open"
    file: str | None = None
    path: str | None = None
    sha256: str | None = None
    size: int = 0
    rules: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    profiles: frozenset[str] = frozenset()
    dtypes: frozenset[str] = frozenset()
    limits: Mapping[str, int] = field(default_factory=dict)
    tags: frozenset[str] = frozenset()
    weakness: str = ""
    edit: tuple[str, ...] = ()
    marks: tuple[Span, ...] = ()
    fields: tuple[Span, ...] = ()
    want: Want | None = None
    pieces: tuple[tuple[int, bytes], ...] = ()
    series: tuple[Series, ...] = ()
    pace: str | None = None
    held: Held | None = None


@dataclass(frozen=True)
class Manifest:
    """All cases of a suite, in its order, and the rules they name."""

    path: Path
    format: str
    suite: str
    rules: Mapping[str, Rule]
    cases: tuple[Case, ...]

    @property
    def directory(self) -> Path:
        """Where the files of the cases are."""
        return self.path.parent

    def case(self, ident: str) -> Case:
        """The case with an id that is known to be there."""
        return next(case for case in self.cases if case.ident == ident)


def read(path: Path) -> Manifest:
    """Reads a manifest: the file itself, or a directory that holds a ``manifest.json``.

    Raises SuiteError with one line where it cannot be read or does not hold what it must.
    """
    if path.is_dir():
        path = path / "manifest.json"
    try:
        table = json.loads(read_text(path))
        cases = tuple(_case(item) for item in table["cases"])
        rules = {ident: _rule(ident, rule) for ident, rule in table.get("rules", {}).items()}
        result = Manifest(path, str(table["format"]), str(table["suite"]), rules, cases)
    except OSError as error:
        raise SuiteError(f"cannot read the manifest {path}: {error.strerror}") from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise SuiteError(f"bad manifest {path}: {type(error).__name__}: {error}") from None
    seen: set[str] = set()
    for case in cases:
        if case.ident in seen:
            raise SuiteError(f"bad manifest {path}: two cases are called {case.ident}")
        seen.add(case.ident)
    for case in cases:
        if case.pace is not None and case.pace not in seen:
            raise SuiteError(f"bad manifest {path}: {case.ident} has the pace of {case.pace}")
    return result


def _rule(ident: str, table: Mapping[str, Any]) -> Rule:
    return Rule(ident, str(table.get("text", "")), str(table.get("section", "")))


def _case(table: Mapping[str, Any]) -> Case:
    ident = _string(table, "id")
    kind = _one_of(table.get("kind", "file"), KINDS, ident)
    case = Case(
        ident=ident,
        title=_string(table, "title", ""),
        chapter=_string(table, "chapter", ""),
        kind=kind,
        expect=_one_of(table["expect"], EXPECTATIONS, ident),
        level=_one_of(table.get("level", "open"), LEVELS, ident),
        file=table.get("target" if kind == "symlink" else "file"),
        path=table.get("path"),
        sha256=table.get("sha256"),
        size=table.get("size") or 0,
        rules=tuple(table.get("rules", ())),
        errors=tuple(table.get("errors", ())),
        profiles=frozenset(table.get("profiles", ())),
        dtypes=frozenset(table.get("dtypes", ())),
        limits=_limits(table),
        tags=frozenset(table.get("tags", ())),
        weakness=table.get("weakness") or "",
        edit=tuple(str(item) for item in table.get("edit", ())),
        marks=_spans(table.get("marks", ())),
        fields=_spans(table.get("fields", ())),
        want=_want(table.get("want")),
        pieces=tuple(
            (piece["offset"], bytes.fromhex(piece["hex"])) for piece in table.get("pieces") or ()
        ),
        series=tuple(_series(item) for item in table.get("series") or ()),
        pace=table.get("pace"),
        held=_held(table.get("held"), ident),
    )
    if kind == "file" and case.file is None:
        raise ValueError(f"case {ident} names no file")
    if kind in ("device", "host-path") and case.path is None:
        raise ValueError(f"case {ident} names no path")
    return case


def _string(table: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = table[key] if default is None else table.get(key, default)
    if not isinstance(value, str):
        raise TypeError(f"{key} must be a string, not {excerpt(value)}")
    return value


def _held(table: Mapping[str, Any] | None, ident: str) -> Held | None:
    if table is None:
        return None
    changes = tuple(
        Change(
            _one_of(item["op"], CHANGES, ident),
            item.get("number", 0),
            bytes.fromhex(item.get("hex", "")),
        )
        for item in table["changes"]
    )
    return Held(
        via=_one_of(table["via"], WAYS, ident),
        changes=changes,
        check=tuple(table["check"]),
        access=bool(table["access"]),
    )


def _series(table: Mapping[str, Any]) -> Series:
    steps = tuple(tuple(step) for step in table["steps"])
    return Series(table["offset"], tuple(table["words"]), tuple(table["times"]), steps)


def _limits(table: Mapping[str, Any]) -> dict[str, int]:
    limits = {
        key: value
        for key, value in table.items()
        if key.startswith("max_") and isinstance(value, int)
    }
    return {"max_size": table.get("size") or 0, **limits}


def _one_of(word: str, words: tuple[str, ...], ident: str) -> str:
    if word not in words:
        raise ValueError(f"case {ident}: {word!r} is none of {', '.join(words)}")
    return word


def _spans(items: list[Mapping[str, Any]]) -> tuple[Span, ...]:
    return tuple(Span(item["offset"], item["length"], item.get("field", "")) for item in items)


def _want(table: Mapping[str, Any] | None) -> Want | None:
    if table is None:
        return None
    tensors = tuple(
        WantTensor(
            item["name"],
            item["dtype"],
            tuple(item["shape"]),
            item["nbytes"],
            item.get("sha256"),
        )
        for item in table["tensors"]
    )
    return Want(table["byte_order"], table["count"], tensors)
