"""The adapters that come with the suite: their files, building, running; the table of results."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import toy_suite

from weig.conformance import catalogue, results
from weig.conformance.catalogue import BuildError
from weig.conformance.outcome import SuiteError
from weig.fixtures.cases import load
from weig.tools import conformance_adapters
from weig.tools.cli import main

Out = pytest.CaptureFixture[str]

GOOD = """\
name = "my-go"
language = "go"
build = ["go", "build"]
run = ["./my-go", "-x", "out/a"]
needs = ["go"]
"""


def entry(
    root: Path, folder: str, run: list[str], build: list[str] | None = None, needs: str = "sh"
) -> catalogue.Entry:
    """Puts an adapter called my-FOLDER into a catalogue."""
    path = root / folder
    path.mkdir(parents=True)
    text = f'name = "my-{folder}"\nlanguage = "l"\nneeds = ["{needs}"]\n'
    text += f"run = {json.dumps(run)}\nbuild = {json.dumps(build or [])}\n"
    (path / "adapter.toml").write_text(text)
    return next(one for one in catalogue.read(root) if one.folder == path)


def miniature(root: Path, folder: str, behaviour: str = "right", **more: str) -> catalogue.Entry:
    """An adapter whose build writes the script that its run starts."""
    script = f"#!/bin/sh\nexec {shlex.join(toy_suite.command(behaviour))}\n"
    one = entry(root, folder, ["./run.sh"], ["sh", "build.sh"], **more)
    (one.folder / "build.sh").write_text(
        f"echo building\ncat > run.sh <<'END'\n{script}END\nchmod +x run.sh\n"
    )
    return one


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty catalogue in place of the bundled one."""
    path = tmp_path / "adapters"
    path.mkdir()
    monkeypatch.setattr(conformance_adapters, "CATALOGUE", path)
    return path


def run(tmp_path: Path, *options: str) -> int:
    (tmp_path / "suite").mkdir(exist_ok=True)
    suite = str(toy_suite.write(tmp_path / "suite"))
    return main(["conformance", "run", "--manifest", suite, "--seed", "4", *options])


def test_what_an_adapter_toml_says(tmp_path: Path) -> None:
    for name in ("zig", "go"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "adapter.toml").write_text(GOOD.replace("my-go", f"my-{name}", 1))
    (tmp_path / "notes").mkdir()
    go, zig = catalogue.read(tmp_path)
    assert go == catalogue.Entry(
        tmp_path / "go", "my-go", "go", ("go", "build"), ("./my-go", "-x", "out/a"), ("go",)
    )
    assert catalogue.find((go, zig), "my-zig") is catalogue.find((go, zig), "zig") is zig
    assert catalogue.find((go, zig), "z") is None


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ('language = "go"\n', "", "language must be a text"),
        ('"go"\n', "1\n", "language must be a text"),
        ('"my-go"\n', '""\n', "name must be a text"),
        ('"my-go"\n', '"a\\nb"\n', "name must be a text of one line"),
        ('needs = ["go"]', 'needs = "go"', "needs must be a list of words"),
        ('needs = ["go"]', "needs = [1]", "needs must be a list of words"),
        ('["go", "build"]', '["go", ""]', "build must be a list of words"),
        ('run = ["./my-go", "-x", "out/a"]', "run = []", "run must not be empty"),
        ('language = "go"', 'language = "go"\nshell = true', "shell is no key of this file"),
        ("needs = [", "needs = [[", "adapter.toml: "),
        ("my-go", "\udcff", "adapter.toml: "),
    ],
)
def test_a_bad_adapter_toml_is_one_line(old: str, new: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "go").mkdir()
    path = tmp_path / "go" / "adapter.toml"
    path.write_bytes(GOOD.replace(old, new, 1).encode("utf-8", "surrogateescape"))
    with pytest.raises(SuiteError) as error:
        catalogue.read(tmp_path)
    assert text in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_no_name_stands_for_two(tmp_path: Path) -> None:
    for folder in ("a", "my-go"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "adapter.toml").write_text(GOOD)
    with pytest.raises(SuiteError, match="my-go too"):
        catalogue.read(tmp_path)


