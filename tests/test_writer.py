"""The writer: the canonical layout, byte for byte from SPEC.md; files that appear whole or not."""

from __future__ import annotations

import os
import resource
import signal
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from children import in_child, limit_address_space

import weig
from weig.backends import atomic, writer
from weig.backends.writer import Source
from weig.spec.dtypes import DTYPES

ORDERS = {"little": "<", "big": ">"}


@pytest.mark.parametrize("byte_order", ORDERS)
def test_the_canonical_file(tmp_path: Path, byte_order: str) -> None:
    """Section 16, written out by hand."""
    path = tmp_path / "t.weig"
    tensors = {
        "w": np.array([[1.0, -2.0]], np.float32),
        "b": np.array([3, 4, 5], np.int16),
        "empty": np.zeros((0, 7), np.uint8),
    }
    weig.save(path, tensors, byte_order=byte_order)
    o = ORDERS[byte_order]
    # Records by name: b, empty, w. Shapes at 64 + 3 x 48 = 208: [3], [0, 7], [1, 2]; names at 248.
    expected = struct.pack(o + "IIQQQQQQQ", 0x57454947, 1, 3, 64, 4096, 4176, 0, 0, 0)
    expected += struct.pack(o + "QIIQQQQ", 248, 8, 0, 208, 1, 4096, 6)
    expected += struct.pack(o + "QIIQQQQ", 250, 4, 0, 216, 2, 4160, 0)
    expected += struct.pack(o + "QIIQQQQ", 256, 0, 0, 232, 2, 4160, 8)
    expected += struct.pack(o + "5Q", 3, 0, 7, 1, 2) + b"b\0empty\0w\0"
    expected = expected.ljust(4096, b"\0") + struct.pack(o + "hhh", 3, 4, 5)
    expected = expected.ljust(4160, b"\0") + struct.pack(o + "ff", 1.0, -2.0)
    assert path.read_bytes() == expected + struct.pack(o + "Q", 0x57454947454E4421)


def test_no_tensors(tmp_path: Path) -> None:
    weig.save(tmp_path / "t.weig", {})
    head = struct.pack("<IIQQQQQQQ", 0x57454947, 1, 0, 64, 4096, 4104, 0, 0, 0)
    expected = head.ljust(4096, b"\0") + struct.pack("<Q", 0x57454947454E4421)
    assert (tmp_path / "t.weig").read_bytes() == expected


def test_an_empty_tensor_at_the_end_stays_inside(tmp_path: Path) -> None:
    path = tmp_path / "t.weig"
    weig.save(path, {"a": np.ones(1, np.uint8), "z": np.zeros((0,), np.uint8)})
    assert path.stat().st_size == 4160 + 8
    weig.open(path).verify()


def test_the_same_tensors_give_the_same_bytes(tmp_path: Path) -> None:
    values = {f"t{i}": np.arange(i + 1, dtype=np.float32) for i in range(20)}
    weig.save(tmp_path / "a", values)
    weig.save(tmp_path / "b", dict(reversed(values.items())))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with weig.open(tmp_path / "a") as file:
        weig.save(tmp_path / "c", file)
    assert (tmp_path / "c").read_bytes() == (tmp_path / "a").read_bytes()


@pytest.mark.parametrize("byte_order", ORDERS)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_every_dtype_round_trips(tmp_path: Path, byte_order: str, dtype: Any, backend: str) -> None:
    raw = bytes(range(1, 1 + 6 * dtype.size)) if dtype.name != "BOOL" else b"\0\1\0\1\1\0"
    module = ml_dtypes if dtype.ml else np
    array = np.frombuffer(raw, np.dtype(getattr(module, dtype.numpy))).reshape(2, 3)
    path = tmp_path / "t.weig"
    weig.save(
        path, {"t": array, "u": Source(dtype.name, (2, 3), lambda: (raw,))}, byte_order=byte_order
    )
    with weig.open(path, backend=backend) as file:
        file.verify()
        for view in file.values():
            assert (view.dtype, view.shape, view.tobytes()) == (dtype.name, (2, 3), raw)


