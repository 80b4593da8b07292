"""What the C++ loader gives: arrays, memory and its life, deep verification."""

from __future__ import annotations

import gc
import os
import random
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cpp_files import BOOL, F32, HOST, ORDERS, TWO, U8, Made, put, refusal

from weig.backends import _cpp
from weig.spec import dtypes
from weig.spec.errors import WeigError


def map_count(path: str) -> int:
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        return sum(path in line for line in maps)


GIVEN: list[Callable[[object], object]] = [
    lambda opened: opened.buffer(),
    lambda opened: opened.buffer()[10:20],
    lambda opened: opened.arrays(),
    lambda opened: opened.arrays()["a"][1:],
]


@pytest.mark.parametrize("give", GIVEN)
def test_memory_stays_until_the_last_view_is_gone(
    tmp_path: Path, give: Callable[[object], object]
) -> None:
    path = put(tmp_path, TWO.bytes())
    opened = _cpp.open(path, "mmap")
    view = give(opened)
    opened.close()
    del opened
    gc.collect()
    assert map_count(path) == 1
    del view
    gc.collect()
    assert map_count(path) == 0


def test_closed(tmp_path: Path) -> None:
    opened = _cpp.open(put(tmp_path, TWO.bytes()), "mmap")
    opened.close()
    opened.close()
    assert (opened.count, opened.file_size, opened.byte_order) == (2, 272, sys.byteorder)
    calls: list[Callable[[], object]] = [
        opened.buffer, opened.names, opened.records, opened.arrays, opened.check_unmodified,
        lambda: opened.index("a"), lambda: opened.record(0), lambda: opened.verify(None),
        lambda: opened.prefetch(True), lambda: opened.swapped(0, 8, 8),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(WeigError) as caught:
            call()
        assert caught.value.code == "CLOSED"


@pytest.mark.parametrize("mode", ["mmap", "read"])
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_arrays_of_every_dtype(tmp_path: Path, order: str, mode: str) -> None:
    """Each dtype's bits, unit by unit, against struct."""
    made, expected = [], {}
    for d in dtypes.DTYPES:
        units = [((i * 0x9E3779B97F4A7C15) >> 3) % 2 ** (8 * d.unit) for i in range(3, 45)]
        units = units[: len(units) * d.unit // d.size * d.size // d.unit]
        kind = {1: "B", 2: "H", 4: "I", 8: "Q"}[d.unit]
        count = len(units) * d.unit // d.size
        made.append(
            (d.name.encode(), d.code, (count,), struct.pack(f"{order}{len(units)}{kind}", *units))
        )
        expected[d.name] = struct.pack(f"{HOST}{len(units)}{kind}", *units)
    opened = _cpp.open(put(tmp_path, Made(made, order).bytes()), mode)
    arrays = opened.arrays()
    assert list(arrays) == [d.name for d in dtypes.DTYPES]
    for d in dtypes.DTYPES:
        array = arrays[d.name]
        assert array.dtype == d.to_numpy()
        assert array.tobytes() == expected[d.name]
        assert array.flags.c_contiguous
        assert array.flags.aligned
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_aliases_share_memory_in_either_order(tmp_path: Path, order: str) -> None:
    value = b"\1\2\3\4"
    made = Made(
        [(b"a", F32, (1,), value), (b"b", F32, (), b"")], order, meta={(1, 5): 192, (1, 6): 4}
    )
    arrays = _cpp.open(put(tmp_path, made.bytes()), "mmap").arrays()
    assert arrays["a"].ctypes.data == arrays["b"].ctypes.data
    assert arrays["b"].tobytes() == (value if order == HOST else value[::-1])


@pytest.mark.parametrize("unit", [1, 2, 4, 8])
def test_swapped(tmp_path: Path, unit: int) -> None:
    content = Made([(b"a", U8, (4096,), random.Random(1).randbytes(4096))]).bytes()
    opened = _cpp.open(put(tmp_path, content), "mmap")
    for offset, size in ((0, 0), (0, 8), (5, 24), (64, 32), (67, 4000), (len(content), 0)):
        view = opened.swapped(offset, size, unit)
        part = content[offset : offset + size]
        assert bytes(view) == b"".join(part[i : i + unit][::-1] for i in range(0, size, unit))
        assert (view.readonly, view.format, view.ndim) == (True, "B", 1)
    for bad in ((0, 8, 3), (0, 8, 0), (0, 16, 16), (len(content), 8, 1), (2**64 - 1, 8, 1)):
        with pytest.raises(ValueError, match=r"the (range|unit)"):
            opened.swapped(*bad)
    if unit > 1:
        with pytest.raises(ValueError, match="unit"):
            opened.swapped(0, unit + 1, unit)


def test_bad_indices(tmp_path: Path) -> None:
    opened = _cpp.open(put(tmp_path, TWO.bytes()), "mmap")
    for i in (-1, 2, 2**62):
        with pytest.raises(IndexError):
            opened.record(i)


def test_every_byte_of_padding_is_looked_at(tmp_path: Path) -> None:
    content = replace(TWO, gap=5).bytes()
    owned = {*range(160), *range(165, 174), *range(174, 175), *range(175, 185)}
    owned |= {*range(192, 200), *range(256, 259), *range(264, 272)}
    for i in range(160, len(content)):
        changed = bytearray(content)
        changed[i] |= 0x80
        if i in owned:
            continue
        opened = _cpp.open(put(tmp_path, bytes(changed)), "mmap")
        with pytest.raises(WeigError, match=f"byte at {i} ") as caught:
            opened.verify(None)
        assert (caught.value.code, caught.value.rule) == ("NONZERO_PADDING", "PAD-1")
    _cpp.open(put(tmp_path, content), "mmap").verify(None)


def test_every_bool_is_looked_at(tmp_path: Path) -> None:
    for size, bad in ((1, 0), (300, 0), (300, 255), (300, 256), (300, 299)):
        data = bytearray(i % 2 for i in range(size))
        _cpp.open(put(tmp_path, Made([(b"a", BOOL, (size,), bytes(data))]).bytes()), "mmap").verify(
            None
        )
        data[bad] = 2
        opened = _cpp.open(
            put(tmp_path, Made([(b"a", BOOL, (size,), bytes(data))]).bytes()), "mmap"
        )
        with pytest.raises(WeigError) as caught:
            opened.verify(None)
        assert (caught.value.code, caught.value.rule) == ("BAD_BOOL", "BOOL-1")


def sparse_aliases(path: Path, code: int, aliases: int, count: int, order: str = HOST) -> str:
    """Many aliases of one large tensor, which is a hole."""
    size = count * dtypes.BY_CODE[code].size
    made = Made([(b"%d" % i, code, (count,), b"") for i in range(aliases)], order)
    data_at = len(made.bytes()) - 8
    meta = {(i, j): v for i in range(aliases) for j, v in ((5, data_at), (6, size))}
    content = replace(made, meta=meta, header={5: data_at + size + 8}).bytes()
    file = put(path, content[:data_at])
    with open(file, "r+b") as f:
        f.seek(data_at + size)
        f.write(content[data_at:])
    return file


def test_aliases_are_converted_once(tmp_path: Path) -> None:
    other = ">" if HOST == "<" else "<"
    opened = _cpp.open(sparse_aliases(tmp_path, F32, 5000, 10 << 20, other), "mmap")
    start = time.monotonic()
    assert len(opened.arrays()) == 5000
    assert time.monotonic() - start < 10  # 5000 times would take minutes


def test_verification_is_linear_and_tells_how_far_it_is(tmp_path: Path) -> None:
    size = 40 << 20
    opened = _cpp.open(sparse_aliases(tmp_path, BOOL, 5000, size), "mmap")
    seen: list[tuple[int, int]] = []
    start = time.monotonic()
    opened.verify(lambda done, total: seen.append((done, total)))
    assert time.monotonic() - start < 10  # 5000 times would take minutes
    assert {total for _, total in seen} == {opened.file_size}
    done = [d for d, _ in seen]
    assert done == sorted(done)
    assert done[-1] == opened.file_size
    assert len(done) >= 3

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        opened.verify(stop)


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_a_copy_with_holes(tmp_path: Path, order: str) -> None:
    """Data, a hole, data, and a hole up to the sentinel; large enough for pages of its own."""
    hole = 3 << 20
    data = b"abcd" * 2 + bytes(hole) + b"efgh" + bytes(hole)
    content = Made([(b"t", F32, (len(data) // 4,), data)], order).bytes()
    path = put(tmp_path, b"")
    with open(path, "r+b") as file:
        for start in range(0, len(content), 4096):
            if any(content[start : start + 4096]):
                file.seek(start)
                file.write(content[start : start + 4096])
    assert os.stat(path).st_blocks * 512 < hole
    opened = _cpp.open(path, "read")
    assert bytes(opened.buffer()) == content
    expected = np.frombuffer(data, np.dtype(np.uint32).newbyteorder(order))
    np.testing.assert_array_equal(opened.arrays()["t"].view(np.uint32), expected)


@pytest.mark.parametrize("change", ["append", "touch", "cut"])
def test_modified(tmp_path: Path, change: str) -> None:
    path = put(tmp_path, TWO.bytes())
    opened = _cpp.open(path, "read")
    opened.check_unmodified()
    if change == "append":
        with open(path, "ab") as file:
            file.write(b"x")
    elif change == "touch":
        status = os.stat(path)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    else:
        os.truncate(path, 0)
    with pytest.raises(WeigError) as caught:
        opened.check_unmodified()
    assert caught.value.code == "MODIFIED"
    assert bytes(opened.buffer()) == TWO.bytes()
    assert opened.arrays()["b"].tobytes() == b"xyz"


def test_a_replaced_file_is_not_a_modified_one(tmp_path: Path) -> None:
    path = put(tmp_path, TWO.bytes())
    opened = _cpp.open(path, "mmap")
    other = tmp_path / "other"
    other.write_bytes(b"x")
    os.replace(other, path)
    opened.check_unmodified()
    assert bytes(opened.buffer()) == TWO.bytes()


def test_a_number_is_never_trusted_again_from_the_map(tmp_path: Path) -> None:
    path = put(tmp_path, TWO.bytes())
    opened = _cpp.open(path, "mmap")
    with open(path, "r+b") as file:
        file.seek(160)
        file.write(struct.pack(HOST + "Q", 2**40))  # the shape of a
        file.seek(178)
        file.write(b"\xff")  # the name of b
        file.seek(64)
        file.write(struct.pack(HOST + "QIIQQQQ", *[0xFFFF_FFFF] * 7))  # the record of a
    for call in (opened.arrays, opened.records, lambda: opened.record(0), opened.names):
        with pytest.raises(WeigError) as caught:
            call()
        assert caught.value.code == "MODIFIED"


@pytest.mark.parametrize("mode", ["mmap", "read"])
@pytest.mark.parametrize("wait", [True, False])
def test_prefetch(tmp_path: Path, mode: str, wait: bool) -> None:
    opened = _cpp.open(put(tmp_path, TWO.bytes()), mode)
    opened.prefetch(wait)
    assert bytes(opened.buffer()) == TWO.bytes()


def test_prefetch_of_a_file_that_was_cut(tmp_path: Path) -> None:
    path = put(tmp_path, Made([(b"a", U8, (100_000,), bytes(100_000))]).bytes())
    opened = _cpp.open(path, "mmap")
    os.truncate(path, 5000)
    with pytest.raises(WeigError) as caught:
        opened.prefetch(True)
    assert caught.value.code == "TRUNCATED"


def test_no_descriptor_is_lost(tmp_path: Path) -> None:
    path, bad = put(tmp_path, TWO.bytes()), str(tmp_path / "bad")
    Path(bad).write_bytes(replace(TWO, meta={(0, 1): 99}).bytes())
    before = len(os.listdir("/proc/self/fd"))
    for mode in ("mmap", "read"):
        _cpp.open(path, mode).close()
        refusal(bad, mode)
    assert len(os.listdir("/proc/self/fd")) == before
    assert map_count(bad) == 0


def test_import_takes_no_numpy() -> None:
    code = "import sys, weig.backends.cpp.loader as m; print(m.available(), 'numpy' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "True False\n"


def test_numpy_gets_all_facts(tmp_path: Path) -> None:
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    opened = _cpp.open(
        put(tmp_path, Made([(b"a", F32, (2, 3, 4), values.tobytes())]).bytes()), "mmap"
    )
    array = opened.arrays()["a"]
    np.testing.assert_array_equal(array, values)
    assert array.strides == values.strides
