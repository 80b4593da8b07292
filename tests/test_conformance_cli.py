"""The command ``weig conformance``: exit statuses, files it writes, and what the doctor says."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import toy_suite

from weig.conformance import results
from weig.tools.cli import main

Out = pytest.CaptureFixture[str]


@pytest.fixture
def toy(tmp_path: Path) -> str:
    return str(toy_suite.write(tmp_path))


def run(toy: str, behaviour: str, *options: str) -> int:
    words = ["conformance", "run", "--manifest", toy, "-j2", "--seed", "4", *options]
    return main([*words, "--", *toy_suite.command(behaviour)])


def doctor(toy: str, behaviour: str, *options: str) -> int:
    words = ["conformance", "doctor", "--manifest", toy, *options, "--"]
    return main([*words, *toy_suite.command(behaviour)])


@pytest.mark.parametrize(
    ("behaviour", "options", "status", "last"),
    [
        ("right", [], 0, "6 passed, 0 failed, 3 skipped"),
        ("code", [], 0, "6 passed, 0 failed, 3 skipped"),
        ("code", ["--strict-codes"], 1, "3 passed, 3 failed, 3 skipped"),
        ("segv", ["-k", "good-*"], 0, "2 passed, 0 failed, 0 skipped"),
        ("segv", ["--rule", "TOY-1", "-k", "bad-1"], 1, "0 passed, 1 failed, 0 skipped"),
        ("nothing", ["--chapter", "good"], 1, "0 passed, 0 failed, 4 skipped"),
        ("hello-2", ["--tag", "memory"], 3, "0 passed, 0 failed, 1 skipped"),
    ],
)
def test_exit_status_and_last_line(
    toy: str, behaviour: str, options: list[str], status: int, last: str, capsys: Out
) -> None:
    assert run(toy, behaviour, *options) == status
    assert capsys.readouterr().out.splitlines()[-1] == last


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["run", "-k", "no-such-case", "--", "true"], 2, "no case is selected"),
        (["run", "--backend", "c", "--", "true"], 2, "either --backend or -- COMMAND"),
        (["run", "--backend", "cobol"], 2, "no bundled loader 'cobol'"),
        (["run", "--known", "/nowhere.toml", "--", "true"], 2, "/nowhere.toml: No such file"),
        (["run", "--junit", "/nowhere/x.xml", "--", "true"], 2, "there is no folder /nowhere"),
        (["run", "--results", "/nowhere/x", "--", "true"], 2, "there is no folder /nowhere"),
        (["run", "--html", "/tmp", "--", "true"], 2, "/tmp: is a folder"),
        (["merge", "/nowhere/x", "/nowhere/y"], 2, "there is no folder /nowhere"),
        (["run", "--manifest", "/nowhere", "--", "true"], 4, "cannot read the manifest"),
        (["compare", "/nowhere", "/nowhere"], 2, "No such file"),
        (["doctor", "--backend", "pure"], 2, "one adapter"),
    ],
)
def test_refusals_are_one_line(
    toy: str, words: list[str], status: int, text: str, capsys: Out
) -> None:
    if "run" in words and "--manifest" not in words:
        words = [words[0], "--manifest", toy, *words[1:]]
    assert main(["conformance", *words]) == status
    error = capsys.readouterr().err
    assert error.startswith("weig: error: ")
    assert text in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("words", [[], ["run", "--jobs", "0"], ["run", "--timeout", "-1"]])
def test_bad_usage(words: list[str], capsys: Out) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["conformance", *words])
    assert stop.value.code == 2


def test_the_command_under_a_failure_repeats_it(toy: str, capsys: Out) -> None:
    assert run(toy, "segv", "-k", "bad-*", "-k", "good-1") == 1
    line = next(x for x in capsys.readouterr().out.splitlines() if "repeat" in x)
    words = shlex.split(line)
    assert words[:4] == ["repeat", "weig", "conformance", "run"]
    assert main(words[2:]) == 1
    assert capsys.readouterr().out.endswith("0 passed, 1 failed, 0 skipped\n")


def test_files_and_json(toy: str, tmp_path: Path, capsys: Out) -> None:
    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    junit = tmp_path / "junit.xml"
    assert run(toy, "segv", "--results", str(old), "--junit", str(junit), "--json") == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["type"] for line in lines] == ["header", *["case"] * 9, "footer"]
    assert lines == [json.loads(line) for line in old.read_text().splitlines()]
    assert junit.read_text().count("<testcase") == 9
    assert run(toy, "right", "--results", str(new)) == 0
    capsys.readouterr()
    renamed = new.read_text().replace('"right"', '"segv"')
    assert results.read(new).adapters[0].label == "miniatures.py"
    new.write_text(renamed)
    assert main(["conformance", "compare", str(old), str(new)]) == 0
    assert capsys.readouterr().out.endswith("4 fixed, 0 broken, 0 changed, 0 new, 0 gone\n")
    assert main(["conformance", "compare", "--json", str(new), str(old)]) == 1
    assert len(json.loads(capsys.readouterr().out)["broken"]) == 4


def test_a_report_that_cannot_be_written_is_no_verdict(toy: str, capsys: Out) -> None:
    assert run(toy, "right", "-k", "good-1", "--results", "/proc/r.jsonl") == 4
    assert "/proc/r.jsonl: No such file" in capsys.readouterr().err


def test_known_failures(toy: str, tmp_path: Path, capsys: Out) -> None:
    path = tmp_path / "known.toml"
    entry = "[[known]]\ncase = '{}'\noutcome = 'crash'\nreason = 'see the tracker'\n"
    path.write_text("".join(entry.format(case) for case in ("bad-?", "choice", "heavy")))
    assert run(toy, "segv", "--known", str(path)) == 0
    assert capsys.readouterr().out.endswith("2 passed, 0 failed, 7 skipped\n")
    assert run(toy, "right", "--known", str(path)) == 1
    assert "listed as a known failure" in capsys.readouterr().out
    path.write_text(entry.format("gone-*"))
    assert run(toy, "right", "--known", str(path)) == 1
    assert "known failure 'gone-*' matches no case" in capsys.readouterr().out


def test_list(toy: str, capsys: Out) -> None:
    assert main(["conformance", "list", "--manifest", toy, "--chapter", "good"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "good-1",
        "good-2",
        "deep",
        "other-end",
    ]
    assert main(["conformance", "list", "--manifest", toy, "--json", "-k", "heavy"]) == 0
    assert json.loads(capsys.readouterr().out)["tags"] == ["memory"]
    assert main(["conformance", "list", "--manifest", toy, "--tag", "none"]) == 2


@pytest.mark.parametrize(
    "words", [["conformance", "list"], ["fixtures", "list", "--json"], ["spec", "rules"]]
)
def test_a_reader_that_has_gone_is_no_verdict(words: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as gone:
        alone = subprocess.run(
            [sys.executable, "-m", "weig.tools.cli", *words],
            stdout=gone, stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
    assert (alone.returncode, alone.stderr) == (141, b"")


def test_a_profile_that_there_is_not_is_told(toy: str, capsys: Out) -> None:
    assert run(toy, "shouts", "-k", "good-1") == 0
    assert "claims a profile that there is not: DATA" in capsys.readouterr().err


# --- the doctor


def test_the_doctor_finds_nothing_wrong(toy: str, capsys: Out) -> None:
    assert doctor(toy, "right") == 0
    out = capsys.readouterr().out
    assert "WRONG" not in out
    assert "Sound. Next: weig conformance run --manifest" in out


@pytest.mark.parametrize(
    ("behaviour", "status", "step", "words"),
    [
        ("gone", 3, "nothing before it is asked", "stderr: no such model"),
        ("banner", 3, "nothing before it is asked", "banners and logs to standard error"),
        ("silent", 3, "hello with one line", "line by line"),
        ("buffered", 3, "hello with one line", "kept in a buffer"),
        ("hello-pretty", 3, "hello with one line", "JSON without line breaks"),
        ("hello-repr", 3, "what PROTOCOL.md asks for", "json.dumps"),
        ("hello-2", 3, "what PROTOCOL.md asks for", "speaks protocol 2"),
        ("hello-mute", 3, "what PROTOCOL.md asks for", "profiles must be"),
        ("nothing", 1, "claims core", "core is not claimed"),
        ("shouts", 1, "profiles that there are", "no such profile: DATA"),
        ("dies-of-verb", 1, "unknown verb", "A Python exception"),
        ("number-id", 1, "does not exist", "The id is a string"),
        ("crlf", 1, "does not exist", "CR LF"),
        ("bom", 1, "does not exist", "byte order mark"),
        ("nan", 1, "does not exist", "no NaN"),
        ("words", 1, "does not exist", "banner"),
        ("twice", 1, "does not exist|a key that it|nothing more", "Print each answer once"),
        ("internal", 1, "does not exist", "rejected"),
        ("endless", 1, "ends when its input ends", "until the end of standard input"),
        ("relative", 1, "case good-1", "open it as it stands"),
        ("swapped-4", 1, "case good-1", "little-endian"),
        ("segv", 1, "does not exist", "died of SIGSEGV"),
    ],
)
def test_the_doctor_says_what_is_wrong(
    toy: str, behaviour: str, status: int, step: str, words: str, capsys: Out
) -> None:
    assert doctor(toy, behaviour, "--timeout", "2") == status
    out = capsys.readouterr().out
    wrong = out[out.index("WRONG") :]
    assert re.search(step, wrong.splitlines()[0]), out
    assert words in wrong, out


@pytest.mark.parametrize(
    ("name", "content", "mode", "words"),
    [
        ("absent", None, 0, "There is no program"),
        ("plain", b"print(1)\n", 0o644, "chmod +x"),
        ("no-line", b"print(1)\n", 0o755, "#!/usr/bin/env python3"),
        ("bom", b"\xef\xbb\xbf#!/bin/sh\n", 0o755, "byte order mark"),
        ("crlf", b"#!/bin/sh\r\n", 0o755, "CR LF"),
        ("lost", b"#!/no/such/interpreter\n", 0o755, "Is the interpreter"),
    ],
)
def test_the_doctor_says_why_it_does_not_start(
    tmp_path: Path, name: str, content: bytes | None, mode: int, words: str, capsys: Out
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
        path.chmod(mode)
    assert main(["conformance", "doctor", "--", str(path)]) == 3
    out = capsys.readouterr().out
    assert out.startswith("WRONG  it starts\n")
    assert words in out


# --- the example of PROTOCOL.md


def test_the_example_adapter_runs_as_it_stands(checkout: Path, tmp_path: Path, capsys: Out) -> None:
    text = (checkout / "conformance" / "PROTOCOL.md").read_text("utf-8")
    begin, end = text.index("```python\n") + len("```python\n"), text.rindex("```")
    script = tmp_path / "tiny.py"
    script.write_text(text[begin:end])
    assert len(script.read_text().splitlines()) <= 45
    command = [sys.executable, "-I", "-S", str(script)]
    # It checks next to nothing, but it reads a plain file rightly and keeps the protocol.
    words = ["conformance", "run", "-k", "valid.two-f32", "-k", "foreign.gguf*"]
    assert main([*words, "--json", "--", *command]) in (0, 1)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {line["outcome"] for line in lines[1:-1]} == {"pass"}


def test_the_repeat_command_of_what_depends_on_the_order_keeps_the_selection(
    toy: str, capsys: Out
) -> None:
    chosen = ("-k", "good-1", "-k", "bad-1")
    # Of two cases in two orders, some seed puts the bad one first.
    assert any(run(toy, "sticky", *chosen, "--seed", str(seed)) == 1 for seed in range(64))
    report = capsys.readouterr().out
    failed = re.search(r"^FAILED .*order-dependent.*$", report, re.MULTILINE)
    assert failed
    repeat = report.split("  repeat     weig ")[1].splitlines()[0]
    assert repeat.count("-k ") == 2
    assert main(shlex.split(repeat)) == 1
    assert failed[0] in capsys.readouterr().out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_asked_to_end_leaves_nothing(
    toy: str, tmp_path: Path, number: signal.Signals
) -> None:
    room = tmp_path / "room"
    room.mkdir()
    words = ["-m", "weig.tools.cli", "conformance", "run", "--manifest", toy, "--timeout", "1"]
    process = subprocess.Popen(
        [sys.executable, *words, "--", *toy_suite.command("hang")],
        env={**os.environ, "TMPDIR": str(room)},
        stdout=subprocess.DEVNULL,
    )
    while process.poll() is None and not list(room.glob("weig-*/*.weig")):
        time.sleep(0.01)
    process.send_signal(number)
    assert process.wait(30) == 128 + number
    assert not list(room.iterdir())
    assert not _alive(f"TMPDIR={room}".encode())


def _alive(variable: bytes) -> list[Path]:
    """The processes that have this in their environment: a run and all that it started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if variable in path.read_bytes().split(b"\0"):
                found.append(path)
    return found
