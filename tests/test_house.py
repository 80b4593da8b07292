"""The order of the house: who may import whom, and what importing costs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import weig
from weig.spec.dtypes import BY_CODE, BY_NAME, DTYPES
from weig.spec.errors import CODES, escape

# Folder -> the folders of weig that it may import from.
MAY_IMPORT = {
    "spec": {"spec"},
    "backends": {"backends", "spec"},
    "fixtures": {"fixtures", "spec"},
    "conformance": {"conformance"},
    "tools": {"tools", "conformance", "fixtures", "backends", "spec"},
}


def modules(checkout: Path, folder: str) -> list[Path]:
    outside = {"generated", "adapters", "templates", "node_modules"}
    return [p for p in (checkout / folder).rglob("*.py") if not outside & set(p.parts)]


def imported(path: Path) -> set[str]:
    """The folders of weig that a module names in its imports, wherever they stand."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
            if node.module == "weig":
                names = [f"weig.{alias.name}" for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("weig.")}
    return found


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_imports_run_down_the_list(checkout: Path, folder: str) -> None:
    paths = modules(checkout, folder)
    assert paths
    for path in paths:
        assert imported(path) <= MAY_IMPORT[folder], path


def test_the_native_loaders_share_nothing(checkout: Path) -> None:
    for folder, other in (("c", "cpp"), ("cpp", "c")):
        for path in (checkout / "backends" / folder).iterdir():
            if path.suffix in {".c", ".h", ".cpp", ".hpp", ".py"}:
                text = path.read_text(encoding="utf-8")
                assert not re.search(rf"backends\.{other}\b", text), path
                assert f"../{other}/" not in text, path


def loaded_by(code: str) -> set[str]:
    program = f"import sys\n{code}\nprint(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(run.stdout.split())


def test_importing_weig_imports_nothing(checkout: Path, tmp_path: Path) -> None:
    """Without site, so that the hook of an editable install does not count."""
    (tmp_path / "weig").symlink_to(checkout)
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
before = set(sys.modules)
import weig
print(*set(sys.modules) - before)
"""
    run = [sys.executable, "-I", "-S", "-c", program]
    loaded = subprocess.run(run, capture_output=True, text=True, check=True).stdout.split()
    assert set(loaded) == {"weig", "__future__"}


@pytest.mark.parametrize("backend", ["cpp", "c"])
def test_listing_names_does_not_import_numpy(tmp_path: Path, backend: str) -> None:
    path = tmp_path / "t.weig"
    weig.save(path, {})
    loaded = loaded_by(f"import weig\nlist(weig.open({str(path)!r}, backend={backend!r}))")
    assert not loaded & {"numpy", "ml_dtypes", "argparse", "dataclasses"}


def test_the_version_stands_once(checkout: Path) -> None:
    assert f'version = "{weig.__version__}"' in (checkout / "pyproject.toml").read_text()


def test_the_dtype_table_is_that_of_the_spec(checkout: Path) -> None:
    rows = []
    for line in (checkout / "spec/SPEC.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and cells[0].isdecimal() and cells[2].isdecimal():
            rows.append((int(cells[0]), cells[1], int(cells[2]), int(cells[3])))
    assert rows == [(d.code, d.name, d.size, d.unit) for d in DTYPES]
    assert [d.code for d in DTYPES] == list(range(len(DTYPES)))
    assert len(BY_CODE) == len(BY_NAME) == len(DTYPES) == 19
    assert all(d.to_numpy().itemsize == d.size for d in DTYPES)


def test_the_error_codes_are_those_of_the_spec(checkout: Path) -> None:
    text = (checkout / "spec/SPEC.md").read_text(encoding="utf-8")
    table = text.split("## 14.")[1].split("## 15.")[0]
    rows = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")]
    assert [row for row in rows if row.isupper()] == list(CODES)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain.weight_0", "plain.weight_0"),
        ("é日", "é日"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\r", "a\\nb\\r"),
        ("back\\slash", "back\\\\slash"),
        ("\u202egnp", "\\u202egnp"),
        ("\u2028", "\\u2028"),
        (b"\xff\xfeok", "\\xff\\xfeok"),
        (b"\xed\xa0\x80", "\\xed\\xa0\\x80"),
        ("\ud800", "\\ud800"),
        ("\U0001f600", "\U0001f600"),
    ],
)
def test_escape(raw: str | bytes, shown: str) -> None:
    assert escape(raw) == shown
    assert escape(raw).isprintable()
