"""A loader of WEIG files, version 1, in plain Python: ``struct``, ``mmap``, and no dependency.

Written from SPEC.md; the ids in the comments (HDR-1, ...) are its rules.
"""

from __future__ import annotations

import errno
import itertools
import mmap
import os
import stat
import struct
from collections.abc import Iterator
from typing import NamedTuple

HEADER, RECORD, SENTINEL = 64, 48, 8
MAGIC = {b"GIEW": "<", b"WEIG": ">"}  # the first four bytes -> the byte order, as struct writes it
END_MARK = 0x57454947454E4421
MAX = 2**53 - 1  # NUM-2
MAX_NAME, MAX_RANK = 1023, 64
CHUNK = 1 << 20
ZEROS = bytes(CHUNK)


class Dtype(NamedTuple):
    """Section 8: bytes of an element, and bytes that a change of byte order reverses together."""

    name: str
    size: int
    unit: int


DTYPES = (
    Dtype("F32", 4, 4),
    Dtype("F16", 2, 2),
    Dtype("BF16", 2, 2),
    Dtype("I8", 1, 1),
    Dtype("U8", 1, 1),
    Dtype("I32", 4, 4),
    Dtype("F64", 8, 8),
    Dtype("I64", 8, 8),
    Dtype("I16", 2, 2),
    Dtype("U16", 2, 2),
    Dtype("U32", 4, 4),
    Dtype("U64", 8, 8),
    Dtype("BOOL", 1, 1),
    Dtype("F8_E4M3", 1, 1),
    Dtype("F8_E5M2", 1, 1),
    Dtype("F8_E8M0", 1, 1),
    Dtype("C64", 8, 4),
    Dtype("F8_E4M3FNUZ", 1, 1),
    Dtype("F8_E5M2FNUZ", 1, 1),
)

# What a file of another kind starts with, for the message of BAD_MAGIC.
KINDS = (
    (b"version https://git-lfs", "a git-LFS pointer: fetch the file itself"),
    (b"<!DOCTYPE", "HTML"),
    (b"<html", "HTML"),
    (b"PK\x03\x04", "a ZIP archive (npz, PyTorch)"),
    (b"GGUF", "GGUF"),
    (b"\x1f\x8b", "gzip"),
    (b"\x93NUMPY", "npy"),
)


class WeigError(Exception):
    """A refusal: a code of section 14, words for people, and the field at fault ("" for none)."""

    def __init__(self, code: str, message: str, field: str = "") -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.field = code, message, field


class Header(NamedTuple):
    """Section 4, behind magic and version."""

    tensor_count: int
    meta_offset: int
    data_offset: int
    file_size: int
    flags: int
    reserved0: int
    reserved1: int

    @property
    def aux_start(self) -> int:
        return self.meta_offset + RECORD * self.tensor_count

    @property
    def end(self) -> int:
        return self.file_size - SENTINEL


class Record(NamedTuple):
    """Section 5. The shape is copied out; the name stays in the file, for names may share bytes."""

    name_offset: int
    name_size: int
    dtype: Dtype
    shape_offset: int
    shape: tuple[int, ...]
    data_offset: int
    data_size: int


class Tensor:
    """One tensor. It keeps the memory of its bytes, also when the file is closed (OPEN-12)."""

    def __init__(self, memory: memoryview, order: str, record: Record) -> None:
        self._memory, self._order = memory, order
        self.record = record
        self.dtype, self.shape, self.nbytes = record.dtype, record.shape, record.data_size

    @property
    def name(self) -> str:
        start = self.record.name_offset
        return str(self._memory[start : start + self.record.name_size], "utf-8")

    @property
    def raw(self) -> memoryview:
        """Its bytes as they lie in the file, read-only, without a copy."""
        start = self.record.data_offset
        return self._memory[start : start + self.nbytes]

    def chunks(self, order: str = "<") -> Iterator[memoryview | bytearray]:
        """Its bytes piece by piece, each scalar in the byte order ``<`` or ``>``."""
        raw, unit = self.raw, self.dtype.unit
        for start in range(0, self.nbytes, CHUNK):  # a chunk is a multiple of every unit
            piece = raw[start : start + CHUNK]
            yield piece if unit == 1 or order == self._order else _swapped(piece, unit)


def _swapped(piece: memoryview, unit: int) -> bytearray:
    """The bytes with each group of ``unit`` reversed."""
    source, result = bytes(piece), bytearray(len(piece))
    for i in range(unit):
        result[i::unit] = source[unit - 1 - i :: unit]
    return result


