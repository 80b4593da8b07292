"""Reads outside of the file: unseen without a guard, caught under it; what has no guard."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
import toy_suite

from weig.conformance import known, report_html, report_markdown, results
from weig.conformance import manifest as manifests
from weig.conformance.guard import build, control, proof
from weig.conformance.guard.setup import Guard, Mode, poison
from weig.conformance.guard.tail import behind_end
from weig.conformance.manifest import Case
from weig.conformance.outcome import Outcome, Result, SuiteError
from weig.conformance.staging import NotStageableError, Staged
from weig.tools.cli import main

Out = pytest.CaptureFixture[str]
ALL = "reserve,abut,poison"
# Which guards catch a vice; the rest must not see it.
CAUGHT_BY = {
    "none": set(),
    "past-map": {"reserve", "abut"},
    "far": {"reserve", "abut"},
    "before-map": {"reserve"},
    "past-end": {"abut"},
    "straddle": {"abut"},
    "tail": {"abut", "poison"},
    "survives": {"reserve", "abut"},
}
BAD = {"bad-1", "bad-2", "choice", "heavy"}  # the cases at which vices show


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache of our own, so that all is built of the present sources."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def overread(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(build.built(build.OVERREAD, tmp_path_factory.mktemp("build")))


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    return toy_suite.write(tmp_path)


def run(toy: Path, command: list[str], *options: str) -> tuple[int, results.Results]:
    """The exit status of a run, and what it wrote down."""
    out = toy.with_name("results.jsonl")
    out.unlink(missing_ok=True)
    words = ["conformance", "run", "--manifest", str(toy), "--results", str(out), *options]
    status = main([*words, "--", *command])
    return status, results.read(out)


def of_cases(found: results.Results) -> dict[str, Result]:
    skipped = (Outcome.NOT_CLAIMED, Outcome.NOT_RUN)
    return {item.case: item for item in found.results if item.outcome not in skipped}


@pytest.mark.parametrize("isolation", ["auto", "case"])
@pytest.mark.parametrize("vice", CAUGHT_BY)
def test_each_vice_is_silent_without_a_guard(
    toy: Path, overread: str, vice: str, isolation: str
) -> None:
    status, found = run(toy, [overread, vice], "--isolation", isolation)
    assert status == 0
    assert {item.outcome for item in of_cases(found).values()} == {Outcome.PASS}


@pytest.mark.parametrize("mode", ["reserve", "abut", "poison"])
@pytest.mark.parametrize("vice", CAUGHT_BY)
def test_each_vice_is_caught_by_the_guards_for_it(
    toy: Path, overread: str, vice: str, mode: str
) -> None:
    status, found = run(toy, [overread, vice], f"--guard={mode}")
    caught = mode in CAUGHT_BY[vice]
    assert status == (1 if caught else 0)
    over = {key: one for key, one in of_cases(found).items() if one.outcome is Outcome.OVER_READ}
    assert set(over) == (BAD if caught else set())
    assert {one.guard for one in over.values()} == ({mode} if caught else set())
    assert found.adapters[0].guarded == (mode,)
    assert found.adapters[0].unguarded == ()


@pytest.mark.parametrize(
    ("vice", "mode", "text"),
    [
        ("past-map", "reserve", "touched byte 8201 of a file of 9 bytes: 8192 bytes past its end"),
        ("past-end", "abut", "touched byte 9 of a file of 9 bytes: the one past its end"),
        ("before-map", "reserve", "touched memory 1 bytes before the start of the file"),
        ("tail", "poison", "the answer depends on the bytes behind the end of the file"),
    ],
)
def test_the_report_says_what_was_touched_and_how_to_see_it_again(
    toy: Path, overread: str, vice: str, mode: str, text: str, capsys: Out
) -> None:
    command = [overread, vice]
    assert run(toy, command, f"--guard={mode}", "-k", "bad-1")[0] == 1
    out = capsys.readouterr().out
    assert "FAILED  bad-1  over-read  " in out
    assert text in out
    assert f"guard {mode}" in out
    line = next(line for line in out.splitlines() if line.startswith("  repeat"))
    words = line.split()[1:]
    assert f"--guard={mode}" in words
    assert main(words[1:]) == 1
    assert text in capsys.readouterr().out


def test_a_case_that_may_be_accepted_or_rejected_must_not_choose_by_what_is_not_its_own(
    toy: Path, overread: str
) -> None:
    _, found = run(toy, [overread, "tail"], "--guard=poison", "-k", "choice")
    first = of_cases(found)["choice"].differences[0]
    assert first.where == "error"
    assert (first.want, first.got) == (
        "with 00 there: rejected with BAD: ",
        "with A5 there: rejected with WORSE: ",
    )


def test_all_guards_together_and_the_first_that_catches_is_named(toy: Path, overread: str) -> None:
    for vice, first in (("past-map", "reserve"), ("straddle", "abut"), ("none", "")):
        status, found = run(toy, [overread, vice], "--guard")
        assert status == (1 if first else 0)
        assert {one.guard for one in of_cases(found).values()} == {"", first}
        assert found.adapters[0].guarded == ("reserve", "abut", "poison")


def test_every_report_keeps_it(toy: Path, overread: str, tmp_path: Path) -> None:
    xml = tmp_path / "junit.xml"
    _, found = run(toy, [overread, "past-end"], "--guard=abut", "--junit", str(xml))
    suite = manifests.read(toy)
    root = ElementTree.parse(xml).getroot()
    assert {one.get("type") for one in root.iter("failure")} == {"over-read"}
    assert [(one.get("name"), one.get("value")) for one in root.iter("property")] == [
        ("guarded", "abut")
    ]
    facts = report_html.facts(found, suite)
    assert facts["adapters"][0]["guards"] == ["guarded: abut"]
    notes = [note for note in facts["notes"].values() if "again" in note]
    assert len(notes) == len(BAD)
    assert all("--guard=abut" in note["again"] for note in notes)
    table = report_markdown.matrix(found, suite).splitlines()
    assert table[3] == "| guarded by | abut |"
    assert table[-1] == "| **all** | 2/6, 3 not claimed |"


def test_a_plain_run_says_nothing_of_guards(toy: Path, overread: str, capsys: Out) -> None:
    _, found = run(toy, [overread, "none"])
    assert "guard" not in capsys.readouterr().out
    assert "guarded by" not in report_markdown.matrix(found, manifests.read(toy))


def test_an_over_read_can_be_a_known_failure(toy: Path, overread: str, tmp_path: Path) -> None:
    listed = tmp_path / "known.toml"
    listed.write_text('[[known]]\ncase = "*"\noutcome = "over-read"\nreason = "to be mended"\n')
    assert known.read(listed)[0].outcome is Outcome.OVER_READ
    words = ("--guard=abut", "--known", str(listed), "-k", "bad-*")
    assert run(toy, [overread, "past-end"], *words)[0] == 0


def test_results_of_before_there_were_guards_are_read(toy: Path, overread: str) -> None:
    _, found = run(toy, [overread, "none"])
    path = toy.with_name("results.jsonl")
    head, *rest = path.read_text().splitlines()
    table = json.loads(head)
    for adapter in table["adapters"]:
        del adapter["guarded"], adapter["unguarded"]
    path.write_text("\n".join([json.dumps(table), *rest]))
    assert results.read(path) == found


# ---- what cannot be guarded


def test_a_loader_that_reads_is_not_guarded_by_what_stands_beside_maps(
    toy: Path, overread: str, capsys: Out
) -> None:
    status, found = run(toy, [overread, "reads"], "--guard")
    assert status == 0
    assert found.adapters[0].guarded == ("poison",)
    assert [text.partition(":")[0] for text in found.adapters[0].unguarded] == ["reserve", "abut"]
    out = capsys.readouterr().out
    assert "reserve: it maps no file through the C library" in out
    # Named, it has to be there.
    assert run(toy, [overread, "reads"], "--guard=reserve")[0] == 3
    assert "NOT GUARDED" in capsys.readouterr().out


def test_a_static_program_is_not_guarded_but_poisoned(toy: Path, tmp_path: Path) -> None:
    program = tmp_path / "static"
    command = ["cc", "-std=gnu11", "-static", "-o", str(program), str(build.OVERREAD)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no static C library here")
    for vice, outcome in (("past-map", Outcome.PASS), ("tail", Outcome.OVER_READ)):
        _, found = run(toy, [str(program), vice], "--guard", "-k", "bad-1")
        assert found.adapters[0].guarded == ("poison",)
        assert all("not loaded" in text for text in found.adapters[0].unguarded)
        assert of_cases(found)["bad-1"].outcome is outcome
    # A shell that becomes it is loaded, and proves nothing.
    shell = ["sh", "-c", f"exec {program} past-map"]
    assert run(toy, shell, "--guard=reserve")[0] == 3


def test_without_a_compiler(
    toy: Path, overread: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert run(toy, [overread, "tail"], "--guard")[0] == 1  # poison needs none
    assert "not guarded  " in capsys.readouterr().out
    words = ["conformance", "run", "--manifest", str(toy), "--guard=abut", "--", overread, "none"]
    assert main(words) == 2
    assert "guard abut: no C compiler" in capsys.readouterr().err


def test_a_compiler_that_fails(
    toy: Path, overread: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'error: out of ink' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    words = ["conformance", "run", "--manifest", str(toy), "--guard=abut", "--", overread, "none"]
    assert main(words) == 2
    assert "out of ink" in capsys.readouterr().err


def test_without_a_file_system_in_memory(
    toy: Path, overread: str, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    monkeypatch.setattr(build, "_sticks", lambda folder: False)
    status, found = run(toy, [overread, "tail"], "--guard")
    assert status == 1  # seen by the others
    assert found.adapters[0].guarded == ("reserve", "abut")
    assert "poison: no file system in memory" in found.adapters[0].unguarded[0]
    words = ["conformance", "run", "--manifest", str(toy), "--guard=poison", "--", overread, "none"]
    assert main(words) == 2
    assert "guard poison: no file system in memory" in capsys.readouterr().err


def test_another_system(
    toy: Path, overread: str, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    monkeypatch.setattr(build.sys, "platform", "darwin")
    run(toy, [overread, "none"], "--guard")
    assert "not guarded  " in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--guard=reserve,abbut"], ["--guard="]])
def test_a_guard_that_there_is_not(toy: Path, words: list[str], capsys: Out) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["conformance", "run", "--manifest", str(toy), *words, "--", "true"])
    assert caught.value.code == 2
    assert "the guards are reserve, abut, poison" in capsys.readouterr().err


def test_a_pass_that_gives_up_is_said(
    toy: Path, overread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full file system, say: what did not run under a guard must not count as guarded."""
    real = Guard.prepared

    def prepared(guard: Guard, staged: Staged) -> Staged:
        if guard.mode is Mode.POISON and staged.path.read_bytes() == b"EVILbad-1":
            raise NotStageableError("no room")
        return real(guard, staged)

    monkeypatch.setattr(Guard, "prepared", prepared)
    for words, status in ((["--guard"], 0), (["--guard=poison"], 3)):
        got, found = run(toy, [overread, "none"], *words)
        assert got == status
        assert found.adapters[0].unguarded == (
            "poison: 2 of 12 cases were not run under it: no room",
        )