def test_empty_build_and_needs_are_legal(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "adapter.toml").write_text(
        'name = "x"\nlanguage = "x"\nbuild = []\nrun = ["node", "a.js"]\nneeds = []\n'
    )
    (one,) = catalogue.read(tmp_path)
    assert one.built
    assert catalogue.missing(one) == ()


def test_built_is_what_run_names_by_a_path(tmp_path: Path) -> None:
    one = entry(tmp_path, "go", ["./my-go", "-x", "out/a"], ["true"])
    assert not one.built
    (one.folder / "my-go").touch()
    assert not one.built
    (one.folder / "out" / "a").mkdir(parents=True)
    assert one.built


@pytest.mark.parametrize(
    ("script", "version"),
    [
        ("echo; echo 'it 1.2'; echo more", "it 1.2"),
        ("printf '\\033[1mit 1.2\\033[m\\n'", "it 1.2"),
        ("echo 'it 1.2' >&2; exit 3", "it 1.2"),
        ("printf 'it\\a\\377\\n'", "it\\x07\\xff"),
        ("exit 0", ""),
    ],
)
def test_tools(script: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "frobc"
    tool.write_text(f'#!/bin/sh\ntest "$*" = --version || exit 1\n{script}\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    one = entry(tmp_path / "all", "frob", ["true"], needs="frobc")
    assert catalogue.tools(one) == (catalogue.Tool("frobc", str(tool), version),)
    tool.unlink()
    assert catalogue.tools(one) == (catalogue.Tool("frobc", None, ""),)
    assert catalogue.missing(one) == ("frobc",)


def test_a_build_runs_in_its_folder_and_is_quiet(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    one = miniature(tmp_path, "a")
    assert not one.built
    catalogue.build(one)
    assert one.built
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("command", "text", "output"),
    [
        (["sh", "-c", "echo out; echo err >&2; exit 7"], "ended with status 7", "out\nerr\n"),
        (["no-such-compiler"], "no-such-compiler: No such file", ""),
        (["echo", "done"], "did not make what run starts: ./made", "done\n"),
    ],
)
def test_a_build_that_fails(command: list[str], text: str, output: str, tmp_path: Path) -> None:
    one = entry(tmp_path, "a", ["./made"], command)
    with pytest.raises(BuildError, match=text) as error:
        catalogue.build(one)
    assert error.value.output == output


def test_a_build_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "BUILD_TIMEOUT", 0.2)
    one = entry(tmp_path, "a", ["./made"], ["sleep", "20"])
    with pytest.raises(BuildError, match=r"not done after 0\.2 s"):
        catalogue.build(one)


def test_an_adapter_starts_in_its_own_folder(tmp_path: Path) -> None:
    one = entry(tmp_path / "with a blank", "a", ["./where", "a b", "$HOME"])
    script = one.folder / "where"
    script.write_text('#!/bin/sh\necho "$$"; pwd; echo "$1 $2"\n')
    script.chmod(0o755)
    adapter = catalogue.started(one, ("--adapters", "a"))
    assert (adapter.label, adapter.again) == ("my-a", ("--adapters", "a"))
    with subprocess.Popen(adapter.command, stdout=subprocess.PIPE, text=True) as process:
        lines = (process.stdout or sys.stdin).read().splitlines()
    assert lines == [str(process.pid), str(one.folder), "a b $HOME"]


def test_run_builds_and_runs_what_it_can(root: Path, tmp_path: Path, capsys: Out) -> None:
    miniature(root, "a")
    miniature(root, "b", "code")
    miniature(root, "c", needs="no-such-tool")
    file = tmp_path / "r.jsonl"
    assert run(tmp_path, "--adapters", "all", "--results", str(file)) == 0
    out, err = capsys.readouterr()
    assert err == "weig: not run: my-c: not installed here: no-such-tool\n"
    assert out.splitlines()[-1] == "12 passed, 0 failed, 6 skipped"
    assert [one.label for one in results.read(file).adapters] == ["my-a", "my-b"]

    assert run(tmp_path, "--adapters", "my-b", "--strict-codes") == 1
    assert "repeat     weig conformance run" in (out := capsys.readouterr().out)
    assert "--adapters b" in out

    assert run(tmp_path, "--adapters", "a,c,my-a", "--require-all") == 3
    out, err = capsys.readouterr()
    assert err == "weig: error: my-c: not installed here: no-such-tool\n"
    assert "NOT STARTED  my-c: not installed here: no-such-tool" in out
    assert out.splitlines()[-1] == "6 passed, 0 failed, 3 skipped"

    assert run(tmp_path, "--adapters", "c") == 3
    assert "none of these adapters can be run here" in capsys.readouterr().err


def test_a_failed_build_fails_the_run_and_stops_nobody_else(
    root: Path, tmp_path: Path, capsys: Out
) -> None:
    miniature(root, "a")
    entry(root, "b", ["./b"], ["sh", "-c", "printf 'b.c:1: \\033[31mno\\n'; exit 1"])
    file, junit = tmp_path / "r.jsonl", tmp_path / "j.xml"
    options = ["--results", str(file), "--junit", str(junit)]
    assert run(tmp_path, "--adapters", "all", *options) == 3
    out, err = capsys.readouterr()
    assert err.splitlines()[0] == "  | b.c:1: \\x1b[31mno"
    assert err.splitlines()[1].startswith("weig: error: my-b: the build failed: sh -c")
    assert out.splitlines()[-1] == "6 passed, 0 failed, 3 skipped"
    assert not results.conforms(results.read(file))
    assert 'name="my-b" tests="0" failures="0" skipped="0" errors="1"' in junit.read_text()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--adapters", "cobol"], "no adapter 'cobol' in the catalogue; there are a"),
        (["--adapters", ""], "no adapter '' in the catalogue"),
        (["--adapters", "a", "--backend", "c"], "either --backend or -- COMMAND, or --adapters"),
        (["--adapters", "a", "--", "true"], "either --backend or -- COMMAND, or --adapters"),
    ],
)
def test_bad_usage(options: list[str], text: str, root: Path, tmp_path: Path, capsys: Out) -> None:
    miniature(root, "a")
    assert run(tmp_path, *options) == 2
    assert text in capsys.readouterr().err


