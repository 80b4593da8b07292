"""The C++ loader by itself: its rules, each broken alone, and the library without Python.

What all loaders have in common is in test_contract.py.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from cpp_files import F32, HOST, MAX, ORDERS, TWO, U8, Made, put, refusal

from weig.backends import _cpp
from weig.spec import dtypes, errors, layout


def test_the_tables_are_those_of_the_specification() -> None:
    assert tuple(errors.CODES) == _cpp.CODES
    assert tuple((d.code, d.name, d.size, d.unit) for d in dtypes.DTYPES) == _cpp.DTYPES
    assert len(_cpp.LAYOUT) == 15
    assert {name: getattr(layout, name) for name in _cpp.LAYOUT} == _cpp.LAYOUT


REFUSED: list[tuple[str, str, str | None, Made]] = [
    ("HDR-3", "BAD_VERSION", "header.version", replace(TWO, header={1: 2})),
    ("NUM-2", "NUMBER_TOO_LARGE", "header.tensor_count", replace(TWO, header={2: MAX + 1})),
    ("NUM-2", "NUMBER_TOO_LARGE", "header.meta_offset", replace(TWO, header={3: 2**63})),
    ("NUM-2", "NUMBER_TOO_LARGE", "header.data_offset", replace(TWO, header={4: 2**64 - 64})),
    ("NUM-2", "NUMBER_TOO_LARGE", "header.file_size", replace(TWO, header={5: 2**64 - 8})),
    ("HDR-4", "BAD_FILE_SIZE", "header.file_size", replace(TWO, header={5: 271})),
    ("HDR-4", "BAD_FILE_SIZE", "header.file_size", replace(TWO, header={5: 64})),
    ("HDR-5", "TRUNCATED", "header.file_size", replace(TWO, header={5: 280})),
    ("HDR-6", "TRAILING_DATA", "header.file_size", replace(TWO, header={5: 264})),
    ("HDR-7", "UNKNOWN_FLAG", "header.flags", replace(TWO, header={6: 1 << 31})),
    ("HDR-8", "BAD_RESERVED", "header.reserved[0]", replace(TWO, header={7: 1})),
    ("HDR-8", "BAD_RESERVED", "header.reserved[1]", replace(TWO, header={8: 1 << 63})),
    ("META-1", "BAD_META_TABLE", "header.meta_offset", replace(TWO, header={3: 56})),
    ("META-2", "BAD_META_TABLE", "header.meta_offset", replace(TWO, header={3: 68})),
    ("META-3", "BAD_META_TABLE", "header.meta_offset", replace(TWO, header={3: 200})),
    ("META-3", "BAD_META_TABLE", "header.tensor_count", replace(TWO, header={2: 3})),
    ("META-3", "BAD_META_TABLE", "header.tensor_count", replace(TWO, header={2: MAX})),
    ("REGION-1", "MISALIGNED", "header.data_offset", replace(TWO, header={4: 184})),
    ("REGION-2", "BAD_DATA_REGION", "header.data_offset", replace(TWO, header={4: 320})),
    ("TAIL-1", "BAD_SENTINEL", "sentinel", replace(TWO, tail=b"WEIGEND?")),
    ("NUM-2", "NUMBER_TOO_LARGE", "meta[1].name_offset", replace(TWO, meta={(1, 0): MAX + 1})),
    ("NUM-2", "NUMBER_TOO_LARGE", "meta[1].shape_offset", replace(TWO, meta={(1, 3): 2**63})),
    ("NUM-2", "NUMBER_TOO_LARGE", "meta[1].shape_count", replace(TWO, meta={(1, 4): 2**61})),
    ("NUM-2", "NUMBER_TOO_LARGE", "meta[1].data_offset", replace(TWO, meta={(1, 5): 2**64 - 64})),
    ("NUM-2", "NUMBER_TOO_LARGE", "meta[1].data_size", replace(TWO, meta={(1, 6): 2**64 - 1})),
    ("META-4", "BAD_RESERVED", "meta[0].pad", replace(TWO, meta={(0, 2): 1})),
    ("DTYPE-1", "BAD_DTYPE", "meta[0].dtype", replace(TWO, meta={(0, 1): 19})),
    ("NAME-1", "BAD_NAME", "meta[0].name_offset", replace(TWO, meta={(0, 0): 159})),
    ("NAME-1", "BAD_NAME", "meta[0].name_offset", replace(TWO, meta={(0, 0): 192})),
    ("NAME-3", "BAD_NAME", "meta[0].name", replace(TWO, meta={(0, 0): 169})),
    ("SHAPE-1", "BAD_SHAPE", "meta[0].shape_count", replace(TWO, meta={(0, 4): 65})),
    ("SHAPE-2", "BAD_SHAPE", "meta[0].shape_offset", replace(TWO, meta={(0, 3): 152})),
    ("SHAPE-2", "BAD_SHAPE", "meta[0].shape_offset", replace(TWO, meta={(0, 3): 185})),
    ("SHAPE-2", "BAD_SHAPE", "meta[0].shape_offset", replace(TWO, meta={(0, 3): 193, (0, 4): 0})),
    ("SHAPE-5", "BAD_DATA_SIZE", "meta[0].data_size", replace(TWO, meta={(0, 6): 12})),
    ("DATA-1", "MISALIGNED", "meta[0].data_offset", replace(TWO, meta={(0, 5): 200})),
    ("DATA-2", "BAD_DATA_RANGE", "meta[0].data_offset", replace(TWO, meta={(0, 5): 128})),
    ("DATA-3", "BAD_DATA_RANGE", "meta[0].data_offset", replace(TWO, meta={(0, 5): 320})),
    ("DATA-4", "OVERLAP", "meta[1].data_offset", replace(TWO, meta={(1, 5): 192})),
]  # fmt: skip
BIG_SHAPES = [
    ("NUM-2", "NUMBER_TOO_LARGE", (0, MAX + 1)),
    ("NUM-2", "NUMBER_TOO_LARGE", (2**64 - 1,)),
    ("SHAPE-4", "BAD_SHAPE", (2**32, 2**32)),  # wraps to 0
    ("SHAPE-4", "BAD_SHAPE", (2**51,)),  # 2^53 bytes
    ("SHAPE-4", "BAD_SHAPE", (0, 2**32, 2**32)),
    ("SHAPE-4", "BAD_SHAPE", (2**32, 2**32, 0)),
]


@pytest.mark.parametrize("mode", ["mmap", "read"])
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize(("rule", "code", "where", "made"), REFUSED)
def test_one_broken_rule(
    tmp_path: Path, rule: str, code: str, where: str, made: Made, order: str, mode: str
) -> None:
    error = refusal(put(tmp_path, replace(made, order=order).bytes()), mode)
    assert (error.rule, error.code, error.field) == (rule, code, where)


@pytest.mark.parametrize(("rule", "code", "shape"), BIG_SHAPES)
def test_shapes_that_are_too_large(
    tmp_path: Path, rule: str, code: str, shape: tuple[int, ...]
) -> None:
    error = refusal(put(tmp_path, Made([(b"a", F32, shape, b"")]).bytes()))
    assert (error.rule, error.code) == (rule, code)


@pytest.mark.parametrize(
    ("content", "code", "hint"),
    [
        (b"", "TOO_SMALL", "0 bytes"),
        (b"\0\0\0", "TOO_SMALL", ""),
        (TWO.bytes()[:71], "TOO_SMALL", ""),
        (b"GIEW" + bytes(68), "BAD_VERSION", ""),
        (b"version https://git-lfs.github.com/spec/v1\n", "BAD_MAGIC", "git-LFS"),
        (b"<!DOCTYPE html><html>", "BAD_MAGIC", "HTML"),
        (b"PK\3\4" + bytes(90), "BAD_MAGIC", "ZIP"),
        (b"GGUF\3\0\0\0", "BAD_MAGIC", "GGUF"),
        (struct.pack("<Q", 40) + b'{"a":{}}', "BAD_MAGIC", "safetensors"),
        (b"\x1f\x8b\x08\0\0", "BAD_MAGIC", "gzip"),
        (b"\x93NUMPY\1\0", "BAD_MAGIC", "npy"),
        (b"\x1b[2J" + bytes(90), "BAD_MAGIC", r"\x1b[2J"),
    ],
)
def test_what_is_no_weig_file(tmp_path: Path, content: bytes, code: str, hint: str) -> None:
    error = refusal(put(tmp_path, content))
    assert error.code == code
    assert hint in error.message


def names_of(path: str) -> list[str]:
    return _cpp.open(path, "mmap").names()


LEADS = (
    *(0x80, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF),
    *range(0xF0, 0x100),
)


@pytest.mark.parametrize("before", [0, 5, 6, 7])
def test_utf8_is_that_of_python(tmp_path: Path, before: int) -> None:
    """Lead and continuation bytes at the edges of the table, across words."""
    edges = (0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0)
    accepted = 0
    for lead in LEADS:
        for rest in ((), (0x80,), *((e, 0x80) for e in edges), *((e, 0xBF, 0x80) for e in edges)):
            name = b"n" * before + bytes([lead, *rest]) + b"z"
            path = put(tmp_path, Made([(name, U8, (), b"x")]).bytes())
            try:
                expected = name.decode() if 0x7F not in rest else None
            except UnicodeDecodeError:
                expected = None
            if expected is not None:
                accepted += 1
                assert names_of(path) == [expected]
            else:
                assert refusal(path).rule in ("NAME-4", "NAME-5")
    assert accepted > 0


@pytest.mark.parametrize("before", [0, 6, 7, 8])
def test_control_bytes(tmp_path: Path, before: int) -> None:
    for byte in range(1, 0x80):
        path = put(tmp_path, Made([(b"n" * before + bytes([byte]) + b"z", U8, (), b"x")]).bytes())
        if 0x20 <= byte < 0x7F:
            assert names_of(path) == ["n" * before + chr(byte) + "z"]
        else:
            assert refusal(path).rule == "NAME-5"


def test_name_lengths(tmp_path: Path) -> None:
    for length in (1, 7, 8, 9, 1022, 1023):
        path = put(tmp_path, Made([(b"x" * length, U8, (), b"x")]).bytes())
        assert names_of(path) == ["x" * length]
    path = put(tmp_path, Made([(b"x" * 1024, U8, (), b"x")]).bytes())
    assert refusal(path).rule == "NAME-3"


def test_a_name_without_nul_at_the_end_of_the_aux_area(tmp_path: Path) -> None:
    for length in range(1, 20):  # header 64, record 48, no shape: the aux area ends at 128
        name = b"x" * length
        out = struct.pack(HOST + "IIQQQQQQQ", layout.MAGIC, 1, 1, 64, 192, 200, 0, 0, 0)
        out += struct.pack(HOST + "QIIQQQQ", 192 - length, U8, 0, 112, 1, 192, 0)
        out += bytes(8)
        out = out.ljust(192 - length, b"\0") + name + struct.pack(HOST + "Q", layout.SENTINEL)
        assert refusal(put(tmp_path, out)).rule == "NAME-2"
        out = out[:191] + b"\0" + out[192:]
        if length > 1:
            assert names_of(put(tmp_path, out)) == ["x" * (length - 1)]


LEGAL = [
    ("may-ignore flags", replace(TWO, header={6: 0xFFFF_FFFF << 32})),
    ("shapes at odd places", replace(TWO, gap=3)),
    ("a scalar whose shape is at the end", replace(TWO, meta={(0, 3): 192, (0, 4): 0, (0, 6): 4})),
    ("empty, beside a zero", Made([(b"a", F32, (2**31, 0, 2**19), b"")])),
    ("rank 64", Made([(b"a", F32, (1,) * 64, bytes(4))])),
    ("data backwards", replace(TWO, meta={(0, 5): 256, (1, 5): 192})),
    ("aliases of other shapes", Made(
        [(b"a", U8, (4,), b"wxyz"), (b"b", U8, (2, 2), b""), (b"c", U8, (1, 4), b"")],
        meta={(i, j): v for i in (1, 2) for j, v in ((5, 256), (6, 4))})),
    ("an empty tensor inside another", Made(
        [(b"a", U8, (100,), bytes(100)), (b"b", U8, (0,), b"")], meta={(1, 5): 256})),
]  # fmt: skip


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("made", [made for _, made in LEGAL], ids=[title for title, _ in LEGAL])
def test_legal(tmp_path: Path, made: Made, order: str) -> None:
    opened = _cpp.open(put(tmp_path, replace(made, order=order).bytes()), "mmap")
    for i, (name, code, shape, _) in enumerate(made.records):
        got = opened.record(i)
        expected = () if made.meta.get((i, 4)) == 0 else shape
        assert got[:3] == (name.decode(), code, expected)
        array = opened.arrays()[name.decode()]
        assert (array.shape, array.nbytes) == (expected, got[4])
    assert opened.records() == [opened.record(i) for i in range(opened.count)]


def test_overlap_by_one_byte_whatever_the_order(tmp_path: Path) -> None:
    made = Made([(b"a", U8, (65,), bytes(65)), (b"b", U8, (1,), b"x"), (b"c", U8, (2,), b"xy")])
    first = 64 + 3 * 48 + 3 * 10
    first = (first + 63) // 64 * 64
    for places in itertools.permutations((0, 64, 128)):
        meta = {(i, 5): first + place for i, place in enumerate(places)}
        path = put(tmp_path, replace(made, meta=meta).bytes())
        if places[0] == 128:  # the long one is the last
            assert _cpp.open(path, "mmap").count == 3
        else:
            assert refusal(path).code == "OVERLAP"


@pytest.mark.parametrize("sort", [True, False])
def test_look_up(tmp_path: Path, sort: bool) -> None:
    names = [f"layer.{i}.weight" for i in range(1000)]
    names.sort() if sort else random.Random(7).shuffle(names)
    made = Made([(name.encode(), U8, (), b"x") for name in names])
    opened = _cpp.open(put(tmp_path, made.bytes()), "mmap")
    assert opened.names() == names
    assert [opened.index(name) for name in names] == list(range(1000))
    absent = ["", "layer", "layer.5.weigh", "layer.5.weight\0", "zzz", "é", "\ud800", "a" * 5000]
    assert [opened.index(name) for name in absent] == [-1] * len(absent)


def test_a_hash_is_not_taken_for_a_name(tmp_path: Path) -> None:
    """Among a million absent names many have the few bits of the hash that the table keeps."""
    made = Made([(b"%d" % i, U8, (), b"x") for i in reversed(range(1000))])
    opened = _cpp.open(put(tmp_path, made.bytes()), "mmap")
    assert all(opened.index(f"x{i}") == -1 for i in range(1_000_000))


@pytest.mark.parametrize("others", [0, 1, 50, 1000])
def test_duplicates_wherever_they_stand(tmp_path: Path, others: int) -> None:
    names = [b"%d" % i for i in range(others)] + [b"twice\xc2\x9b", b"twice\xc2\x9b"]
    for seed in range(3):
        random.Random(seed).shuffle(names)
        error = refusal(put(tmp_path, Made([(name, U8, (), b"x") for name in names]).bytes()))
        assert (error.code, error.rule) == ("DUPLICATE_NAME", "NAME-6")
        assert r"twice\xc2\x9b" in error.message


def test_names_that_share_storage_are_linear(tmp_path: Path) -> None:
    """Each record points into the one long name, so that all but 1023 are duplicates."""
    n = 1023
    made = Made([(b"x" * 1023 if i == 0 else b"y", U8, (), b"") for i in range(n)])
    first = 64 + 48 * n
    meta = {(i, j): v for i in range(n) for j, v in ((0, first + i), (4, 1), (6, 0))}
    zero = first + 1023 + 1 + 2 * (n - 1)  # padding after the names: zeros, so a dimension of 0
    meta |= {(i, 3): zero for i in range(n)}
    content = replace(made, meta=meta).bytes()
    data_at = int.from_bytes(content[24:32], sys.byteorder)
    if data_at - zero < 8:
        pytest.skip("no padding for the shape")
    assert names_of(put(tmp_path, content)) == ["x" * (n - i) for i in range(n)]


def test_what_is_no_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
    (tmp_path / "link").symlink_to(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path / "link", tmp_path / "socket", tmp_path, "/dev/null"):
        assert refusal(str(path)).code == "NOT_REGULAR_FILE"
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path in (tmp_path / "loop", tmp_path / "missing", "x\0y", "\ud800", "x" * 5000, ""):
        assert refusal(str(path)).code == "IO"


def test_a_path_that_is_not_utf8(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff\n.weig"
    with open(path, "wb") as file:
        file.write(TWO.bytes())
    assert names_of(os.fsdecode(path)) == ["a", "b"]
    os.remove(path)
    assert r"\xff\x0a" in refusal(os.fsdecode(path)).message


def test_a_lying_count_takes_no_memory(tmp_path: Path) -> None:
    """A terabyte of hole whose table would fit: the first record is a bad one."""
    path = put(tmp_path, b"")
    size = 2**40
    data_at = size - 64
    with open(path, "r+b") as file:
        file.write(
            struct.pack(
                HOST + "IIQQQQQQQ",
                layout.MAGIC,
                1,
                (data_at - 64) // 48,
                64,
                data_at,
                size,
                0,
                0,
                0,
            )
        )
        file.seek(size - 8)
        file.write(struct.pack(HOST + "Q", layout.SENTINEL))
    assert refusal(path).code == "BAD_NAME"


# ---- Without Python ------------------------------------------------------------------------------

PROGRAM = r"""
// Prints what a file says. FAULT in the environment makes the system less kind.
#include "weig.hpp"
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>

