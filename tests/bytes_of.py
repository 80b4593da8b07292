"""Files made by hand with `struct` from SPEC.md alone: no code of the project is in it."""

from __future__ import annotations

import re
import struct
from pathlib import Path

ORDERS = {"little": "<", "big": ">"}


def example(byte_order: str = "little") -> bytes:
    """The worked example of SPEC.md, section 19: b = BF16 [1, 2, -1], w = F32 [1, -2]."""
    o = ORDERS[byte_order]
    out = struct.pack(o + "IIQQQQQQQ", 0x57454947, 1, 2, 64, 192, 272, 0, 0, 0)
    out += struct.pack(o + "QIIQQQQ", 176, 2, 0, 160, 1, 192, 6)
    out += struct.pack(o + "QIIQQQQ", 178, 0, 0, 168, 1, 256, 8)
    out += struct.pack(o + "QQ", 3, 2) + b"b\0w\0"
    out = out.ljust(192, b"\0") + struct.pack(o + "HHH", 0x3F80, 0x4000, 0xBF80)
    out = out.ljust(256, b"\0") + struct.pack(o + "II", 0x3F800000, 0xC0000000)
    return out + struct.pack(o + "Q", 0x57454947454E4421)


def printed_examples(spec: Path) -> list[bytes]:
    """The hex dumps of SPEC.md: little-endian, then big-endian."""
    blocks = re.findall(r"```hex\n(.*?)```", spec.read_text(encoding="utf-8"), re.S)
    return [bytes.fromhex("".join(line[6:] for line in b.splitlines())) for b in blocks]


def one_tensor(
    data: bytes, code: int, shape: tuple[int, ...], byte_order: str = "little", name: bytes = b"t"
) -> bytes:
    """A file of one tensor; ``data`` is in the file's byte order."""
    o = ORDERS[byte_order]
    shape_at, name_at = 112, 112 + 8 * len(shape)
    data_at = (name_at + len(name) + 1 + 63) // 64 * 64
    end = (data_at + len(data) + 7) // 8 * 8
    out = struct.pack(o + "IIQQQQQQQ", 0x57454947, 1, 1, 64, data_at, end + 8, 0, 0, 0)
    out += struct.pack(o + "QIIQQQQ", name_at, code, 0, shape_at, len(shape), data_at, len(data))
    out += struct.pack(f"{o}{len(shape)}Q", *shape) + name + b"\0"
    out = (out.ljust(data_at, b"\0") + data).ljust(end, b"\0")
    return out + struct.pack(o + "Q", 0x57454947454E4421)
