"""What a file or its surroundings may do to a loader (SPEC.md, section 13), beyond single bytes."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import struct
import threading
from pathlib import Path

import numpy as np
import pytest
from bytes_of import example, one_tensor
from children import in_child, limit_address_space

import weig

REFUSED = 42


def test_a_file_swapped_while_it_is_opened(tmp_path: Path, mode: str, backend: str) -> None:
    """OPEN-3: with a size asked from the path, some of these opens see one file's size, the other's
    bytes."""
    small, large = example(), one_tensor(b"\7" * 9000, 4, (9000,))
    path = tmp_path / "t.weig"
    path.write_bytes(small)
    done = threading.Event()

    def swap() -> None:
        for turn in range(1_000_000):
            if done.is_set():
                return
            other = tmp_path / "other"
            other.write_bytes(large if turn % 2 == 0 else small)
            os.replace(other, path)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(200):
            with weig.open(path, mode, backend) as file:
                assert list(file) in (["b", "w"], ["t"])
                assert file.file_size == len(small if "w" in file else large)
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize(
    ("field", "value"),
    [(8, 2**40), (8, 2**48), (8, 2**60), (64 + 24, 2**32 - 1), (64 + 24, 2**48), (64 + 40, 2**45)],
    ids=lambda value: hex(value),
)
def test_a_count_from_the_file_allocates_nothing(
    tmp_path: Path, mode: str, backend: str, field: int, value: int
) -> None:
    """OPEN-4, under a limit of 64 MiB: tensor_count, shape_count and data_size that lie."""
    data = bytearray(example())
    struct.pack_into("<Q", data, field, value)
    path = tmp_path / "t.weig"
    path.write_bytes(data)
    with pytest.raises(weig.WeigError):  # what is imported late is imported now
        weig.open(path, mode, backend)

    def work() -> None:
        limit_address_space(64 << 20)
        try:
            weig.open(path, mode, backend)
        except weig.WeigError as error:
            os._exit(REFUSED if error.code != "TOO_LARGE" else 43)

    assert in_child(work) == REFUSED


@pytest.mark.parametrize("names", ["tails", "reversed"])
def test_files_made_to_be_slow(tmp_path: Path, backend: str, names: str) -> None:
    """OPEN-5: who compares each with each needs hours, not the limit of 60 s of CPU time."""
    count = 30_000 if backend == "kaitai" else 400_000
    path = tmp_path / "t.weig"
    write_slow_file(path, count, names)

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
        with weig.open(path, backend=backend) as file:
            os._exit(REFUSED if len(file) == count else 43)

    assert in_child(work) == REFUSED


def write_slow_file(path: Path, count: int, names: str) -> None:
    """``count`` tensors in descending order of their data; names that share tails, or descend."""
    if names == "tails":
        # Runs of 1023 letters, each letter the start of a name: all long, all different by the run.
        runs = -(-count // 1000)
        blob = b"".join(f"{i:06}".encode().rjust(1023, b"x") + b"\0" for i in range(runs))
        starts = [1024 * (i // 1000) + i % 1000 for i in range(count)]
    else:
        blob = b"".join(f"{i:08}".encode() + b"\0" for i in range(count))
        starts = [9 * i for i in reversed(range(count))]
    aux = 64 + 48 * count
    data_at = (aux + 8 + len(blob) + 63) // 64 * 64
    table = np.zeros(count, "<u8,<u4,<u4,<u8,<u8,<u8,<u8")
    table["f0"] = np.array(starts) + aux + 8
    table["f1"] = 4
    table["f3"] = aux
    table["f4"] = 1
    table["f5"] = data_at + 64 * np.arange(count)[::-1]
    table["f6"] = 8
    size = data_at + 64 * count + 8
    with path.open("wb") as file:
        file.write(struct.pack("<IIQQQQQQQ", 0x57454947, 1, count, 64, data_at, size, 0, 0, 0))
        file.write(table.tobytes() + struct.pack("<Q", 8) + blob)
        file.truncate(size - 8)
        file.seek(size - 8)
        file.write(struct.pack("<Q", 0x57454947454E4421))


def resident(path: Path, start: int, end: int) -> int:
    """How many pages of a range are in the page cache."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as memory:
        whole = np.frombuffer(memory, np.uint8)
        pages = (len(whole) + mmap.PAGESIZE - 1) // mmap.PAGESIZE
        states = (ctypes.c_ubyte * pages)()
        libc = ctypes.CDLL(None, use_errno=True)
        address = whole.__array_interface__["data"][0]
        size = ctypes.c_size_t(len(whole))
        assert libc.mincore(ctypes.c_void_p(address), size, states) == 0
        del whole
        return sum(state & 1 for state in states[start // mmap.PAGESIZE : end // mmap.PAGESIZE])


def test_opening_touches_no_tensor(tmp_path: Path, backend: str) -> None:
    """OPEN-7: of 64 MiB of data that is not in memory, the middle is not read."""
    size = 64 << 20
    path = tmp_path / "t.weig"
    path.write_bytes(one_tensor(b"\7" * size, 4, (size,)))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if resident(path, 24 << 20, 40 << 20):
        pytest.skip("the file system keeps files in memory")
    with weig.open(path, backend=backend) as file:
        assert file["t"].shape == (size,)
        assert resident(path, 24 << 20, 40 << 20) == 0
        assert file["t"].numpy()[32 << 20] == 7
    assert resident(path, 24 << 20, 40 << 20) > 0


def test_no_address_space_is_too_large(tmp_path: Path, mode: str, backend: str) -> None:
    """OPEN-9: a good file of 1 GiB, and a process that may map only 256 MiB more."""
    path = tmp_path / "t.weig"
    size = 1 << 30
    fields = bytearray(one_tensor(b"", 4, (0,)))
    data_at = struct.unpack_from("<Q", fields, 24)[0]
    struct.pack_into("<Q", fields, 32, data_at + size + 8)  # header.file_size
    struct.pack_into("<Q", fields, 64 + 40, size)  # meta[0].data_size
    struct.pack_into("<Q", fields, 112, size)  # its shape
    with path.open("wb") as file:
        file.write(fields[:data_at])
        file.truncate(data_at + size)
        file.seek(data_at + size)
        file.write(struct.pack("<Q", 0x57454947454E4421))
    with weig.open(path, "mmap", backend) as opened:
        assert opened["t"].nbytes == size

    def work() -> None:
        limit_address_space(256 << 20)
        try:
            weig.open(path, mode, backend)
        except weig.WeigError as error:
            os._exit(REFUSED if error.code == "TOO_LARGE" else 43)

    assert in_child(work) == REFUSED


def test_holes_are_not_copied_and_data_between_them_is(tmp_path: Path, backend: str) -> None:
    """Mode *read* of 8 GiB of holes with a byte every 2 GiB, for who has memory for a few pages."""
    size = 8 << 30
    path = tmp_path / "t.weig"
    fields = bytearray(one_tensor(b"", 4, (0,)))
    data_at = struct.unpack_from("<Q", fields, 24)[0]
    struct.pack_into("<Q", fields, 32, data_at + size + 8)
    struct.pack_into("<Q", fields, 64 + 40, size)
    struct.pack_into("<Q", fields, 112, size)
    places = [0, 2 << 30, (4 << 30) + 5, (6 << 30) - 1, size - 1]
    with path.open("wb") as file:
        file.write(fields[:data_at])
        file.truncate(data_at + size)
        for place in places:
            file.seek(data_at + place)
            file.write(b"\7")
        file.seek(data_at + size)
        file.write(struct.pack("<Q", 0x57454947454E4421))
    if os.stat(path).st_blocks * 512 > 1 << 30:
        pytest.skip("the file system has no holes")
    with path.open("rb") as file:
        if os.lseek(file.fileno(), data_at + 4096, os.SEEK_DATA) < 2 << 30:
            pytest.skip("the file system does not tell where holes are")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with weig.open(path, "read", backend) as opened:
        data = opened["t"].data
        assert [data[place] for place in places] == [7] * 5
        assert data[1] == data[(2 << 30) + 1] == data[size - 2] == 0
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 << 10  # KiB