# ---- the controls


def test_a_library_that_is_not_there_voids_the_run(
    toy: Path, overread: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    """To the system that is a warning, and everything passes."""
    real = build.built

    def built(source: Path, room: Path) -> Path:
        return tmp_path / "nowhere.so" if source == build.PRELOAD else real(source, room)

    monkeypatch.setattr(build, "built", built)
    words = ["conformance", "run", "--manifest", str(toy), "--guard", "--", overread, "none"]
    assert main(words) == 4
    error = capsys.readouterr().err
    assert "void: the guard reserve does not catch a loader that over-reads" in error
    assert "not loaded" in error


@pytest.mark.parametrize(
    ("mode", "old", "new"),
    [
        ("reserve", "2 * MARGIN, PROT_NONE", "2 * MARGIN, PROT_READ"),
        ("abut", 'strcmp(mode, "abut") != 0', "true"),
        ("reserve", 'say("hit"', 'say("hot"'),
    ],
)
def test_a_library_that_does_not_guard_voids_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, old: str, new: str
) -> None:
    text = build.PRELOAD.read_text()
    assert text.count(old) == 1
    broken = tmp_path / "preload.c"
    broken.write_text(text.replace(old, new))
    monkeypatch.setattr(build, "PRELOAD", broken)
    with pytest.raises(SuiteError, match=f"the guard {mode} does not catch"):
        control.guards([Mode(mode)], required=False).__enter__()


