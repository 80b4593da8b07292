"""npz (a ZIP of npy files) as one end of a conversion.

A member is decompressed a piece at a time, never more than its npy header says; nothing in it is
ever unpickled.
"""

from __future__ import annotations

import io
import math
import os
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import IO, NamedTuple

import numpy as np

from weig.backends.atomic import replacing
from weig.backends.pure.source import Source as File
from weig.backends.writer import NUMPY_NAMES, Source
from weig.spec.dtypes import BY_NAME
from weig.spec.errors import WeigError, escape, excerpt, quoted
from weig.spec.layout import MAX_NUMBER
from weig.tools.exchange import (
    PIECE,
    ConversionError,
    Options,
    Origin,
    counted,
    nbytes,
    reordered,
    unchanged,
)

SUFFIX = ".npy"
MAX_HEADER = 10_000  # bytes of an npy header: numpy's own limit for files that are not trusted
# What the zip module raises for archives that are broken or of a kind that it does not know.
BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, ValueError)
ENCRYPTED = 1  # of a member's flags
EPOCH = (1980, 1, 1, 0, 0, 0)  # no time in the file: the same tensors, the same bytes


class Npy(NamedTuple):
    """What the header of an npy file says, and how long that header is."""

    dtype: str
    order: str  # of bytes
    shape: tuple[int, ...]
    fortran: bool
    start: int


@contextmanager
def read(path: str) -> Iterator[Origin]:
    """Opens an archive and checks all headers. Raises WeigError and ConversionError."""
    file = File(path)
    try:
        with os.fdopen(os.dup(file.fd), "rb") as stream, _archive(stream, path) as archive:
            tensors: dict[str, Source] = {}
            for member in archive.infolist():
                name = _name(member, path)
                if name in tensors:
                    raise WeigError("DUPLICATE_NAME", f"{quoted(name)} is there twice")
                npy = _npy(archive, member, name)
                tensors[name] = Source(
                    npy.dtype, npy.shape, partial(_pieces, file, archive, member, name, npy)
                )
            yield Origin(tensors)
    finally:
        file.close()


def write(path: str, origin: Origin, options: Options) -> None:
    """Writes an archive without compression, as numpy.savez does.

    Raises WeigError and ConversionError.
    """
    for name, source in origin.tensors.items():
        if BY_NAME[source.dtype].ml:
            raise ConversionError(f"{quoted(name)}: an npz file cannot hold {source.dtype}")
        if name + SUFFIX in origin.tensors:
            raise ConversionError(
                f"{quoted(name)} and {quoted(name + SUFFIX)} are one name to numpy"
            )
    pieces = counted(origin, options.progress)
    with (
        replacing(path, 0) as fd,
        os.fdopen(os.dup(fd), "wb") as stream,
        zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive,
    ):
        for name, source in origin.tensors.items():
            head = _packed(source)
            member = zipfile.ZipInfo(name + SUFFIX, EPOCH)
            member.external_attr = 0o600 << 16
            member.file_size = len(head) + nbytes(source)  # says whether it needs ZIP64
            with archive.open(member, "w") as target:
                target.write(head)
                for piece in pieces(name, source):
                    target.write(piece)


