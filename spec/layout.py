"""Constants and record layouts (SPEC.md, sections 3 to 11): data that everything else reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np

ByteOrder = Literal["little", "big"]

MAGIC = 0x57454947
VERSION = 1
SENTINEL = 0x57454947454E4421
MAX_NUMBER = 2**53 - 1

HEADER_SIZE = 64
RECORD_SIZE = 48
SENTINEL_SIZE = 8
MIN_FILE_SIZE = HEADER_SIZE + SENTINEL_SIZE

TABLE_ALIGN = 8
DATA_ALIGN = 64
WRITER_DATA_ALIGN = 4096
FILE_SIZE_ALIGN = 8

MAX_NAME_BYTES = 1023
MAX_RANK = 64
MUST_UNDERSTAND = 0xFFFF_FFFF
KNOWN_FLAGS = 0

# (field, offset in the structure, bytes), in file order.
HEADER_FIELDS = (
    ("magic", 0, 4),
    ("version", 4, 4),
    ("tensor_count", 8, 8),
    ("meta_offset", 16, 8),
    ("data_offset", 24, 8),
    ("file_size", 32, 8),
    ("flags", 40, 8),
    ("reserved[0]", 48, 8),
    ("reserved[1]", 56, 8),
)
RECORD_FIELDS = (
    ("name_offset", 0, 8),
    ("dtype", 8, 4),
    ("pad", 12, 4),
    ("shape_offset", 16, 8),
    ("shape_count", 24, 8),
    ("data_offset", 32, 8),
    ("data_size", 40, 8),
)

# The same as formats of the struct module, without the byte order mark.
HEADER_FORMAT = "IIQQQQQQQ"
RECORD_FORMAT = "QIIQQQQ"
STRUCT_ORDER = {"little": "<", "big": ">"}

MAGIC_BYTES: dict[bytes, ByteOrder] = {
    MAGIC.to_bytes(4, "little"): "little",
    MAGIC.to_bytes(4, "big"): "big",
}


def record_dtype(byte_order: ByteOrder) -> np.dtype:
    """The numpy structured dtype of one 48-byte record of the meta table."""
    import numpy as np

    mark = STRUCT_ORDER[byte_order]
    return np.dtype([(name, f"{mark}u{size}") for name, _, size in RECORD_FIELDS])


def align_up(value: int, alignment: int) -> int:
    """``value`` rounded up to a multiple of ``alignment`` (a power of two)."""
    return (value + alignment - 1) & -alignment
