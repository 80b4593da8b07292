"""The cases against an oracle that is written from SPEC.md alone, and their form."""

from __future__ import annotations

import sys
from hashlib import sha256
from pathlib import Path

import pytest

from weig.fixtures.cases import Case, load
from weig.fixtures.recipes import bases
from weig.spec.errors import CODES
from weig.spec.rules import rules

sys.path.insert(0, str(Path(__file__).parent))
import fixtures_oracle as oracle

CASES = load()
BYTES = [case for case in CASES if case.image is not None]
# The oracle reads every record, and 4 KiB of a name: it leaves out tables of 89 million and more,
# and names of 4 MiB.
BEYOND = {"sparse.count-bomb-4g", "sparse.count-bomb-terabyte", "resources.endless-names"}
JUDGED = [case for case in BYTES if case.id not in BEYOND]
REJECTED = [case for case in JUDGED if case.expect == "reject"]
# Rules that say what a loader does, and that no file alone can break.
BEHAVIOUR = {rule.id for rule in rules().values() if rule.level == "loader" or not rule.codes}


def judged(case: Case) -> set[tuple[str, str]]:
    assert case.image is not None
    return oracle.broken(case.image.read, case.image.size, deep=case.level == "deep")


@pytest.mark.parametrize(
    "case", [c for c in JUDGED if c.expect != "reject"], ids=lambda case: case.id
)
def test_accepted_cases_break_no_rule_and_hold_their_model(case: Case) -> None:
    assert case.image is not None
    assert judged(case) == set()
    big = case.byte_order == "big"
    assert case.image.read(0, 4) == (b"WEIG" if big else b"GIEW")
    found = oracle.tensors(case.image.read)
    if case.model is None:
        assert len(found) == case.count
        return
    assert len(found) == len(case.model.tensors)
    for (name, code, shape, offset, size), tensor in zip(found, case.model.tensors, strict=True):
        want = tensor.want()
        assert (name, code, list(shape), size) == (
            want["name"], tensor.dtype.code, want["shape"], want["nbytes"],
        )  # fmt: skip
        if want["sha256"] is not None:
            data = case.image.read(offset, size)
            unit = tensor.dtype.unit if big else 1
            units = (data[at : at + unit][::-1] for at in range(0, size, unit))
            assert sha256(b"".join(units)).hexdigest() == want["sha256"]


@pytest.mark.parametrize("case", REJECTED, ids=lambda case: case.id)
def test_rejected_cases_break_exactly_the_rules_that_they_name(case: Case) -> None:
    found = judged(case)
    # A process that cannot hold the file may say that, whatever else is wrong with it.
    excused = {"TOO_LARGE"} if "OPEN-9" in case.rules else set()
    assert {code for _, code in found} | excused == set(case.errors)
    # NUM-1 shows in other rules; a case names it where that is its point.
    assert {rule for rule, _ in found} - {"NUM-1"} == set(case.rules) - BEHAVIOUR - {"NUM-1"}


def test_rejected_cases_are_a_good_file_and_one_edit() -> None:
    edited = [case for case in REJECTED if case.model is not None]
    assert edited
    for case in edited:
        assert len(case.edits) == 1 or "compound" in case.tags, case.id


@pytest.mark.parametrize("name", sorted(bases()))
def test_every_base_is_a_case_of_its_own(name: str) -> None:
    assert any(c.base == name and not c.edits and c.expect == "accept" for c in CASES)


def test_ids_are_stable_words() -> None:
    for case in CASES:
        stem, *_ = case.id.partition("~")
        chapter, _, words = stem.partition(".")
        assert chapter == case.chapter
        assert words
        assert all(c.islower() or c.isdigit() or c in "-." for c in stem), case.id


def test_codes_follow_from_the_rules() -> None:
    known = rules()
    for case in CASES:
        assert set(case.rules) <= known.keys(), case.id
        assert set(case.errors) <= CODES.keys(), case.id
        right = {code for rule in case.rules for code in known[rule].codes}
        if case.expect == "accept":
            assert not case.errors, case.id
        elif case.expect == "reject":
            assert case.errors, case.id
            assert set(case.errors) <= right, case.id


def test_level_deep_is_where_the_deep_rules_are() -> None:
    for case in CASES:
        if case.expect == "reject":
            deep = any(rules()[rule].level == "deep" for rule in case.rules)
            assert deep == (case.level == "deep"), case.id


def _twin(name: str) -> str:
    stem, wave, rest = name.partition("~")
    return f"{stem}~be{wave}{rest}"


def test_every_built_case_has_a_big_endian_twin() -> None:
    ids = {case.id for case in CASES}
    alone = [
        case.id
        for case in CASES
        if case.kind == "file" and case.model is not None and "~be" not in case.id
        and _twin(case.id) not in ids
    ]  # fmt: skip
    assert alone == ["meta.one-record-in"]


def test_tensors_end_in_a_byte_that_is_not_zero() -> None:
    for case in BYTES:
        for tensor in case.model.tensors if case.model else ():
            if tensor.data and not case.edits and "hex" not in case.tags:
                zero_on_purpose = case.id.startswith(("bool.scalar", "valid.special-values"))
                assert tensor.data[-1] or zero_on_purpose, case.id


def test_there_are_enough_cases() -> None:
    declared = [case for case in CASES if "~" not in case.id]
    assert len(declared) >= 300
    assert len(CASES) >= 1000
