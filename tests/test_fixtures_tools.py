"""The commands fixtures and spec."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from weig.fixtures import materialize
from weig.tools import spec
from weig.tools.cli import main

Capture = pytest.CaptureFixture[str]


def test_list_names_every_case(capsys: Capture) -> None:
    assert main(["fixtures", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert main(["fixtures", "list", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line.split()[0] for line in lines] == [row["id"] for row in rows]


def test_write_small(tmp_path: Path, capsys: Capture) -> None:
    assert main(["fixtures", "write", "--small", str(tmp_path / "out")]) == 0
    out, err = capsys.readouterr()
    assert out.strip() == str(tmp_path / "out" / "manifest.json")
    assert "cases" in err


def test_archive_is_the_corpus_and_always_the_same(tmp_path: Path, capsys: Capture) -> None:
    first, second = tmp_path / "a.tar.gz", tmp_path / "b.tar.gz"
    assert main(["fixtures", "archive", str(first)]) == 0
    assert main(["fixtures", "archive", str(second)]) == 0
    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as tar:
        assert {member.mtime for member in tar} == {0}
        found = {Path(m.name).name: tar.extractfile(m).read() for m in tar}
    want = [*materialize.CORPUS.iterdir(), materialize.PAGE]
    assert found == {path.name: path.read_bytes() for path in want}


def test_check_tells_what_differs(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    materialize.write(tmp_path, special=False)
    monkeypatch.setattr(materialize, "CORPUS", tmp_path)
    assert main(["fixtures", "check"]) == 0
    (tmp_path / "valid.empty.weig").write_bytes(b"x")
    (tmp_path / "valid.two-f32.weig").unlink()
    (tmp_path / "stray.weig").write_bytes(b"x")
    capsys.readouterr()
    assert main(["fixtures", "check"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "missing: valid.two-f32.weig",
        "of no case: stray.weig",
        "different: valid.empty.weig",
    ]


def test_spec_rules(capsys: Capture) -> None:
    assert main(["spec", "rules"]) == 0
    text = capsys.readouterr().out
    assert "HDR-3     open    BAD_VERSION\n  `header.version` must be 1." in text
    assert main(["spec", "rules", "--json"]) == 0
    rules = json.loads(capsys.readouterr().out)
    assert rules["NAME-6"]["codes"] == ["DUPLICATE_NAME"]


def test_spec_coverage(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["spec", "coverage", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert "sentinel.zero" in table["TAIL-1"]["rejected"]
    assert main(["spec", "coverage", "--cases"]) == 0
    assert "INCOMPLETE" not in capsys.readouterr().out
    lacking = {"HDR-1": {"accepted": [], "rejected": ["a.b"], "complete": False}}
    monkeypatch.setattr(spec, "coverage", lambda: lacking)
    assert main(["spec", "coverage"]) == 1
    assert "INCOMPLETE" in capsys.readouterr().out
