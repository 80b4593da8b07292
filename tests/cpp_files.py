"""Files for the tests of the C++ loader, made with `struct` alone; they can lie at will."""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from weig.backends.cpp import loader
from weig.spec import errors, layout
from weig.spec.errors import WeigError

ORDERS = {"little": "<", "big": ">"}
HOST = ORDERS[sys.byteorder]
MAX = 2**53 - 1


@dataclass(frozen=True)
class Made:
    """A file of records that say what they like: each (name, dtype, shape, data)."""

    records: list[tuple[bytes, int, tuple[int, ...], bytes]]
    order: str = HOST
    header: dict[int, int] = field(default_factory=dict)  # number of the field: value
    meta: dict[tuple[int, int], int] = field(default_factory=dict)  # record and field: value
    gap: int = 0  # bytes of padding before the shapes: an odd number moves them all
    tail: bytes | None = None

    def bytes(self) -> bytes:
        o, n = self.order, len(self.records)
        aux = bytearray(self.gap)
        rows = []
        for name, code, shape, _ in self.records:
            shape_at = 64 + 48 * n + len(aux)
            aux += struct.pack(f"{o}{len(shape)}Q", *shape)
            rows.append([64 + 48 * n + len(aux), code, 0, shape_at, len(shape), 0, 0])
            aux += name + b"\0"
        data_at = (64 + 48 * n + len(aux) + 63) // 64 * 64
        data = bytearray()
        for row, record in zip(rows, self.records, strict=True):
            data += bytes(-len(data) % 64)
            row[5], row[6] = data_at + len(data), len(record[3])
            data += record[3]
        data += bytes(-len(data) % 8)
        head = [layout.MAGIC, 1, n, 64, data_at, data_at + len(data) + 8, 0, 0, 0]
        for i, value in self.header.items():
            head[i] = value
        for (i, j), value in self.meta.items():
            rows[i][j] = value
        out = struct.pack(o + "IIQQQQQQQ", *head)
        out += b"".join(struct.pack(o + "QIIQQQQ", *row) for row in rows) + aux
        return (
            out.ljust(data_at, b"\0") + data + (self.tail or struct.pack(o + "Q", layout.SENTINEL))
        )


F32, U8, BOOL = 0, 4, 12
TWO = Made([(b"a", F32, (2,), bytes(8)), (b"b", U8, (3,), b"xyz")])
# TWO: table 64 to 160, shapes at 160 and 170, names at 168 and 178, data at 192 and 256, 272 bytes.


def put(path: Path, content: bytes) -> str:
    file = path / "file.weig"
    file.write_bytes(content)
    return str(file)


def refusal(path: str, mode: str = "mmap") -> WeigError:
    with pytest.raises(WeigError) as caught:
        loader.open(path, mode)
    assert caught.value.code in errors.CODES
    assert caught.value.message.isascii()
    assert caught.value.message.isprintable()
    return caught.value
