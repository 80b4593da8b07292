"""Each way in which an adapter can be right or wrong, shown by a miniature that is just that."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest
import toy_suite

from weig.conformance import process, runner
from weig.conformance.manifest import Manifest
from weig.conformance.outcome import Outcome, Result

EVERY = ("good-1", "good-2", "bad-1", "bad-2")


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return toy_suite.read(tmp_path_factory.mktemp("suite"))


def outcomes(results: dict[str, Result]) -> dict[str, str]:
    return {case: str(result.outcome) for case, result in results.items()}


@pytest.mark.parametrize("isolation", ["auto", "case"])
@pytest.mark.parametrize("behaviour", ["right", "chatty", "hex-anyway", "mapped", "litter"])
def test_what_is_right_passes(suite: Manifest, behaviour: str, isolation: str) -> None:
    found = toy_suite.run(suite, behaviour, isolation=isolation)
    assert outcomes(found) == dict.fromkeys(EVERY, "pass")


@pytest.mark.parametrize("isolation", ["auto", "case"])
@pytest.mark.parametrize(
    ("behaviour", "outcome", "detail"),
    [
        ("segv", "crash", "died of SIGSEGV without an answer"),
        ("bus", "crash", "died of SIGBUS without an answer"),
        ("half", "crash", r"died of SIGABRT without an answer \(began: '\{\"id\": \"'\)"),
        ("exit0", "crash", "ended with exit status 0 without an answer"),
        ("exit1", "crash", "ended with exit status 1 without an answer"),
        ("shell-segv", "crash", r"exit status 139 \(SIGSEGV of a child\?\)"),
        ("segv-after", "crash", "died of SIGSEGV after its answer"),
        ("trace", "crash", "ended with exit status 1 without an answer"),
        ("child", "crash", "ended with exit status 0 without an answer"),
        ("words", "garbage", "not JSON .*Segmentation fault"),
        ("empty-line", "garbage", "more than one line"),
        ("twice", "garbage", "more than one line"),
        ("twice-late", "garbage", "more than one line"),
        ("wrong-id", "garbage", 'the id is "9999", the request\'s is "000'),
        ("number-id", "garbage", r"the id is \d, the request's is \"000"),
        ("no-status", "garbage", "status must be a string, not missing"),
        ("new-status", "garbage", 'no such status: "fine"'),
        ("no-code", "garbage", "error must be a string, not missing"),
        ("not-utf8", "garbage", "not UTF-8 at byte"),
        ("surrogate", "garbage", "half a surrogate pair"),
        ("nan", "garbage", "NaN is not JSON"),
        ("duplicate-key", "garbage", 'the key "error" stands twice'),
        ("deep-nest", "garbage", "nested too deeply"),
        ("crlf", "garbage", "ends with CR LF"),
        ("bom", "garbage", "byte order mark"),
        ("list", "garbage", "not a JSON object"),
        ("no-lf", "garbage", "the line has no end"),
        ("internal", "internal", "internal error: oops"),
        ("write-byte", "modified-input", "other bytes than before"),
        ("write-same", "modified-input", "written to"),
        ("write-less", "modified-input", r"had 9 bytes and now has 1"),
        ("unlink", "modified-input", "cannot be read any more"),
    ],
)
def test_a_fault_at_bad_files(
    suite: Manifest, behaviour: str, outcome: str, detail: str, isolation: str
) -> None:
    found = toy_suite.run(suite, behaviour, isolation=isolation)
    want = {"good-1": "pass", "good-2": "pass", "bad-1": outcome, "bad-2": outcome}
    assert outcomes(found) == want
    assert re.search(detail, found["bad-1"].detail)


@pytest.mark.parametrize(
    ("behaviour", "outcome", "detail"),
    [
        ("hang", "hang", "no answer within"),
        ("half-hang", "hang", "no answer within .* it began: '{"),
        ("deaf", "hang", "did not end when its standard input ended"),
        ("mute", "garbage", "closed its standard output"),
    ],
)
def test_silence(suite: Manifest, behaviour: str, outcome: str, detail: str) -> None:
    found = toy_suite.run(suite, behaviour, ("bad-1",), timeout=0.5)
    assert outcomes(found) == {"bad-1": outcome}
    assert re.search(detail, found["bad-1"].detail)


def test_hangs_are_given_up(suite: Manifest) -> None:
    found = toy_suite.run(suite, "hang", ("bad-1", "bad-2"), timeout=0.3, hangs=1)
    assert sorted(outcomes(found).values()) == ["hang", "not-run"]


def test_faults_are_given_up_where_that_is_asked_for(suite: Manifest) -> None:
    found = toy_suite.run(suite, "exit1", ("bad-1", "bad-2"), faults=1)
    assert sorted(outcomes(found).values()) == ["crash", "not-run"]


def test_an_endless_line_is_cut(suite: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    small = 1 << 20
    monkeypatch.setattr(process, "MAX_LINE", small)
    found = toy_suite.run(suite, "huge", ("bad-1",))
    assert outcomes(found) == {"bad-1": "garbage"}
    assert f"longer than {small} bytes" in found["bad-1"].detail


def test_accepting_and_rejecting_everything(suite: Manifest) -> None:
    found = toy_suite.run(suite, "accept")
    assert outcomes(found) == dict.fromkeys(EVERY, "pass") | dict.fromkeys(
        ("bad-1", "bad-2"), "wrong-verdict"
    )
    assert found["bad-1"].differences[0].want == "rejected with BAD"
    assert found["bad-1"].differences[0].got.startswith("accepted")
    found = toy_suite.run(suite, "reject")
    assert outcomes(found) == dict.fromkeys(EVERY, "pass") | dict.fromkeys(
        ("good-1", "good-2"), "wrong-verdict"
    )
    assert found["good-1"].differences[0].got == "rejected with BAD: no"


def test_unsupported_is_no_refusal(suite: Manifest) -> None:
    assert outcomes(toy_suite.run(suite, "unsupported", ("bad-1",))) == {"bad-1": "wrong-verdict"}


def test_a_wrong_code_is_its_own_outcome(suite: Manifest) -> None:
    found = toy_suite.run(suite, "code", ("bad-1",))
    assert outcomes(found) == {"bad-1": "wrong-code"}
    assert found["bad-1"].differences[0].want == "BAD"


@pytest.mark.parametrize(
    ("behaviour", "where", "got"),
    [
        ("no-tensors", "tensors", "0 of them"),
        ("count-2", "count", "2"),
        ("other-order", "byte_order", "big"),
        ("swapped-2", "tensors[0].data", "units of 2 bytes"),
        ("swapped-4", "tensors[0].data", "units of 4 bytes"),
        ("columns", "tensors[0].data", "row-major"),
        ("zeros", "tensors[0].data", "00 00 00"),
        ("no-digest", "tensors[0].sha256", "neither"),
        ("flat", "tensors[0].shape", "[16]"),
        ("dtype", "tensors[0].dtype", "I8"),
        ("nbytes", "tensors[0].nbytes", "15"),
        ("name", "tensors[0].name", "w\u202e\n"),
        ("mapped-32", "tensors[0].align", "32"),
        ("mapped-mute", "tensors[0].backing", "missing"),
    ],
)
def test_wrong_content_says_where(suite: Manifest, behaviour: str, where: str, got: str) -> None:
    found = toy_suite.run(suite, behaviour, ("good-1",))
    assert outcomes(found) == {"good-1": "wrong-content"}
    first = found["good-1"].differences[0]
    assert first.where == where
    assert got in first.got


@pytest.mark.parametrize("behaviour", ["no-count", "float-count", "mapped-48", "mapped-odd"])
def test_an_accepted_answer_has_all_its_keys(suite: Manifest, behaviour: str) -> None:
    assert outcomes(toy_suite.run(suite, behaviour, ("good-1",))) == {"good-1": "garbage"}


def test_either_is_right_where_the_specification_leaves_it_open(suite: Manifest) -> None:
    for behaviour in ("right", "accept", "code", "unsupported"):
        assert outcomes(toy_suite.run(suite, behaviour, ("choice",))) == {"choice": "pass"}
    for behaviour, outcome in (("segv", "crash"), ("internal", "internal"), ("nan", "garbage")):
        assert outcomes(toy_suite.run(suite, behaviour, ("choice",))) == {"choice": outcome}


def test_memory_over_the_base_line(suite: Manifest) -> None:
    found = toy_suite.run(suite, "memory", ("heavy",))
    assert outcomes(found) == {"heavy": "memory"}
    assert "the limit is 64 MiB" in found["heavy"].detail
    assert outcomes(toy_suite.run(suite, "right", ("heavy",))) == {"heavy": "pass"}
    assert outcomes(toy_suite.run(suite, "memory", ("heavy",), memory=1 << 30)) == {"heavy": "pass"}


def test_what_is_not_claimed_is_not_judged(suite: Manifest) -> None:
    both = ("good-1", "bad-1", "deep", "other-end", "bad-end")
    assert outcomes(toy_suite.run(suite, "right", both)) == {
        "good-1": "pass",
        "bad-1": "pass",
        "deep": "not-claimed",
        "other-end": "not-claimed",
        "bad-end": "not-claimed",
    }
    for behaviour in ("only-f32", "rank-1", "size-8"):
        found = toy_suite.run(suite, behaviour, ("good-1", "bad-1"))
        assert outcomes(found) == {"good-1": "not-claimed", "bad-1": "pass"}
    for behaviour, good in (("rank-1-can", "pass"), ("rank-1-wraps", "wrong-content")):
        found = toy_suite.run(suite, behaviour, ("good-1", "bad-1"))
        assert outcomes(found) == {"good-1": good, "bad-1": "pass"}
    found = toy_suite.run(suite, "nothing", ("good-1", "bad-1"))
    assert set(outcomes(found).values()) == {"not-claimed"}


def test_content_that_is_not_claimed_is_not_asked_for(suite: Manifest) -> None:
    # The miniature fails where it is asked for more than it claims.
    assert outcomes(toy_suite.run(suite, "only-core", ("good-1",))) == {"good-1": "pass"}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_state_that_one_file_leaves_behind(suite: Manifest, seed: int) -> None:
    found = toy_suite.run(suite, "sticky", seed=seed)
    order = [job.case.ident for job in runner.shuffled(_chosen(suite, EVERY), seed)]
    first_bad = next(i for i, case in enumerate(order) if case.startswith("bad"))
    for i, case in enumerate(order):
        late = i > first_bad and case.startswith("good")
        assert found[case].outcome == ("order-dependent" if late else "pass")


def test_a_late_death_is_order_dependent(suite: Manifest) -> None:
    found = toy_suite.run(suite, "dies-later", seed=1)
    order = [job.case.ident for job in runner.shuffled(_chosen(suite, EVERY), 1)]
    first_bad = next(i for i, case in enumerate(order) if case.startswith("bad"))
    assert outcomes(found)[order[first_bad + 1]] == "order-dependent"
    assert f"after {order[first_bad]}; right alone" in found[order[first_bad + 1]].detail
    assert set(outcomes(toy_suite.run(suite, "dies-later", isolation="case")).values()) == {"pass"}


def test_a_process_that_serves_once_is_order_dependent(suite: Manifest) -> None:
    found = toy_suite.run(suite, "once")
    assert "order-dependent" in outcomes(found).values()
    assert set(outcomes(toy_suite.run(suite, "once", isolation="case")).values()) == {"pass"}


def test_the_end_of_input(suite: Manifest) -> None:
    found = toy_suite.run(suite, "endless", ("good-1",), isolation="case", timeout=0.3)
    assert outcomes(found) == {"good-1": "hang"}
    # The last case is the one to blame for a death at the end.
    assert outcomes(toy_suite.run(suite, "dies-at-end", ("good-1",))) == {"good-1": "crash"}


def test_children_are_killed_with_their_adapter(suite: Manifest) -> None:
    begin = time.monotonic()
    found = toy_suite.run(suite, "child", ("bad-1",))
    assert time.monotonic() - begin < 30  # the child sleeps for 60 s and holds the pipes
    number = re.search(r"child (\d+)", found["bad-1"].stderr)
    assert number is not None
    deadline = time.monotonic() + 5
    while _lives(int(number[1])) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _lives(int(number[1]))


def test_standard_error_is_kept_to_its_end(suite: Manifest) -> None:
    found = toy_suite.run(suite, "chatty-trace", ("bad-1",))
    assert found["bad-1"].stderr.endswith("ZeroDivisionError: integer division or modulo by zero\n")
    assert len(found["bad-1"].stderr) == process.STDERR_TAIL


def test_the_corpus_is_not_touched_by_a_writing_adapter(suite: Manifest) -> None:
    before = {path: path.read_bytes() for path in suite.directory.iterdir()}
    toy_suite.run(suite, "write-less")
    assert {path: path.read_bytes() for path in suite.directory.iterdir()} == before


@pytest.mark.parametrize(
    ("behaviour", "problem"),
    [
        ("banner", "more than one line|not JSON"),
        ("gone", "ended with exit status 1 without an answer"),
        ("hello-2", "speaks protocol 2"),
        ("hello-mute", "profiles must be a list of strings, not missing"),
        ("hello-list", "not a JSON object"),
        ("hello-repr", "not JSON"),
        ("hello-pretty", "not JSON|more than one line"),
    ],
)
def test_an_adapter_that_does_not_start(suite: Manifest, behaviour: str, problem: str) -> None:
    adapter = runner.Adapter("x", toy_suite.command(behaviour), ())
    done = runner.run(suite, suite.cases, [adapter], runner.Options())
    assert re.search(problem, done.started[0].problem)
    assert {result.outcome for result in done.results} == {Outcome.NOT_RUN}


def test_a_command_that_is_not_there(suite: Manifest, tmp_path: Path) -> None:
    adapter = runner.Adapter("x", (str(tmp_path / "nothing"),), ())
    done = runner.run(suite, suite.cases, [adapter], runner.Options())
    assert "No such file" in done.started[0].problem


def test_several_adapters_at_once(suite: Manifest) -> None:
    names = ("right", "segv", "right", "nan")
    adapters = [runner.Adapter(f"{i}", toy_suite.command(name), ()) for i, name in enumerate(names)]
    done = runner.run(suite, suite.cases[:4], adapters, runner.Options(jobs=3, seed=5))
    got = [[str(item.outcome) for item in done.results if item.adapter == f"{i}"] for i in range(4)]
    assert got[0] == got[2] == ["pass"] * 4
    assert got[1] == ["pass", "pass", "crash", "crash"]
    assert got[3] == ["pass", "pass", "garbage", "garbage"]


def test_a_system_that_cannot_watch_a_process(
    suite: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    found = toy_suite.run(suite, "child")
    assert outcomes(found) == dict.fromkeys(EVERY, "pass") | dict.fromkeys(
        ("bad-1", "bad-2"), "crash"
    )


def _chosen(suite: Manifest, names: tuple[str, ...]) -> list[object]:
    return [case for case in suite.cases if case.ident in names]


def _lives(number: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        return ") Z" not in Path(f"/proc/{number}/stat").read_text()
    except OSError:
        return False
