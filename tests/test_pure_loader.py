"""The pure loader by itself: where it says that a file is wrong, and what no small file fills.

It takes records a block, names a window, padding a chunk at a time: here these are small too. What
all loaders have in common is in test_contract.py.
"""

from __future__ import annotations

import errno
import itertools
import mmap
import os
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from cpp_files import F32, MAX, ORDERS, TWO, U8, Made, put

from weig.backends.pure import deep, loader, names, records, source
from weig.spec import layout
from weig.spec.errors import WeigError

BOOL = 12
THREE = Made(
    [(b"a", F32, (2,), bytes(8)), (b"b", U8, (3,), b"xyz"), (b"cd", BOOL, (2, 2), b"\1\0\1\0")],
    gap=5,
)
# THREE: table 64 to 208, a gap of 5, then shapes and names by turns: (213, 221), (223, 231),
# (233, 249); it ends at 252. Data at 256, 320 and 384; sentinel at 392.

SCALARS = Made([(name, U8, (), b"1") for name in (b"a", b"b", b"c")])
# SCALARS: table 64 to 208, names at 208, 210 and 212, one after another.

# The rule, the place and how to break it; of a record the last or the last but one.
REFUSED: list[tuple[str, str | None, Made]] = [
    ("HDR-3", "header.version", replace(THREE, header={1: 2})),
    ("NUM-2", "header.tensor_count", replace(THREE, header={2: MAX + 1})),
    ("NUM-2", "header.meta_offset", replace(THREE, header={3: MAX + 1})),
    ("NUM-2", "header.data_offset", replace(THREE, header={4: MAX + 1})),
    ("NUM-2", "header.file_size", replace(THREE, header={5: MAX + 1})),
    ("HDR-7", "header.flags", replace(THREE, header={6: 1})),
    ("HDR-8", "header.reserved[0]", replace(THREE, header={7: 1})),
    ("HDR-8", "header.reserved[1]", replace(THREE, header={8: 1})),
    ("META-3", "header.tensor_count", replace(THREE, header={2: 5})),
    ("TAIL-1", "sentinel", replace(THREE, tail=b"WEIGEND?")),
    ("NUM-2", "meta[2].name_offset", replace(THREE, meta={(2, 0): MAX + 1})),
    ("NUM-2", "meta[1].shape_offset", replace(THREE, meta={(1, 3): MAX + 1})),
    ("NUM-2", "meta[2].shape_count", replace(THREE, meta={(2, 4): MAX + 1})),
    ("NUM-2", "meta[1].data_offset", replace(THREE, meta={(1, 5): MAX + 1})),
    ("NUM-2", "meta[2].data_size", replace(THREE, meta={(2, 6): MAX + 1})),
    ("META-4", "meta[2].pad", replace(THREE, meta={(2, 2): 1})),
    ("DTYPE-1", "meta[1].dtype", replace(THREE, meta={(1, 1): 19})),
    ("NAME-1", "meta[2].name_offset", replace(THREE, meta={(2, 0): 256})),
    ("NAME-3", "meta[1].name_offset", replace(THREE, meta={(1, 0): 232})),
    ("NAME-4", "meta[2].name_offset", Made([*THREE.records[:2], (b"\xff", U8, (), b"1")])),
    ("NAME-5", "meta[1].name_offset", Made([THREE.records[0], (b"\x7f", U8, (), b"1")])),
    ("NAME-6", "meta[2].name_offset", replace(THREE, meta={(2, 0): 231})),
    ("NAME-6", "meta[2].name_offset", replace(SCALARS, meta={(2, 0): 210})),
    ("SHAPE-1", "meta[2].shape_count", replace(THREE, meta={(2, 4): 65})),
    ("SHAPE-2", "meta[2].shape_offset", replace(THREE, meta={(2, 3): 207})),
    ("SHAPE-2", "meta[1].shape_offset", replace(THREE, meta={(1, 3): 249})),
    ("NUM-2", "meta[1].shape[0]", Made([THREE.records[0], (b"b", U8, (MAX + 1, 0), b"")])),
    ("SHAPE-4", "meta[1].shape[1]", Made([THREE.records[0], (b"b", U8, (2**27, 2**27), b"")])),
    ("SHAPE-5", "meta[2].data_size", replace(THREE, meta={(2, 6): 3})),
    ("DATA-1", "meta[1].data_offset", replace(THREE, meta={(1, 5): 328})),
    ("DATA-2", "meta[2].data_offset", replace(THREE, meta={(2, 5): 192})),
    ("DATA-3", "meta[2].data_offset", replace(THREE, meta={(2, 5): 448})),
    ("DATA-4", "meta[2].data_offset", replace(THREE, meta={(2, 5): 320})),
]


