"""The generated parsers of every language: right over the corpus but for what is listed.

The list is spec/generated/known-failures.toml, and it is strict.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kaitai_verdicts import GENERATED, ORACLES, PYTHON, ROOT, Verdict, python_verdict, verdicts
from test_kaitai_loader import ACCEPT, EXAMPLE, NOT_ACCEPT, ORDERS, PLACES, REJECT, build, edited

from weig.spec.dtypes import DTYPES

LANGUAGES = (*PYTHON, *ORACLES)
RULES = tomllib.loads((ROOT / "spec" / "rules.toml").read_text("utf-8"))["rules"]
CORPUS = ROOT / "fixtures" / "corpus"
CASES = json.loads((CORPUS / "manifest.json").read_text("utf-8"))["cases"]
LISTED = tomllib.loads((GENERATED / "known-failures.toml").read_text("utf-8"))
NOT_RUN = {kind for entry in LISTED["not-run"] for kind in entry["kinds"]}


class Fault(NamedTuple):
    """How an answer is wrong: accepts, refuses, misreads, or names another rule."""

    how: str
    text: str


def fault(case: dict[str, Any], got: Verdict) -> Fault | None:
    """How a bare parser's answer is wrong for a case; None where it is right."""
    if case["expect"] == "either":
        return None
    if case["expect"] == "accept":
        if not got.accept or (got.deep and case["level"] == "deep"):
            return Fault("refuses", f"refused for {got.rule or got.deep}")
        return misread(case, got)
    if not got.accept:
        if case["level"] == "deep":
            return Fault("names", f"refused at level open for {got.rule}")
        return misnamed(case, got.rule)
    if case["level"] == "open" or got.deep is None:
        return Fault("accepts", "accepted")
    return misnamed(case, got.deep)


def misnamed(case: dict[str, Any], rule: str | None) -> Fault | None:
    codes = RULES[rule]["codes"] if rule else ["TOO_SMALL"]
    if set(codes) & set(case["errors"]):
        return None
    return Fault("names", f"refused for {rule}, expected {case['errors']}")


def misread(case: dict[str, Any], got: Verdict) -> Fault | None:
    names = {dtype.code: dtype.name for dtype in DTYPES}
    want = [[t["name"], t["dtype"], t["shape"], t["nbytes"]] for t in case["want"]["tensors"]]
    assert got.tensors is not None
    have = [[name, names[code], shape, size] for name, code, shape, _, size in got.tensors]
    return None if have == want else Fault("misreads", f"{have} instead of {want}")


def listed(entry: dict[str, Any], case: dict[str, Any]) -> bool:
    if case["expect"] != {"accepts": "reject", "misreads": "accept"}[entry["how"]]:
        return False
    if "rules" in entry and not set(case["rules"]) <= set(entry["rules"]):
        return False
    return any(fnmatchcase(case["id"], glob) for glob in entry["cases"])


def known(language: str, case: dict[str, Any]) -> str | None:
    """How the case must go wrong in the language; None where it must come out right."""
    found = [
        entry["how"]
        for entry in LISTED["failure"]
        if language in entry["languages"] and listed(entry, case)
    ]
    assert len(found) <= 1, f"{case['id']}: listed {len(found)} times"
    return found[0] if found else None


@pytest.mark.parametrize("language", LANGUAGES)
def test_corpus(language: str) -> None:
    cases = [case for case in CASES if case["kind"] not in NOT_RUN]
    answers = verdicts(language, [CORPUS / case["file"] for case in cases])
    differ = []
    for case, answer in zip(cases, answers, strict=True):
        got, must = fault(case, answer), known(language, case)
        if (got.how if got else None) != must:
            told = got.text if got else "right: take it off the list"
            differ.append(f"{case['id']}: {told}")
    assert not differ


def test_the_list_is_about_something() -> None:
    kinds = {case["kind"] for case in CASES}
    assert kinds > NOT_RUN
    for entry in LISTED["failure"]:
        assert set(entry["languages"]) <= set(LANGUAGES)
        chosen = [case for case in CASES if listed(entry, case)]
        for glob in entry["cases"]:
            assert any(fnmatchcase(case["id"], glob) for case in chosen), glob
    assert all(entry["why"] for entry in LISTED["failure"] + LISTED["not-run"])


def written(folder: Path, files: list[bytes]) -> list[Path]:
    paths = [folder / str(i) for i in range(len(files))]
    for path, data in zip(paths, files, strict=True):
        path.write_bytes(data)
    return paths


def loader_cases() -> Iterator[tuple[str, bytes, str | None]]:
    """The cases of the loader's tests: title, file, and the rule that it breaks."""
    for order in ORDERS:
        for rule, edits, _ in REJECT:
            yield f"{order} {edits}", edited(order, edits), rule
        for title, (records, data) in ACCEPT.items():
            yield f"{order} {title}", build(order, records, data, 1), None
        for title, (records, rule) in NOT_ACCEPT.items():
            yield f"{order} {title}", build(order, records, bytes(192)), rule


@pytest.mark.parametrize("language", LANGUAGES)
def test_cases_of_the_loader(language: str, tmp_path: Path) -> None:
    cases = list(loader_cases())
    answers = verdicts(language, written(tmp_path, [data for _, data, _ in cases]))
    wrong = [
        (title, got)
        for (title, _, rule), got in zip(cases, answers, strict=True)
        if got[:2] != (rule is None, rule)
    ]
    assert not wrong


def mutants() -> Iterator[tuple[str, bytes]]:
    """Every field of the example set to values near every boundary, in both byte orders."""
    near = (0, 64, 160, 192, 264, 272, 2**31, 2**32, 2**53, 2**63, 2**64 - 1)
    values = sorted({value + d for value in near for d in (-64, -8, -1, 0, 1, 8)})
    for order in ORDERS:
        for place, (_, size) in PLACES.items():
            for value in values:
                if size > 1 and 0 <= value < 1 << (8 * size):
                    yield f"{order} {place} = {value:#x}", edited(order, {place: value})
        for n in range(0, 272, 4):
            yield f"{order} cut at {n}", EXAMPLE[order][:n]


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_agrees_with_python(language: str, tmp_path: Path) -> None:
    cases = list(mutants())
    answers = verdicts(language, written(tmp_path, [data for _, data in cases]))
    differ = []
    for (title, data), got in zip(cases, answers, strict=True):
        want = python_verdict(data)
        # Python's own decoder refuses a name before what stands behind it is looked at.
        earlier = want.rule == "NAME-4" and not got.accept
        if want != got and not earlier:
            differ.append((title, want, got))
    assert not differ, differ[:5]
    assert {answer.accept for answer in answers} == {True, False}