def test_arrays_of_every_layout(tmp_path: Path) -> None:
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    values: dict[str, Any] = {
        "fortran": np.asfortranarray(base),
        "transposed": base.T,
        "strided": base[::2, ::3],
        "reversed": base[::-1],
        "broadcast": np.broadcast_to(np.float32(7), (3, 2)),
        "foreign": base.astype(">f4"),
        "scalar": np.float64(2.5),
        "rank0": np.array(3, np.int8),
    }
    weig.save(tmp_path / "t.weig", values)
    with weig.open(tmp_path / "t.weig") as file:
        for name, value in values.items():
            assert file[name].numpy().tolist() == np.asarray(value).tolist(), name


def test_tied_weights_are_written_once(tmp_path: Path) -> None:
    shared = np.arange(1000, dtype=np.float32)
    path = tmp_path / "t.weig"
    weig.save(
        path, {"a": shared, "b": shared.reshape(10, 100), "c": shared.copy(), "d": shared[:500]}
    )
    with weig.open(path) as file:
        assert file["a"].offset == file["b"].offset
        assert len({file[name].offset for name in "acd"}) == 3
        weig.save(tmp_path / "again", file)
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_one_memory_in_two_byte_orders_is_no_alias(tmp_path: Path) -> None:
    native = np.arange(4, dtype="<u4")
    weig.save(tmp_path / "t.weig", {"a": native, "b": native.view(">u4"), "c": native.view("<i4")})
    with weig.open(tmp_path / "t.weig") as file:
        assert file["a"].numpy().tolist() == [0, 1, 2, 3]
        assert file["b"].numpy().tolist() == [0, 1 << 24, 2 << 24, 3 << 24]
        assert len({view.offset for view in file.values()}) == 3


def test_a_mapping_that_makes_its_arrays_gives_no_aliases(tmp_path: Path) -> None:
    """The memory of one array that is gone can be the next one's."""

    class Lazy(Mapping[str, Any]):
        def __getitem__(self, name: str) -> Any:
            return np.full(1000, int(name), np.int64)

        def __iter__(self) -> Iterator[str]:
            return iter("12345")

        def __len__(self) -> int:
            return 5

    weig.save(tmp_path / "t.weig", Lazy())
    with weig.open(tmp_path / "t.weig") as file:
        assert {name: int(view.numpy()[999]) for name, view in file.items()} == {
            name: int(name) for name in "12345"
        }


def test_the_access_order(tmp_path: Path) -> None:
    values = {name: np.full(3, i, np.uint8) for i, name in enumerate("abc")}
    weig.save(tmp_path / "t.weig", values, order=["c", "a"])
    with weig.open(tmp_path / "t.weig") as file:
        assert list(file) == ["a", "b", "c"]
        assert sorted(file, key=lambda name: file[name].offset) == ["c", "a", "b"]
        assert file["c"].numpy().tolist() == [2, 2, 2]
    for order in (["x"], ["a", "a"]):
        with pytest.raises(ValueError, match="order"):
            weig.save(tmp_path / "u.weig", values, order=order)
    with pytest.raises(ValueError, match="byte_order"):
        weig.save(tmp_path / "u.weig", values, byte_order="middle")
    assert os.listdir(tmp_path) == ["t.weig"]


def test_saving_over_the_file_that_is_mapped(tmp_path: Path, backend: str) -> None:
    path = tmp_path / "t.weig"
    weig.save(path, {"a": np.arange(5000, dtype=np.int32)})
    with weig.open(path, backend=backend) as file:
        weig.save(path, {"b": file["a"], "c": np.zeros(9)}, byte_order="big")
        assert file["a"].numpy().tolist() == list(range(5000))
    with weig.open(path, backend=backend) as file:
        assert file["b"].numpy().tolist() == list(range(5000))