def test_the_layouts_that_it_reads_by() -> None:
    """Offsets are the sums of the sizes before, as the struct module has them."""
    for fields, form, size in (
        (layout.HEADER_FIELDS, layout.HEADER_FORMAT, 64),
        (layout.RECORD_FIELDS, layout.RECORD_FORMAT, 48),
    ):
        assert [at for _, at, _ in fields] == [
            struct.calcsize(f"<{form[:i]}") for i in range(len(form))
        ]
        assert [n for _, _, n in fields] == [struct.calcsize(f"<{letter}") for letter in form]
        assert struct.calcsize(f"<{form}") == size
    assert layout.WRITER_DATA_ALIGN == 4096
    for value in (*range(200), 4095, 4096, 4097):
        for alignment in (8, 64, 4096):
            up = layout.align_up(value, alignment)
            assert up % alignment == 0
            assert 0 <= up - value < alignment


def refusal(path: str) -> WeigError:
    with pytest.raises(WeigError) as caught:
        loader.open(path, "mmap")
    return caught.value


def progress(file: loader.PureFile) -> list[tuple[int, int]]:
    """All that a deep verification tells of its progress."""
    seen: list[tuple[int, int]] = []
    file.verify(lambda done, total: seen.append((done, total)))
    return seen


@pytest.mark.parametrize("block", [1, 2])
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize(("rule", "field", "made"), REFUSED)
def test_a_broken_rule_is_told_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str, field: str, made: Made, order: str,
    block: int,
) -> None:  # fmt: skip
    monkeypatch.setattr(records, "BLOCK", block)
    error = refusal(put(tmp_path, replace(made, order=order).bytes()))
    assert (error.rule, error.field) == (rule, field)


def test_the_last_of_five_in_blocks_of_three(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "BLOCK", 3)
    five = Made([(name, U8, (), b"1") for name in (b"a", b"b", b"c", b"d", b"e")])
    other = Made([(name, U8, (), b"1") for name in (b"a", b"b", b"c", b"\1", b"e")])
    last = Made([(name, U8, (), b"1") for name in (b"a", b"b", b"c", b"d", b"\1")])
    crossed = {(3, 0): 312, (4, 0): 310}  # the names of the last two, at 310 and 312
    for field, made in (
        ("pad", replace(five, meta={(4, 2): 1})),
        ("name_offset", last),
        ("name_offset", replace(other, meta=crossed)),
    ):
        assert refusal(put(tmp_path, made.bytes())).field == f"meta[4].{field}"


@pytest.mark.parametrize(
    ("length", "rule"), [(47, "NAME-2"), (1007, "NAME-2"), (1023, "NAME-2"), (1024, "NAME-3")]
)
def test_a_name_without_an_end(tmp_path: Path, length: int, rule: str) -> None:
    """The aux area ends with the name, without a NUL: too long, or cut off by the data."""
    fill = -(64 + 48 + length) % 64
    made = Made([(b"n" * (length - 1), U8, (), b"1")], gap=fill)
    content = bytearray(made.bytes())
    data_at = 64 + 48 + fill + length
    assert content[data_at - 1] == 0
    assert content[data_at] == ord("1")
    content[data_at - 1] = ord("n")
    error = refusal(put(tmp_path, bytes(content)))
    assert (error.code, error.rule, error.field) == ("BAD_NAME", rule, "meta[0].name_offset")


def test_a_name_that_is_too_long(tmp_path: Path) -> None:
    for length, rule in ((1023, None), (1024, "NAME-3"), (5000, "NAME-3")):
        path = put(tmp_path, Made([(b"n" * length, U8, (), b"1")]).bytes())
        if rule is None:
            assert loader.open(path, "mmap").names() == ["n" * length]
        else:
            assert refusal(path).rule == rule


def test_what_is_too_short_has_no_place(tmp_path: Path) -> None:
    error = refusal(put(tmp_path, TWO.bytes()[:71]))
    assert (error.code, error.rule, error.field) == ("TOO_SMALL", "HDR-1", None)