def test_a_poison_that_is_none_voids_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weig.conformance.guard.setup.poison", lambda path, fill: None)
    with pytest.raises(SuiteError, match="the guard poison does not catch"):
        control.guards([Mode.POISON], required=False).__enter__()


def test_the_cache_holds_what_was_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = tmp_path / "room"
    room.mkdir()
    first = build.built(build.PRELOAD, room)
    assert room not in first.parents
    assert list(room.iterdir()) == [] or first.is_file()
    monkeypatch.setattr(build, "_compile", lambda command: pytest.fail("built again"))
    assert build.built(build.PRELOAD, room) == first
    # Where there is no cache to write to, it is built for this run alone.
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    assert build.built(build.PRELOAD, room).parent == room


# ---- the parts


@pytest.mark.parametrize(
    ("kind", "size", "modes"),
    [
        ("file", 5000, "reserve abut poison"),
        ("symlink", 5000, "reserve abut poison"),
        ("file", 8192, "reserve abut"),  # no page has a rest
        ("file", 0, ""),
        ("sparse", (4 << 20) + 8, "reserve abut"),  # may be a link to the suite's own file
        ("sparse", (64 << 20) + 8, "reserve"),  # nobody copies that
        ("directory", 4095, ""),
        ("device", 4095, ""),
    ],
)
def test_what_a_guard_is_for(kind: str, size: int, modes: str) -> None:
    case = Case("x", "", "", kind, "either", size=size)
    assert [mode for mode in Mode if mode.applies(case)] == modes.split()


