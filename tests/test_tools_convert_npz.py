"""`weig convert` between WEIG and npz. The expected arrays are numpy's own."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from children import in_child, limit_address_space

import weig
from weig.tools.cli import main

# The dtypes that both formats have.
COMMON = ["f4", "f2", "i1", "u1", "i4", "f8", "i8", "i2", "u2", "u4", "u8", "?", "c8"]


def npy(array: np.ndarray, **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def npz(
    path: Path, members: list[tuple[str, bytes]], compression: int = zipfile.ZIP_STORED
) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name), data, compression)
    return path


def header(text: str, data: bytes = b"") -> bytes:
    """An npy file, version 1.0, with this header."""
    return b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text.encode("latin-1") + data


def refused(path: Path, suffix: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Converts what must be refused: one line, nothing written. Status and line."""
    before = sorted(path.parent.iterdir())
    status = main(["convert", str(path), str(path.with_suffix(suffix))])
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("weig: error: ")
    assert captured.err.count("\n") == 1
    assert captured.err[:-1].isprintable()
    assert sorted(path.parent.iterdir()) == before
    return status, captured.err


def arrays() -> dict[str, np.ndarray]:
    """Each common dtype with bytes that are no numbers in particular (a BOOL has 0 and 1)."""
    result = {}
    for code in COMMON:
        dtype = np.dtype(code)
        raw = (np.arange(6 * dtype.itemsize) * 37 % (2 if code == "?" else 251)).astype(np.uint8)
        result[f"t.{code}"] = raw.view(dtype).reshape(2, 3)
    return result