@pytest.mark.parametrize(
    ("tensors", "code"),
    [
        ({"": np.zeros(1)}, "BAD_NAME"),
        ({"a" * 1024: np.zeros(1)}, "BAD_NAME"),
        ({"é" * 512: np.zeros(1)}, "BAD_NAME"),
        ({"a\0b": np.zeros(1)}, "BAD_NAME"),
        ({"a\nb": np.zeros(1)}, "BAD_NAME"),
        ({"\x7f": np.zeros(1)}, "BAD_NAME"),
        ({"\ud800": np.zeros(1)}, "BAD_NAME"),
        ({b"a": np.zeros(1)}, "BAD_NAME"),
        ({"a": np.zeros(1, np.complex128)}, "BAD_DTYPE"),
        ({"a": np.array(["x"])}, "BAD_DTYPE"),
        ({"a": np.array([None])}, "BAD_DTYPE"),
        ({"a": np.zeros(1, "i4,f4")}, "BAD_DTYPE"),
        ({"a": np.zeros(1, "M8[s]")}, "BAD_DTYPE"),
        ({"a": np.zeros(1, ml_dtypes.int4)}, "BAD_DTYPE"),
        ({"a": Source("F4", (2,), lambda: (b"x",))}, "BAD_DTYPE"),
        ({"a": [1, 2]}, "UNSUPPORTED"),
        ({"a": np.ma.array([1, 2], mask=[0, 1])}, "UNSUPPORTED"),
        ({"a": Source("U8", (1,) * 65, lambda: (b"x",))}, "BAD_SHAPE"),
        ({"a": Source("U8", (2**27, 2**26), lambda: ())}, "BAD_SHAPE"),
        ({"a": Source("F64", (2**50, 0, 8), lambda: ())}, "BAD_SHAPE"),
        ({"a": Source("U8", (2**53, 0), lambda: ())}, "NUMBER_TOO_LARGE"),
        ({"a": Source("U8", (-1,), lambda: ())}, "NUMBER_TOO_LARGE"),
        ({"a": Source("U8", (2**53 - 1,), lambda: ())}, "NUMBER_TOO_LARGE"),
        ({"a": Source("BOOL", (3,), lambda: (b"\0\1\2",))}, "BAD_BOOL"),
        ({"a": Source("U8", (2,), lambda: (b"x",))}, "BAD_DATA_SIZE"),
        ({"a": Source("U8", (2,), lambda: (b"xx", b"y"))}, "BAD_DATA_SIZE"),
        ({"a": Source("U8", (2**45,), lambda: ())}, "IO"),  # no disk has room for it
    ],
)
def test_what_no_file_can_hold(tmp_path: Path, tensors: dict[Any, Any], code: str) -> None:
    (tmp_path / "t.weig").write_bytes(b"old")
    with pytest.raises(weig.WeigError) as caught:
        weig.save(tmp_path / "t.weig", tensors)
    assert caught.value.code == code
    assert str(caught.value).isprintable()
    assert os.listdir(tmp_path) == ["t.weig"]
    assert (tmp_path / "t.weig").read_bytes() == b"old"


