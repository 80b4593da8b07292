"""Time by the adapter's own measure (`weig.conformance.pace`), and a million records."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from weig.conformance import manifest, pace, runner, strength
from weig.conformance.manifest import Manifest
from weig.conformance.outcome import Result, SuiteError
from weig.fixtures import cases
from weig.fixtures.materialize import CORPUS

SMALL, LARGE = 1000, 100_000  # bytes of the toy files: a hundredfold

# Takes some seconds for the small file, and 100 or 10,000 times that for the large one.
SLEEPER = """
import json, os, sys, time
seconds, power = float(sys.argv[1]), int(sys.argv[2])
for line in sys.stdin:
    verb, ident, *rest = line.split()
    answer = {"id": ident, "status": "rejected", "error": "BAD"}
    if verb == "hello":
        answer = {"protocol": 1, "loader": "sleeper", "version": "1", "language": "python"}
        answer |= {"spec": ["1"], "profiles": ["core"]}
    else:
        time.sleep(seconds * (os.path.getsize(rest[0]) / 1000) ** power)
    print(json.dumps(answer), flush=True)
    if "once" in sys.argv and verb != "hello":
        break
"""


def toy(folder: Path, **more: Any) -> Path:
    """A manifest of two bad files, the larger of which has the pace of the smaller."""
    rows = []
    for ident, size in (("small", SMALL), ("large", LARGE)):
        (folder / f"{ident}.toy").write_bytes(bytes(size))
        row = {"id": ident, "file": f"{ident}.toy", "size": size, "expect": "reject"}
        rows.append({**row, "errors": ["BAD"], "profiles": ["core"]})
    rows[1] |= {"pace": "small", **more}
    path = folder / "manifest.json"
    path.write_text(json.dumps({"format": "toy", "suite": "1", "rules": {}, "cases": rows}))
    return path


def ran(suite: Manifest, command: tuple[str, ...], **options: Any) -> Mapping[str, Result]:
    adapter = runner.Adapter("a", command, ())
    done = runner.run(suite, suite.cases, [adapter], runner.Options(**options))
    assert not done.started[0].problem
    return {result.case: result for result in done.results}


@pytest.fixture
def sleeper(tmp_path: Path) -> tuple[str, ...]:
    path = tmp_path / "sleeper.py"
    path.write_text(SLEEPER)
    return (sys.executable, "-I", "-S", str(path))


def test_time_grows_with_the_file_and_has_a_floor_and_a_ceiling() -> None:
    assert pace.allowed(0.0, 100, 10) == pace.FLOOR
    assert pace.allowed(0.01, 100, 10) == pytest.approx(pace.FLOOR + 10)
    assert pace.allowed(1.0, 100, 10) == 60


def test_a_loader_slower_than_the_timeout_passes_in_proportion(
    tmp_path: Path, sleeper: tuple[str, ...]
) -> None:
    found = ran(manifest.read(toy(tmp_path)), (*sleeper, "0.01", "1"), timeout=0.5)
    assert {result.outcome for result in found.values()} == {"pass"}
    assert found["large"].seconds > 0.5


def test_one_that_takes_the_square_of_the_time_hangs(
    tmp_path: Path, sleeper: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "FLOOR", 0.0)
    found = ran(manifest.read(toy(tmp_path)), (*sleeper, "0.002", "2"), timeout=10.0)
    assert [found["small"].outcome, found["large"].outcome] == ["pass", "hang"]
    assert ", and small took 0.00" in found["large"].detail
    # It would take 20 s, and has 2 or a little more: ten times 0.2.
    assert found["large"].seconds < 10


def test_one_request_a_process_is_enough(tmp_path: Path, sleeper: tuple[str, ...]) -> None:
    found = ran(manifest.read(toy(tmp_path)), (*sleeper, "0.001", "1", "once"), isolation="case")
    assert {result.outcome for result in found.values()} == {"pass"}


def test_the_pace_of_no_case(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="large has the pace of tiny"):
        manifest.read(toy(tmp_path, pace="tiny"))


def test_cases_are_measured_by_their_like() -> None:
    known = {case.id: case for case in cases.load()}
    paced = [case for case in known.values() if case.pace]
    assert len(paced) == 5
    for case in paced:
        small = known[str(case.pace)]
        assert small.pace is None
        for key in ("kind", "level", "expect", "errors", "byte_order"):
            assert getattr(case, key) == getattr(small, key), case.id
        assert case.image is not None
        assert small.image is not None
        assert case.image.size >= 50 * small.image.size


@pytest.mark.parametrize("ident", ["endless-names", "allocates-table"])
def test_wrong_loaders_are_caught(ident: str) -> None:
    suite = manifest.read(CORPUS)
    wanted = ("resources.endless-names", "sparse.count-bomb-terabyte")
    chosen = tuple(case for case in suite.cases if case.ident in wanted)
    few = Manifest(suite.path, suite.format, suite.suite, suite.rules, chosen)
    vices = strength.selected(strength.read(), [ident])
    right, wrong = strength.measure(few, vices, strength.options(jobs=1, seed=1))
    assert not right.survived
    assert not wrong.survived


def million(folder: Path) -> Path:
    """`resources.thousand-gaps` and the same with a million tensors: a good file of 120 MB.

    The last byte of its padding is not zero, so that the answer is short: a list of a million
    tensors would be longer than an answer may be.
    """
    rows = []
    for ident, digits in (("thousand", 3), ("million", 6)):
        count = 10**digits
        shape = 64 + 48 * count
        data = -(-(shape + 8 + 8 * count) // 64) * 64
        size = data + 64 * count + 8
        loops = [[1 << 8 * place] for place in range(digits)]
        series = [
            (0, [0x157454947, count, 64, data, size, 0, 0, 0], [], []),
            (64, [shape + 8, 4, shape, 1, data, 1], [count], [[8, 0, 0, 0, 64, 0]]),
            (shape, [1], [], []),
            (shape + 8, [int.from_bytes(b"0000000\0", "little")], [10] * digits, loops),
            (size - 16, [1 << 56, 0x57454947454E4421], [], []),
        ]
        keys = ("offset", "words", "times", "steps")
        row = {"id": ident, "kind": "sparse", "size": size, "expect": "reject", "level": "deep"}
        row |= {"errors": ["NONZERO_PADDING"], "profiles": ["core", "deep"]}
        rows.append({**row, "series": [dict(zip(keys, one, strict=True)) for one in series]})
    rows[1]["pace"] = "thousand"
    path = folder / "manifest.json"
    path.write_text(json.dumps({"format": "weig", "suite": "1", "rules": {}, "cases": rows}))
    return path


@pytest.mark.parametrize("name", ["cpp", "c", "pure"])
def test_a_million_records(name: str, tmp_path: Path) -> None:
    command = (sys.executable, "-m", "weig.tools.cli", "adapter", "--backend", name)
    found = ran(manifest.read(million(tmp_path)), command, strict_codes=True)
    assert {ident: result.outcome for ident, result in found.items()} == {
        "thousand": "pass",
        "million": "pass",
    }, found["million"].detail
