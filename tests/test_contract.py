"""What every loader gives, in both modes and for both byte orders: one contract over all."""

from __future__ import annotations

import gc
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from bytes_of import example, one_tensor, printed_examples

import weig
from weig.backends import BACKENDS, available, dlpack
from weig.spec.dtypes import DTYPES

ORDERS = ("little", "big")


@pytest.fixture(params=ORDERS)
def byte_order(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def path(tmp_path: Path, byte_order: str) -> Path:
    file = tmp_path / "example.weig"
    file.write_bytes(example(byte_order))
    return file


@pytest.fixture
def opened(path: Path, mode: str, backend: str) -> weig.ModelFile:
    return weig.open(path, mode, backend)


def test_all_loaders_are_built() -> None:
    assert available() == BACKENDS


def test_the_printed_example_is_the_file(checkout: Path) -> None:
    assert printed_examples(checkout / "spec/SPEC.md") == [example("little"), example("big")]


def test_facts(opened: weig.ModelFile, byte_order: str, mode: str, backend: str) -> None:
    assert list(opened) == ["b", "w"]
    assert len(opened) == 2
    assert (opened.byte_order, opened.mode, opened.backend) == (byte_order, mode, backend)
    assert opened.file_size == 272
    view = opened["b"]
    assert (view.name, view.dtype, view.shape, view.nbytes, view.offset) == (
        "b",
        "BF16",
        (3,),
        6,
        192,
    )
    assert [v.name for v in opened.views()] == ["b", "w"]
    assert "w" in opened
    assert "x" not in opened
    assert "\ud800" not in opened
    assert 7 not in opened
    assert opened.get("x") is None
    with pytest.raises(weig.WeigError, match="NO_SUCH_TENSOR"):
        opened["x"]


def test_values(opened: weig.ModelFile) -> None:
    b, w = opened["b"], opened["w"]
    assert b.numpy().dtype == ml_dtypes.bfloat16
    assert b.numpy().tolist() == [1.0, 2.0, -1.0]
    assert w.numpy().tolist() == [1.0, -2.0]
    assert np.asarray(w).tolist() == [1.0, -2.0]
    assert np.asarray(b).dtype == ml_dtypes.bfloat16
    assert w.tobytes() == struct.pack("<ff", 1.0, -2.0)
    assert bytes(w.data) == struct.pack("=ff", 1.0, -2.0)
    assert memoryview(w).tolist() == [1.0, -2.0]
    assert memoryview(w).shape == (2,)
    with pytest.raises(BufferError):
        memoryview(b)
    arrays = opened.arrays()
    assert list(arrays) == ["b", "w"]
    assert arrays["b"].dtype == ml_dtypes.bfloat16
    assert arrays["b"].tolist() == [1.0, 2.0, -1.0]
    assert arrays["w"].tolist() == [1.0, -2.0]


def test_everything_is_read_only(opened: weig.ModelFile) -> None:
    view = opened["w"]
    assert view.data.readonly
    assert not view.numpy().flags.writeable
    assert not opened.arrays()["w"].flags.writeable
    assert opened.read(0, 4).readonly
    with pytest.raises(ValueError, match="read-only"):
        view.numpy()[0] = 1
    for array in (view.numpy(), opened.arrays()["w"]):
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True


def test_a_native_tensor_lies_in_the_file_s_memory(opened: weig.ModelFile, byte_order: str) -> None:
    view = opened["w"]
    inside = np.shares_memory(view.numpy(), np.frombuffer(opened.read(0, 272), np.uint8))
    assert inside == (byte_order == sys.byteorder)
    assert view.backing == ("file" if inside else "copy")
    assert opened.mapped_tensor("w").numpy().tolist() == [1.0, -2.0]


def test_read(opened: weig.ModelFile, byte_order: str) -> None:
    raw = example(byte_order)
    assert bytes(opened.read(0, 272)) == raw
    assert bytes(opened.read(176, 4)) == b"b\0w\0"
    assert bytes(opened.read(272, 0)) == b""
    for offset, size in (
        (273, 0),
        (272, 1),
        (0, 273),
        (-1, 1),
        (0, -1),
        (2**64, 1),
        (8, 2**64 - 8),
    ):
        with pytest.raises(weig.WeigError, match="BAD_DATA_RANGE"):
            opened.read(offset, size)


@pytest.mark.parametrize("use", [
    lambda file: file["w"],
    lambda file: list(file),
    lambda file: len(file),
    lambda file: "w" in file,
    lambda file: file.arrays(),
    lambda file: file.views(),
    lambda file: file.read(0, 1),
    lambda file: file.verify(),
    lambda file: file.check_unmodified(),
    lambda file: file.prefetch(),
    lambda file: file.__enter__(),
])  # fmt: skip
def test_closed(opened: weig.ModelFile, use: Callable[[weig.ModelFile], object]) -> None:
    opened.close()
    opened.close()
    assert opened.closed
    with pytest.raises(weig.WeigError, match="CLOSED"):
        use(opened)


def test_what_was_given_out_outlives_the_file(opened: weig.ModelFile) -> None:
    untouched, array, raw = opened["w"], opened["w"].numpy(), opened.read(176, 4)
    arrays = opened.arrays()
    opened.close()
    del opened
    gc.collect()
    # Memory that was unmapped would be taken by these, or fault.
    fill = [bytearray(b"\xa5") * 4096 for _ in range(64)]
    assert array.tolist() == [1.0, -2.0]
    assert untouched.numpy().tolist() == [1.0, -2.0]
    assert arrays["w"].tolist() == [1.0, -2.0]
    assert bytes(raw) == b"b\0w\0"
    assert len(fill) == 64


def test_descriptors_are_given_back(path: Path, mode: str, backend: str) -> None:
    def count() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    weig.open(path, mode, backend).close()
    before = count()
    for _ in range(20):
        with weig.open(path, mode, backend) as file:
            assert file["w"].numpy()[0] == 1.0
        weig.open(path, mode, backend)
    assert count() == before


def test_modified(path: Path, opened: weig.ModelFile) -> None:
    opened.check_unmodified()
    status = os.stat(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    with pytest.raises(weig.WeigError, match="MODIFIED"):
        opened.check_unmodified()


def test_a_replaced_file_is_not_modified(
    path: Path, opened: weig.ModelFile, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"something else")
    os.replace(other, path)
    opened.check_unmodified()  # the opened file still is what it was
    assert opened["w"].numpy().tolist() == [1.0, -2.0]


def test_read_mode_survives_a_cut(path: Path, backend: str) -> None:
    file = weig.open(path, "read", backend)
    path.write_bytes(b"")
    with pytest.raises(weig.WeigError, match="MODIFIED"):
        file.check_unmodified()
    assert file["w"].numpy().tolist() == [1.0, -2.0]
    file.verify()


def test_prefetch(opened: weig.ModelFile) -> None:
    opened.prefetch()
    opened.prefetch(wait=True)
    assert opened["w"].numpy().tolist() == [1.0, -2.0]


def test_verify_says_how_far_it_is(opened: weig.ModelFile) -> None:
    seen: list[tuple[int, int]] = []
    opened.verify(lambda done, total: seen.append((done, total)))
    assert seen
    assert all(0 <= done <= total for done, total in seen)
    assert seen[-1][0] == seen[-1][1]
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_an_exception_in_progress_comes_through(opened: weig.ModelFile) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        opened.verify(stop)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_every_dtype(
    tmp_path: Path, byte_order: str, mode: str, backend: str, dtype: tuple[object, ...]
) -> None:
    code, name, size, unit, numpy_name, is_ml, _ = dtype
    # 15 elements of bytes that are all different, so that any wrong swap shows.
    little = bytes(1 + i % 120 for i in range(15 * size)) if name != "BOOL" else b"\1\0\1" * 5
    stored = little
    if byte_order == "big":
        stored = b"".join(little[i : i + unit][::-1] for i in range(0, len(little), unit))
    path = tmp_path / "t.weig"
    path.write_bytes(one_tensor(stored, code, (3, 5), byte_order))
    with weig.open(path, mode, backend) as file:
        file.verify()
        view = file["t"]
        assert view.dtype == name
        assert view.tobytes() == little
        array = view.numpy()
        assert array.shape == (3, 5)
        assert array.dtype == np.dtype(getattr(ml_dtypes if is_ml else np, numpy_name))
        assert array.tobytes() == little  # these tests run on a little-endian host
        assert file.arrays()["t"].tobytes() == little
        assert file.arrays()["t"].dtype == array.dtype


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (3, 0, 2), (1,) * 64, (2**53 - 1, 0)])
def test_shapes(tmp_path: Path, mode: str, backend: str, shape: tuple[int, ...]) -> None:
    count = 0 if 0 in shape else 1
    path = tmp_path / "t.weig"
    path.write_bytes(one_tensor(b"\x07" * count, 4, shape))
    with weig.open(path, mode, backend) as file:
        assert file["t"].shape == shape
        assert file["t"].numpy().shape == shape
        assert file["t"].tobytes() == b"\x07" * count
        assert memoryview(file["t"]).shape == shape


