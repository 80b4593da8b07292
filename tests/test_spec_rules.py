"""SPEC.md, rules.toml and the cases say the same."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from weig.fixtures.cases import load
from weig.spec import rules as module
from weig.spec.errors import CODES
from weig.spec.rules import read_sentences, rules

SPEC = Path(module.__file__).parent
TESTED = [rule for rule in rules().values() if rule.level in ("open", "deep")]


def test_ids_of_the_text_are_those_of_the_table() -> None:
    text = (SPEC / "SPEC.md").read_text(encoding="utf-8")
    table = tomllib.loads((SPEC / "rules.toml").read_text(encoding="utf-8"))["rules"]
    assert re.findall(r"^\*\*([A-Z]+-\d+)\*\*", text, re.MULTILINE) == list(table)
    assert list(rules()) == list(table)


def test_a_sentence_is_a_paragraph_up_to_the_blank_line() -> None:
    text = "**A-1** One\nline. Two.\n\nNot this.\n\n**A-2** More.\n"
    assert read_sentences(text) == {"A-1": "One line. Two.", "A-2": "More."}
    assert rules()["HDR-3"].text == "`header.version` must be 1."


def test_section_is_where_the_sentence_stands() -> None:
    text = (SPEC / "SPEC.md").read_text(encoding="utf-8")
    for number, section in enumerate(re.split(r"^## ", text, flags=re.MULTILINE)[1:], 1):
        for name in read_sentences(section):
            assert rules()[name].section == str(number), name


def test_codes_are_those_of_the_list() -> None:
    for rule in rules().values():
        assert set(rule.codes) <= CODES.keys(), rule.id
        assert rule.level in ("open", "deep", "loader", "writer"), rule.id


@pytest.mark.parametrize("rule", TESTED, ids=lambda rule: rule.id)
def test_every_rule_has_an_accepted_and_a_rejected_case(rule: module.Rule) -> None:
    cases = [case for case in load() if rule.id in case.rules and case.level == rule.level]
    assert any(case.expect == "accept" for case in cases)
    # A rule without codes tells a loader what it must take: no file breaks it.
    assert not rule.codes or any(case.expect == "reject" for case in cases)


def test_a_rule_that_no_file_shows_names_the_tests_that_prove_it() -> None:
    table = tomllib.loads((SPEC / "rules.toml").read_text(encoding="utf-8"))["rules"]
    for name, rule in table.items():
        if rule["level"] not in ("loader", "writer"):
            continue
        assert rule["tests"], name
        for test in rule["tests"]:
            path, function = test.split("::")
            text = (SPEC.parent / path).read_text(encoding="utf-8")
            assert f"def {function}(" in text, test
