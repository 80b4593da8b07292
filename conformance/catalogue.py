"""The adapters that come with the suite: a folder each, with an ``adapter.toml`` that says how to
build and start it.

    name = "weig-go"                             # how reports call it
    language = "go"
    build = ["go", "build", "-o", "weig-go"]     # one command; [] where there is nothing to build
    run = ["./weig-go"]
    needs = ["go"]                               # programs that build and run ask for

All of them are required, and nothing else is allowed. Both commands start in the adapter's folder,
which is where the build leaves what it makes. An adapter counts as built once every word of ``run``
that is a path (has a slash in it) is there.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from weig.conformance.adapter import Adapter
from weig.conformance.outcome import SuiteError
from weig.conformance.text import printable

__all__ = ["BuildError", "Entry", "Tool", "build", "find", "missing", "read", "started", "tools"]

FILE = "adapter.toml"
TEXTS = ("name", "language")
LISTS = ("build", "run", "needs")
MAY_BE_EMPTY = frozenset({"build", "needs"})
BUILD_TIMEOUT = 1800.0  # seconds; a build may fetch what it depends on
VERSION_TIMEOUT = 20.0
# How a program is asked for its version, where not by --version.
VERSION_WORDS = {"go": "version", "java": "-version", "javac": "-version"}

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# Goes to the folder and becomes the adapter: the process is the adapter's own.
_THERE = 'cd "$1" && shift && exec "$@"'


class BuildError(Exception):
    """An adapter could not be built. ``output`` is all that the build wrote."""

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output


@dataclass(frozen=True, slots=True)
class Entry:
    """One adapter of the catalogue: what its ``adapter.toml`` says, and the folder it stands in."""

    folder: Path
    name: str
    language: str
    build: tuple[str, ...]
    run: tuple[str, ...]
    needs: tuple[str, ...]

    @property
    def built(self) -> bool:
        """Whether what ``run`` starts is there (it may be older than its source)."""
        return all((self.folder / word).exists() for word in self.run if "/" in word)


@dataclass(frozen=True, slots=True)
class Tool:
    """A program that an adapter needs: where it is here (None: nowhere), what it says it is."""

    name: str
    path: str | None
    version: str = ""


def read(root: Path) -> tuple[Entry, ...]:
    """All adapters in the folders of ``root``, by folder name.

    Raises SuiteError with one line for an ``adapter.toml`` that does not say what it must.
    """
    entries = tuple(_entry(path) for path in sorted(root.glob(f"*/{FILE}")))
    seen: dict[str, Path] = {}
    for entry in entries:
        for name in {entry.name, entry.folder.name}:
            if name in seen:
                raise SuiteError(f"{entry.folder}: {seen[name]} is called {name} too")
            seen[name] = entry.folder
    return entries


def _entry(path: Path) -> Entry:
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SuiteError(f"{path}: {error.strerror}") from None
    except ValueError as error:  # TOML or UTF-8
        raise SuiteError(f"{path}: {error}") from None
    for key in table:
        if key not in TEXTS + LISTS:
            raise SuiteError(f"{path}: {printable(key)} is no key of this file")
    for key in TEXTS:
        if not _is_word(table.get(key)):
            raise SuiteError(f"{path}: {key} must be a text of one line")
    for key in LISTS:
        value = table.get(key)
        if not isinstance(value, list) or not all(_is_word(word) for word in value):
            raise SuiteError(f"{path}: {key} must be a list of words")
        if not value and key not in MAY_BE_EMPTY:
            raise SuiteError(f"{path}: {key} must not be empty")
    name, language = (table[key] for key in TEXTS)
    command, run, needs = (tuple(table[key]) for key in LISTS)
    return Entry(path.parent.absolute(), name, language, command, run, needs)


def _is_word(value: object) -> bool:
    return isinstance(value, str) and value != "" and value.isprintable()


def find(entries: Sequence[Entry], name: str) -> Entry | None:
    """The adapter of that name: its own, or that of its folder."""
    return next((entry for entry in entries if name in (entry.name, entry.folder.name)), None)


def tools(entry: Entry) -> tuple[Tool, ...]:
    """What the adapter needs, and what of it is installed here."""
    return tuple(Tool(name, path, _version(name, path)) for name, path in _paths(entry))


def missing(entry: Entry) -> tuple[str, ...]:
    """The programs that the adapter needs and that are not installed here."""
    return tuple(name for name, path in _paths(entry) if path is None)


def _paths(entry: Entry) -> list[tuple[str, str | None]]:
    return [(name, shutil.which(name)) for name in entry.needs]


def _version(name: str, path: str | None) -> str:
    """The first line of what a program says of its version; empty where it says nothing."""
    if path is None:
        return ""
    try:
        done = subprocess.run(
            [path, VERSION_WORDS.get(name, "--version")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=VERSION_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = _COLOUR.sub("", done.stdout.decode("utf-8", "backslashreplace")).split("\n")
    return printable(next((line.strip() for line in lines if line.strip()), ""))


def build(entry: Entry) -> None:
    """Builds an adapter in its folder, without a word; raises BuildError."""
    if not entry.build:
        return
    command = " ".join(entry.build)
    try:
        done = subprocess.run(
            entry.build,
            cwd=entry.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=BUILD_TIMEOUT,
            check=False,
        )
    except OSError as error:
        raise BuildError(f"{command}: {error.strerror}") from None
    except subprocess.TimeoutExpired as error:
        output = _text(error.stdout or b"")
        raise BuildError(f"{command}: not done after {BUILD_TIMEOUT:g} s", output) from None
    if done.returncode:
        how = f"ended with status {done.returncode}"
        raise BuildError(f"{command}: {how}", _text(done.stdout))
    if not entry.built:
        raise BuildError(
            f"{command}: did not make what run starts: {' '.join(entry.run)}", _text(done.stdout)
        )


def _text(output: bytes) -> str:
    return output.decode("utf-8", "backslashreplace")


def started(entry: Entry, again: Sequence[str]) -> Adapter:
    """The adapter as the engine starts it: in its own folder.

    ``again`` is what selects it on the suite's own command line.
    """
    command = ("sh", "-c", _THERE, "sh", str(entry.folder), *entry.run)
    return Adapter(entry.name, command, tuple(again))