class WeigFile:
    """An open file: a sequence of tensors in file order. Raises WeigError.

    With ``mode="mmap"`` the file is mapped, and nobody may cut it while it is used. With
    ``mode="read"`` it is copied, and what becomes of it does not matter.
    """

    def __init__(self, path: str, mode: str = "mmap", deep: bool = False) -> None:
        self._file = _open(path)
        try:
            self._identity = _identity(self._file)
            self.order, self.header = _header(self._file, self._identity.size)
            self._memory = _memory(self._file, self.header.file_size, mode)
            self._records = _records(self._memory, self.order, self.header)
            if deep:
                self.verify()
        except MemoryError:
            self._close()
            raise WeigError("TOO_LARGE", "there is not the memory for this file") from None
        except BaseException:
            self._close()
            raise

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Tensor]:
        self._check_open()
        return (Tensor(self._memory, self.order, record) for record in self._records)

    def __getitem__(self, name: str) -> Tensor:
        found = next((tensor for tensor in self if tensor.name == name), None)
        if found is None:
            raise WeigError("NO_SUCH_TENSOR", f"no tensor {name!a}")
        return found

    def verify(self) -> None:
        """Level deep: reads the whole file (section 12)."""
        self._check_open()
        _check_padding(self._memory, self.header, self._records)
        _check_bools(self._memory, self._records)

    def check_unmodified(self) -> None:
        """Raises MODIFIED where the open file is not what it was (OPEN-10)."""
        self._check_open()
        if _identity(self._file) != self._identity:
            raise WeigError("MODIFIED", "the file changed after it was opened")

    def close(self) -> None:
        """Lets go of the file; tensors that were given out stay good."""
        if self._file >= 0:
            self._close()
            self._memory = memoryview(b"")
            self._records = []

    def _close(self) -> None:
        os.close(self._file)
        self._file = -1

    def _check_open(self) -> None:
        if self._file < 0:
            raise WeigError("CLOSED", "the file was closed")

    def __enter__(self) -> WeigFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Identity(NamedTuple):
    device: int
    inode: int
    size: int
    modified: int  # nanoseconds


