"""The table of faults seen in the field holds what it says; and kinds that no case can show."""

from __future__ import annotations

import ast
import fnmatch
import functools
import io
import json
import os
import re
import tomllib
import zipfile
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bytes_of import example, one_tensor

import weig
from weig.spec.errors import excerpt, quoted
from weig.tools.cli import main

HERE = Path(__file__).parent
CORPUS = Path(str(resources.files("weig.fixtures").joinpath("corpus")))
TABLE: list[dict[str, Any]] = tomllib.loads(
    (HERE / "field-faults.toml").read_text(encoding="utf-8")
)["fault"]
LONG_LINE = 1200  # characters: a path, and some excerpts of 100, each of which may be escaped


# --- the table ---


def test_every_row_is_whole() -> None:
    numbers = [row["id"] for row in TABLE]
    assert numbers == sorted(set(numbers))
    for row in TABLE:
        assert row.keys() <= {"id", "kind", "seen", "cases", "tests", "cannot"}, row
        covered = bool(row.get("cases") or row.get("tests"))
        assert covered != bool(row.get("cannot")), row
        assert re.fullmatch(r"[A-Z].*[^.]\.", row.get("cannot", "A sentence.")), row
        assert re.fullmatch(r"[^A-Z\s].*[^.]", row["kind"]), row
        for report in row.get("seen", []):
            assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+|CVE-\d{4}-\d+|GHSA(-\w{4}){3}", report)


