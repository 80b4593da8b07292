"""The wrong loaders: their table, what a few of them do, and that the suite catches those."""

from __future__ import annotations

import importlib.util
import json
import struct
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from weig.conformance import strength
from weig.conformance.manifest import Manifest
from weig.conformance.manifest import read as read_manifest
from weig.conformance.outcome import Outcome
from weig.conformance.strength import NONE, Kill, Vice
from weig.fixtures.cases import load
from weig.fixtures.materialize import CORPUS
from weig.spec.errors import CODES
from weig.spec.rules import rules
from weig.tools import cli

FOLDER = strength.FOLDER
TABLE: list[dict[str, Any]] = tomllib.loads((FOLDER / "vices.toml").read_text("utf-8"))["vice"]
KINDS = {"missing", "wraps", "edge", "strict", "text", "values", "whole", "held", "process"}
KEYS = {"id", "what", "kind", "rules", "outcome", "drop", "check", "part"}


@pytest.fixture(scope="module")
def adapter() -> ModuleType:
    """The module `adapter.py`, imported as the script that it is."""
    spec = importlib.util.spec_from_file_location("vices_adapter", FOLDER / "adapter.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


@pytest.fixture(scope="module")
def suite() -> Manifest:
    return read_manifest(CORPUS)


def some_cases(suite: Manifest, *idents: str) -> Manifest:
    cases = tuple(case for case in suite.cases if case.ident in idents)
    assert len(cases) == len(idents)
    return Manifest(suite.path, suite.format, suite.suite, suite.rules, cases)


def killed(suite: Manifest, *vices: Vice) -> dict[str, Kill]:
    kills = strength.measure(suite, vices, strength.options(jobs=1, seed=1))
    return {kill.vice.ident: kill for kill in kills}


def vice(ident: str) -> Vice:
    (found,) = [one for one in strength.read() if one.ident == ident]
    return found


def test_the_table_is_well_formed(adapter: ModuleType) -> None:
    outcomes = {str(one) for one in Outcome} | {strength.NOT_STARTED}
    idents = [item["id"] for item in TABLE]
    assert len(set(idents)) == len(idents) >= 60
    for item in TABLE:
        assert item.keys() <= KEYS, item["id"]
        assert item["kind"] in KINDS, item["id"]
        assert set(item["rules"]) <= rules().keys(), item["id"]
        assert set(item.get("outcome", ())) <= outcomes, item["id"]
        assert item["rules"] or item["outcome"], item["id"]
        assert any(item.get(key) for key in ("drop", "check", "part")), item["id"]
        assert item["what"] == item["what"].strip() != "", item["id"]
        adapter.build(item)  # every name is known, every expression is one


def test_the_adapter_finds_each_vice_without_reading_all_of_them(adapter: ModuleType) -> None:
    for item in TABLE:
        assert adapter.find(item["id"]) == item
    assert adapter.find("none") == {}
    with pytest.raises(KeyError):
        adapter.find("virtue")


def test_a_vice_that_names_what_there_is_not_is_refused(adapter: ModuleType) -> None:
    for change in ({"drop": ["luck"]}, {"check": {"luck": "True"}}, {"part": {"luck": "len"}}):
        with pytest.raises(KeyError):
            adapter.build(change)


def test_every_check_has_a_rule_and_its_code(adapter: ModuleType) -> None:
    for name, check in adapter.loader.CHECKS.items():
        assert check.code in CODES, name
        assert check.code in rules()[check.rule].codes, name
        assert (check.stage == "deep") == (rules()[check.rule].level == "deep"), name


# SHAPE-3 and NUM-1 are no checks: they say how to read, and a loader breaks them by its PARTS.
@pytest.mark.parametrize(
    "rule", [rule.id for rule in rules().values() if rule.level in ("open", "deep")]
)
def test_every_rule_of_open_and_deep_is_missed_by_a_vice(adapter: ModuleType, rule: str) -> None:
    missing = [
        item
        for item in TABLE
        if rule in item["rules"]
        and any(adapter.loader.CHECKS[name].rule == rule for name in item.get("drop", ()))
    ]
    altered = [item for item in TABLE if rule in item["rules"] and item.get("part")]
    assert missing or (rule in ("NUM-1", "SHAPE-3") and altered)


def test_the_right_loader_is_right(suite: Manifest) -> None:
    kills = strength.measure(suite, (), strength.options(jobs=1, seed=1))
    (kill,) = kills
    assert kill.vice == NONE
    assert (kill.cases, kill.others) == ((), ())
    assert not kill.survived


@pytest.mark.parametrize(
    ("ident", "right", "outcome"),
    [
        ("no-sentinel", "sentinel.zero", "wrong-verdict"),
        ("no-file-size-multiple", "header.file-size-odd-4", "wrong-verdict"),
        ("region-end-8", "header.data-offset-file-size", "wrong-verdict"),
        ("rank-65", "shapes.rank-65", "wrong-verdict"),
        ("shape-room-one", "shapes.last-in-data", "wrong-verdict"),
        ("shape-count-signed", "shapes.scalar-count-max", "wrong-verdict"),
        ("data-sum-64", "data.wrap-inside", "wrong-verdict"),
        ("product-64", "shapes.product-wraps-64", "wrong-verdict"),
        ("name-nul-behind", "names.nul-in-data", "wrong-verdict"),
        ("swap-bf16", "dtype.bf16~be", "wrong-content"),
        ("values-nan", "valid.special-values", "wrong-content"),
        ("segfault-range", "data.one-past-end", "crash"),
        ("follows-fifo", "special.fifo", "hang"),
        ("mends-file", "sentinel.zero", "modified-input"),
        ("allocates-records", "sparse.count-bomb", "memory"),
        ("prints-log", "valid.two-f32", "garbage"),
    ],
)
def test_a_vice_is_caught_by_the_case_made_for_it(
    suite: Manifest, ident: str, right: str, outcome: str
) -> None:
    kills = killed(some_cases(suite, right, "valid.empty"), vice(ident))
    kill = kills[ident]
    assert right in kill.cases
    assert outcome in kill.outcomes
    assert not kill.survived
    assert not kills["none"].survived


def test_a_vice_that_is_not_caught_survives(suite: Manifest) -> None:
    kill = killed(some_cases(suite, "valid.empty", "data.one-past-end"), vice("no-sentinel"))
    assert kill["no-sentinel"].survived
    assert kill["no-sentinel"].others == ()


def test_to_fail_for_another_reason_is_to_survive(suite: Manifest) -> None:
    """A vice of the sentinel that is said to be one of names, or to end in a crash."""
    one = vice("no-sentinel")
    few = some_cases(suite, "sentinel.zero")
    about_names = Vice("no-sentinel", one.what, one.kind, ("NAME-1",), one.outcomes)
    by_crash = Vice("no-sentinel", one.what, one.kind, one.rules, frozenset({"crash"}))
    for wrong in (about_names, by_crash):
        kill = killed(few, wrong)["no-sentinel"]
        assert kill.survived
        assert kill.others == ("sentinel.zero",)


def test_a_wrong_code_alone_is_caught_only_where_that_is_the_vice(suite: Manifest) -> None:
    few = some_cases(suite, "names.duplicate-far")
    assert killed(few, vice("code-of-names"))["code-of-names"].outcomes == ("wrong-code",)
    default = Vice("code-of-names", "", "whole", ("NAME-6",), vice("no-unique").outcomes)
    assert killed(few, default)["code-of-names"].survived


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    status = cli.main(["conformance", "strength", "--vice", "no-unique", "--seed", "5", "-j", "2"])
    out = capsys.readouterr().out
    assert status == 0
    assert "1 caught, 0 survive (seed 5)" in out
    assert "names.duplicate-storage" in out


def test_the_command_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["conformance", "strength", "--vice", "no-unique", "--json"]) == 0
    right, wrong = map(json.loads, capsys.readouterr().out.splitlines())
    assert (right["vice"], right["survived"], right["cases"]) == ("none", False, [])
    assert (wrong["vice"], wrong["survived"], wrong["rules"]) == ("no-unique", False, ["NAME-6"])
    assert "names.duplicate-far" in wrong["cases"]