static const std::string fault = std::getenv("FAULT") ? std::getenv("FAULT") : "";
static const char *path;

extern "C" ssize_t pread64(int fd, void *to, size_t size, off64_t at) {
    static bool interrupted;
    if (fault == "cut" && truncate(path, 100) != 0)
        std::abort();
    static int calls;
    if (fault == "late" && ++calls == 3 && truncate(path, 192) != 0) // when it is being copied
        std::abort();
    if (fault == "eio")
        return errno = EIO, -1;
    if (fault == "short") {
        if ((interrupted = !interrupted))
            return errno = EINTR, -1;
        size = size < 3 ? size : 3;
    }
    return syscall(SYS_pread64, fd, to, size, at);
}

int main(int, char **arguments) try {
    path = arguments[1];
    const bool copy = std::strcmp(arguments[2], "read") == 0;
    const weig::File file = weig::File::open(path, copy ? weig::Mode::read : weig::Mode::mmap);
    for (std::size_t i = 0; i < file.count(); ++i) {
        const weig::Tensor tensor = file.tensor(i);
        std::printf("%.*s %s", int(tensor.name.size()), tensor.name.data(),
                    std::string(weig::info(tensor.dtype).name).c_str());
        for (const std::uint64_t dimension : tensor.shape.dimensions())
            std::printf(" %llu", static_cast<unsigned long long>(dimension));
        std::printf("\n");
    }
    for (const float x : file.elements<float>(*file.find("a")))
        std::printf("%g\n", static_cast<double>(x));
    file.elements<float>(*file.find("b"));
} catch (const weig::Error &error) {
    std::printf("%s\n", std::string(to_string(error.code())).c_str());
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> Path:
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None or not sys.platform.startswith("linux") or sys.maxsize < 2**32:
        pytest.skip("needs a C++ compiler and a 64-bit Linux")
    folder = tmp_path_factory.mktemp("program")
    parts = ("loader", "validate", "verify", "byteswap")  # as one source: a third of the time
    includes = "".join(f'#include "{part}.cpp"\n' for part in parts)
    (folder / "main.cpp").write_text(includes + PROGRAM)
    flags = ["-std=c++20", "-O0", "-D_FILE_OFFSET_BITS=64", f"-I{checkout / 'backends/cpp'}"]
    subprocess.run([compiler, *flags, "main.cpp", "-o", "program"], cwd=folder, check=True)
    return folder / "program"


def run_program(program: Path, path: str, mode: str, fault: str = "") -> list[str]:
    run = subprocess.run(
        [program, path, mode], env={"FAULT": fault}, capture_output=True, text=True, check=True
    )
    return run.stdout.splitlines()


@pytest.mark.parametrize("mode", ["mmap", "read"])
def test_the_library_alone(tmp_path: Path, program: Path, mode: str) -> None:
    made = replace(
        TWO, records=[(b"a", F32, (2,), struct.pack(HOST + "2f", 1.5, -2)), TWO.records[1]]
    )
    path = put(tmp_path, made.bytes())
    expected = ["a F32 2", "b U8 3", "1.5", "-2", "UNSUPPORTED"]  # b is not float
    assert run_program(program, path, mode) == expected
    assert run_program(program, path, mode, "short") == expected
    assert run_program(program, path, mode, "eio") == ["IO"]
    assert run_program(program, path, mode, "cut") == ["TRUNCATED"]
    if mode == "read":
        path = put(tmp_path, made.bytes())
        assert run_program(program, path, mode, "late") == ["TRUNCATED"]
    other = replace(made, order=">" if HOST == "<" else "<")
    assert run_program(program, put(tmp_path, other.bytes()), mode)[2:] == ["UNSUPPORTED"]