def test_every_case_of_the_table_exists(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", "list"]) == 0
    cases = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert len(cases) > 1000
    for row in TABLE:
        for pattern in row.get("cases", []):
            assert fnmatch.filter(cases, pattern), (row["id"], pattern)


def test_every_test_of_the_table_exists() -> None:
    for row in TABLE:
        for test in row.get("tests", []):
            file, function = test.split("::")
            assert function in functions(file), (row["id"], test)


@functools.cache
def functions(file: str) -> set[str]:
    tree = ast.parse((HERE / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


# --- 30, 32: no check is an assertion, and nothing ends the process ---


def sources(checkout: Path, *suffixes: str) -> Iterator[tuple[Path, str]]:
    for path in sorted((checkout / "backends").rglob("*")):
        if path.suffix in suffixes:
            yield path, path.read_text(encoding="utf-8")


def test_no_loader_asserts_or_aborts(checkout: Path) -> None:
    ends = re.compile(r"\b(assert|abort|exit|_exit|quick_exit|terminate|__builtin_trap)\s*\(")
    native = dict(sources(checkout, ".c", ".h", ".cpp", ".hpp"))
    assert len(native) > 15
    for path, text in native.items():
        assert not ends.search(re.sub(r"static_assert\s*\(", "", text)), path
    for path, text in sources(checkout, ".py"):
        for node in ast.walk(ast.parse(text)):
            assert not isinstance(node, ast.Assert), (path, node.lineno)


# --- 100: no number is read in the order of the host ---


def test_no_struct_format_is_the_hosts(checkout: Path) -> None:
    """A format that is written out starts with its order; others start with a variable one."""
    seen = 0
    for folder in ("backends", "fixtures", "tools"):
        for path in sorted((checkout / folder).glob("**/*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                    continue
                if not (isinstance(node.func.value, ast.Name) and node.func.value.id == "struct"):
                    continue
                seen += 1
                form = node.args[0]
                while isinstance(form, ast.BinOp):
                    form = form.left
                if isinstance(form, ast.JoinedStr):
                    form = form.values[0]
                if isinstance(form, ast.Constant):
                    assert str(form.value)[0] in "<>!", (path, node.lineno)
    assert seen > 8


# --- 36, 45: every way in checks ---

FORMS = {
    "str": str,
    "bytes": os.fsencode,
    "path": Path,
    "relative": os.path.relpath,
    "descriptor": lambda path: f"/dev/fd/{os.open(path, os.O_RDONLY)}",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("case", "code"),
    [("data.one-past-end", "BAD_DATA_RANGE"), ("names.nul-in-data", "BAD_NAME")],
)
def test_every_way_in_refuses_a_bad_file(
    form: str, case: str, code: str, mode: str, backend: str
) -> None:
    path = FORMS[form](str(CORPUS / f"{case}.weig"))
    with pytest.raises(weig.WeigError) as caught:
        weig.open(path, mode, backend)
    assert caught.value.code == code
    if form == "descriptor":
        os.close(int(path.rsplit("/", 1)[1]))


def test_every_command_refuses_a_bad_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = str(CORPUS / "data.one-past-end.weig")
    for words in (
        ["convert", bad, str(tmp_path / "x.npz")],
        ["convert", bad, str(tmp_path / "x.safetensors")],
        ["convert", bad, str(tmp_path / "x.weig")],
        ["verify", "--open-only", bad],
        ["inspect", bad],
    ):
        assert main(words) == 1, words
        captured = capsys.readouterr()
        assert "BAD_DATA_RANGE" in captured.out + captured.err, words
    assert os.listdir(tmp_path) == []


# --- 54: a message is a line ---


def test_excerpts() -> None:
    assert excerpt("a\n" * 50) == "a\\n" * 50
    assert excerpt("a" * 74 + "\n" + "b" * 10**6) == "a" * 74 + "\\n ... " + "b" * 25
    assert quoted(b"\xff" * 101) == "'" + "\\xff" * 75 + " ... " + "\\xff" * 25 + "'"


def test_no_message_is_long(backend: str) -> None:
    """Of the bad files of the corpus, some of which have names of a thousand bytes."""
    manifest = json.loads((CORPUS / "manifest.json").read_text(encoding="utf-8"))
    lengths = {}
    for case in manifest["cases"]:
        if case["kind"] != "file" or case["expect"] == "accept":
            continue
        try:
            with weig.open(CORPUS / case["file"], backend=backend) as file:
                file.verify()
        except weig.WeigError as error:
            lengths[case["id"]] = len(str(error))
    assert len(lengths) > 500
    assert max(lengths.values()) < LONG_LINE, max(lengths, key=lengths.__getitem__)


@pytest.mark.parametrize("name", [b"\xff" * 1023, b"\x01" * 1023, "\u202e".encode() * 340 + b"\n"])
def test_no_message_about_a_name_is_long(tmp_path: Path, backend: str, name: bytes) -> None:
    path = tmp_path / "t.weig"
    path.write_bytes(one_tensor(b"x", 4, (1,), name=name))
    with pytest.raises(weig.WeigError, match="BAD_NAME") as caught:
        weig.open(path, backend=backend)
    assert len(str(caught.value)) < LONG_LINE
    assert str(caught.value).isprintable()


def npy_header(text: str, data: bytes = b"") -> bytes:
    """An npy file of version 1.0 with this header."""
    return b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text.encode("latin-1") + data


ENTRY = "{'descr': %s, 'fortran_order': False, 'shape': %s}"
NAME = "n" * 60_000
BAD_NPZ = {
    "a header that is no Python": ("a", npy_header("(" * 9000)),
    "a header of one long word": ("a", npy_header("x" * 9000)),
    "a type of many fields": ("a", npy_header(ENTRY % ([("f" * 50, "<f4")] * 100, "(1,)"))),
    "a shape of a thousand dimensions": ("a", npy_header(ENTRY % ("'<f4'", "(2,)*1") + " " * 5000)),
    "dimensions below zero": ("a", npy_header(ENTRY % ("'<f4'", (-1,) * 2000))),
    "more dimensions than bytes": ("a", npy_header(ENTRY % ("'<f4'", (1,) * 2000))),
    "numbers of thousands of digits": ("a", npy_header(ENTRY % ("'<f4'", (10**4000,) * 2))),
    "a long name of no array": (NAME, b""),
    "a long name of an object": (NAME, npy_header(ENTRY % ("'|O'", "(1,)"))),
}


@pytest.mark.parametrize("fault", BAD_NPZ)
def test_no_message_about_an_npz_is_long(
    tmp_path: Path, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name, data = BAD_NPZ[fault]
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr(f"{name}.npy", data)
    refused(tmp_path / "x.npz", capsys)


@pytest.mark.parametrize("fault", ["encrypted", "other name", "control byte", "suffix"])
def test_no_message_about_a_member_is_long(
    tmp_path: Path, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the zip module says of a member has all of it in the text, twice at times."""
    raw = io.BytesIO()
    name = NAME + {"suffix": ".txt", "control byte": "\x01.npy"}.get(fault, ".npy")
    with zipfile.ZipFile(raw, "w") as archive:
        archive.writestr(name, npy_header(ENTRY % ("'|u1'", "(1,)"), b"x"))
    data = bytearray(raw.getvalue())
    if fault == "encrypted":
        for flags in (6, data.rindex(b"PK\1\2") + 8):
            data[flags] |= 1
    if fault == "other name":
        data[30:34] = b"mmmm"
    (tmp_path / "x.npz").write_bytes(data)
    line = refused(tmp_path / "x.npz", capsys)
    assert "ZipInfo" not in line
    assert ("encrypted" in line) == (fault == "encrypted")


BAD_SAFETENSORS = {
    "a long name": {NAME: {"dtype": "F4", "shape": [1], "data_offsets": [0, 1]}},
    "a long type": {"a": {"dtype": NAME, "shape": [1], "data_offsets": [0, 1]}},
    "a long shape": {"a": {"dtype": "U8", "shape": [1] * 9000 + [2], "data_offsets": [0, 1]}},
    "a long number": {"a": {"dtype": "U8", "shape": [10**4000], "data_offsets": [0, 1]}},
    "a name past the limit": {NAME: {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}},
    "a control byte": {"\1" + "a" * 1000: {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}},
}


@pytest.mark.parametrize("fault", BAD_SAFETENSORS)
def test_no_message_about_a_safetensors_file_is_long(
    tmp_path: Path, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("safetensors")
    text = json.dumps(BAD_SAFETENSORS[fault]).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"x")
    refused(path, capsys)


def refused(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["convert", str(path), str(path.with_suffix(".weig"))]) == 1
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert line[:-1].isprintable()
    assert len(line) < LONG_LINE
    assert os.listdir(path.parent) == [path.name]
    return line


# --- 59, 111, 113: a name is a key, never an attribute or a path ---


def test_a_name_is_a_key_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    names = ["../escaped", f"{tmp_path}/absolute", "__class__", "close", "path", "a/b", "NUL"]
    weig.save("t.weig", {name: np.full(3, i, np.uint8) for i, name in enumerate(names)})
    with weig.open("t.weig", backend=backend) as file:
        assert type(file).__name__ == "ModelFile"
        assert file.path == "t.weig"
        assert {name: file[name].tobytes() for name in names} == {
            name: bytes([i] * 3) for i, name in enumerate(names)
        }
        assert sorted(file.arrays()) == sorted(names)
        with pytest.raises(AttributeError):
            _ = getattr(file, "a/b")
    assert main(["convert", "t.weig", "t.npz"]) == 0
    assert main(["convert", "t.npz", "back.weig"]) == 0
    assert main(["inspect", "t.weig"]) == 0
    assert os.listdir(tmp_path) == ["work"]
    assert sorted(os.listdir()) == ["back.weig", "t.npz", "t.weig"]
    assert Path("back.weig").read_bytes() == Path("t.weig").read_bytes()


# --- 61, 62, 67: who is told what is wrong can do something about it ---


@pytest.mark.parametrize("cut", [1, 8, 150])
def test_a_file_that_was_cut_is_named_with_both_sizes(
    tmp_path: Path, mode: str, backend: str, cut: int
) -> None:
    path = tmp_path / "a model\n.weig"
    path.write_bytes(example()[:-cut])
    with pytest.raises(weig.WeigError) as caught:
        weig.open(path, mode, backend)
    assert caught.value.code == "TRUNCATED"
    for part in (f"{tmp_path}/a model\\n.weig", str(272 - cut), "272", "file_size"):
        assert part in str(caught.value)


# --- 72, 91: what is not there leaves nothing ---


def test_a_shorter_file_over_a_longer_one(tmp_path: Path, source_of_one: Path) -> None:
    for name in ("t.weig", "t.npz", "t.safetensors"):
        if name == "t.safetensors":
            pytest.importorskip("safetensors")
        path = tmp_path / name
        path.write_bytes(b"\xa5" * 100_000)
        assert main(["convert", "--force", str(source_of_one), str(path)]) == 0
        again = tmp_path / f"again{path.suffix}"
        assert main(["convert", str(source_of_one), str(again)]) == 0
        assert path.read_bytes() == again.read_bytes()
        assert b"\xa5" not in path.read_bytes()


@pytest.fixture
def source_of_one(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "one.weig"
    weig.save(path, {"t": np.ones(5, np.int32)})
    return path


def test_nothing_at_all_is_converted(tmp_path: Path) -> None:
    """No tensors, there and back; and tensors of no bytes."""
    pytest.importorskip("safetensors")
    for kind in ("npz", "safetensors"):
        for i, tensors in enumerate(({}, {"e": np.zeros((0, 3), np.float16)})):
            first = tmp_path / f"{kind}{i}.weig"
            weig.save(first, tensors)
            assert main(["convert", str(first), str(first.with_suffix(f".{kind}"))]) == 0
            back = first.with_suffix(".back.weig")
            assert main(["convert", str(first.with_suffix(f".{kind}")), str(back)]) == 0
            assert back.read_bytes() == first.read_bytes()
