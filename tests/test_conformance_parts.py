"""The parts of the engine by themselves: manifest, selection, staging, results, reports, known."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import toy_suite

from weig.conformance import known, manifest, report_junit, report_text, results, runner, staging
from weig.conformance.hexdump import annotated
from weig.conformance.manifest import Case, Manifest, Span, Want, WantTensor
from weig.conformance.outcome import Bucket, Difference, Outcome, Result, SuiteError, bucket
from weig.conformance.process import Worker
from weig.conformance.protocol import Accepted, Hello, TensorAnswer, load_request
from weig.conformance.results import AdapterInfo, Results
from weig.conformance.selection import Selection, choose
from weig.conformance.text import printable
from weig.conformance.verdict import judge, swapped, transposed


@pytest.fixture
def suite(tmp_path: Path) -> Manifest:
    return toy_suite.read(tmp_path)


def case(ident: str = "x", **facts: Any) -> Case:
    return Case(ident, "a title", "chapter", facts.pop("kind", "file"), "reject", **facts)


def some(*items: tuple[str, str, Outcome], **facts: Any) -> Results:
    labels = dict.fromkeys(item[0] for item in items)
    adapters = tuple(AdapterInfo(label, ("./" + label,), ("--", "./" + label)) for label in labels)
    return replace(
        Results("toy", "7", 1, "auto", False, 1.5, adapters, tuple(Result(*x) for x in items)),
        **facts,
    )


# --- what a request may hold


@pytest.mark.parametrize("path", ["/a b", "/a\tb", "/a\nb", "/\u00e4", "/a\x7f"])
def test_a_request_holds_no_path_that_could_be_read_as_two_fields(path: str) -> None:
    with pytest.raises(ValueError, match="not a field"):
        load_request("0001", path, "none", "open")
    assert load_request("0001", "/a", "hex", "deep", "mmap") == (
        b"load\t0001\t/a\tdata=hex\tlevel=deep\tvia=mmap\n"
    )


# --- canonical bytes and the usual mistakes


def test_the_usual_mistakes_are_undone() -> None:
    assert swapped(bytes(range(8)), 4) == bytes([3, 2, 1, 0, 7, 6, 5, 4])
    # The 2 x 3 matrix 0 1 2 / 3 4 5 of two-byte elements, stored column by column.
    columns = b"".join(bytes([n, 0]) for n in (0, 3, 1, 4, 2, 5))
    assert transposed(columns, (2, 3)) == b"".join(bytes([n, 0]) for n in range(6))
    assert transposed(b"", (0, 3)) == b""


def test_tensors_are_listed_in_file_order() -> None:
    wanted = tuple(WantTensor(name, "U8", (1,), 1, None) for name in "ab")
    one = replace(case(want=Want("little", 2, wanted)), expect="accept")
    listed = tuple(TensorAnswer(name, "U8", (1,), 1) for name in "ba")
    hello = Hello("", "", "", (), frozenset())
    verdict = judge(one, Accepted("little", 2, listed), hello, with_content=False)
    assert verdict.outcome is Outcome.WRONG_CONTENT
    assert verdict.differences[0].got == "the same names in another order"
    right = Accepted("little", 2, listed[::-1])
    assert judge(one, right, hello, with_content=False).outcome is Outcome.PASS


# --- the manifest


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"expect": "maybe"}, "'maybe' is none of accept, reject, either"),
        ({"kind": "tape"}, "'tape' is none of"),
        ({"file": None}, "names no file"),
        ({"id": "good-2"}, "two cases are called good-2"),
        ({"kind": "device"}, "names no path"),
        ({"marks": [{"length": 4}]}, "offset"),
    ],
)
def test_a_bad_manifest_is_a_fault_of_the_suite(
    tmp_path: Path, change: dict[str, Any], text: str
) -> None:
    path = toy_suite.write(tmp_path)
    table = json.loads(path.read_text())
    table["cases"][0] |= change
    path.write_text(json.dumps(table))
    with pytest.raises(SuiteError, match=text):
        manifest.read(tmp_path)


def test_a_manifest_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="No such file"):
        manifest.read(tmp_path)
    (tmp_path / "manifest.json").write_text("[1]")
    with pytest.raises(SuiteError, match="bad manifest"):
        manifest.read(tmp_path / "manifest.json")


def test_a_corpus_that_was_changed_is_a_fault_of_the_suite(suite: Manifest) -> None:
    (suite.directory / "bad-1.toy").write_bytes(b"EVIL\r\n")
    with pytest.raises(SuiteError, match=r"bad-1: .* is not the file that the manifest tells of"):
        toy_suite.run(suite, "right")
    (suite.directory / "bad-1.toy").unlink()
    with pytest.raises(SuiteError, match="No such file"):
        toy_suite.run(suite, "right")


# --- selection


@pytest.mark.parametrize(
    ("selection", "chosen"),
    [
        (Selection(), 9),
        (Selection(cases=("good-?",)), 2),
        (Selection(cases=("good-1", "bad-*")), 4),
        (Selection(cases=("good",)), 0),
        (Selection(chapters=("bad",)), 5),
        (Selection(rules=("TOY-*",), cases=("bad-*",)), 3),
        (Selection(tags=("memory",)), 1),
    ],
)
def test_selection(suite: Manifest, selection: Selection, chosen: int) -> None:
    assert len(choose(suite.cases, selection)) == chosen


def test_the_order_depends_on_the_seed_alone(suite: Manifest) -> None:
    orders = [[job.case.ident for job in runner.shuffled(suite.cases, n)] for n in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(item.ident for item in suite.cases)
    assert [job.number for job in runner.shuffled(suite.cases, 1)][:2] == ["0000", "0001"]


# --- staging


def stage(one: Case, suite: Manifest, room: Path) -> staging.Staged:
    return staging.stage(one, staging.Sources.of(suite), room, "0007")


@pytest.mark.parametrize(
    ("kind", "test"),
    [
        ("directory", stat.S_ISDIR),
        ("fifo", stat.S_ISFIFO),
        ("socket", stat.S_ISSOCK),
        ("symlink-loop", stat.S_ISLNK),
    ],
)
def test_special_kinds(suite: Manifest, kind: str, test: Any) -> None:
    with staging.stage_room() as room:
        staged = stage(case(kind=kind), suite, room)
        assert staged.path == room / "0007.weig"
        assert test(os.lstat(staged.path).st_mode)
        assert staged.modified() is None
        staging.clear(room)
        assert list(room.iterdir()) == []
    assert not room.exists()


def test_links_to_a_file_and_to_nothing(suite: Manifest) -> None:
    with staging.stage_room() as room:
        staged = stage(case(kind="symlink", file="good-1.toy"), suite, room)
        assert staged.path.is_symlink()
        assert staged.path.read_bytes() == b"GOOD" + toy_suite.BODIES["good-1"]
        staged.path.write_bytes(b"GOOD")
        assert staged.modified() is not None
        staging.clear(room)
        assert not stage(case(kind="symlink"), suite, room).path.exists()
        assert not stage(case(kind="missing"), suite, room).path.exists()


def test_a_sparse_file_is_made_of_its_pieces(suite: Manifest) -> None:
    size = 3 << 30
    sparse = case(kind="sparse", size=size, pieces=((0, b"GOOD"), (size - 4, b"tail")))
    with staging.stage_room() as room:
        path = stage(sparse, suite, room).path
        assert path.stat().st_size == size
        assert path.stat().st_blocks * 512 < 1 << 20
        with path.open("rb") as file:
            assert file.read(6) == b"GOOD\0\0"
            file.seek(-6, os.SEEK_END)
            assert file.read() == b"\0\0tail"
    sources = staging.Sources.of(suite)
    assert staging.content(sparse, sources, size - 6, 16) == b"\0\0tail"
    assert staging.content(sparse, sources, 2, 4) == b"OD\0\0"


def test_a_large_file_is_linked_and_still_watched(
    suite: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "COPY_LIMIT", 8)
    with staging.stage_room() as room:
        staged = stage(suite.cases[0], suite, room)
        assert stat.S_ISREG(os.lstat(staged.path).st_mode)
        assert staged.content is None
        assert staged.modified() is None
        staged.path.write_bytes(staged.path.read_bytes())
        assert staged.modified() is not None


def test_what_this_host_does_not_have_is_not_run(suite: Manifest, tmp_path: Path) -> None:
    host = case("device", kind="device", path=str(tmp_path / "no-such-device"))
    adapter = runner.Adapter("x", toy_suite.command("right"), ())
    done = runner.run(suite, [host], [adapter], runner.Options())
    assert done.results[0].outcome is Outcome.NOT_RUN
    assert "this host has no" in done.results[0].detail


def test_no_path_tells_what_is_expected(suite: Manifest) -> None:
    """An adapter is told a number; the room holds nothing but that file."""
    script = (
        "import json, os, sys\n"
        "for line in sys.stdin:\n"
        "    f = line.rstrip().split('\\t')\n"
        "    if f[0] == 'hello':\n"
        "        a = dict(protocol=1, loader='', version='', language='', spec=[],"
        " profiles=['core'])\n"
        "    else:\n"
        "        room = os.listdir(os.path.dirname(f[2]))\n"
        "        seen = f'{len(room)} {os.path.basename(f[2])}'\n"
        "        a = dict(id=f[1], status='rejected', error=seen)\n"
        "    print(json.dumps(a), flush=True)\n"
    )
    adapter = runner.Adapter("x", (sys.executable, "-I", "-S", "-c", script), ())
    done = runner.run(suite, suite.cases[2:4], [adapter], runner.Options(seed=3))
    numbers = {job.case.ident: job.number for job in runner.shuffled(suite.cases[2:4], 3)}
    for result in done.results:
        assert result.differences[0].got == f"rejected with 1 {numbers[result.case]}.weig: "


# --- how outcomes count


def test_how_outcomes_count() -> None:
    skipped = {Outcome.KNOWN, Outcome.NOT_CLAIMED, Outcome.NOT_RUN}
    for outcome in Outcome:
        want = Bucket.SKIPPED if outcome in skipped else Bucket.FAILED
        if outcome in (Outcome.PASS, Outcome.WRONG_CODE):
            want = Bucket.PASSED
        assert bucket(outcome) is want
    assert bucket(Outcome.WRONG_CODE, strict_codes=True) is Bucket.FAILED


# --- results.jsonl


def test_results_come_back_as_they_were(tmp_path: Path) -> None:
    first = some(("a", "x", Outcome.PASS), ("a", "y", Outcome.CRASH), problems=("stale",))
    bad = replace(
        first.results[1], detail="d", stderr="s\n", differences=(Difference("w", "1", "\u202e"),)
    )
    first = replace(first, results=(first.results[0], bad))
    results.write(first, tmp_path / "r.jsonl")
    assert results.read(tmp_path / "r.jsonl") == first
    foot = json.loads((tmp_path / "r.jsonl").read_text().splitlines()[-1])
    assert foot["counts"] == {"passed": 1, "failed": 1, "skipped": 0}
    assert foot["conforms"] is False


@pytest.mark.parametrize(
    ("keep", "text"), [(0, "not a results"), (1, "not a results"), (2, "no footer")]
)
def test_a_broken_run_is_not_taken_for_a_whole_one(tmp_path: Path, keep: int, text: str) -> None:
    path = tmp_path / "r.jsonl"
    lines = list(results.lines(some(("a", "x", Outcome.PASS))))
    path.write_text("\n".join(lines[:keep]))
    with pytest.raises(results.ResultsError, match=text):
        results.read(path)


def test_what_conforms() -> None:
    good = some(("a", "x", Outcome.PASS), ("a", "y", Outcome.NOT_CLAIMED))
    assert results.conforms(good)
    assert not results.conforms(replace(good, problems=("stale",)))
    dead = replace(good.adapters[0], problem="did not start")
    assert not results.conforms(replace(good, adapters=(dead,)))
    assert not results.conforms(some(("a", "x", Outcome.FIXED)))


def test_compare() -> None:
    old = some(
        ("a", "1", Outcome.CRASH),
        ("a", "2", Outcome.PASS),
        ("a", "3", Outcome.CRASH),
        ("a", "4", Outcome.PASS),
        ("a", "5", Outcome.PASS),
    )
    new = some(
        ("a", "1", Outcome.PASS),
        ("a", "2", Outcome.HANG),
        ("a", "3", Outcome.HANG),
        ("a", "4", Outcome.PASS),
        ("b", "5", Outcome.PASS),
    )
    changes = results.compare(old, new)
    assert changes.fixed == ("a 1: crash -> pass",)
    assert changes.broken == ("a 2: pass -> hang",)
    assert changes.changed == ("a 3: crash -> hang",)
    assert changes.new == ("b 5: pass",)
    assert changes.gone == ("a 5: was pass",)


def test_merge() -> None:
    one, two = some(("a", "1", Outcome.PASS)), some(("b", "1", Outcome.CRASH))
    both = results.merge([one, two])
    assert [item.adapter for item in both.results] == ["a", "b"]
    assert [item.label for item in both.adapters] == ["a", "b"]
    with pytest.raises(results.ResultsError, match="twice: a 1"):
        results.merge([one, one])
    with pytest.raises(results.ResultsError, match="not of one suite"):
        results.merge([one, replace(two, suite="8")])


# --- known failures


def apply(entries: Sequence[known.Known], *items: tuple[str, str, Outcome]) -> known.Applied:
    return known.apply(entries, some(*items).results, ["x.1", "x.2", "y.1"])


def test_a_known_failure_is_skipped_and_says_why() -> None:
    entry = known.Known("x.*", Outcome.CRASH, "old parser", link="https://example.org/1")
    done = apply([entry], ("a", "x.1", Outcome.CRASH), ("a", "y.1", Outcome.CRASH))
    assert [item.outcome for item in done.results] == [Outcome.KNOWN, Outcome.CRASH]
    assert "old parser (https://example.org/1)" in done.results[0].detail
    assert done.problems == ()


def test_a_known_failure_that_passes_fails_the_run() -> None:
    done = apply([known.Known("x.1", Outcome.CRASH, "why")], ("a", "x.1", Outcome.PASS))
    assert done.results[0].outcome is Outcome.FIXED


def test_a_known_failure_with_another_outcome_fails_the_run() -> None:
    done = apply([known.Known("x.1", Outcome.WRONG_CODE, "why")], ("a", "x.1", Outcome.CRASH))
    assert done.results[0].outcome is Outcome.CRASH
    assert done.problems == ("a x.1: known as wrong-code, now crash",)


def test_an_entry_that_matches_no_case_fails_the_run() -> None:
    entries = [known.Known("z.*", Outcome.CRASH, "why")]
    assert apply(entries, ("a", "x.1", Outcome.PASS)).problems == (
        "known failure 'z.*' matches no case",
    )
    # A case that was only not selected, or an adapter that did not run, is no problem.
    assert not apply([known.Known("x.2", Outcome.CRASH, "")], ("a", "x.1", Outcome.PASS)).problems
    assert not apply(
        [known.Known("z.*", Outcome.CRASH, "", adapter="b")], ("a", "x.1", Outcome.PASS)
    ).problems


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[known]]\ncase='x'\noutcome='crash'\n", "says no reason"),
        ("[[known]]\ncase='x'\noutcome='bad'\nreason='r'\n", "no such outcome: bad"),
        ("[[known]]\ncase='x'\noutcome='crash'\nreason='r'\nwhy='?'\n", "no such key: why"),
        ("[[know]]\ncase='x'\n", r"only tables \[\[known\]\]"),
        ("known = 1", r"only tables \[\[known\]\]"),
        ("[[known]]\ncase=1\n", "a table of strings"),
        ("[[", "known.toml"),
    ],
)
def test_a_list_that_cannot_be_read(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "known.toml"
    path.write_text(text)
    with pytest.raises(known.KnownError, match=problem):
        known.read(path)


# --- reports


def test_the_text_report_says_all_that_is_needed(suite: Manifest) -> None:
    adapter = runner.Adapter("mini", toy_suite.command("accept"), ("--", "./mini"))
    done = runner.run(suite, suite.cases[:3], [adapter], runner.Options(seed=9))
    text = report_text.report(results.of_run(done, done.results), suite)
    for words in (
        "mini   2/2  0/1  2/3",
        "FAILED  bad-1  wrong-verdict  mini",
        "  title      case bad-1",
        "  rule       TOY-1  A file must start with GOOD.",
        '  edit       set magic = "EVIL"',
        "    want     rejected with BAD",
        "    got      accepted, little endian, 1 tensors",
        "  bytes      00000000  45 56 49 4c 62 61 64 2d 31                       EVILbad-1",
        "                       ^^ ^^ ^^ ^^                                      magic",
        "  repeat     weig conformance run -k bad-1 --isolation case -- ./mini",
        "seed 9",
    ):
        assert words in text, text
    assert text.endswith("\n2 passed, 1 failed, 0 skipped\n")


def test_failures_that_say_the_same_stand_together(suite: Manifest) -> None:
    found = some(
        ("a", "bad-1", Outcome.CRASH), ("b", "bad-1", Outcome.CRASH), ("c", "bad-1", Outcome.HANG)
    )
    text = report_text.report(found, suite)
    assert "FAILED  bad-1  crash  a, b\n" in text
    assert "FAILED  bad-1  hang  c\n" in text


def test_a_report_of_an_adapter_that_did_not_start(suite: Manifest) -> None:
    dead = replace(some(("a", "bad-1", Outcome.NOT_RUN)).adapters[0], problem="no\x1b[31m way")
    text = report_text.report(some(("a", "bad-1", Outcome.NOT_RUN), adapters=(dead,)), suite)
    assert "NOT STARTED  a: no\\x1b[31m way" in text
    assert "weig conformance doctor -- ./a" in text


def test_what_an_adapter_says_cannot_write_on_the_terminal(suite: Manifest) -> None:
    adapter = runner.Adapter("x", toy_suite.command("name"), ())
    done = runner.run(suite, suite.cases[:1], [adapter], runner.Options())
    text = report_text.report(results.of_run(done, done.results), suite)
    assert "w\\u202e\\n" in text
    assert printable("a\u202eb\x1b\ud800") == "a\\u202eb\\x1b\\ud800"


def test_junit(suite: Manifest, tmp_path: Path) -> None:
    found = some(
        ("a", "bad-1", Outcome.CRASH), ("a", "bad-2", Outcome.PASS), ("a", "deep", Outcome.KNOWN)
    )
    bad = replace(found.results[0], detail="died\x00", stderr="last\x1b words\n")
    report_junit.write(replace(found, results=(bad, *found.results[1:])), suite, tmp_path / "j.xml")
    root = ElementTree.parse(tmp_path / "j.xml").getroot()
    table = root.find("testsuite")
    assert table is not None
    assert {key: table.get(key) for key in ("name", "tests", "failures", "skipped", "errors")} == {
        "name": "a",
        "tests": "3",
        "failures": "1",
        "skipped": "1",
        "errors": "0",
    }
    failure = root.find(".//failure")
    assert failure is not None
    assert failure.get("message") == "crash: died\\x00"
    assert failure.text == "last\\x1b words"
    assert [item.get("name") for item in root.iter("testcase")] == ["bad-1", "bad-2", "deep"]


def test_the_hex_dump_names_fields(suite: Manifest) -> None:
    one = case(
        file="good-1.toy",
        marks=(Span(14, 4, "edited"), Span(100, 1, "gone")),
        fields=(Span(8, 6, "before"), Span(14, 4, "edited")),
    )
    assert list(annotated(one, staging.Sources.of(suite))) == [
        "bytes      00000000  47 4f 4f 44 00 01 02 03 04 05 06 07 08 09 0a 0b  GOOD............",
        "                                             -- -- -- -- -- --        before",
        "                                                               ^^ ^^  edited",
        "bytes      00000010  0c 0d 0e 0f                                      ....",
        "                     ^^ ^^                                            edited",
        "bytes      00000060  past the end of the file",
    ]


def test_a_death_and_the_end_of_the_output_may_be_seen_in_any_order() -> None:
    """Both stand in one answer of the selector; the death reads the output to its end."""
    for order in ((0, 1, 2), (2, 1, 0), (2, 0, 1), (1, 2, 0)):
        worker = Worker((sys.executable, "-I", "-S", "-c", "print('late')"))
        os.waitid(os.P_PID, worker._popen.pid, os.WEXITED | os.WNOWAIT)
        sources = (worker._stdout, worker._stderr, worker._pidfd)
        for index in order:
            worker._move(sources[index])
        assert worker.kill().extra == b"late\n"
