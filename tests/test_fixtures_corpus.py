"""The committed corpus is what the cases make today, byte for byte."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from weig.fixtures import manifest, materialize
from weig.fixtures.cases import load

CORPUS = materialize.CORPUS


def test_corpus_is_what_the_cases_make(tmp_path: Path) -> None:
    materialize.write(tmp_path, special=False)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    kept = {path.name: path.read_bytes() for path in CORPUS.iterdir()}
    assert made.keys() == kept.keys()
    assert [name for name in made if made[name] != kept[name]] == []


def test_corpus_is_small() -> None:
    sizes = [path.stat().st_size for path in CORPUS.glob("*.weig")]
    assert max(sizes) <= 65536
    assert sum(sizes) < 4 << 20


def test_manifest_is_plain_json_with_every_case() -> None:
    text = manifest.dumps(manifest.build())
    read = json.loads(text)
    assert read == manifest.build()
    assert [row["id"] for row in read["cases"]] == [case.id for case in load()]
    assert text.isascii()


def test_marks_and_fields_lie_in_the_file() -> None:
    for row in manifest.build()["cases"]:
        for span in row["marks"] + row["fields"]:
            assert 0 <= span["offset"] <= span["offset"] + span["length"] <= row["size"], row["id"]
        assert len(row["fields"]) <= manifest.MAX_FIELDS


def test_special_files_are_what_they_are_called(tmp_path: Path) -> None:
    path = materialize.write(tmp_path, only=lambda case: case.chapter == "special")
    rows = {row["id"]: row for row in json.loads(path.read_text(encoding="utf-8"))["cases"]}
    modes = {
        name: stat.S_IFMT(os.lstat(tmp_path / row["file"]).st_mode)
        for name, row in rows.items()
        if row["file"] and row["kind"] != "missing"
    }
    assert modes == {
        "special.directory": stat.S_IFDIR,
        "special.fifo": stat.S_IFIFO,
        "special.socket": stat.S_IFSOCK,
        "special.symlink-loop": stat.S_IFLNK,
        "special.symlink": stat.S_IFLNK,
        "special.symlink-to-bad": stat.S_IFLNK,
    }
    assert not (tmp_path / rows["special.missing"]["file"]).exists()
    assert (tmp_path / rows["special.symlink"]["file"]).read_bytes()[:4] == b"GIEW"
    with pytest.raises(OSError, match="symbolic links"):
        (tmp_path / rows["special.symlink-loop"]["file"]).open("rb")


def test_sparse_files_take_little_room(tmp_path: Path) -> None:
    path = materialize.write(tmp_path, only=lambda case: case.id == "sparse.cross-4g")
    (row,) = json.loads(path.read_text(encoding="utf-8"))["cases"]
    made = tmp_path / row["file"]
    assert made.stat().st_size == row["size"] > 1 << 32
    with made.open("rb") as file:
        for piece in row["pieces"]:
            file.seek(piece["offset"])
            data = bytes.fromhex(piece["hex"])
            assert file.read(len(data)) == data


def test_a_refused_sparse_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, case: object) -> None:
        raise OSError(27, "File too large")

    monkeypatch.setitem(materialize._MAKERS, "sparse", refuse)
    path = materialize.write(tmp_path, only=lambda case: case.id == "sparse.terabyte")
    (row,) = json.loads(path.read_text(encoding="utf-8"))["cases"]
    assert row["file"] is None
    assert "too large" in row["unavailable"]
