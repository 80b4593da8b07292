"""`weig inspect`: what is printed of good files, and that bad ones end in one line and exit 1."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

import weig
from weig.backends import available
from weig.tools.cli import main

EXAMPLE_SIZE = 272


@pytest.fixture(scope="module")
def examples() -> list[bytes]:
    """The two files of SPEC.md, section 19: little-endian, big-endian."""
    text = resources.files("weig.spec").joinpath("SPEC.md").read_text(encoding="utf-8")
    dumps = re.findall(r"```hex\n(.*?)```", text, re.DOTALL)
    files = [bytes.fromhex("".join(line[4:] for line in dump.splitlines())) for dump in dumps]
    assert [len(file) for file in files] == [EXAMPLE_SIZE] * 2
    return files


@pytest.fixture
def example(tmp_path: Path, examples: list[bytes]) -> Path:
    path = tmp_path / "example.weig"
    path.write_bytes(examples[0])
    return path


def test_table_and_layout(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(example)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{example}: WEIG 1, little-endian, 2 tensors, 272 bytes, flags 0x0"
    assert [line.split() for line in lines[2:5]] == [
        ["name", "dtype", "shape", "bytes", "offset", "alias", "of"],
        ["b", "BF16", "[3]", "6", "192"],
        ["w", "F32", "[2]", "8", "256"],
    ]
    text = "\n".join(lines[6:])
    assert "aux area              160 to 192          32 bytes, 12 of them padding" in text
    assert "data region           192 to 264          72 bytes, 58 of them padding" in text
    assert "largest gap in the data region: 58 bytes at 198" in text
    assert "smallest alignment of a tensor: offset 64, address 64" in text
    assert "canonical: no (data_offset is 192, not 4096)" in text


@pytest.mark.parametrize("order", [0, 1])
def test_json_is_exact(
    tmp_path: Path, examples: list[bytes], order: int, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.weig"
    path.write_bytes(examples[order])
    assert main(["inspect", "--json", str(path)]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["byte_order"] == ("little", "big")[order]
    assert facts["tensors"] == [
        {"name": "b", "dtype": "BF16", "shape": [3], "bytes": 6, "offset": 192, "alias_of": None},
        {"name": "w", "dtype": "F32", "shape": [2], "bytes": 8, "offset": 256, "alias_of": None},
    ]
    used = {region["name"]: region["used"] for region in facts["regions"]}
    assert used == {
        "header": 64,
        "meta table": 96,
        "aux area": 20,
        "data region": 14,
        "sentinel": 8,
    }
    assert (facts["canonical"], facts["bytes"], facts["flags"]) == (False, EXAMPLE_SIZE, 0)


def test_aliases_and_canonical(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    array = np.arange(6, dtype=np.float32)
    tensors = {"tied": array, "w": array.reshape(2, 3), "empty": np.zeros((0, 3)), "z": array + 1}
    path = tmp_path / "x.weig"
    for order, record_order in ((None, True), (["z", "w"], False)):
        weig.save(path, tensors, order=order)
        assert main(["inspect", "--json", str(path)]) == 0
        facts = json.loads(capsys.readouterr().out)
        assert [(t["name"], t["alias_of"]) for t in facts["tensors"]] == [
            ("empty", None),
            ("tied", None),
            ("w", "tied"),
            ("z", None),
        ]
        assert (facts["canonical"], facts["not_canonical"]) == (True, None)
        assert facts["in_record_order"] is record_order
        # Twice 24 bytes: what aliases share is counted once.
        assert {region["name"]: region["used"] for region in facts["regions"]}["data region"] == 48


@pytest.mark.parametrize(
    ("edits", "reason"),
    [
        ({44: 1}, "flags is 0x100000000, not 0"),
        # Both shapes are [2, ...] of the same array: b is [2], 4 bytes.
        ({80: 168, 104: 4}, "meta[0].shape_offset is 168, not 160"),
        # The names "bw" and "w": one is the tail of the other.
        ({177: 0x77, 178: 0, 112: 177}, "meta[1].name_offset is 177, not 179"),
        # The names "z" and "w".
        ({176: 0x7A}, "meta[1] is not in the order of names"),
    ],
)
def test_not_canonical_says_why(
    example: Path, edits: dict[int, int], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = bytearray(example.read_bytes())
    for offset, byte in edits.items():
        data[offset] = byte
    example.write_bytes(data)
    assert main(["inspect", "--json", str(example)]) == 0
    assert json.loads(capsys.readouterr().out)["not_canonical"] == reason


def test_hex_names_every_byte_of_the_table(
    example: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", "--hex", str(example)]) == 0
    text = capsys.readouterr().out
    assert re.search(r"^00000000  47 49 45 57 +header\.magic = 0x57454947$", text, re.MULTILINE)
    assert re.search(r"^00000048  02 00 00 00 +meta\[0\]\.dtype = 2 \(BF16\)$", text, re.MULTILINE)
    assert re.search(r'^000000b2  77 00 +meta\[1\]\.name = "w"$', text, re.MULTILINE)
    assert re.search(r"^000000c0  80 3f 00 40 80 bf +meta\[0\]\.data", text, re.MULTILINE)


def test_hex_is_bounded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.weig"
    weig.save(path, {f"t{i:04}": np.zeros(1 << 12) for i in range(200)})
    assert main(["inspect", "--hex", str(path)]) == 0
    text = capsys.readouterr().out
    assert "meta[32...] = 168 more records" in text
    assert "... 32704 bytes more" in text
    assert len(text.splitlines()) < 600
    assert main(["inspect", "--hex", "-n", "1", "--json", str(path)]) == 0
    fields = json.loads(capsys.readouterr().out)["fields"]
    assert {field["path"].split(".")[0] for field in fields} == {
        "header",
        "meta[0]",
        "meta[1",
        "sentinel",
    }


def test_names_are_escaped_for_people_and_exact_for_machines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.weig"
    name = "a\u202eb\u0085\\"
    weig.save(path, {name: np.zeros(1), "b": np.zeros(1)})
    shown = "a\\u202eb\\x85\\\\"
    assert main(["inspect", "--names", str(path)]) == 0
    assert capsys.readouterr().out == f"{shown}\nb\n"
    assert main(["inspect", "--names", "--json", "-n", "1", str(path)]) == 0
    assert json.loads(capsys.readouterr().out) == [name]
    for words in ([], ["--hex"]):
        assert main(["inspect", *words, str(path)]) == 0
        text = capsys.readouterr().out
        assert shown in text
        assert text.replace("\n", "").isprintable()


def test_a_terminal_that_is_not_unicode(tmp_path: Path) -> None:
    path = tmp_path / "x.weig"
    weig.save(path, {"é": np.zeros(1)})
    words = [sys.executable, "-m", "weig.tools.cli", "inspect", "--names", str(path)]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(words, capture_output=True, env=environment, check=True)
    assert (done.stdout, done.stderr) == (b"\\xe9\n", b"")


@pytest.mark.skipif(not {"c", "cpp"} & {*available()}, reason="no native loader is built")
def test_names_need_no_numpy(example: Path) -> None:
    code = (
        "import sys; from weig.tools.cli import main; status = main(sys.argv[1:]);"
        "print(status, 'numpy' in sys.modules, 'json' in sys.modules)"
    )
    words = [sys.executable, "-c", code, "inspect", "--names", str(example)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == "b\nw\n0 False False\n"


def test_a_bad_file_is_shown_with_its_fault(
    example: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = bytearray(example.read_bytes())
    data[112 + 8] = 99
    example.write_bytes(data)
    for words, mark in (
        ([], r"meta\[1\]\.dtype +99 \(unknown\)   <-- wrong"),
        (["--hex"], r"meta\[1\]\.dtype = 99 \(unknown\)   <-- wrong"),
    ):
        assert main(["inspect", *words, str(example)]) == 1
        captured = capsys.readouterr()
        assert re.search(mark, captured.out)
        assert captured.err.startswith("weig: error: BAD_DTYPE: ")
        assert captured.err.count("\n") == 1
    assert main(["inspect", "--json", str(example)]) == 1
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], error["field"], error["rule"]) == (
        "BAD_DTYPE",
        "meta[1].dtype",
        "DTYPE-1",
    )


@pytest.mark.parametrize("words", [[], ["--hex"]])
@pytest.mark.parametrize("order", [0, 1])
def test_no_file_ends_in_a_traceback(
    tmp_path: Path,
    examples: list[bytes],
    order: int,
    words: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The example cut, and bytes of its header and table changed."""
    good = examples[order]
    files = [good[:size] for size in range(0, len(good), 4)]
    files += [
        good[:i] + value + good[i + 1 :] for i in range(order, 192, 2) for value in (b"\xff", b"\0")
    ]
    path = tmp_path / "x.weig"
    for data in files:
        path.write_bytes(data)
        status = main(["inspect", *words, str(path)])
        captured = capsys.readouterr()
        assert (status, captured.err.count("\n")) in ((0, 0), (1, 1))
        assert status == 1 or len(data) == len(good)


@pytest.mark.parametrize("what", ["missing", "directory", "foreign"])
def test_what_is_no_weig_file(
    tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x\x1b[2J.weig"
    if what == "directory":
        path.mkdir()
    elif what == "foreign":
        path.write_bytes(b"GGUF" + b"\x1b[2J" * 40)
    assert main(["inspect", str(path)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err[:-1].isprintable()


def test_usage(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["-n", "-1"], ["--hex", "--names"], ["--backend", "nope"]):
        with pytest.raises(SystemExit) as stop:
            main(["inspect", *words, str(example)])
        assert stop.value.code == 2
    capsys.readouterr()


def test_an_interrupt_while_a_command_is_imported_is_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib, "import_module", interrupted)
    assert main(["inspect", "x.weig"]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_command_runs_in_any_thread(capsys: pytest.CaptureFixture[str]) -> None:
    """Signal handlers can be set in the main one alone."""
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(main, ["--version"]).result() == 0
    assert capsys.readouterr().out == f"weig {weig.__version__}\n"