def test_dlpack(opened: weig.ModelFile) -> None:
    array = np.from_dlpack(opened["w"])
    opened.close()
    assert array.tolist() == [1.0, -2.0]
    assert opened is not None


def test_dlpack_of_other_kinds(opened: weig.ModelFile) -> None:
    view = opened["b"]
    assert view.__dlpack_device__() == (1, 0)
    assert "dltensor_versioned" in repr(view.__dlpack__(max_version=(1, 0)))
    assert '"dltensor"' in repr(view.__dlpack__())
    with pytest.raises(BufferError):
        view.__dlpack__(dl_device=(2, 0))
    with pytest.raises((RuntimeError, BufferError)):  # numpy knows no BF16; the error is its own
        np.from_dlpack(view)
    gc.collect()
    assert not dlpack._alive  # nothing is kept for capsules that nobody took
    copied = np.from_dlpack(opened["w"], copy=True)
    copied[0] = 5
    assert opened["w"].numpy().tolist() == [1.0, -2.0]


@pytest.mark.parametrize("bad", ["\0", "\ud800", "nowhere/x.weig", "", "a" * 300])
def test_a_path_that_cannot_be_opened_is_io(
    tmp_path: Path, mode: str, backend: str, bad: str
) -> None:
    with pytest.raises(weig.WeigError) as caught:
        weig.open(str(tmp_path / bad) if bad else "", mode, backend)
    assert caught.value.code == "IO"


