"""Mutants that survive, and the file that says of each why no test can or need see it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).with_name("survivors.toml")


class Mutant(NamedTuple):
    """One change: the first line that it takes away and what it puts there, without indentation.

    ``function`` is the innermost class or function that it is in; empty for the module itself.
    """

    module: str
    function: str
    line: str
    mutant: str


def entries() -> list[dict[str, object]]:
    """The file as it stands: ``module``, ``function``, ``line``, ``kind``, ``why``, ``mutants``."""
    found: list[dict[str, object]] = tomllib.loads(FILE.read_text("utf-8"))["survivor"]
    return found


def read() -> list[Mutant]:
    """All mutants that the file explains."""
    return [
        Mutant(str(one["module"]), str(one["function"]), str(one["line"]), str(text))
        for one in entries()
        for text in _list(one["mutants"])
    ]


def unexplained(survivors: Iterable[Mutant], explained: Sequence[Mutant]) -> list[Mutant]:
    return sorted(set(survivors) - set(explained))


def unused(survivors: Iterable[Mutant], explained: Sequence[Mutant]) -> list[Mutant]:
    """What is explained and does not survive: it was killed, or its line is no longer there."""
    return sorted(set(explained) - set(survivors))


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, list) else []