def test_poison_stays_behind_the_end_and_in_no_file(tmp_path: Path) -> None:
    path = build.tmpfs() / f"weig-test-{tmp_path.name}"
    try:
        for size in (1, 4095, 4096, 5000):
            path.write_bytes(b"w" * size)
            poison(path, 0xA5)
            assert path.read_bytes() == b"w" * size
            assert behind_end(path) == b"\xa5" * (-size % 4096)
            poison(path, 0)
            assert behind_end(path) == bytes(-size % 4096)
    finally:
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("mode", ["reserve", "abut"])
def test_maps_are_what_they_are_without_it(tmp_path: Path, checkout: Path, mode: str) -> None:
    program = tmp_path / "maps"
    subprocess.run(["cc", "-o", program, checkout / "tests" / "guard_maps.c"], check=True)
    guard = Guard(Mode(mode), tmp_path, build.built(build.PRELOAD, tmp_path))
    guard.rooms.mkdir()
    file = guard.rooms / "0001.weig"
    file.write_bytes(bytes(i % 251 for i in range(2 * 4096 + 100)))
    adapter = control.Adapter("maps", (), ())
    words = [str(program), str(file), *(["fixed"] if mode == "reserve" else [])]
    for environment in ({}, dict(guard.armed(adapter, 0).environment)):
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        assert (done.stdout, done.stderr, done.returncode) == ("ok\n", "", 0)
    seen = proof.read(guard.proof(0))
    assert seen.mapped == {"0001"}
    assert not seen.hits


PYTHON = """
import ctypes, mmap, sys
sys.path.insert(0, {tests!r})
import miniatures
def at_bad(ident, path, keys, answer):
    with open(path, "rb") as file:
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    first = ctypes.c_char.from_buffer(memory)
    ctypes.string_at(ctypes.addressof(first) + {offset}, 1)
    miniatures.say(answer)
real = miniatures.right
def right(ident, path, keys):
    with open(path, "rb") as file:
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ).close()
    return real(ident, path, keys)
miniatures.right = right
miniatures.AT_BAD["over"] = at_bad
miniatures.main("over")
"""


def test_a_loader_that_minds_the_signal_itself(toy: Path, checkout: Path) -> None:
    """Python's fault handler takes the signal for itself; the hit is told before that."""
    for offset, outcome in (("len(memory) - 1", "pass"), ("8192", "over-read")):
        text = PYTHON.format(tests=str(checkout / "tests"), offset=offset)
        _, found = run(toy, [sys.executable, "-c", text], "--guard=reserve", "-k", "bad-1")
        result = of_cases(found)["bad-1"]
        assert result.outcome == outcome
    assert "touched byte 8192 of a file of 9 bytes" in result.detail
    assert "Segmentation fault" in result.stderr  # the fault handler's own words


@pytest.mark.parametrize("backend", ["c", "cpp", "pure", "kaitai"])
def test_the_bundled_loaders_read_nothing_but_the_file(backend: str, tmp_path: Path) -> None:
    """A sample; CI runs all cases over the native ones."""
    out = tmp_path / "results.jsonl"
    words = ["conformance", "run", "--backend", f"{backend}/mmap", f"--guard={ALL}"]
    words += ["--chapter", "truncated", "--chapter", "sentinel", "--chapter", "meta"]
    assert main([*words, "--results", str(out)]) == 0
    assert results.read(out).adapters[0].guarded == ("reserve", "abut", "poison")