@pytest.mark.parametrize(("block", "window"), [(1, 4 << 20), (2, 9), (3, 1), (1 << 18, 1)])
def test_blocks_and_windows_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, window: int
) -> None:
    monkeypatch.setattr(records, "BLOCK", block)
    monkeypatch.setattr(names, "WINDOW", window)
    told = {221: "a", 231: "b", 249: "cd", 250: "d"}  # with 48 for the fourth record
    for offsets in itertools.permutations(told):
        # Names lie where the records say, in any order; the one at 250 is the end of another.
        made = Made([*THREE.records, (b"", U8, (), b"7")], gap=5)
        meta = {(i, 0): 48 + offset for i, offset in enumerate(offsets)}
        file = loader.open(put(tmp_path, replace(made, meta=meta).bytes()), "mmap")
        assert file.names() == [told[offset] for offset in offsets]
        assert [record[1:3] for record in file.records()] == [
            (F32, (2,)),
            (U8, (3,)),
            (BOOL, (2, 2)),
            (U8, ()),
        ]
        assert [file.record(i) for i in range(4)] == file.records()
        # 5, 20 (with the NUL of the name that the fourth record does not use), 56, 61, 60, 7; 4.
        assert progress(file)[-1] == (213, 213)


@pytest.mark.parametrize("chunk", [3, 8 << 20])
def test_every_byte_of_padding_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(deep, "CHUNK", chunk)
    content = THREE.bytes()
    owned = {*range(208), *range(213, 252), *range(256, 264), *range(320, 323), *range(384, 388)}
    owned |= set(range(392, 400))
    assert len(content) == 400
    path = put(tmp_path, content)
    opened = loader.open(path, "mmap")
    with open(path, "r+b", buffering=0) as file:
        for i in set(range(400)) - owned:
            os.pwrite(file.fileno(), b"\x80", i)  # the map shows it
            with pytest.raises(WeigError, match=f"byte at {i} is 0x80") as caught:
                opened.verify(None)
            assert (caught.value.code, caught.value.rule) == ("NONZERO_PADDING", "PAD-1")
            os.pwrite(file.fileno(), b"\0", i)
    opened.verify(None)


@pytest.mark.parametrize("chunk", [1, 3, 8 << 20])
def test_every_bool_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(deep, "CHUNK", chunk)
    for i in range(4):
        changed = bytearray(THREE.bytes())
        changed[384 + i] = 2
        with pytest.raises(WeigError, match=rf"element {i} of meta\[2\] is 2,") as caught:
            loader.open(put(tmp_path, bytes(changed)), "read").verify(None)
        assert (caught.value.rule, caught.value.field) == ("BOOL-1", "meta[2]")


def test_a_bool_far_in_is_told_by_its_place(tmp_path: Path) -> None:
    for i in (0, 130, 255, 256, 299):
        data = bytes(i) + b"\3" + bytes(299 - i)
        file = loader.open(put(tmp_path, Made([(b"t", BOOL, (300,), data)]).bytes()), "read")
        with pytest.raises(WeigError, match=rf"element {i} of meta\[0\] is 3,"):
            file.verify(None)


@pytest.mark.parametrize(("chunk", "steps"), [(1, 134), (8 << 20, 6)])
def test_progress_counts_every_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, steps: int
) -> None:
    """Padding of THREE: 5, 4, 56, 61 and 4 bytes; and 4 of BOOL."""
    monkeypatch.setattr(deep, "CHUNK", chunk)
    seen = progress(loader.open(put(tmp_path, THREE.bytes()), "mmap"))
    assert len(seen) == steps
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert {total for _, total in seen} == {134}
    assert seen[-1] == (134, 134)


@pytest.mark.parametrize("chunk", [1, 1000, 8 << 20])
def test_a_file_with_holes_is_copied_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(source, "READ_CHUNK", chunk)
    path = tmp_path / "holes"
    with path.open("wb") as file:
        for place in (4096, 4097, 3 * 4096 + 17, 9 * 4096):
            file.seek(place)
            file.write(bytes([1 + place % 251]) * 50)
        file.truncate(12 * 4096)
    copied = source.Source(str(path)).memory("read")
    assert copied.readonly
    assert bytes(copied) == path.read_bytes()


@pytest.mark.parametrize("size", [0, 1, 100, 4096, 8191])
@pytest.mark.parametrize("hole", [False, True])
def test_a_file_that_is_cut_while_it_is_copied(tmp_path: Path, size: int, hole: bool) -> None:
    path = tmp_path / "cut"
    path.write_bytes(b"" if hole else b"x" * 8192)
    os.truncate(path, 8192)
    opened = source.Source(str(path))
    os.truncate(path, size)
    with pytest.raises(WeigError, match=f"ended at byte {0 if hole else size} ") as caught:
        opened.memory("read")
    assert (caught.value.code, caught.value.rule) == ("TRUNCATED", "OPEN-11")