def test_a_bad_catalogue_is_a_fault_of_the_suite(root: Path, tmp_path: Path, capsys: Out) -> None:
    (root / "a").mkdir()
    (root / "a" / "adapter.toml").touch()
    assert run(tmp_path, "--adapters", "all") == 4
    assert main(["conformance", "adapters"]) == 4
    assert capsys.readouterr().err.count("\n") == 2


def test_the_doctor_examines_one_of_them(root: Path, tmp_path: Path, capsys: Out) -> None:
    miniature(root, "a")
    entry(root, "b", ["./b"], ["false"])
    suite = str(toy_suite.write(tmp_path))
    words = ["conformance", "doctor", "--manifest", suite, "--adapters"]
    assert main([*words, "a"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(f"--manifest {suite} --adapters a")
    assert main([*words, "b"]) == 3
    assert "my-b: the build failed: false" in capsys.readouterr().err
    assert main([*words, "all"]) == 2


def test_the_list(root: Path, capsys: Out) -> None:
    miniature(root, "a")
    miniature(root, "b", needs="no-such-tool")
    entry(root, "c", ["sh"])
    assert main(["conformance", "adapters"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["a", "my-a", "not", "built", "yet"]
    assert lines[2] == "  run        weig conformance run --adapters a"
    assert lines[3].split() == ["b", "my-b", "cannot", "be", "run", "here"]
    assert lines[4].split() == ["needs", "no-such-tool", "MISSING"]
    assert "ready (nothing to build)" in lines[6]
    catalogue.build(catalogue.read(root)[0])
    assert main(["conformance", "adapters", "--json"]) == 0
    a, b, _ = map(json.loads, capsys.readouterr().out.splitlines())
    assert (a["name"], a["built"], a["run"]) == ("my-a", True, ["./run.sh"])
    assert a["folder"] == str(root / "a")
    assert b["needs"] == [{"tool": "no-such-tool", "path": None, "version": ""}]
    assert not b["built"]


def test_the_bundled_catalogue(checkout: Path) -> None:
    entries = catalogue.read(checkout / "conformance" / "adapters")
    assert {"go", "java", "javascript", "python", "rust"} <= {one.folder.name for one in entries}
    for one in entries:
        assert one.built or one.build
        assert set(one.needs) & {*one.run, *one.build}


def test_the_loader_in_plain_python(checkout: Path, capsys: Out) -> None:
    folder = checkout / "conformance" / "adapters" / "python"
    subprocess.run([sys.executable, "-m", "unittest", "-q"], cwd=folder, check=True)
    words = ["conformance", "run", "--adapters", "python", "--strict-codes"]
    chapters = [f"--chapter={name}" for name in ("header", "data", "bool", "special")]
    assert main([*words, *chapters]) == 0
    assert " 0 failed, 0 skipped" in capsys.readouterr().out


def test_the_table_of_results(root: Path, tmp_path: Path, capsys: Out) -> None:
    miniature(root, "a|b")
    miniature(root, "c", "code")
    entry(root, "d", ["./d"], ["false"])
    files = [str(tmp_path / "1.jsonl"), str(tmp_path / "2.jsonl")]
    run(tmp_path, "--adapters", "a|b", "--results", files[0])
    run(tmp_path, "--adapters", "c,d", "--results", files[1])
    capsys.readouterr()
    words = ["conformance", "report", "--manifest", str(tmp_path / "suite"), *files]
    assert main([*words, "--markdown"]) == 1  # one was not started
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "|  | my-a\\|b | my-c | my-d |"
    assert lines[1] == "| --- | ---: | ---: | ---: |"
    assert lines[2].startswith("| language | ")
    # Six of nine cases are for everybody; two need big-endian, one deep.
    assert lines[3] == "| good | 2/2, 2 not claimed | 2/2, 2 not claimed | not started |"
    assert lines[4] == "| bad | 4/4, 1 not claimed | 4/4, 1 not claimed | not started |"
    assert lines[5].startswith("| **all** | 6/6, 3 not claimed | ")
    assert main(words) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "12 passed, 0 failed, 6 skipped"


def test_reports_that_cannot_be(tmp_path: Path, root: Path, capsys: Out) -> None:
    miniature(root, "a")
    file = str(tmp_path / "1.jsonl")
    run(tmp_path, "--adapters", "a", "--results", file)
    capsys.readouterr()
    suite = ["--manifest", str(tmp_path / "suite")]
    assert main(["conformance", "report", file, file, *suite]) == 2
    assert main(["conformance", "report", "/nowhere", *suite]) == 2
    assert main(["conformance", "report", file]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert [text in line for text, line in zip(
        ("twice: my-a good-1", "No such file", "another suite?"), errors, strict=True
    )] == [True] * 3  # fmt: skip


def _cell(count: int, not_claimed: int) -> str:
    passed = count - not_claimed
    return f"{passed}/{passed}" + (f", {not_claimed} not claimed" if not_claimed else "")


def test_the_matrix_in_the_readme_is_of_all_cases_and_all_languages(checkout: Path) -> None:
    """Whoever adds a case or a language runs them all, and puts the new table in."""
    text = (checkout / "README.md").read_text("utf-8")
    lines = text.partition("<!-- matrix: begin -->")[2].partition("<!-- matrix: end -->")[0]
    head, _, languages, *chapters, everything = [
        [cell.strip() for cell in line[2:-2].split(" | ")] for line in lines.split("\n")[1:-1]
    ]
    cases = load()
    counts = Counter(case.chapter for case in cases)
    # Node cannot map a file, so it cannot hold one open that it mapped.
    mapped = Counter(case.chapter for case in cases if case.held and case.held.via == "mmap")
    all_cells = {row[0]: row[1:] for row in chapters}
    assert all_cells.keys() == counts.keys()
    for chapter, count in counts.items():
        for language, cell in zip(languages[1:], all_cells[chapter], strict=True):
            less = mapped[chapter] if language == "javascript" else 0
            assert cell == _cell(count, less), (chapter, language)
    for language, cell in zip(languages[1:], everything[1:], strict=True):
        less = mapped.total() if language == "javascript" else 0
        assert cell == _cell(len(cases), less), language
    assert len(head) == len(languages)
    entries = catalogue.read(checkout / "conformance" / "adapters")
    assert sorted(languages[1:]) == sorted(entry.language for entry in entries)
