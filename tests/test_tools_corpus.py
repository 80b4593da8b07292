"""The commands over the corpus: their verdicts and the converted tensors are the manifest's."""

from __future__ import annotations

import hashlib
import json
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from weig.tools.cli import main

CORPUS = Path(str(resources.files("weig.fixtures").joinpath("corpus")))


@pytest.fixture(scope="module")
def cases() -> list[dict[str, Any]]:
    """The cases that are plain files with one verdict."""
    manifest = json.loads((CORPUS / "manifest.json").read_text(encoding="utf-8"))
    chosen = [c for c in manifest["cases"] if c["kind"] == "file" and c["expect"] != "either"]
    assert len(chosen) > 1000
    return chosen


def _judged(words: list[str], capsys: pytest.CaptureFixture[str]) -> int:
    """The exit status; what was printed is fit for a terminal, and of errors one line."""
    status = main(words)
    captured = capsys.readouterr()
    assert (captured.out + captured.err).replace("\n", "").isprintable()
    assert captured.err.count("\n") <= 1
    assert len(captured.out) < 200_000
    return status


def test_inspect_and_verify_agree_with_the_manifest(
    cases: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    for case in cases:
        path = str(CORPUS / case["file"])
        refused = case["expect"] == "reject"
        opened = 1 if refused and case["level"] == "open" else 0
        assert _judged(["inspect", path], capsys) == opened, case["id"]
        assert _judged(["inspect", "--hex", path], capsys) == opened, case["id"]
        assert _judged(["verify", "--open-only", path], capsys) == opened, case["id"]
        if refused:
            assert _judged(["verify", path], capsys) == 1, case["id"]


def test_converted_tensors_are_those_of_the_manifest(
    cases: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    safetensors = pytest.importorskip("safetensors")
    target = tmp_path / "x.safetensors"
    good = [c for c in cases if c["expect"] == "accept" and c.get("want")]
    assert len(good) > 100
    for case in good:
        if main(["convert", "--force", str(CORPUS / case["file"]), str(target)]):
            # A BOOL of 2 is legal at level open, and no other program may be given one.
            assert "BAD_BOOL" in capsys.readouterr().err, case["id"]
            continue
        read = dict(safetensors.deserialize(target.read_bytes()))
        got = {
            (name, entry["dtype"], tuple(entry["shape"]), hashlib.sha256(entry["data"]).hexdigest())
            for name, entry in read.items()
        }
        want = {
            (tensor["name"], tensor["dtype"], tuple(tensor["shape"]), tensor["sha256"])
            for tensor in case["want"]["tensors"]
        }
        assert got == want, case["id"]
