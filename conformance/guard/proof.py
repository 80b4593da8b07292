"""What the preloaded library wrote down: where it was loaded, what it guarded, what was touched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Hit", "Proof", "read"]


@dataclass(frozen=True, slots=True)
class Hit:
    """A byte outside of a map was touched: its place in the file, and the size of the file."""

    offset: int
    size: int

    def __str__(self) -> str:
        where = f"touched byte {self.offset} of a file of {self.size} bytes"
        if self.offset < 0:
            return f"touched memory {-self.offset} bytes before the start of the file"
        if self.offset < self.size:
            return f"{where}, outside of what it had mapped"
        past = self.offset - self.size
        return f"{where}: {past} bytes past its end" if past else f"{where}: the one past its end"


@dataclass(frozen=True, slots=True)
class Proof:
    """``mapped`` and ``bare`` are the numbers of cases whose maps were, or could not be, guarded;
    ``hits`` the first hit of each."""

    loaded: bool
    mapped: frozenset[str]
    bare: frozenset[str]
    hits: Mapping[str, Hit]


def read(path: Path) -> Proof:
    """Reads a proof; without the file there is none."""
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    names: dict[str, set[str]] = {"mapped": set(), "bare": set()}
    hits: dict[str, Hit] = {}
    for what, *rest in (line.split(" ") for line in lines):
        number = rest[0].partition(".")[0] if rest else ""
        if what in names:
            names[what].add(number)
        elif what == "hit" and len(rest) == 3:
            hits.setdefault(number, Hit(int(rest[1]), int(rest[2])))
    return Proof(bool(lines), frozenset(names["mapped"]), frozenset(names["bare"]), hits)