def test_a_file_that_is_cut_before_it_is_mapped(tmp_path: Path) -> None:
    path = tmp_path / "cut"
    path.write_bytes(b"x" * 8192)
    opened = source.Source(str(path))
    os.truncate(path, 100)
    with pytest.raises(WeigError, match="ended at byte 100 ") as caught:
        opened.memory("mmap")
    assert (caught.value.code, caught.value.rule) == ("TRUNCATED", "OPEN-11")


@pytest.mark.parametrize(("size", "at"), [(0, 0), (10, 10), (64, 8184), (8190, 8190)])
def test_a_file_that_is_cut_before_its_ends_are_read(tmp_path: Path, size: int, at: int) -> None:
    path = tmp_path / "cut"
    path.write_bytes(b"x" * 8192)
    opened = source.Source(str(path))
    os.truncate(path, size)
    with pytest.raises(WeigError, match=f"ended at byte {at} ") as caught:
        opened.ends()
    assert (caught.value.code, caught.value.rule) == ("TRUNCATED", "OPEN-11")


@pytest.mark.parametrize("most", [1, 5, 63])
def test_the_ends_come_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, offset: pread(fd, min(size, most), offset))
    content = bytes(range(200))
    assert source.Source(put(tmp_path, content)).ends() == (content[:64], content[-8:])


def test_a_hole_that_has_grown(tmp_path: Path) -> None:
    path = tmp_path / "hole"
    path.touch()
    os.truncate(path, 8192)
    opened = source.Source(str(path))
    os.truncate(path, 20000)
    assert bytes(opened.memory("read")) == bytes(8192)


def test_a_file_that_is_cut_within_a_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, offset: 0)
    with pytest.raises(WeigError, match="TRUNCATED"):
        source.Source(put(tmp_path, TWO.bytes())).memory("read")


@pytest.mark.parametrize("number", [errno.EPERM, errno.EINVAL])
def test_a_file_system_that_knows_no_holes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: int) -> int:
        raise OSError(number, "no holes")

    monkeypatch.setattr(os, "lseek", refuse)
    assert bytes(source.Source(put(tmp_path, b"abc" * 5000)).memory("read")) == b"abc" * 5000


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (OSError(errno.ENOMEM, "no memory"), "TOO_LARGE"),
        (OSError(errno.EOVERFLOW, "too large"), "TOO_LARGE"),
        (OSError(errno.EACCES, "no right"), "IO"),
        (ValueError("more than there is"), "TRUNCATED"),
        (OverflowError("too large"), "TOO_LARGE"),
    ],
)
def test_why_there_is_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: Exception, code: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr(mmap, "mmap", refuse)
    assert refusal(put(tmp_path, TWO.bytes())).code == code


def test_what_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> bytes:
        raise OSError(errno.EIO, "a bad disk")

    opened = source.Source(put(tmp_path, TWO.bytes()))
    monkeypatch.setattr(os, "pread", refuse)
    with pytest.raises(WeigError, match=r"IO: .*: a bad disk"):
        opened.ends()
    opened.close()
    with pytest.raises(WeigError, match=r"IO: .*: Bad file descriptor"):
        opened.check_unmodified()


def descriptors() -> list[str]:
    return os.listdir("/proc/self/fd")


def test_descriptors_are_its_own(tmp_path: Path) -> None:
    path = put(tmp_path, TWO.bytes())
    before = descriptors()
    with pytest.raises(WeigError, match="IO"):
        source.Source(path + "?")
    opened = source.Source(path)
    assert len(descriptors()) == len(before) + 1
    opened.close()
    opened.close()
    del opened
    assert descriptors() == before


def test_a_descriptor_may_be_0(tmp_path: Path) -> None:
    path = put(tmp_path, TWO.bytes())
    saved = os.dup(0)
    try:
        os.close(0)
        opened = source.Source(path)
        assert opened.fd == 0
        opened.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(0)
    finally:
        os.dup2(saved, 0)
        os.close(saved)


