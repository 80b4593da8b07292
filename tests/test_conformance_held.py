"""Files that are changed while a loader holds them open: what the engine does, and what it sees."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import toy_suite

from weig.conformance import manifest
from weig.conformance.manifest import Manifest
from weig.conformance.outcome import Result

COPIED = ("left-alone", "cut-read", "written")
MAPPED = ("cut-mmap", "again", "touched", "mode", "renamed", "removed")
UNCHANGED = {"left-alone", "mode"}
REPLACED = {"renamed", "removed"}
CHANGED = {*COPIED, *MAPPED} - UNCHANGED - REPLACED


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return manifest.read(toy_suite.write(tmp_path_factory.mktemp("suite"), held=True))


def failed(found: Mapping[str, Result]) -> dict[str, str]:
    return {case: result.outcome for case, result in found.items() if result.outcome != "pass"}


@pytest.mark.parametrize("isolation", ["auto", "case"])
def test_a_right_loader_passes(suite: Manifest, isolation: str) -> None:
    for behaviour in ("held", "held-by-path"):
        found = toy_suite.run(suite, behaviour, COPIED + MAPPED, isolation=isolation)
        assert len(found) == len(COPIED + MAPPED)
        assert failed(found) == {}


def test_the_changes_are_made(suite: Manifest) -> None:
    found = toy_suite.run(suite, "held-blind", COPIED + MAPPED)
    assert failed(found) == dict.fromkeys(CHANGED, "wrong-verdict")
    result = found["cut-mmap"]
    assert result.detail == "check, after a cut to 6 bytes"
    assert (result.differences[0].want, result.differences[0].got) == (
        "rejected with CHANGED",
        "unmodified",
    )


def test_what_was_not_changed_must_be_said_to_be_so(suite: Manifest) -> None:
    found = toy_suite.run(suite, "held-nervous", COPIED + MAPPED)
    assert failed(found) == dict.fromkeys(UNCHANGED, "wrong-verdict")
    assert found["mode"].detail == "check, after a change of its mode to 400"


def test_another_code_is_a_wrong_code(suite: Manifest) -> None:
    found = toy_suite.run(suite, "held-code", COPIED + MAPPED)
    assert failed(found) == dict.fromkeys(CHANGED, "wrong-code")


def test_a_loader_that_opens_the_path_again_is_caught(suite: Manifest) -> None:
    found = failed(toy_suite.run(suite, "held-reopens", COPIED + MAPPED))
    assert found == {
        "cut-read": "wrong-verdict",
        "written": "wrong-content",
        "renamed": "wrong-verdict",
        "removed": "wrong-verdict",
    }


@pytest.mark.parametrize("isolation", ["auto", "case"])
def test_a_death_is_a_crash_and_says_when(suite: Manifest, isolation: str) -> None:
    found = toy_suite.run(suite, "held-dies", ("cut-mmap", "left-alone"), isolation=isolation)
    assert failed(found) == {"cut-mmap": "crash"}
    assert found["cut-mmap"].detail.startswith("check, after a cut to 6 bytes: died of SIGBUS")


def test_the_first_wrong_answer_ends_a_case(suite: Manifest) -> None:
    found = toy_suite.run(suite, "held-miscounts", ("left-alone",))
    assert failed(found) == {"left-alone": "wrong-content"}
    assert found["left-alone"].detail == "open"


def test_who_does_not_claim_it_is_not_asked(suite: Manifest) -> None:
    found = toy_suite.run(suite, "right", COPIED + MAPPED)
    assert set(failed(found).values()) == {"not-claimed"}


def test_via_leaves_out_the_other_way(suite: Manifest) -> None:
    found = toy_suite.run(suite, "held", COPIED + MAPPED, via="read")
    assert failed(found) == dict.fromkeys(MAPPED, "not-claimed")


def test_only_a_copy_of_the_suite_is_changed(suite: Manifest) -> None:
    toy_suite.run(suite, "held", COPIED + MAPPED)
    for case in suite.cases:
        if case.held is not None:
            data = (suite.directory / str(case.file)).read_bytes()
            assert data == b"GOOD" + toy_suite.BODIES["good-2"]
