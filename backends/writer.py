"""The writer (SPEC.md, sections 15 and 16): the canonical file, a tensor at a time.

All names, dtypes and shapes are known before the first byte is written; the tensors' bytes are
asked for one after another and let go at once, so that memory does not grow with the model.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from weig.backends.atomic import replacing, write_all
from weig.backends.interface import Progress
from weig.backends.view import TensorView
from weig.spec.dtypes import BY_NAME, DTYPES, Dtype
from weig.spec.errors import WeigError, excerpt, quoted
from weig.spec.layout import (
    DATA_ALIGN,
    FILE_SIZE_ALIGN,
    HEADER_FORMAT,
    HEADER_SIZE,
    MAGIC,
    MAX_NAME_BYTES,
    MAX_NUMBER,
    MAX_RANK,
    RECORD_FORMAT,
    RECORD_SIZE,
    SENTINEL,
    SENTINEL_SIZE,
    STRUCT_ORDER,
    VERSION,
    WRITER_DATA_ALIGN,
    ByteOrder,
    align_up,
)

SWAP_CHUNK = 1 << 18  # stays in the processor's cache
NUMPY_NAMES = {dtype.numpy: dtype for dtype in DTYPES}


class Source(NamedTuple):
    """A tensor to be written whose bytes are asked for when their turn comes.

    ``chunks()`` gives its canonical bytes (row-major, little-endian) in pieces, each a multiple of
    the element size. Sources with equal ``key`` (not None) of the same dtype and size hold the same
    bytes: they are written once, as aliases.
    """

    dtype: str
    shape: tuple[int, ...]
    chunks: Callable[[], Iterable[bytes | memoryview]]
    key: Hashable = None


class _Tensor(NamedTuple):
    name: bytes
    label: str
    dtype: Dtype
    shape: tuple[int, ...]
    nbytes: int
    key: Hashable


class _Plan(NamedTuple):
    """Where everything stands: all before the data region as bytes, and the data's offsets."""

    head: bytes
    file_size: int
    offsets: list[int]  # of each tensor, in record order
    writes: list[int]  # the records whose bytes are written, in the order of their offsets