def test_how_a_file_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not to wait for a FIFO, not to take a terminal, not to be left to a child."""
    seen = []
    real = os.open

    def open_and_tell(path: str, flags: int) -> int:
        seen.append(flags)
        return real(path, flags)

    monkeypatch.setattr(os, "open", open_and_tell)
    source.Source(put(tmp_path, TWO.bytes()))
    assert seen == [os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY]


@pytest.mark.parametrize("size", [0, 1, 4096, (2 << 20) - 1, 2 << 20, 5 << 20])
def test_fresh_memory(size: int) -> None:
    before = descriptors()
    memory = source.fresh(size)
    assert descriptors() == before
    assert (len(memory), memory.readonly) == (size, False)
    assert not any(memory)
    memory[:] = b"\1" * size


def test_what_counts_as_a_change(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(TWO.bytes())
    os.utime(path, ns=(10**18, 10**18))
    opened = source.Source(str(path))
    opened.check_unmodified()
    for later in (1, -1):
        os.utime(path, ns=(10**18, 10**18 + later))
        with pytest.raises(WeigError, match="MODIFIED"):
            opened.check_unmodified()
    os.truncate(path, 100)
    os.utime(path, ns=(10**18, 10**18))
    with pytest.raises(WeigError, match="MODIFIED"):
        opened.check_unmodified()


@pytest.mark.parametrize(("place", "code"), [(4, "BAD_VERSION"), (-1, "BAD_SENTINEL")])
def test_the_header_of_the_copy_is_what_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int, code: str
) -> None:
    """A file that is written to after its header was read, and before it was copied."""
    path = put(tmp_path, TWO.bytes())
    memory = source.Source.memory

    def changed(self: source.Source, mode: str) -> memoryview:
        content = bytearray(TWO.bytes())
        content[place] ^= 0xFF
        Path(path).write_bytes(content)
        return memory(self, mode)

    monkeypatch.setattr(source.Source, "memory", changed)
    with pytest.raises(WeigError) as caught:
        loader.open(path, "read")
    assert caught.value.code == code


def test_a_map_shows_what_becomes_of_the_file_and_a_copy_does_not(tmp_path: Path) -> None:
    path = put(tmp_path, TWO.bytes())
    mapped, copied = loader.open(path, "mmap").buffer(), loader.open(path, "read").buffer()
    with open(path, "r+b") as file:
        file.seek(256)
        file.write(b"!")
    assert (bytes(mapped[256:259]), bytes(copied[256:259])) == (b"!yz", b"xyz")


def test_index(tmp_path: Path) -> None:
    file = loader.open(put(tmp_path, THREE.bytes()), "mmap")
    for _ in range(2):
        assert [file.index(name) for name in ("cd", "a", "b", "c")] == [2, 0, 1, -1]


@pytest.mark.parametrize("wait", [False, True])
@pytest.mark.parametrize(("gap", "start"), [(5, 0), (4096, 4096), (9000, 8192)])
def test_what_is_fetched_is_the_data_and_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gap: int, start: int, wait: bool
) -> None:
    asked: list[tuple[int, int, int]] = []

    class Map(mmap.mmap):
        def madvise(self, *what: int) -> None:
            asked.append(what)

    monkeypatch.setattr(mmap, "mmap", Map)
    monkeypatch.setattr(mmap, "PAGESIZE", 4096)
    path = put(tmp_path, replace(THREE, gap=gap).bytes())
    loader.open(path, "mmap").prefetch(wait)
    advice = 22 if wait else mmap.MADV_WILLNEED  # MADV_POPULATE_READ of Linux
    assert asked == [(advice, start, os.stat(path).st_size - start)]


@pytest.mark.parametrize("chunk", [7, 8 << 20])
def test_where_nothing_can_be_fetched_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    class Map(mmap.mmap):
        def madvise(self, *what: int) -> None:
            raise OSError(errno.EINVAL, "an older kernel")

    read: list[int] = []
    pread = os.pread

    def pread_and_tell(fd: int, size: int, offset: int) -> bytes:
        read.extend(range(offset, offset + size))
        return pread(fd, size, offset)

    monkeypatch.setattr(mmap, "mmap", Map)
    monkeypatch.setattr(mmap, "PAGESIZE", 64)
    monkeypatch.setattr(source, "READ_CHUNK", chunk)
    path = put(tmp_path, THREE.bytes())
    file = loader.open(path, "mmap")
    monkeypatch.setattr(os, "pread", pread_and_tell)
    file.prefetch(False)
    assert read == []
    file.prefetch(True)
    assert read == list(range(256, 400))
    os.truncate(path, 300)
    file.prefetch(False)
    with pytest.raises(WeigError, match=r"TRUNCATED: .* ended at byte 300 "):
        file.prefetch(True)


def test_no_memory_for_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(size: int) -> memoryview:
        raise OSError(errno.ENOMEM, "no memory")

    file = loader.open(put(tmp_path, THREE.bytes()), "mmap")
    monkeypatch.setattr(source, "fresh", refuse)
    with pytest.raises(WeigError) as caught:
        file.swapped(256, 8, 4)
    assert (caught.value.code, caught.value.rule) == ("TOO_LARGE", "OPEN-9")
