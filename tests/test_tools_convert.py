"""`weig convert` between WEIG and safetensors: every dtype, both ways; what is refused, and how.

The expected bytes come from the safetensors library, or are written out here.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import in_child

import weig
from weig.tools import convert_safetensors
from weig.tools.cli import main

safetensors = pytest.importorskip("safetensors")

# dtype of both formats, and two elements of it as little-endian bytes (a NaN with a payload first).
ELEMENTS = {
    "F32": "0100c07f 0000803f",
    "F16": "017e 003c",
    "BF16": "c17f 803f",
    "I8": "80 7f",
    "U8": "ff 01",
    "I32": "00000080 01000000",
    "F64": "010000000000f87f 000000000000f03f",
    "I64": "0000000000000080 0100000000000000",
    "I16": "0080 0100",
    "U16": "ffff 0100",
    "U32": "ffffffff 01000000",
    "U64": "ffffffffffffffff 0100000000000000",
    "BOOL": "00 01",
    "F8_E4M3": "7f 38",
    "F8_E5M2": "7d 3c",
    "F8_E8M0": "ff 7f",
    "C64": "0100c07f0000803f 0000004001000000",
    "F8_E4M3FNUZ": "80 40",
    "F8_E5M2FNUZ": "80 40",
}


def st(entries: dict[str, Any] | str, data: bytes = b"") -> bytes:
    """A safetensors file: the header is given, or made of name -> (dtype, shape, bytes)."""
    if isinstance(entries, str):
        header = entries
    else:
        listed = {}
        for name, (dtype, shape, content) in entries.items():
            listed[name] = {
                "dtype": dtype,
                "shape": shape,
                "data_offsets": [len(data), len(data) + len(content)],
            }
            data += content
        header = json.dumps(listed)
    text = header.encode()
    return len(text).to_bytes(8, "little") + text + data


def held(path: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """What the safetensors library reads."""
    return {
        name: (entry["dtype"], entry["shape"], bytes(entry["data"]))
        for name, entry in safetensors.deserialize(path.read_bytes())
    }


def read(path: Path, **options: Any) -> dict[str, tuple[str, list[int], bytes]]:
    """What weig reads, as canonical bytes."""
    with weig.open(path, **options) as file:
        return {view.name: (view.dtype, list(view.shape), view.tobytes()) for view in file.views()}


def refused(words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Runs a conversion that must be refused: one line, nothing written. Status and line."""
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    status = main(["convert", *words])
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("weig: error: ")
    assert captured.err.count("\n") == 1
    assert captured.err[:-1].isprintable()
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    return status, captured.err


@pytest.fixture
def every_dtype(tmp_path: Path) -> Path:
    path = tmp_path / "all.safetensors"
    entries = {name: (name, [1, 2], bytes.fromhex(text)) for name, text in ELEMENTS.items()}
    entries["scalar"] = ("F32", [], bytes.fromhex("0000803f"))
    entries["empty"] = ("F64", [3, 0], b"")
    path.write_bytes(st(entries))
    return path


@pytest.mark.parametrize("byte_order", ["little", "big"])
def test_every_dtype_both_ways(
    tmp_path: Path, every_dtype: Path, byte_order: str, capsys: pytest.CaptureFixture[str]
) -> None:
    want = held(every_dtype)
    assert {entry[0] for entry in want.values()} == set(ELEMENTS)
    file, back = tmp_path / "all.weig", tmp_path / "back.safetensors"
    assert main(["convert", str(every_dtype), str(file), "--byte-order", byte_order]) == 0
    assert read(file) == want
    assert file.read_bytes()[:4] == {"little": b"GIEW", "big": b"WEIG"}[byte_order]
    assert main(["verify", str(file)]) == 0
    assert main(["convert", str(file), str(back)]) == 0
    assert held(back) == want
    assert capsys.readouterr().err == ""