def save(
    path: str,
    tensors: Mapping[str, Any],
    *,
    byte_order: ByteOrder = "little",
    order: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> None:
    """Writes the canonical file of ``tensors`` to ``path``, complete or not at all.

    A value is a `TensorView`, a `Source`, or anything with ``dtype`` and ``shape`` that numpy takes
    as an array. ``tensors[name]`` is asked twice, for the facts and for the bytes, and nothing is
    kept between. Views of one file with the same place, and (in a dict) arrays of the same memory,
    become aliases. ``order`` names tensors in the order in which they will be read: their bytes
    come first, in that order. ``path`` may be the file that the tensors are mapped from.

    Raises WeigError, leaving ``path`` as it was, for what no file can hold (WRITE-1) and for what
    the operating system refuses; ValueError for a wrong argument.
    """
    if byte_order not in STRUCT_ORDER:
        raise ValueError(f"byte_order must be 'little' or 'big', not {byte_order!r}")
    listed = sorted((_facts(tensors, name) for name in tensors), key=lambda tensor: tensor.name)
    plan = _plan(listed, _access_order(listed, order), byte_order)
    total, done = sum(listed[i].nbytes for i in plan.writes), 0
    with replacing(path, plan.file_size) as fd:
        write_all(fd, memoryview(plan.head), 0)
        for i in plan.writes:
            tensor, offset = listed[i], plan.offsets[i]
            for piece in _pieces(tensors[tensor.label], tensor, byte_order):
                if len(piece) > plan.offsets[i] + tensor.nbytes - offset:
                    raise _changed(tensor)
                if tensor.dtype.name == "BOOL":
                    _check_bool(tensor, piece)
                write_all(fd, piece, offset)
                offset += len(piece)
                done += len(piece)
                if progress:
                    progress(done, total)
            if offset != plan.offsets[i] + tensor.nbytes:
                raise _changed(tensor)
        sentinel = SENTINEL.to_bytes(SENTINEL_SIZE, byte_order)
        write_all(fd, memoryview(sentinel), plan.file_size - SENTINEL_SIZE)


def _facts(tensors: Mapping[str, Any], label: str) -> _Tensor:
    """What is known of a tensor before its bytes; everything of WRITE-1 that they do not show."""
    name = _name(label)
    value = tensors[label]
    dtype = _dtype(value, label)
    shape = tuple(int(dim) for dim in value.shape)
    if len(shape) > MAX_RANK:
        raise WeigError("BAD_SHAPE", f"{quoted(label)} has rank {len(shape)}, past {MAX_RANK}")
    size = dtype.size
    for dim in shape:
        if not 0 <= dim <= MAX_NUMBER:
            raise WeigError("NUMBER_TOO_LARGE", f"{quoted(label)} has a dimension {dim}")
        size *= dim or 1
    if size > MAX_NUMBER:
        product = f"the product of {excerpt(str(shape))}"
        raise WeigError("BAD_SHAPE", f"{quoted(label)}: {product} is past {MAX_NUMBER}")
    key = _alias_key(value, in_dict=type(tensors) is dict)
    return _Tensor(name, label, dtype, shape, 0 if 0 in shape else size, key)


def _name(label: object) -> bytes:
    """NAME-3 to NAME-5 for a name that is given."""
    if not isinstance(label, str):
        raise WeigError("BAD_NAME", f"a name must be a str, not {type(label).__name__}")
    try:
        name = label.encode("utf-8")
    except UnicodeEncodeError:
        raise WeigError("BAD_NAME", f"{quoted(label)} has a lone surrogate") from None
    if not 1 <= len(name) <= MAX_NAME_BYTES:
        raise WeigError("BAD_NAME", f"a name has {len(name)} bytes, not 1 to {MAX_NAME_BYTES}")
    if any(byte < 0x20 or byte == 0x7F for byte in name):
        raise WeigError("BAD_NAME", f"{quoted(label)} has a control byte")
    return name


def _dtype(value: Any, label: str) -> Dtype:
    if isinstance(value, TensorView | Source):
        if value.dtype not in BY_NAME:
            raise WeigError("BAD_DTYPE", f"{quoted(label)}: no dtype {quoted(value.dtype)}")
        return BY_NAME[value.dtype]
    import numpy as np

    if isinstance(value, np.ma.MaskedArray):
        raise WeigError("UNSUPPORTED", f"{quoted(label)}: the format has no mask")
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        raise WeigError(
            "UNSUPPORTED", f"{quoted(label)}: {type(value).__name__} has no dtype and shape"
        )
    try:
        known = np.dtype(value.dtype).newbyteorder("=").name
    except TypeError:  # another library's dtype: only its array tells
        known = np.asarray(value).dtype.name
    if known not in NUMPY_NAMES:
        raise WeigError("BAD_DTYPE", f"{quoted(label)}: the format has no {excerpt(known)}")
    return NUMPY_NAMES[known]


def _alias_key(value: Any, in_dict: bool) -> Hashable:
    """What is equal for tensors that are the same memory; None where that cannot be known."""
    if isinstance(value, Source):
        return None if value.key is None else ("source", value.key)
    if isinstance(value, TensorView):
        return ("view", value.owner, value.offset)
    interface = getattr(value, "__array_interface__", None)
    # An array that only the mapping's own code holds may be gone, and its address another's.
    if not in_dict or interface is None or interface.get("strides") is not None:
        return None
    return ("memory", interface["data"][0], interface["typestr"])


def _access_order(listed: list[_Tensor], order: Sequence[str] | None) -> list[int]:
    """The record indices in the order in which their bytes are laid out."""
    if order is None:
        return list(range(len(listed)))
    index = {tensor.label: i for i, tensor in enumerate(listed)}
    unknown = [name for name in order if name not in index]
    if unknown or len(set(order)) != len(order):
        raise ValueError(f"order names tensors that are not there, or one twice: {unknown[:3]}")
    first = [index[name] for name in order]
    chosen = set(first)
    return first + [i for i in range(len(listed)) if i not in chosen]


def _plan(listed: list[_Tensor], access: list[int], byte_order: ByteOrder) -> _Plan:
    """The canonical layout (SPEC.md, section 16)."""
    shapes_at = HEADER_SIZE + RECORD_SIZE * len(listed)
    names_at = shapes_at + 8 * sum(len(tensor.shape) for tensor in listed)
    aux_end = names_at + sum(len(tensor.name) + 1 for tensor in listed)
    data_offset = align_up(aux_end, WRITER_DATA_ALIGN)
    offsets, writes, end = _data_offsets(listed, access, data_offset)
    file_size = align_up(end, FILE_SIZE_ALIGN) + SENTINEL_SIZE
    if file_size > MAX_NUMBER:
        raise WeigError("NUMBER_TOO_LARGE", f"the file would have {file_size} bytes")
    mark = STRUCT_ORDER[byte_order]
    parts = [
        struct.pack(
            mark + HEADER_FORMAT,
            *(MAGIC, VERSION, len(listed), HEADER_SIZE, data_offset, file_size, 0, 0, 0),
        )
    ]
    pack = struct.Struct(mark + RECORD_FORMAT).pack
    for tensor, offset in zip(listed, offsets, strict=True):
        rank = len(tensor.shape)
        parts.append(pack(names_at, tensor.dtype.code, 0, shapes_at, rank, offset, tensor.nbytes))
        names_at += len(tensor.name) + 1
        shapes_at += 8 * rank
    parts += [struct.pack(f"{mark}{len(tensor.shape)}Q", *tensor.shape) for tensor in listed]
    parts += [tensor.name + b"\0" for tensor in listed]
    return _Plan(b"".join(parts), file_size, offsets, writes)


def _data_offsets(
    listed: list[_Tensor], access: list[int], start: int
) -> tuple[list[int], list[int], int]:
    """Offsets in record order, the records that are written, and where the last one ends."""
    offsets = [0] * len(listed)
    writes: list[int] = []
    groups: dict[tuple[Hashable, int, int], int] = {}
    position = end = start
    for i in access:
        tensor = listed[i]
        group = (tensor.key, tensor.dtype.code, tensor.nbytes)
        if tensor.nbytes and tensor.key is not None and group in groups:
            offsets[i] = groups[group]
            continue
        position = align_up(position, DATA_ALIGN)
        groups[group] = offsets[i] = position
        position += tensor.nbytes
        end = max(end, position)
        if tensor.nbytes:
            writes.append(i)
    return offsets, writes, end


def _pieces(value: Any, tensor: _Tensor, byte_order: ByteOrder) -> Iterable[memoryview]:
    """The tensor's bytes in the file's order."""
    source_order: ByteOrder = "little" if isinstance(value, Source) else sys.byteorder
    for chunk in _chunks(value, tensor):
        piece = memoryview(chunk).cast("B")
        if source_order == byte_order or tensor.dtype.unit == 1:
            yield piece
        else:
            yield from _swapped(piece, tensor)


def _chunks(value: Any, tensor: _Tensor) -> Iterable[bytes | memoryview]:
    """The tensor's bytes: little-endian of a Source, in the host's order of anything else."""
    if isinstance(value, Source):
        return value.chunks()
    if isinstance(value, TensorView):
        return (value.data,)
    import numpy as np

    array = np.ascontiguousarray(value)
    if array.dtype.newbyteorder("=").name != tensor.dtype.numpy:
        raise _changed(tensor)
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return (native.reshape(-1).view(np.uint8).data,)


def _check_bool(tensor: _Tensor, piece: memoryview) -> None:
    import numpy as np

    if np.frombuffer(piece, np.uint8).max(initial=0) > 1:
        raise WeigError("BAD_BOOL", f"{quoted(tensor.label)} holds an element past 1")


def _swapped(piece: memoryview, tensor: _Tensor) -> Iterable[memoryview]:
    import numpy as np

    if len(piece) % tensor.dtype.size:
        raise ValueError(f"a piece of {quoted(tensor.label)} is not a whole number of elements")
    native = np.dtype(f"u{tensor.dtype.unit}")
    for start in range(0, len(piece), SWAP_CHUNK):
        units = np.frombuffer(piece[start : start + SWAP_CHUNK], native.newbyteorder())
        yield units.astype(native).view(np.uint8).data


def _changed(tensor: _Tensor) -> WeigError:
    return WeigError(
        "BAD_DATA_SIZE",
        f"{quoted(tensor.label)} did not give the {tensor.nbytes} bytes of {tensor.dtype.name} "
        f"{list(tensor.shape)} when they were asked for",
    )
