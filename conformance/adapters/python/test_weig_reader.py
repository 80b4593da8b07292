"""Tests of the reader: python3 -m unittest. The example is that of section 19 of SPEC.md."""
# unittest, so that they run where there is nothing but Python.
# ruff: noqa: PT009, PT027

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from weig_reader import WeigError, WeigFile

HERE = Path(__file__).parent


def example(order: str = "<") -> bytes:
    """Two tensors: b, BF16 [3], and w, F32 [2]."""
    magic = b"GIEW" if order == "<" else b"WEIG"
    head = magic + struct.pack(f"{order}I7Q", 1, 2, 64, 192, 272, 0, 0, 0)
    b = struct.pack(f"{order}QII4Q", 176, 2, 0, 160, 1, 192, 6)
    w = struct.pack(f"{order}QII4Q", 178, 0, 0, 168, 1, 256, 8)
    aux = struct.pack(f"{order}2Q", 3, 2) + b"b\0w\0" + bytes(12)
    data = struct.pack(f"{order}3H", 0x3F80, 0x4000, 0xBF80) + bytes(58)
    data += struct.pack(f"{order}2I", 0x3F800000, 0xC0000000)
    return head + b + w + aux + data + struct.pack(f"{order}Q", 0x57454947454E4421)


class Reader(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "t.weig")

    def write(self, data: bytes | bytearray) -> None:
        Path(self.path).write_bytes(data)

    def edit(self, offset: int, value: bytes) -> None:
        data = bytearray(example())
        data[offset : offset + len(value)] = value
        self.write(data)

    def test_the_example_in_both_byte_orders_and_modes(self) -> None:
        for order in "<>":
            self.write(example(order))
            for mode in ("mmap", "read"):
                with self.subTest(order=order, mode=mode), WeigFile(self.path, mode, True) as file:
                    b, w = file
                    self.assertEqual(len(file), 2)
                    self.assertEqual(
                        (b.name, b.dtype.name, b.shape, b.nbytes), ("b", "BF16", (3,), 6)
                    )
                    self.assertEqual(b"".join(b.chunks("<")).hex(), "803f004080bf")
                    self.assertEqual(b"".join(w.chunks(">")).hex(), "3f800000c0000000")
                    self.assertEqual(struct.unpack(f"{order}2f", file["w"].raw), (1.0, -2.0))

    def test_one_wrong_thing_at_a_time(self) -> None:
        u64 = struct.Struct("<Q").pack
        for offset, value, code in (
            (0, b"GGUF", "BAD_MAGIC"),
            (4, b"\2", "BAD_VERSION"),
            (8, u64(3), "BAD_META_TABLE"),
            (8, u64(2**53), "NUMBER_TOO_LARGE"),
            (16, u64(56), "BAD_META_TABLE"),
            (24, u64(200), "MISALIGNED"),
            (24, u64(320), "BAD_DATA_REGION"),
            (32, u64(280), "TRUNCATED"),
            (32, u64(264), "TRAILING_DATA"),
            (32, u64(271), "BAD_FILE_SIZE"),
            (40, b"\1", "UNKNOWN_FLAG"),
            (48, b"\1", "BAD_RESERVED"),
            (64, u64(159), "BAD_NAME"),
            (72, b"\x13", "BAD_DTYPE"),
            (76, b"\1", "BAD_RESERVED"),
            (80, u64(192), "BAD_SHAPE"),
            (88, u64(65), "BAD_SHAPE"),
            (96, u64(200), "MISALIGNED"),
            (96, u64(128), "BAD_DATA_RANGE"),
            (96, u64(256), "OVERLAP"),
            (104, u64(8), "BAD_DATA_SIZE"),
            (160, u64(2**52), "BAD_SHAPE"),
            (176, b"w", "DUPLICATE_NAME"),
            (176, b"\xff", "BAD_NAME"),
            (176, b"\x1b", "BAD_NAME"),
            (264, b"!", None),
            (264, b"?", "BAD_SENTINEL"),
        ):
            with self.subTest(offset=offset, value=value):
                self.edit(offset, value)
                self.assertEqual(self.code(), code)

    def code(self, deep: bool = False) -> str | None:
        try:
            WeigFile(self.path, deep=deep).close()
        except WeigError as error:
            return str(error.code)
        return None

    def test_what_is_wrong_only_at_level_deep(self) -> None:
        self.edit(180, b"x")
        self.assertEqual((self.code(), self.code(deep=True)), (None, "NONZERO_PADDING"))
        data = bytearray(example())
        data[72:76] = struct.pack("<I", 12)  # b: BOOL, 3 bytes
        data[104:112] = struct.pack("<Q", 3)
        data[192:198] = b"\0\1\1\0\0\0"
        self.write(data)
        self.assertIsNone(self.code(deep=True))
        data[193] = 2
        self.write(data)
        self.assertEqual((self.code(), self.code(deep=True)), (None, "BAD_BOOL"))

    def test_what_is_no_file(self) -> None:
        self.assertEqual(self.code(), "IO")
        os.mkfifo(self.path)
        self.assertEqual(self.code(), "NOT_REGULAR_FILE")

    def test_views_outlive_the_file_and_cannot_be_written(self) -> None:
        self.write(example())
        file = WeigFile(self.path)
        raw = file["w"].raw
        file.close()
        self.assertEqual(raw.tobytes().hex(), "0000803f000000c0")
        self.assertTrue(raw.readonly)
        with self.assertRaisesRegex(WeigError, "CLOSED"):
            file["w"]

    def test_a_copy_does_not_mind_what_becomes_of_the_file(self) -> None:
        self.write(example())
        with WeigFile(self.path, "read") as file:
            file.check_unmodified()
            os.truncate(self.path, 0)
            self.assertEqual(file["w"].raw.tobytes().hex(), "0000803f000000c0")
            with self.assertRaisesRegex(WeigError, "MODIFIED"):
                file.check_unmodified()

    def test_the_adapter(self) -> None:
        self.write(example(">"))
        requests = f"hello\t1\njuggle\t7\nload\t8\t{self.path}\tdata=hex\tlevel=deep\tnew=1\n"
        command = [sys.executable, str(HERE / "adapter.py")]
        done = subprocess.run(command, input=requests, capture_output=True, text=True, check=True)
        hello, juggle, load = map(json.loads, done.stdout.splitlines())
        self.assertEqual(hello["protocol"], 1)
        self.assertEqual((juggle["id"], juggle["status"]), ("7", "unsupported"))
        self.assertEqual((load["id"], load["byte_order"], load["count"]), ("8", "big", 2))
        self.assertEqual(
            [tensor["data"] for tensor in load["tensors"]], ["803f004080bf", "0000803f000000c0"]
        )


if __name__ == "__main__":
    unittest.main()