def _identity(file: int) -> Identity:
    status = os.fstat(file)
    return Identity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _open(path: str) -> int:
    """The descriptor of a regular file; opening does not block (OPEN-1, OPEN-2)."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a device without a driver
            raise WeigError("NOT_REGULAR_FILE", "not a regular file") from None
        raise WeigError("IO", error.strerror or "cannot be opened") from None
    except ValueError:  # a NUL in the path
        raise WeigError("IO", "no such path") from None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise WeigError("NOT_REGULAR_FILE", "not a regular file")
    return file


def _pread(file: int, size: int, offset: int) -> bytes:
    """Exactly those bytes (OPEN-11)."""
    data = b""
    while len(data) < size:
        try:
            piece = os.pread(file, size - len(data), offset + len(data))
        except OSError as error:
            raise WeigError("IO", error.strerror or "cannot be read") from None
        if not piece:
            raise WeigError("TRUNCATED", f"the file ends at {offset + len(data)}")
        data += piece
    return data


def _header(file: int, size: int) -> tuple[str, Header]:
    """Reads and checks sections 4, 5, 6 and 11: all that does not need a record."""
    head = _pread(file, min(HEADER, size), 0)
    order = MAGIC.get(head[:4])
    hint = next((f" ({kind})" for start, kind in KINDS if head.startswith(start)), "")
    if size < HEADER + SENTINEL:  # HDR-1
        raise WeigError("TOO_SMALL", f"{size} bytes{hint}")
    if order is None:  # HDR-2
        raise WeigError("BAD_MAGIC", f"starts with {head[:4].hex(' ')}{hint}", "header.magic")
    version, *fields = struct.unpack(f"{order}4xI7Q", head)
    header = Header(*fields)
    if version != 1:  # HDR-3
        raise WeigError("BAD_VERSION", f"version {version}", "header.version")
    for field in ("tensor_count", "meta_offset", "data_offset", "file_size"):
        _check_number(getattr(header, field), f"header.{field}")
    if header.file_size % 8 or header.file_size < HEADER + SENTINEL:  # HDR-4
        raise WeigError("BAD_FILE_SIZE", f"file_size {header.file_size}", "header.file_size")
    if size < header.file_size:  # HDR-5
        raise WeigError("TRUNCATED", f"{size} of {header.file_size} bytes", "header.file_size")
    if size > header.file_size:  # HDR-6
        more = size - header.file_size
        raise WeigError("TRAILING_DATA", f"{more} bytes too many", "header.file_size")
    if header.flags & 0xFFFFFFFF:  # HDR-7
        raise WeigError("UNKNOWN_FLAG", f"flags {header.flags:#x}", "header.flags")
    if header.reserved0 or header.reserved1:  # HDR-8
        raise WeigError("BAD_RESERVED", "not zero", "header.reserved")
    _check_parts(header)
    (mark,) = struct.unpack(f"{order}Q", _pread(file, SENTINEL, header.end))
    if mark != END_MARK:  # TAIL-1
        raise WeigError("BAD_SENTINEL", f"ends with {mark:#018x}", "sentinel")
    return order, header


def _check_number(value: int, field: str) -> None:
    if value > MAX:  # NUM-2
        raise WeigError("NUMBER_TOO_LARGE", str(value), field)


def _check_parts(header: Header) -> None:
    """The order of the parts, from front to back."""
    meta, data = header.meta_offset, header.data_offset
    if meta < HEADER or meta % 8:  # META-1, META-2
        raise WeigError("BAD_META_TABLE", f"meta_offset {meta}", "header.meta_offset")
    if data % 64:  # REGION-1
        raise WeigError("MISALIGNED", f"data_offset {data}", "header.data_offset")
    if data > header.end:  # REGION-2
        raise WeigError("BAD_DATA_REGION", f"data_offset {data}", "header.data_offset")
    if header.aux_start > data:  # META-3, in numbers that do not wrap
        text = f"{header.tensor_count} records from {meta} do not end before {data}"
        raise WeigError("BAD_META_TABLE", text, "header.tensor_count")


def _memory(file: int, size: int, mode: str) -> memoryview:
    """The whole file, mapped or copied, read-only."""
    if mode == "read":
        return _copy(file, size)
    try:
        return memoryview(mmap.mmap(file, size, mmap.MAP_SHARED, mmap.PROT_READ))
    except ValueError:  # Python looks at the size once more
        raise WeigError("TRUNCATED", "the file was cut meanwhile") from None
    except OverflowError:
        raise WeigError("TOO_LARGE", f"{size} bytes") from None
    except OSError as error:
        code = "TOO_LARGE" if error.errno in (errno.ENOMEM, errno.EFBIG) else "IO"
        raise WeigError(code, error.strerror or "cannot be mapped") from None


def _copy(file: int, size: int) -> memoryview:
    try:
        copy = bytearray(size)
    except (MemoryError, OverflowError):
        raise WeigError("TOO_LARGE", f"{size} bytes") from None
    memory, done = memoryview(copy), 0
    while done < size:
        try:
            got = os.preadv(file, [memory[done:]], done)
        except OSError as error:
            raise WeigError("IO", error.strerror or "cannot be read") from None
        if got == 0:
            raise WeigError("TRUNCATED", "the file was cut meanwhile")
        done += got
    return memory.toreadonly()


def _records(memory: memoryview, order: str, header: Header) -> list[Record]:
    """Reads and checks the table and what it points to: sections 5 to 10."""
    layout = struct.Struct(f"{order}QII4Q")
    records = []
    for i in range(header.tensor_count):
        fields = layout.unpack_from(memory, header.meta_offset + RECORD * i)
        records.append(_record(memory, order, header, f"meta[{i}]", fields))
    _check_unique(memory, records)
    _check_disjoint(records)
    return records


def _record(
    memory: memoryview, order: str, header: Header, at: str, fields: tuple[int, ...]
) -> Record:
    name, code, pad, shape_offset, rank, start, size = fields
    for field, value in (
        ("name_offset", name),
        ("shape_offset", shape_offset),
        ("shape_count", rank),
        ("data_offset", start),
        ("data_size", size),
    ):
        _check_number(value, f"{at}.{field}")
    if pad:  # META-4
        raise WeigError("BAD_RESERVED", f"pad {pad}", f"{at}.pad")
    if code >= len(DTYPES):  # DTYPE-1
        raise WeigError("BAD_DTYPE", f"dtype {code}", f"{at}.dtype")
    dtype = DTYPES[code]
    length = _check_name(memory, header, name, f"{at}.name_offset")
    shape = _shape(memory, order, header, shape_offset, rank, at)
    wanted = _data_size(shape, dtype, at)
    if size != wanted:  # SHAPE-5
        text = f"{size} bytes, the shape asks for {wanted}"
        raise WeigError("BAD_DATA_SIZE", text, f"{at}.data_size")
    if start % 64:  # DATA-1
        raise WeigError("MISALIGNED", f"data_offset {start}", f"{at}.data_offset")
    if start < header.data_offset or start > header.end:  # DATA-2, DATA-3
        text = f"{start} is not in [{header.data_offset}, {header.end}]"
        raise WeigError("BAD_DATA_RANGE", text, f"{at}.data_offset")
    if size > header.end - start:  # DATA-3
        raise WeigError("BAD_DATA_RANGE", f"{size} bytes from {start}", f"{at}.data_size")
    return Record(name, length, dtype, shape_offset, shape, start, size)


def _check_name(memory: memoryview, header: Header, start: int, field: str) -> int:
    """Section 7; gives the length of the name, the NUL not counted."""
    if not header.aux_start <= start < header.data_offset:  # NAME-1
        raise WeigError("BAD_NAME", f"starts at {start}", field)
    data = bytes(memory[start : min(start + MAX_NAME + 1, header.data_offset)])
    length = data.find(0)
    if length < 0:  # NAME-2, NAME-3
        raise WeigError("BAD_NAME", "no NUL in its first 1024 bytes, or in the aux area", field)
    name = data[:length]
    if not name:  # NAME-3
        raise WeigError("BAD_NAME", "empty", field)
    try:
        text = name.decode("utf-8")  # NAME-4: Python's decoder is the strict one
    except UnicodeDecodeError as error:
        raise WeigError("BAD_NAME", f"not UTF-8 at byte {error.start}", field) from None
    if min(text) < " " or "\x7f" in text:  # NAME-5
        raise WeigError("BAD_NAME", f"a control byte: {text[:60]!a}", field)
    return length


def _shape(
    memory: memoryview, order: str, header: Header, start: int, rank: int, at: str
) -> tuple[int, ...]:
    """Section 9; at any alignment (SHAPE-3)."""
    if rank > MAX_RANK:  # SHAPE-1
        raise WeigError("BAD_SHAPE", f"{rank} dimensions", f"{at}.shape_count")
    if not header.aux_start <= start <= header.data_offset - 8 * rank:  # SHAPE-2
        raise WeigError("BAD_SHAPE", f"{rank} dimensions from {start}", f"{at}.shape_offset")
    shape: tuple[int, ...] = struct.unpack_from(f"{order}{rank}Q", memory, start)
    for dim in shape:
        _check_number(dim, f"{at}.shape")
    return shape


def _data_size(shape: tuple[int, ...], dtype: Dtype, at: str) -> int:
    """The bytes that a shape asks for. Python's numbers do not wrap, but they may grow."""
    size = dtype.size
    for dim in shape:
        size *= dim or 1
        if size > MAX:  # SHAPE-4
            raise WeigError("BAD_SHAPE", "too many elements", f"{at}.shape")
    return 0 if 0 in shape else size


