"""`weig bench`: that it measures what it says it measures, not how fast anything is."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

import weig
from weig.backends import available
from weig.tools import bench_child, bench_files
from weig.tools.bench_report import Row, markdown, text
from weig.tools.cli import main

pytest.importorskip("safetensors")

LOADERS = [name for name in available() if name != "kaitai"]
SMALL = ["bench", "--tensors", "20", "--elements", "3", "--runs", "2", "--size", "1"]


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--json", "--dir", str(tmp_path), "--backend", LOADERS[0], "one", "swap"]
    assert main([*SMALL, *words]) == 0
    result = json.loads(capsys.readouterr().out)
    assert {"cpu", "cores", "kernel", "python", "numpy", "safetensors"} <= set(result["machine"])
    assert result["settings"]["tensors"] == 20
    rows = {(row["measurement"], row["loader"]): row for row in result["rows"]}
    loader = f"weig {LOADERS[0]}"
    assert set(rows) == {
        ("open, one array", "safetensors"),
        ("open, one array", loader),
        ("byte swap, 1 MiB", "memcpy"),
        ("byte swap, 1 MiB", loader),
    }
    for (measurement, _), row in rows.items():
        low, high = sorted(row["values"])
        assert 0 < low <= row["median"] <= high
        base = rows[measurement, row["base"]]
        assert row["ratio"] == pytest.approx(row["median"] / base["median"])
    assert rows["open, one array", loader]["gives"] == "view"
    assert rows["open, one array", "safetensors"]["gives"] == "copy"
    assert list(tmp_path.iterdir()) == []


def test_markdown_and_cold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--markdown", "--cold", "--dir", str(tmp_path), "--backend", LOADERS[0], "names"]
    assert main([*SMALL, *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    table = lines[lines.index("") + 1 :]
    assert len(table) == 4
    assert {line.count("|") for line in table} == {7}
    assert all("open, list names, cold" in line for line in table[2:])


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["speed"], ["--runs", "0"], ["--tensors", "x"]):
        with pytest.raises(SystemExit) as stop:
            main(["bench", *words])
        assert stop.value.code == 2
    assert capsys.readouterr().err.count("weig bench: error: ") == 3


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> bench_child.Options:
    folder = tmp_path_factory.mktemp("bench")
    small_weig, small_st = bench_files.small(folder)
    path, st, name = bench_files.many(folder, 7, 5)
    return {
        "small_weig": str(small_weig),
        "small_safetensors": str(small_st),
        "path": str(path),
        "st": str(st),
        "foreign": str(bench_files.foreign(folder, 1 << 20)),
        "tensor": name,
        "size": 16 << 10,
        "target": str(folder / "saved"),
    }


@pytest.mark.parametrize("backend", LOADERS)
def test_both_sides_do_the_same_work(files: bench_child.Options, backend: str) -> None:
    """What is timed gives the same names and numbers, for WEIG and for safetensors."""
    ours = {**files, "backend": backend}
    theirs = {**files, "path": files["st"]}

    def give(name: str, options: bench_child.Options) -> object:
        return bench_child.MEASURES[name](options)()

    want = np.arange(15, 20, dtype=np.float32)  # the middle one of seven
    assert np.array_equal(give("weig-one", ours), want)
    assert np.array_equal(give("st-one", theirs), want)
    left, right = give("weig-all", ours), give("st-all", theirs)
    assert set(left) == set(right)
    assert all(np.array_equal(left[name], right[name]) for name in right)
    assert sorted(give("weig-names", ours)[1]) == sorted(give("st-names", theirs)[1])
    assert give("weig-touch", ours) == give("st-touch", theirs)
    assert give("weig-open", ours).count == 7


@pytest.mark.parametrize("backend", LOADERS)
def test_the_swap_converts(files: bench_child.Options, backend: str) -> None:
    options = {**files, "path": files["foreign"], "tensor": "t", "backend": backend}
    assert len(bench_child.MEASURES["swap"](options)()) == 1 << 20
    with weig.open(files["foreign"]) as file:
        assert file["t"].backing == "copy"
    bench_child.MEASURES["memcpy"](options)()


def test_saving_writes_the_same_bytes(files: bench_child.Options) -> None:
    written = {}
    for name in ("save", "st-save", "raw-save"):
        bench_child.MEASURES[name](files)()
        written[name] = Path(files["target"]).read_bytes()
    want = np.repeat(np.arange(16, dtype="<f4"), 256).tobytes()
    assert written["raw-save"] == want
    assert written["save"][-8 - len(want) : -8] == want
    assert written["st-save"].endswith(want)


def test_large_files_hold_the_same(tmp_path: Path) -> None:
    path, st = bench_files.large(tmp_path, 1 << 20)
    with weig.open(path) as file:
        assert [(view.name, view.nbytes) for view in file.views()] == [("t000", 1 << 20)]
    assert st.read_bytes().endswith(bytes(1 << 20))


def test_the_page_cache_is_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.touch()
    os.truncate(path, 1 << 20)  # a hole that nobody has read has no pages
    with open(path, "rb") as file:
        assert bench_files.resident(file.fileno(), 1 << 20) == 0.0
    path.write_bytes(bytes(1 << 20))
    bench_files.warm(path)
    with open(path, "rb") as file:
        assert bench_files.resident(file.fileno(), 1 << 20) == 1.0
    stayed = bench_files.chill(path)
    if stayed == 1.0:
        pytest.skip("this file system keeps its pages (tmpfs does)")
    assert stayed < 0.5


def test_tables() -> None:
    rows = [
        Row("open", "safetensors", "ms", (2.0, 1.0, 4.0), "copy", 1.0, "safetensors"),
        Row("open", "weig c", "ms", (0.5, 0.25, 123.4), "view", 0.25, "safetensors"),
        Row("rss", "weig c", "KiB", (0.0,), "-", math.nan, "safetensors"),
    ]
    assert list(markdown(rows)) == [
        "| measurement | loader | median | min to max | ratio | gives |",
        "| --- | --- | ---: | ---: | ---: | --- |",
        "| open | safetensors | 2 ms | 1 to 4 | 1 | copy |",
        "| open | weig c | 0.5 ms | 0.25 to 123 | 0.25 x safetensors | view |",
        "| rss | weig c | 0 KiB | 0 to 0 | - | - |",
    ]
    lines = list(text(rows))
    assert lines[3].split() == ["open", "safetensors", "2", "ms", "1", "to", "4", "1", "copy"]
