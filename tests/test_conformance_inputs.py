"""Manifests, results and lists that a person gives the suite. Bad ones are one line of error."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import toy_suite

from weig.tools.cli import main

Out = pytest.CaptureFixture[str]
HEAD = {
    "type": "header", "layout": 1, "format": "toy", "suite": "7", "seed": 1, "isolation": "auto",
    "strict_codes": False,
    "adapters": [{"label": "x", "command": ["x"], "again": [], "profiles": ["core"]}],
}  # fmt: skip
CASE = {"type": "case", "adapter": "x", "case": "good-1", "outcome": "crash", "seconds": 0.5}
FOOT = {"type": "footer", "seconds": 1, "problems": []}


def results(path: Path, *rows: object) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def one_line(capsys: Out) -> str:
    text = capsys.readouterr()
    assert text.err.startswith("weig: error: ")
    assert text.err.endswith("\n")
    assert text.err[:-1].isprintable(), text.err
    return text.err


@pytest.fixture
def toy(tmp_path: Path) -> str:
    (tmp_path / "toy").mkdir()
    return str(toy_suite.write(tmp_path / "toy"))


def test_the_files_of_these_tests_are_good(tmp_path: Path, toy: str) -> None:
    assert main(["conformance", "report", results(tmp_path / "r", HEAD, CASE, FOOT),
                 "--manifest", toy]) == 1  # fmt: skip
    assert main(["conformance", "compare", str(tmp_path / "r"), str(tmp_path / "r")]) == 0


@pytest.mark.parametrize(
    ("head", "case", "foot"),
    [
        ({}, {"case": ["x"]}, {}),
        ({}, {"detail": 3}, {}),
        ({}, {"seconds": "x"}, {}),
        ({}, {"differences": [{"where": 1, "want": "", "got": ""}]}, {}),
        ({"seed": "x"}, {}, {}),
        ({"adapters": [{"label": 3, "command": [], "again": [], "profiles": []}]}, {}, {}),
        ({"adapters": [{"label": "x", "command": [3], "again": [], "profiles": []}]}, {}, {}),
        ({}, {}, {"seconds": "x"}),
        ({}, {}, {"problems": [3]}),
        ({}, {}, {"problems": "none"}),
        ({"adapters": [{"label": "x", "command": "x", "again": [], "profiles": []}]}, {}, {}),
    ],
)
def test_wrong_types_in_results(
    head: dict[str, object], case: dict[str, object], foot: dict[str, object], tmp_path: Path,
    toy: str, capsys: Out,
) -> None:  # fmt: skip
    path = results(tmp_path / "r", {**HEAD, **head}, {**CASE, **case}, {**FOOT, **foot})
    for words in (["report", path, "--manifest", toy], ["merge", str(tmp_path / "o"), path],
                  ["compare", path, path]):  # fmt: skip
        assert main(["conformance", *words]) == 2
        assert "not a results file" in one_line(capsys)
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("text", ["", "{}\n", "[" * 100_000 + "\n" + "{}\n"])
def test_no_results(text: str, tmp_path: Path, capsys: Out) -> None:
    path = tmp_path / "r"
    path.write_text(text)
    assert main(["conformance", "compare", str(path), str(path)]) == 2
    assert "not a results file" in one_line(capsys)


@pytest.mark.parametrize("key", ["id", "title", "chapter"])
def test_wrong_types_in_a_manifest(key: str, toy: str, capsys: Out) -> None:
    path = Path(toy)
    table = json.loads(path.read_text())
    table["cases"][0][key] = 3
    path.write_text(json.dumps(table))
    assert main(["conformance", "list", "--manifest", toy]) == 4
    assert f"{key} must be a string" in one_line(capsys)


def test_a_manifest_of_brackets(tmp_path: Path, capsys: Out) -> None:
    path = tmp_path / "m.json"
    path.write_text("[" * 100_000)
    assert main(["conformance", "list", "--manifest", str(path)]) == 4
    one_line(capsys)


@pytest.mark.parametrize(
    "words",
    [
        ["list", "--manifest", "/dev/zero"],
        ["run", "--known", "/dev/zero", "--", "true"],
        ["report", "/dev/zero"],
        ["compare", "/dev/zero", "/dev/zero"],
    ],
)
def test_a_device_that_never_ends(words: list[str], capsys: Out) -> None:
    assert main(["conformance", *words]) in (2, 4)
    assert "a device" in one_line(capsys)


@pytest.mark.parametrize("text", ["", "# mended, all of them\n", "known = []\n"])
def test_a_list_of_no_known_failures(text: str, tmp_path: Path, toy: str) -> None:
    path = tmp_path / "known.toml"
    path.write_text(text)
    words = ["--manifest", toy, "--known", str(path), "-k", "good-*"]
    assert main(["conformance", "run", *words, "--", *toy_suite.command("right")]) == 0


def test_text_from_files_is_escaped(tmp_path: Path, toy: str, capsys: Out) -> None:
    evil = "\x1b[31m\nid"
    path = results(tmp_path / "r", HEAD, {**CASE, "case": evil}, FOOT)
    assert main(["conformance", "report", path, "--manifest", toy]) == 2
    one_line(capsys)
    good = results(tmp_path / "g", HEAD, CASE, FOOT)
    assert main(["conformance", "compare", good, path]) == 0
    assert all(line.isprintable() for line in capsys.readouterr().out.split("\n"))
    table = json.loads(Path(toy).read_text())
    table["cases"][0]["title"] = evil
    Path(toy).write_text(json.dumps(table))
    assert main(["conformance", "list", "--manifest", toy]) == 0
    assert all(line.isprintable() for line in capsys.readouterr().out.split("\n"))


def test_the_empty_name_is_no_folder(capsys: Out) -> None:
    with pytest.raises(SystemExit) as end:
        main(["fixtures", "write", ""])
    assert end.value.code == 2
