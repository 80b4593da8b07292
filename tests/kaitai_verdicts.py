"""What the generated parsers say of files, each run bare, as somebody would who has only weig.ksy.

Python runs in this process. The others are small programs (spec/generated/README.md has their
protocol), built here without the network: what they need from a registry has to be there already.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

kaitaistruct = pytest.importorskip("kaitaistruct", reason="the extra kaitai is not installed")

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "spec" / "generated"
BUILD = ROOT / ".build"
CHECKS = json.loads((GENERATED / "checks.json").read_text("utf-8"))
RULE_OF = {row["path"]: row["rule"] for row in CHECKS}


class Verdict(NamedTuple):
    """What a bare parser says: the rule that is broken (None: the file ended), or the tensors.

    A tensor is a list: name, dtype code, dimensions, data_offset, data_size.
    """

    accept: bool
    rule: str | None = None
    tensors: list[list[Any]] | None = None
    deep: str | None = None  # the rule of deep verification that is broken


def parsed(data: bytes) -> Any:
    from weig.spec.generated.python.weig import Weig

    return Weig.from_bytes(data)


def parsed_to_write(data: bytes) -> Any:
    from weig.spec.generated.python_write.weig import Weig

    root = Weig.from_bytes(data)
    root._read()
    return root


def python_verdict(data: bytes, parse: Callable[[bytes], Any] = parsed) -> Verdict:
    """Everything that weig.ksy says, by a generated Python parser."""
    try:
        root = parse(data)
        tensors = [
            [t.name, int(t.dtype), [d.len for d in t.shape.dims], t.ofs_data, t.len_data]
            for t in root.body.tensors
        ]
        for tensor in root.body.tensors:
            _ = tensor.name_chars
        _ = root.body.pairs
    except UnicodeDecodeError:
        return Verdict(False, "NAME-4")
    except EOFError:
        return Verdict(False)
    except kaitaistruct.KaitaiStructError as error:
        return Verdict(False, RULE_OF[error.src_path])
    try:
        for tensor in root.body.tensors:
            _ = tensor.bools
    except kaitaistruct.KaitaiStructError as error:
        return Verdict(True, None, tensors, RULE_OF[error.src_path])
    return Verdict(True, None, tensors)


def tool(name: str) -> str:
    """The path of a program; skips the test where there is none."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def built(command: list[str], missing: tuple[str, ...], how: str, **env: str) -> None:
    """Runs a build; skips the test where the output has one of the words of ``missing``."""
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | env, capture_output=True, text=True, check=False
    )
    output = done.stdout + done.stderr
    if done.returncode and any(word in output for word in missing):
        pytest.skip(f"packages are missing, or the tool is too old: run `{how}`")
    assert done.returncode == 0, output


def node() -> str:
    """Node, where the packages of tools/ are there as well."""
    if not (ROOT / "tools" / "node_modules" / "kaitai-struct").is_dir():
        pytest.skip("packages are missing: run `npm ci` in tools/")
    return tool("node")


@functools.cache
def javascript_oracle() -> list[str]:
    return [node(), str(ROOT / "tests" / "js" / "oracle.mjs")]


@functools.cache
def java_oracle() -> list[str]:
    pom = "spec/generated/java/pom.xml"
    java = tool("java")
    built(
        [tool("mvn"), "-q", "-B", "--offline", "-f", pom, "package"],
        ("offline mode", "in offline"),
        f"mvn -B -f {pom} package",
    )
    return [java, "-jar", str(BUILD / "kaitai-java" / "weig-oracle.jar")]


@functools.cache
def go_oracle() -> list[str]:
    folder = "spec/generated/go"
    program = BUILD / "kaitai-go" / "oracle"
    built(
        [tool("go"), "-C", folder, "build", "-mod=readonly", "-o", str(program), "./oracle"],
        ("GOPROXY=off", "toolchain not available", "not defined: -C"),
        f"go -C {folder} mod download",
        GOPROXY="off",
    )
    return [str(program)]


PYTHON: dict[str, Callable[[bytes], Any]] = {"python": parsed, "python_write": parsed_to_write}
ORACLES: dict[str, Callable[[], list[str]]] = {
    "javascript": javascript_oracle,
    "java": java_oracle,
    "go": go_oracle,
}


def verdicts(language: str, paths: list[Path]) -> list[Verdict]:
    """The answers of a language's generated parser, one process for all files."""
    if language in PYTHON:
        return [python_verdict(path.read_bytes(), PYTHON[language]) for path in paths]
    done = subprocess.run(
        ORACLES[language](),
        input="".join(f"{path}\n" for path in paths),
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.split("\n") if line]
    assert len(rows) == len(paths)
    return [verdict(row) for row in rows]


def verdict(row: dict[str, Any]) -> Verdict:
    if row["accept"]:
        return Verdict(True, None, row["tensors"], row["deep"] and RULE_OF[row["deep"]])
    return Verdict(False, row["check"] and RULE_OF[row["check"]])
