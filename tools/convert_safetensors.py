"""safetensors as one end of a conversion.

A file is first validated by the ``safetensors`` library. Its header is then read here and checked
again (the library takes the last of two tensors with one name, and tells no offsets), and the bytes
are read from the descriptor that was checked.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from weig.backends.atomic import replacing, write_all
from weig.backends.pure.source import Source as File
from weig.backends.writer import Source
from weig.spec.dtypes import BY_NAME
from weig.spec.errors import WeigError, escape, excerpt, quoted
from weig.tools.exchange import (
    ConversionError,
    Options,
    Origin,
    counted,
    nbytes,
    pread,
    total,
    unchanged,
)

LENGTH_SIZE = 8
HEADER_ALIGN = 8
MAX_HEADER = 100_000_000  # the library's own limit
METADATA = "__metadata__"


@contextmanager
def read(path: str) -> Iterator[Origin]:
    """Opens and checks a file.

    Raises WeigError for what WEIG cannot hold, and ConversionError for a bad file.
    """
    file = File(path)  # regular files alone: the library would wait for a FIFO
    try:
        metadata = _validated(path, path)
        start, entries = _header(file)
        entries.pop(METADATA, None)
        _check_ranges(file, entries, start)
        tensors = {name: _source(file, name, entry, start) for name, entry in entries.items()}
        yield Origin(tensors, len(metadata))
    finally:
        file.close()


def write(path: str, origin: Origin, options: Options) -> None:
    """Writes the library's layout (larger elements first, so that all are aligned), then asks it.

    Raises WeigError and ConversionError; nothing is left then.
    """
    tensors = sorted(
        origin.tensors.items(), key=lambda item: (-BY_NAME[item[1].dtype].size, item[0])
    )
    header = _packed(tensors)
    with replacing(path, len(header) + total(origin, shared=False)) as fd:
        write_all(fd, memoryview(header), 0)
        position = len(header)
        pieces = counted(origin, options.progress)
        for name, source in tensors:
            for piece in pieces(name, source):
                write_all(fd, piece, position)
                position += len(piece)
        _validated(f"/dev/fd/{fd}", path)


def _validated(path: str, shown: str) -> dict[str, str]:
    """Lets the library judge a file; gives its metadata (none: absent, null and empty are one)."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise ConversionError(
            "safetensors files need the package safetensors (weig[convert])"
        ) from None
    try:
        with safe_open(path, framework="np") as handle:
            return handle.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise _bad(shown, excerpt(str(error))) from None


def _header(file: File) -> tuple[int, dict[str, Any]]:
    """Where the data starts, and the header's entries. Raises WeigError DUPLICATE_NAME."""
    length = int.from_bytes(b"".join(pread(file.fd, 0, LENGTH_SIZE, file.path)), "little")
    if length > min(MAX_HEADER, file.size - LENGTH_SIZE):
        raise _bad(file.path, f"a header of {length} bytes")
    text = b"".join(pread(file.fd, LENGTH_SIZE, length, file.path))
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise _bad(file.path, f"header: {excerpt(str(error))}") from None
    if not isinstance(header, dict):
        raise _bad(file.path, "the header is no object")
    return LENGTH_SIZE + length, header


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        # The last pair of a name is the one in `result`; the first that is another's is a double.
        last = {name: i for i, (name, _) in enumerate(pairs)}
        twice = next(name for i, (name, _) in enumerate(pairs) if last[name] != i)
        raise WeigError("DUPLICATE_NAME", f"{quoted(twice)} stands twice in the header")
    return result


def _check_ranges(file: File, entries: dict[str, Any], start: int) -> None:
    """That the tensors follow one another without a hole from ``start`` to the end of the file."""
    position = start
    for begin, end, name in sorted(_range(file, name, entry) for name, entry in entries.items()):
        if not start + begin == position <= start + end <= file.size:
            raise _bad(file.path, f"{quoted(name)} lies at {begin} to {end}")
        position = start + end
    if position != file.size:
        raise _bad(file.path, f"{file.size - position} bytes belong to no tensor")


def _range(file: File, name: str, entry: Any) -> tuple[int, int, str]:
    """Where a tensor lies, after its dtype, shape and size were checked."""
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        numbers = [*shape, begin, end]
    except (TypeError, KeyError, ValueError):
        raise _bad(file.path, f"the entry of {quoted(name)}") from None
    if any(type(number) is not int or number < 0 for number in numbers):
        raise _bad(file.path, f"the numbers of {quoted(name)}")
    if dtype not in BY_NAME:
        raise WeigError(
            "BAD_DTYPE", f"{quoted(name)}: WEIG has no {excerpt(str(dtype))}", rule="DTYPE-1"
        )
    if end - begin != math.prod(shape) * BY_NAME[dtype].size:
        shown = f"{dtype} {excerpt(str(shape))}"
        raise _bad(file.path, f"{quoted(name)} has {end - begin} bytes for {shown}")
    return begin, end, name


def _source(file: File, name: str, entry: dict[str, Any], start: int) -> Source:
    dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    return Source(dtype, shape, partial(_pieces, file, start + begin, end - begin))


def _pieces(file: File, offset: int, size: int) -> Iterator[memoryview]:
    raw = (memoryview(piece) for piece in pread(file.fd, offset, size, file.path))
    return unchanged(raw, file.check_unmodified)


def _packed(tensors: list[tuple[str, Source]]) -> bytes:
    """The length and the header of a file of these tensors, in their order."""
    entries: dict[str, Any] = {}
    position = 0
    for name, source in tensors:
        if name == METADATA:
            raise ConversionError(f"a safetensors file can have no tensor named {METADATA}")
        end = position + nbytes(source)
        entries[name] = {
            "dtype": source.dtype,
            "shape": list(source.shape),
            "data_offsets": [position, end],
        }
        position = end
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % HEADER_ALIGN)
    if len(text) > MAX_HEADER:
        raise ConversionError(
            f"the header would have {len(text)} bytes, past safetensors' {MAX_HEADER}"
        )
    return len(text).to_bytes(LENGTH_SIZE, "little") + text


def _bad(path: str, what: str) -> ConversionError:
    return ConversionError(f"{escape(path)}: not a good safetensors file: {what}")