def _archive(stream: IO[bytes], path: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(stream)
    except (*BROKEN, OSError) as error:
        raise ConversionError(
            f"{escape(path)}: not a good npz file: {excerpt(str(error))}"
        ) from None


def _name(member: zipfile.ZipInfo, path: str) -> str:
    """The tensor's name. The zip module cuts a name at a NUL: another name than the file's own."""
    if member.filename != member.orig_filename:
        raise WeigError("BAD_NAME", f"{quoted(member.orig_filename)} has a control byte")
    if not member.filename.endswith(SUFFIX):
        raise ConversionError(f"{escape(path)}: {quoted(member.filename)} is no {SUFFIX} file")
    if member.flag_bits & ENCRYPTED:
        raise ConversionError(f"{escape(path)}: {quoted(member.filename)} is encrypted")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        # numpy writes no other, and Python inflates the others without a limit.
        raise ConversionError(f"{escape(path)}: {quoted(member.filename)} has a rare compression")
    return member.filename.removesuffix(SUFFIX)


def _npy(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> Npy:
    """A member's header, checked: a dtype that WEIG has, and the size that the archive tells."""
    shape, fortran, dtype, start = _npy_header(archive, member, name)
    known = NUMPY_NAMES.get(dtype.newbyteorder("=").name)
    if known is None:
        hint = " (numpy writes BF16 and F8 so: their type is lost)" if dtype.kind == "V" else ""
        raise WeigError("BAD_DTYPE", f"{quoted(name)}: WEIG has no {excerpt(str(dtype))}{hint}")
    if any(dim < 0 for dim in shape):
        raise WeigError(
            "BAD_SHAPE", f"{quoted(name)} has a dimension below 0: {excerpt(str(shape))}"
        )
    size = math.prod(shape) * known.size
    if start + size != member.file_size:
        # A product of thousands of digits is nothing that Python prints.
        wanted = size if size <= MAX_NUMBER else f"past {MAX_NUMBER}"
        raise ConversionError(
            f"{quoted(name)}: the archive has {member.file_size - start} bytes for "
            f"{known.name} {excerpt(str(list(shape)))}, which is {wanted}"
        )
    order = "big" if dtype.newbyteorder("<") != dtype and known.unit > 1 else "little"
    return Npy(known.name, order, shape, fortran and len(shape) > 1, start)


def _npy_header(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str
) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """Shape, Fortran order, dtype, and where the data starts in the member."""
    form = np.lib.format
    try:
        with archive.open(member) as stream, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of headers that Python 2 wrote
            version = form.read_magic(stream)
            parse = {(1, 0): form.read_array_header_1_0, (2, 0): form.read_array_header_2_0}
            if version not in parse:
                raise ValueError(f"npy version {version[0]}.{version[1]}")
            # numpy would read as much as the header's length says before it calls that too long.
            width = 2 if version == (1, 0) else 4
            length = stream.read(width)
            if int.from_bytes(length, "little") > MAX_HEADER:
                raise ValueError(f"a header of {int.from_bytes(length, 'little')} bytes")
            stream.seek(-len(length), io.SEEK_CUR)
            shape, fortran, dtype = parse[version](stream)
            return tuple(map(int, shape)), fortran, dtype, stream.tell()
    except Exception as error:
        # numpy parses the header as Python text; hostile ones end in errors of many classes.
        raise ConversionError(
            f"{quoted(name)} is no good npy file: {excerpt(str(error))}"
        ) from None


def _pieces(
    file: File, archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str, npy: Npy
) -> Iterator[memoryview]:
    raw: Iterable[bytes | memoryview] = _inflated(archive, member, name, npy)
    if npy.fortran:
        raw = _row_major(raw, npy)
    little = reordered(raw, npy.dtype, npy.order)
    return unchanged(little, file.check_unmodified)


def _inflated(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str, npy: Npy
) -> Iterator[bytes]:
    left = member.file_size - npy.start  # the last of them: there the checksum is compared
    try:
        with archive.open(member) as stream:
            stream.read(npy.start)
            while left:
                piece = stream.read(min(PIECE, left))
                if len(piece) < min(PIECE, left):
                    raise EOFError("it ends too early")
                left -= len(piece)
                yield piece
    except (*BROKEN, OSError) as error:
        raise ConversionError(f"{quoted(name)} cannot be read: {excerpt(str(error))}") from None


def _row_major(pieces: Iterable[bytes | memoryview], npy: Npy) -> Iterator[memoryview]:
    """Column-major bytes as row-major ones, by way of a temporary file instead of memory."""
    native = BY_NAME[npy.dtype].to_numpy()
    with tempfile.TemporaryFile() as spool:
        try:
            for piece in pieces:
                spool.write(piece)
            spool.flush()
        except OSError as error:
            place = escape(tempfile.gettempdir())
            raise ConversionError(
                f"{place}: {error.strerror}: a Fortran array takes a temporary file there"
            ) from None
        if spool.tell() == 0:
            return
        array = np.memmap(spool, native, "r", shape=npy.shape, order="F")
        buffered = np.nditer(
            array, ["external_loop", "buffered"], order="C", buffersize=PIECE // native.itemsize
        )
        for part in buffered:
            yield np.ascontiguousarray(part).view(np.uint8).data


def _packed(source: Source) -> bytes:
    """The header of an npy file."""
    little = BY_NAME[source.dtype].to_numpy().newbyteorder("<")
    head = io.BytesIO()
    fields = {"descr": little.str, "fortran_order": False, "shape": source.shape}
    np.lib.format.write_array_header_1_0(head, fields)
    return head.getvalue()