def test_weig_to_weig_changes_the_byte_order_and_nothing_else(
    tmp_path: Path, every_dtype: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    little, big, again = (tmp_path / f"{name}.weig" for name in ("little", "big", "again"))
    assert main(["convert", str(every_dtype), str(little)]) == 0
    assert main(["convert", str(little), str(big), "--byte-order", "big"]) == 0
    assert main(["convert", str(big), str(again)]) == 0
    assert little.read_bytes() == again.read_bytes()
    assert little.read_bytes() != big.read_bytes()
    assert read(little) == read(big)


def test_safetensors_layout_is_the_librarys(tmp_path: Path) -> None:
    """Of one dtype the library sorts by name and pads the header to 8: the same bytes."""
    from safetensors.numpy import save_file

    arrays = {name: np.full((2, 3), i, np.float32) for i, name in enumerate(["zeta", "é", "b"])}
    save_file(arrays, tmp_path / "want.safetensors")
    weig.save(tmp_path / "x.weig", arrays)
    assert main(["convert", str(tmp_path / "x.weig"), str(tmp_path / "got.safetensors")]) == 0
    want = (tmp_path / "want.safetensors").read_bytes()
    assert (tmp_path / "got.safetensors").read_bytes() == want


def test_a_file_that_the_library_refuses_does_not_appear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    weig.save(tmp_path / "x.weig", {"a": np.zeros(3)})
    monkeypatch.setattr(convert_safetensors, "_packed", lambda tensors: (1).to_bytes(8, "little"))
    words = [str(tmp_path / "x.weig"), str(tmp_path / "x.safetensors")]
    status, line = refused(words, tmp_path, capsys)
    assert (status, "not a good safetensors file" in line) == (1, True)


def test_tensors_are_aligned_in_safetensors(tmp_path: Path) -> None:
    weig.save(tmp_path / "x.weig", {"a": np.zeros(3, np.int8), "b": np.zeros(3), "c": np.zeros(5)})
    assert main(["convert", str(tmp_path / "x.weig"), str(tmp_path / "x.safetensors")]) == 0
    data = (tmp_path / "x.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    starts = {name: 8 + length + entry["data_offsets"][0] for name, entry in header.items()}
    assert {starts["b"] % 8, starts["c"] % 8} == {0}


def test_aliases_stay_in_weig_and_are_told_of_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    array = np.arange(6, dtype=np.float32)
    weig.save(tmp_path / "x.weig", {"a": array, "tied": array.reshape(2, 3), "c": array[:2] + 1})
    assert main(["convert", str(tmp_path / "x.weig"), str(tmp_path / "y.weig")]) == 0
    assert (tmp_path / "x.weig").read_bytes() == (tmp_path / "y.weig").read_bytes()
    assert capsys.readouterr().err == ""
    assert main(["convert", str(tmp_path / "x.weig"), str(tmp_path / "y.safetensors")]) == 0
    assert capsys.readouterr().err == (
        "weig: note: 1 tensors that share bytes were written once each\n"
    )
    assert held(tmp_path / "y.safetensors") == read(tmp_path / "x.weig")


@pytest.mark.parametrize(
    ("metadata", "entries"),
    [
        ("", 0),
        ('"__metadata__":null,', 0),
        ('"__metadata__":{},', 0),
        ('"__metadata__":{"k":"v"},', 1),
    ],
)
def test_metadata(
    tmp_path: Path, metadata: str, entries: int, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "x.safetensors", tmp_path / "x.weig"
    path.write_bytes(
        st(f'{{{metadata}"a":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}}}', b"x")
    )
    if entries:
        status, line = refused([str(path), str(out), "--metadata", "refuse"], tmp_path, capsys)
        assert (status, "metadata" in line) == (1, True)
    assert main(["convert", str(path), str(out), "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["metadata_dropped"] == entries
    assert captured.err.count("weig: note: ") == captured.err.count("\n") == entries
    assert read(out) == {"a": ("U8", [1], b"x")}


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("", "BAD_NAME"),
        ("a\0b", "BAD_NAME"),
        ("\x1b[2J", "BAD_NAME"),
        ("\x7f", "BAD_NAME"),
        ("é" * 512, "BAD_NAME"),
    ],
)
def test_names_that_weig_has_not(
    tmp_path: Path, name: str, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(st({name: ("U8", [1], b"x")}))
    status, line = refused([str(path), str(tmp_path / "x.weig")], tmp_path, capsys)
    assert (status, code in line) == (1, True)


@pytest.mark.parametrize(
    "name", ["../../x", "a/b", "__class__", "\u202e", "\u0085", "é" * 511 + "a"]
)
def test_names_that_look_odd_stay(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out, back = (tmp_path / f"x.{end}" for end in ("safetensors", "weig", "2.safetensors"))
    path.write_bytes(st({name: ("U8", [1], b"x")}))
    assert main(["convert", str(path), str(out)]) == 0
    assert main(["convert", str(out), str(back)]) == 0
    assert list(held(back)) == list(read(out)) == [name]
    assert {entry.name for entry in tmp_path.iterdir()} == {path.name, out.name, back.name}


ENTRY = '"a":{"dtype":"%s","shape":%s,"data_offsets":[%s]}'


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not a good safetensors file"),
        (b"\xff" * 8, "not a good safetensors file"),
        (st("{"), "not a good safetensors file"),
        (st("[]"), "not a good safetensors file"),
        (st("{%s}" % (ENTRY % ("U8", "[2]", "0,1")), b"x"), "not a good safetensors file"),
        (st("{%s}" % (ENTRY % ("U8", "[1]", "0,1")), b"xy"), "not a good safetensors file"),
        (st("{%s}" % (ENTRY % ("U8", "[1]", "0,1")), b""), "not a good safetensors file"),
        (st("{%s}" % (ENTRY % ("U8", "[1]", "1,2")), b"xy"), "not a good safetensors file"),
        (st("{%s}" % (ENTRY % ("U8", "[-1]", "0,1")), b"x"), "not a good safetensors file"),
        (st("{%s,%s}" % ((ENTRY % ("U8", "[1]", "0,1"),) * 2), b"x"), "DUPLICATE_NAME"),
        (st("{%s}" % (ENTRY % ("F4", "[2]", "0,1")), b"x"), "BAD_DTYPE"),
        (st({"a": ("F6_E2M3", [4], b"xyz")}), "BAD_DTYPE"),
        (st({"a": ("BOOL", [2], b"\1\2")}), "BAD_BOOL"),
        (st({"a": ("U8", [1] * 65, b"x")}), "BAD_SHAPE"),
        (st({"a": ("U8", [0, 2**54], b"")}), "NUMBER_TOO_LARGE"),
    ],
)
def test_bad_safetensors(
    tmp_path: Path, data: bytes, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x\x1b[2J.safetensors"
    path.write_bytes(data)
    status, line = refused([str(path), str(tmp_path / "x.weig")], tmp_path, capsys)
    assert (status, words in line) == (1, True), line


def test_a_source_that_is_no_regular_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "fifo.safetensors")
    (tmp_path / "folder.npz").mkdir()
    for name in ("fifo.safetensors", "folder.npz"):
        status, line = refused([str(tmp_path / name), str(tmp_path / "x.weig")], tmp_path, capsys)
        assert (status, "NOT_REGULAR_FILE" in line) == (1, True)
    status, line = refused(
        [str(tmp_path / "none.safetensors"), str(tmp_path / "x.weig")], tmp_path, capsys
    )
    assert (status, ": IO: " in line) == (1, True)


def test_a_bad_weig_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.weig"
    weig.save(path, {"a": np.array([True, True])})
    data = path.read_bytes()
    path.write_bytes(data[:-8])
    status, line = refused([str(path), str(tmp_path / "x.npz")], tmp_path, capsys)
    assert (status, ": TRUNCATED: " in line) == (1, True)
    path.write_bytes(data[:4096] + b"\2" + data[4097:])
    for suffix in ("npz", "safetensors", "2.weig"):
        status, line = refused([str(path), str(tmp_path / f"x.{suffix}")], tmp_path, capsys)
        assert (status, ": BAD_BOOL: " in line) == (1, True)
    path.unlink()
    weig.save(path, {"__metadata__": np.zeros(1)})
    status, line = refused([str(path), str(tmp_path / "x.safetensors")], tmp_path, capsys)
    assert (status, "__metadata__" in line) == (1, True)


def test_usage(tmp_path: Path, every_dtype: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the command line cannot mean is exit 2, also a target that is there."""
    there = tmp_path / "there.weig"
    there.write_bytes(b"precious")
    source = str(every_dtype)
    for words in (
        [source, str(there)],
        [source, str(tmp_path / "x.bin")],
        [source, str(tmp_path / "x.npz")],
        [source, str(tmp_path / "x.safetensors")],
        [str(there), str(tmp_path / "x.npz"), "--byte-order", "big"],
    ):
        status, _ = refused(words, tmp_path, capsys)
        assert status == 2, words
    assert main(["convert", source, str(there), "--force"]) == 0
    assert read(there) == held(every_dtype)
    bare = tmp_path / "bare"
    bare.write_bytes(every_dtype.read_bytes())
    assert main(["convert", "--from", "safetensors", str(bare), str(there), "--force"]) == 0


def test_force_leaves_the_old_file_where_it_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, there = tmp_path / "x.safetensors", tmp_path / "there.weig"
    source.write_bytes(st({"a": ("U8", [1], b"x"), "b": ("BOOL", [1], b"\3")}))
    there.write_bytes(b"precious")
    refused([str(source), str(there), "--force"], tmp_path, capsys)
    assert there.read_bytes() == b"precious"


def test_more_than_the_disk_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A sparse file that declares a pebibyte costs nothing but would fill the disk."""
    size = 1 << 43  # larger files than 16 TiB cannot be made on ext4
    status = os.statvfs(tmp_path)
    if status.f_bavail * status.f_frsize > size:
        pytest.skip("the disk has more than 8 TiB")
    path = tmp_path / "x.safetensors"
    header = st("{%s}" % (ENTRY % ("U8", f"[{size}]", f"0,{size}")))
    path.write_bytes(header)
    try:
        os.truncate(path, len(header) + size)
    except OSError:
        pytest.skip("the file system has no sparse files of 8 TiB")
    status_code, line = refused([str(path), str(tmp_path / "x.weig")], tmp_path, capsys)
    assert (status_code, "8.0 TiB" in line) == (1, True)


def test_memory_does_not_grow_with_the_model(tmp_path: Path) -> None:
    """The peak of the resident set is less than one of the two tensors."""
    path, size = tmp_path / "x.safetensors", 128 << 20
    data = json.dumps(
        {
            "a": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]},
            "b": {"dtype": "F32", "shape": [size // 4], "data_offsets": [size, 2 * size]},
        }
    ).encode()
    path.write_bytes(len(data).to_bytes(8, "little") + data)
    os.truncate(path, 8 + len(data) + 2 * size)
    code = (
        "import sys; from weig.tools.cli import main\n"
        "status = main(sys.argv[1:])\n"
        # ru_maxrss would count what this very process had before it became that one.
        "print(status, *(x.split()[1] for x in open('/proc/self/status') if 'VmHWM' in x))"
    )
    words = [str(path), str(tmp_path / "x.weig"), "--byte-order", "big"]
    done = subprocess.run(
        [sys.executable, "-c", code, "convert", *words], capture_output=True, text=True, check=True
    )
    status, peak = done.stdout.splitlines()[-1].split()
    assert status == "0"
    assert int(peak) << 10 < size  # VmHWM is in KiB


def test_in_a_process(tmp_path: Path, every_dtype: Path) -> None:
    words = [sys.executable, "-m", "weig.tools.cli", "convert", str(every_dtype)]
    done = subprocess.run([*words, str(tmp_path / "x.weig")], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{tmp_path / 'x.weig'}: {len(ELEMENTS) + 2} tensors, ")
    assert done.stdout.count("\n") == 1
    done = subprocess.run([*words, str(tmp_path / "x.weig")], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def _grown(process: int, folder: Path, source: Path) -> bool:
    """Whether a process has a file of some size open in a folder, which may have no name there."""
    for entry in Path(f"/proc/{process}/fd").iterdir():
        try:
            link = os.readlink(entry)
            if link.startswith(f"{folder}/") and link != str(source) and entry.stat().st_size:
                return True
        except OSError:  # closed meanwhile
            continue
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_termination_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    path, size = tmp_path / "x.safetensors", 1 << 30
    header = st("{%s}" % (ENTRY % ("F32", f"[{size // 4}]", f"0,{size}")))
    path.write_bytes(header)
    os.truncate(path, len(header) + size)
    words = ["convert", str(path), str(tmp_path / "x.weig"), "--byte-order", "big"]
    process = subprocess.Popen([sys.executable, "-m", "weig.tools.cli", *words])
    # The new file has its size from the start; then the tensor is written.
    while process.poll() is None and not _grown(process.pid, tmp_path, path):
        time.sleep(0.001)
    process.send_signal(number)
    assert process.wait() == 128 + number
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_doubles_in_the_header_are_found_in_linear_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """200,000 names, the last one twice: hours for who counts each among all."""
    pairs = ",".join(f'"{i}":""' for i in range(200_000))
    text = '{"__metadata__":{' + pairs + ',"199999":""}}'
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text.encode())

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
        os._exit(42 if main(["convert", str(path), str(tmp_path / "x.weig")]) == 1 else 43)

    assert in_child(work) == 42
