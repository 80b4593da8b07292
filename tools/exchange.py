"""What passes between file formats: tensors whose bytes are asked for a piece at a time.

A format's module has ``read(path)``, a context manager that gives an `Origin`, and
``write(path, origin, options)``; the converter knows nothing else of it. Pieces are canonical bytes
(row-major, little-endian) of whole elements.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from weig.backends.interface import Progress
from weig.backends.writer import Source
from weig.spec.dtypes import BY_NAME
from weig.spec.errors import WeigError, escape, quoted
from weig.spec.layout import ByteOrder

PIECE = 1 << 20  # bytes; a multiple of the size of every element


class ConversionError(Exception):
    """A conversion that is refused, for a reason that is not about a WEIG file.

    ``status`` is the command's exit status: 1 where a file is the reason, 2 where the command is.
    """

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


class Origin(NamedTuple):
    """An opened source: its tensors by name, and how many entries of metadata go with them."""

    tensors: dict[str, Source]
    metadata: int = 0


class Options(NamedTuple):
    """How to write: the byte order (of WEIG), and whom to tell of bytes (done, total)."""

    byte_order: ByteOrder
    progress: Progress


class Format(Protocol):
    """A module of one format. Both functions raise WeigError or ConversionError."""

    def read(self, path: str) -> AbstractContextManager[Origin]: ...

    def write(self, path: str, origin: Origin, options: Options) -> None: ...


def nbytes(source: Source) -> int:
    """The size of a tensor in bytes."""
    return math.prod(source.shape) * BY_NAME[source.dtype].size


def total(origin: Origin, *, shared: bool) -> int:
    """The bytes of all tensors; with ``shared``, those of aliases once."""
    sizes: dict[object, int] = {}
    for name, source in origin.tensors.items():
        size = nbytes(source)
        alone = not shared or source.key is None
        sizes[name if alone else (source.key, source.dtype, size)] = size
    return sum(sizes.values())


def counted(origin: Origin, progress: Progress) -> Callable[[str, Source], Iterator[memoryview]]:
    """A function that gives a tensor's pieces and tells ``progress`` of all of them together.

    It looks at BOOLs (BOOL-1), as WEIG's own writer does: other programs take a 2 for neither.
    """
    everything, done = total(origin, shared=False), 0

    def pieces(name: str, source: Source) -> Iterator[memoryview]:
        nonlocal done
        for piece in source.chunks():
            data = memoryview(piece).cast("B")
            if source.dtype == "BOOL" and bytes(data).translate(None, b"\0\1"):
                message = f"{quoted(name)} has a BOOL that is neither 0 nor 1"
                raise WeigError("BAD_BOOL", message, rule="BOOL-1")
            yield data
            done += len(data)
            progress(done, everything)

    return pieces


def reordered(pieces: Iterable[bytes | memoryview], dtype: str, order: str) -> Iterator[memoryview]:
    """Pieces of whole elements in the byte order ``order``, as little-endian ones."""
    unit = BY_NAME[dtype].unit
    if order == "little" or unit == 1:
        for piece in pieces:
            yield memoryview(piece).cast("B")
        return
    import numpy as np

    for piece in pieces:
        yield np.frombuffer(piece, f">u{unit}").astype(f"<u{unit}").view(np.uint8).data


def unchanged(
    pieces: Iterable[memoryview], check_unmodified: Callable[[], None]
) -> Iterator[memoryview]:
    """The pieces, and after the last one the check that the file did not change meanwhile."""
    yield from pieces
    check_unmodified()


def pread(fd: int, offset: int, size: int, path: str) -> Iterator[bytes]:
    """``size`` bytes of a file from ``offset`` on, in pieces. Raises WeigError IO or TRUNCATED."""
    end = offset + size
    while offset < end:
        piece, want = b"", min(PIECE, end - offset)
        while len(piece) < want:
            try:
                more = os.pread(fd, want - len(piece), offset + len(piece))
            except OSError as error:
                raise WeigError("IO", f"{escape(path)}: {error.strerror}") from None
            if not more:
                raise WeigError("TRUNCATED", f"{escape(path)} ended while it was read")
            piece += more
        yield piece
        offset += want