def test_the_command_says_who_survives(
    suite: Manifest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = json.loads((CORPUS / "manifest.json").read_text("utf-8"))
    table["cases"] = [row for row in table["cases"] if row["id"] == "valid.two-f32"]
    (tmp_path / "manifest.json").write_text(json.dumps(table))
    (tmp_path / "valid.two-f32.weig").write_bytes((CORPUS / "valid.two-f32.weig").read_bytes())
    words = ["conformance", "strength", "--manifest", str(tmp_path), "--vice", "no-unique"]
    assert cli.main(words) == 1
    out = capsys.readouterr().out
    assert "SURVIVES  no-unique" in out
    assert "0 caught, 1 survive" in out


def test_no_vice_selected(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["conformance", "strength", "--vice", "virtue"]) == 2
    assert "no wrong loader is selected" in capsys.readouterr().err


def test_the_adapter_needs_no_package(suite: Manifest) -> None:
    """Isolated and without site: only the standard library, and no other part of weig."""
    program = (
        f"import sys; sys.argv = ['adapter', 'none']; sys.stdin = open('/dev/null')\n"
        f"import runpy; runpy.run_path({str(FOLDER / 'adapter.py')!r}, run_name='__main__')\n"
        "print(*sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(run.stdout.split())
    assert "loader" in loaded
    assert not {name for name in loaded if name.split(".")[0] in ("weig", "numpy", "ctypes")}


def test_the_suite_and_the_fixtures_mean_the_same_by_a_series(suite: Manifest) -> None:
    of_suite = {case.ident: case.series for case in suite.cases if case.series}
    of_fixtures = {case.id: case.series for case in load() if case.series}
    assert of_suite.keys() == of_fixtures.keys() >= {"sparse.many-overlaps"}
    for ident, series in of_suite.items():
        for mine, theirs in zip(series, of_fixtures[ident], strict=True):
            assert (mine.offset, mine.data()) == (theirs.offset, theirs.data())
    record = of_suite["sparse.many-overlaps"][1].data()
    assert len(record) == 110592 * 48
    assert struct.unpack_from("<6Q", record, 48 * 1000) == (
        5308488 + 8 * 1000, 4, 5308480, 1, 6193280 + 64 * 1000, 1,
    )  # fmt: skip
    names = of_suite["sparse.many-overlaps"][4].data()
    assert names[:24] == b"000name\x00100name\x00200name\x00"
    assert names[-8:] == b"___name\x00"
    assert len({names[at : at + 8] for at in range(0, len(names), 8)}) == 110592
