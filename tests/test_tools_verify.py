"""`weig verify` and the progress line."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import weig
from weig.backends import available
from weig.tools.cli import main
from weig.tools.progress import ProgressLine, human


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.weig"
    weig.save(path, {"flags": np.array([True, False]), "w": np.zeros(3, np.float32)})
    return path


@pytest.fixture
def bad_bool(tmp_path: Path, good: Path) -> Path:
    """Good at level open, not at level deep. The first tensor of a canonical file lies at 4096."""
    data = bytearray(good.read_bytes())
    assert data[4096:4098] == b"\1\0"
    data[4097] = 2
    path = tmp_path / "bool.weig"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("backend", available())
def test_a_line_a_file_and_on_after_a_bad_one(
    good: Path, bad_bool: Path, backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = good.with_name("no\n.weig")
    words = ["verify", "--backend", backend, str(missing), str(bad_bool), str(good)]
    assert main(words) == 1
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    shown = str(missing).replace("\n", "\\n")
    assert lines[0].startswith(f"{shown}: IO: ")
    assert lines[0].count(shown) == 1
    assert lines[1].startswith(f"{bad_bool}: BAD_BOOL: ")
    assert lines[2] == f"{good}: ok, 2 tensors, 4.1 KiB"
    assert (len(lines), captured.err) == (3, "")


def test_open_only_and_quiet(
    good: Path, bad_bool: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", "--open-only", str(bad_bool)]) == 0
    assert capsys.readouterr().out == f"{bad_bool}: ok, 2 tensors, 4.1 KiB (opened only)\n"
    assert main(["verify", "--quiet", str(good)]) == 0
    assert capsys.readouterr().out == ""
    assert main(["verify", "--quiet", str(good), str(bad_bool)]) == 1
    assert capsys.readouterr().out.count("\n") == 1


def test_json_lines(good: Path, bad_bool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--json", str(good), str(bad_bool)]) == 1
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["ok"], first["tensors"], first["bytes"]) == (True, 2, good.stat().st_size)
    assert (first["level"], first["byte_order"]) == ("deep", "little")
    assert (second["ok"], second["error"]["code"]) == (False, "BAD_BOOL")
    assert second["error"]["rule"] == "BOOL-1"


def test_command_line_in_a_process(good: Path, bad_bool: Path) -> None:
    words = [sys.executable, "-m", "weig.tools.cli", "verify", str(good), str(bad_bool)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.count("\n") == 2


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_draws_over_itself_and_clears() -> None:
    stream = Terminal()
    with ProgressLine("verify x", stream) as line:
        line(512, 1024)
    assert stream.getvalue().startswith("\rverify x 50% 512 B/1.0 KiB")
    assert stream.getvalue().split("\r")[-2].strip() == ""
    assert stream.getvalue().endswith("\r")
    assert "\n" not in stream.getvalue()


def test_progress_is_silent_elsewhere() -> None:
    plain, quiet = io.StringIO(), Terminal()
    with ProgressLine("x", plain) as line:
        line(1, 2)
    with ProgressLine("x", quiet, quiet=True) as line:
        line(1, 2)
    assert plain.getvalue() == quiet.getvalue() == ""


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 << 29, "1.5 GiB"), (2**62, "4096.0 PiB")],
)
def test_human(size: int, text: str) -> None:
    assert human(size) == text