def test_an_exception_of_a_source_comes_through(tmp_path: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield b"x"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        weig.save(tmp_path / "t.weig", {"a": Source("U8", (2,), broken)})
    assert os.listdir(tmp_path) == []


def test_mode_and_umask(tmp_path: Path) -> None:
    path = tmp_path / "t.weig"
    before = os.umask(0o027)
    try:
        weig.save(path, {})
        assert path.stat().st_mode & 0o777 == 0o640
        path.chmod(0o604)
        weig.save(path, {})
        assert path.stat().st_mode & 0o777 == 0o604
    finally:
        os.umask(before)


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real/t.weig")
    weig.save(tmp_path / "link", {})
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real/t.weig").stat().st_size == 4104


@pytest.mark.parametrize(
    ("target", "code"),
    [("/dev/full", "NOT_REGULAR_FILE"), (".", "NOT_REGULAR_FILE"), ("nowhere/t.weig", "IO")],
)
def test_a_bad_target_is_refused(tmp_path: Path, target: str, code: str) -> None:
    with pytest.raises(weig.WeigError) as caught:
        weig.save(tmp_path / target, {"a": np.zeros(3)})
    assert caught.value.code == code
    assert os.listdir(tmp_path) == []


def test_a_name_of_255_bytes(tmp_path: Path) -> None:
    weig.save(tmp_path / ("n" * 255), {})
    assert os.listdir(tmp_path) == ["n" * 255]
    weig.save(tmp_path / ("\U0001f600" * 60), {})
    assert len(os.listdir(tmp_path)) == 2


def test_a_path_with_a_nul(tmp_path: Path) -> None:
    with pytest.raises(weig.WeigError, match="IO"):
        weig.save(f"{tmp_path}/a\0b", {})


def test_a_limit_of_the_file_size_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "t.weig"
    path.write_bytes(b"old")

    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        try:
            weig.save(path, {"a": np.zeros(100_000, np.uint8)})
        except weig.WeigError as error:
            os._exit(42 if error.code == "IO" else 43)

    assert in_child(work) == 42
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["t.weig"]


STEPS = ("pwrite", "posix_fallocate", "fsync", "replace", "close")


@pytest.mark.parametrize("old", [None, b"old"])
def test_a_kill_at_every_step(tmp_path: Path, old: bytes | None) -> None:
    """The process dies right before and right after each call that touches the disk."""
    values = {f"t{i}": np.full(40, i, np.uint8) for i in range(5)}
    weig.save(tmp_path / "whole", values)
    new = (tmp_path / "whole").read_bytes()
    states = set()
    for stop in range(1, 200):
        folder = tmp_path / str(stop)
        folder.mkdir()
        if old is not None:
            (folder / "t.weig").write_bytes(old)
        status = in_child(lambda stop=stop, folder=folder: killed_at(stop, folder, values))
        path = folder / "t.weig"
        states.add(path.read_bytes() if path.exists() else None)
        if status == 0:
            break
        assert status == -signal.SIGKILL
    else:
        pytest.fail("the save never came to its end")
    assert stop > 20  # 5 tensors, head and sentinel, before and after each
    assert states == {old, new}


def killed_at(stop: int, folder: Path, values: dict[str, Any]) -> None:
    calls = 0

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == stop:
                os.kill(os.getpid(), signal.SIGKILL)
            result = function(*args)
            calls += 1
            if calls == stop:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return step

    for name in STEPS:
        setattr(atomic.os, name, wrap(getattr(os, name)))
    weig.save(folder / "t.weig", values)


def test_memory_does_not_grow_with_the_model(tmp_path: Path) -> None:
    """200 tensors of 4 MiB, each made when its turn comes, under a limit that holds only a few."""

    def work() -> None:
        limit_address_space(64 << 20)
        source = Source("U8", (4 << 20,), lambda: (bytes(4 << 20),))
        weig.save(tmp_path / "t.weig", {f"t{i:03}": source for i in range(200)})

    assert in_child(work) == 0
    assert (tmp_path / "t.weig").stat().st_size > 800 << 20
    (tmp_path / "t.weig").unlink()


def test_progress(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    writer.save(
        str(tmp_path / "t.weig"),
        {"a": np.zeros(10, np.uint8), "b": np.zeros(20, np.uint8)},
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(10, 30), (30, 30)]


def test_a_path_that_no_file_system_has() -> None:
    with pytest.raises(weig.WeigError) as caught:
        weig.save("\ud800", {})
    assert caught.value.code == "IO"
    assert "\\ud800" in str(caught.value)