def test_a_path_that_is_not_utf8(tmp_path: Path, mode: str, backend: str) -> None:
    path = os.fsencode(tmp_path) + b"/\xff.weig"
    with open(path, "wb") as file:
        file.write(example())
    assert list(weig.open(path, mode, backend)) == ["b", "w"]


def test_a_fifo_does_not_hang(tmp_path: Path, mode: str, backend: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(weig.WeigError, match="NOT_REGULAR_FILE"):
        weig.open(tmp_path / "pipe", mode, backend)


def test_errors_are_escaped(tmp_path: Path, mode: str, backend: str) -> None:
    path = tmp_path / "t.weig"
    path.write_bytes(b"\x1b[2J" + bytes(80))
    with pytest.raises(weig.WeigError, match="BAD_MAGIC") as caught:
        weig.open(path, mode, backend)
    assert str(caught.value).isprintable()
    path.write_bytes(one_tensor(b"", 4, (0,), name=b"\x1b[31m"))
    with pytest.raises(weig.WeigError, match="BAD_NAME") as caught:
        weig.open(path, mode, backend)
    assert str(caught.value).isprintable()


def test_the_file_is_not_touched(path: Path, mode: str, backend: str) -> None:
    before = os.stat(path)
    with weig.open(path, mode, backend) as file:
        file.verify()
        assert file["w"].tobytes()
    after = os.stat(path)
    assert (after.st_size, after.st_mtime_ns, after.st_ctime_ns) == (
        before.st_size,
        before.st_mtime_ns,
        before.st_ctime_ns,
    )


def test_wrong_arguments(path: Path) -> None:
    with pytest.raises(ValueError, match="mode"):
        weig.open(path, "write")
    with pytest.raises(weig.WeigError, match="UNSUPPORTED"):
        weig.open(path, backend="fortran")


def test_the_environment_names_a_backend(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert weig.open(path).backend == BACKENDS[0]
    monkeypatch.setenv("WEIG_BACKEND", "pure")
    assert weig.open(path).backend == "pure"
    assert weig.open(path, backend="kaitai").backend == "kaitai"