def same(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> bool:
    def facts(arrays: dict[str, np.ndarray]) -> dict[str, tuple[object, ...]]:
        return {
            name: (array.dtype.newbyteorder("="), array.shape, _native(array).tobytes())
            for name, array in arrays.items()
        }

    return facts(left) == facts(right)


def _native(array: np.ndarray) -> np.ndarray:
    return array.astype(array.dtype.newbyteorder("="))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("byte_order", ["little", "big"])
def test_both_ways(tmp_path: Path, save: Any, byte_order: str) -> None:
    want = arrays() | {"scalar": np.array(1.5), "empty": np.zeros((3, 0), np.int8)}
    source, file, back = (tmp_path / name for name in ("x.npz", "x.weig", "y.npz"))
    save(source, **want)
    assert main(["convert", str(source), str(file), "--byte-order", byte_order]) == 0
    with weig.open(file) as opened:
        assert same(opened.arrays(), want)
    assert main(["convert", str(file), str(back)]) == 0
    with np.load(back) as loaded:
        assert same(dict(loaded), want)
    first = back.read_bytes()
    assert main(["convert", str(file), str(back), "--force"]) == 0
    assert back.read_bytes() == first


@pytest.mark.parametrize("layout", ["C", "F"])
@pytest.mark.parametrize("mark", ["<", ">"])
def test_byte_orders_and_fortran(tmp_path: Path, layout: str, mark: str) -> None:
    want = {
        name: np.asarray(array.reshape(3, 1, 2), dtype=array.dtype.newbyteorder(mark), order=layout)
        for name, array in arrays().items()
    }
    np.savez(tmp_path / "x.npz", **want)
    assert main(["convert", str(tmp_path / "x.npz"), str(tmp_path / "x.weig")]) == 0
    with weig.open(tmp_path / "x.weig") as opened:
        assert same(opened.arrays(), want)


def test_a_fortran_array_of_many_pieces(tmp_path: Path) -> None:
    want = np.asfortranarray(np.arange(3 * 700 * 500, dtype=">i4").reshape(3, 700, 500))
    np.savez_compressed(tmp_path / "x.npz", a=want)
    assert main(["convert", str(tmp_path / "x.npz"), str(tmp_path / "x.weig")]) == 0
    with weig.open(tmp_path / "x.weig") as opened:
        assert (opened["a"].numpy() == want).all()


def test_python_2_headers_are_taken(tmp_path: Path) -> None:
    text = "{'descr': '<i2', 'fortran_order': False, 'shape': (2L,), }\n"
    npz(tmp_path / "x.npz", [("a.npy", header(text, b"\1\0\2\0"))])
    assert main(["convert", str(tmp_path / "x.npz"), str(tmp_path / "x.weig")]) == 0
    with weig.open(tmp_path / "x.weig") as opened:
        assert opened["a"].numpy().tolist() == [1, 2]


ONE = npy(np.array([1], np.int8))


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([("a.npy", npy(np.array([1j]))), ("b.npy", ONE)], "BAD_DTYPE"),
        ([("a.npy", npy(np.array(["x"])))], "BAD_DTYPE"),
        ([("a.npy", npy(np.array([None]), allow_pickle=True))], "BAD_DTYPE"),
        ([("a.npy", npy(np.array([b"x"])))], "BAD_DTYPE"),
        ([("a.npy", npy(np.zeros(1, "M8[s]")))], "BAD_DTYPE"),
        ([("a.npy", npy(np.zeros(1, [("x", "f4")])))], "BAD_DTYPE"),
        ([("a.npy", npy(np.zeros(2, ml_dtypes.bfloat16).view("V2")))], "their type is lost"),
        ([("a.npy", npy(np.array([2], np.uint8)).replace(b"|u1", b"|b1"))], "BAD_BOOL"),
        ([("", ONE)], "no .npy file"),
        ([(".npy", ONE)], "BAD_NAME"),
        ([("\x1b[2J.npy", ONE)], "BAD_NAME"),
        ([("a", ONE)], "no .npy file"),
        ([("a/", b"")], "no .npy file"),
        ([("a.npy", b"")], "no good npy file"),
        ([("a.npy", ONE[:40])], "no good npy file"),
        ([("a.npy", ONE[:-1])], "the archive has 0 bytes"),
        ([("a.npy", ONE + b"x")], "the archive has 2 bytes"),
        ([("a.npy", header("(" * 9000))], "no good npy file"),
        ([("a.npy", header("{'descr': '<i1', 'fortran_order': False, 'shape': (-1,-1)}", b"x"))],
         "BAD_SHAPE"),
        ([("a.npy", header("{'descr': '<f4', 'fortran_order': False, 'shape': (0.5,)}"))],
         "no good npy file"),
        ([("a.npy", header("{'descr': '<f8', 'fortran_order': False, 'shape': (2**61,)}"))],
         "no good npy file"),
        ([("a.npy", header(f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({1 << 61},)}}"))],
         "the archive has 0 bytes"),
        ([("a.npy", b"\x93NUMPY\3\0" + ONE[8:])], "no good npy file"),
    ],
)  # fmt: skip
def test_bad_members(
    tmp_path: Path,
    members: list[tuple[str, bytes]],
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, line = refused(npz(tmp_path / "x.npz", members), ".weig", capsys)
    assert (status, words in line) == (1, True), line


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_duplicate_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = npz(tmp_path / "x.npz", [("a.npy", ONE), ("a.npy", ONE)])
    status, line = refused(path, ".weig", capsys)
    assert (status, "DUPLICATE_NAME" in line) == (1, True)


def test_a_nul_in_a_member_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Python's zip module would read `a.npy\\0x` as `a.npy`."""
    path = npz(tmp_path / "x.npz", [("a.npyZx", ONE)])
    path.write_bytes(path.read_bytes().replace(b"a.npyZx", b"a.npy\0x"))
    status, line = refused(path, ".weig", capsys)
    assert (status, "BAD_NAME" in line) == (1, True)


def test_broken_archives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = npz(tmp_path / "x.npz", [("a.npy", npy(np.arange(1000)))], zipfile.ZIP_DEFLATED)
    good = path.read_bytes()
    cuts = [good[:size] for size in (0, 1, 40, len(good) // 2, len(good) - 1)]
    flipped = [bytearray(good) for _ in range(3)]
    flipped[0][60] ^= 0xFF  # the deflate stream
    flipped[1][good.index(b"PK\1\2") + 8] |= 1  # encrypted
    flipped[2][good.index(b"PK\1\2") + 16] ^= 0xFF  # the checksum
    for data in [*cuts, *flipped]:
        path.write_bytes(data)
        status, _ = refused(path, ".weig", capsys)
        assert status == 1


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compressions_that_numpy_does_not_write(
    tmp_path: Path, compression: int, capsys: pytest.CaptureFixture[str]
) -> None:
    path = npz(tmp_path / "x.npz", [("a.npy", ONE)], compression)
    status, line = refused(path, ".weig", capsys)
    assert (status, "compression" in line) == (1, True)


def test_more_is_never_inflated_than_declared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The directory of the archive says 1 byte of data; the stream holds 64 MiB of zeros."""
    small = npy(np.zeros(1, np.int8))
    path = npz(tmp_path / "x.npz", [("a.npy", small + bytes(64 << 20))], zipfile.ZIP_DEFLATED)
    size = len(small) + (64 << 20)
    data = path.read_bytes()
    assert data.count(size.to_bytes(4, "little")) == 2
    path.write_bytes(data.replace(size.to_bytes(4, "little"), len(small).to_bytes(4, "little")))
    status, line = refused(path, ".weig", capsys)
    assert (status, "CRC" in line) == (1, True)


def test_what_npz_cannot_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.weig"
    weig.save(path, {"a": np.zeros(2, ml_dtypes.bfloat16), "b": np.zeros(2)})
    status, line = refused(path, ".npz", capsys)
    assert (status, "BF16" in line) == (1, True)
    weig.save(path, {"a": np.zeros(2), "a.npy": np.ones(2)})
    status, line = refused(path, ".npz", capsys)
    assert (status, "one name" in line) == (1, True)


def test_a_header_that_says_it_is_huge_is_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """500 MB of blanks pack into half a megabyte; under a limit of 64 MiB they cannot be read."""
    length = 500_000_000
    path = tmp_path / "a.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("a.npy", "w", force_zip64=True) as member,
    ):
        member.write(b"\x93NUMPY\2\0" + length.to_bytes(4, "little"))
        for _ in range(50):
            member.write(b" " * (length // 50))

    def work() -> None:
        limit_address_space(64 << 20)
        os._exit(42 if main(["convert", str(path), str(tmp_path / "a.weig")]) == 1 else 43)

    status, line = refused(path, ".weig", capsys)
    assert (status, "500000000" in line) == (1, True)
    assert in_child(work) == 42