def _check_unique(memory: memoryview, records: list[Record]) -> None:
    """NAME-6. Holds the hashes of names, not the names: those may share bytes by the thousand."""
    seen: dict[int, list[bytes | memoryview]] = {}
    for i, record in enumerate(records):
        view = memory[record.name_offset : record.name_offset + record.name_size]
        key = hash(bytes(view))  # its seed is another one in each process
        alike = seen.setdefault(key, [])
        if view in alike:
            text = ascii(str(view, "utf-8")[:60])
            raise WeigError("DUPLICATE_NAME", text, f"meta[{i}].name_offset")
        alike.append(view)


def _check_disjoint(records: list[Record]) -> None:
    """DATA-4. Sorted by place, only neighbours can be the first to overlap."""
    places = sorted(
        (record.data_offset, record.data_size, record.dtype.name, i)
        for i, record in enumerate(records)
        if record.data_size
    )
    for one, two in itertools.pairwise(places):
        if one[:3] != two[:3] and two[0] < one[0] + one[1]:
            text = f"tensors {one[3]} and {two[3]} share bytes"
            raise WeigError("OVERLAP", text, f"meta[{two[3]}].data_offset")


def _check_padding(memory: memoryview, header: Header, records: list[Record]) -> None:
    """PAD-1: walks over the owned ranges in order and looks at what lies between them."""
    owned = [(0, HEADER), (header.meta_offset, header.aux_start), (header.end, header.file_size)]
    for record in records:
        owned.append((record.name_offset, record.name_offset + record.name_size + 1))
        owned.append((record.shape_offset, record.shape_offset + 8 * len(record.shape)))
        owned.append((record.data_offset, record.data_offset + record.data_size))
    done = 0
    for start, end in sorted(owned):
        if start == end:  # owns nothing
            continue
        for at in range(done, start, CHUNK):
            piece = bytes(memory[at : min(at + CHUNK, start)])
            if piece != ZEROS[: len(piece)]:
                place = at + len(piece) - len(piece.lstrip(b"\0"))
                raise WeigError("NONZERO_PADDING", f"byte {place} is not zero")
        done = max(done, end)


def _check_bools(memory: memoryview, records: list[Record]) -> None:
    """BOOL-1; aliases are looked at once."""
    places = {(r.data_offset, r.data_size) for r in records if r.dtype.name == "BOOL"}
    for start, size in sorted(places):
        for at in range(start, start + size, CHUNK):
            piece = bytes(memory[at : min(at + CHUNK, start + size)])
            if piece.translate(None, b"\0\1"):
                raise WeigError("BAD_BOOL", f"a value that is not 0 or 1, from byte {at} on")
