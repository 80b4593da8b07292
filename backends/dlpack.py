"""DLPack capsules over a tensor's own memory, versions 0 and 1, by ctypes.

numpy's own exporter knows neither BF16 nor F8, and refuses read-only memory to older consumers. The
structures are those of dlpack.h 1.1.
"""

from __future__ import annotations

import ctypes
from typing import Any

from weig.backends.view import TensorView
from weig.spec.dtypes import Dtype

try:
    from weig.backends._buffer import dlpack_capsule
except ImportError:
    dlpack_capsule = None  # type: ignore[assignment]

CPU = (1, 0)
VERSION = (1, 1)
READ_ONLY, IS_COPIED = 1, 2


class _Device(ctypes.Structure):
    _fields_ = (("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))


class _ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", _Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


class _PyBuffer(ctypes.Structure):
    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


_api: Any = ctypes.pythonapi
_api.PyObject_GetBuffer.argtypes = (ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int)
_api.PyBuffer_Release.argtypes = (ctypes.POINTER(_PyBuffer),)

# What a consumer still uses, by the address of its structure: (structure, dims, strides, buffer).
_alive: dict[int, tuple[Any, Any, Any, _PyBuffer]] = {}


@_Deleter  # type: ignore[untyped-decorator]
def _delete(address: int) -> None:
    *_, buffer = _alive.pop(address)
    _api.PyBuffer_Release(ctypes.byref(buffer))


def address(data: memoryview) -> int:
    """Where the bytes of a buffer lie in memory; good for as long as the buffer is."""
    buffer = _PyBuffer()
    _api.PyObject_GetBuffer(data, ctypes.byref(buffer), 0)
    where: int = buffer.buf or 0
    _api.PyBuffer_Release(ctypes.byref(buffer))
    return where


def capsule(
    view: TensorView,
    dtype: Dtype,
    max_version: tuple[int, int] | None,
    device: tuple[int, int] | None,
    copy: bool | None,
) -> object:
    """The capsule of ``view.__dlpack__``.

    Raises BufferError for another device, and where the native part of weig is not built.
    """
    if dlpack_capsule is None:
        raise BufferError("DLPack needs the native part of weig, which is not built here")
    if device is not None and tuple(device) != CPU:
        raise BufferError("the tensors of a file are in CPU memory")
    data = memoryview(bytearray(view.data)) if copy else view.data
    if max_version is not None and max_version[0] >= 1:
        versioned = _ManagedVersioned(major=VERSION[0], minor=VERSION[1], deleter=_delete)
        versioned.flags = IS_COPIED if copy else READ_ONLY
        return _export(versioned, data, view.shape, dtype)
    return _export(_Managed(deleter=_delete), data, view.shape, dtype)


def _export(managed: Any, data: memoryview, shape: tuple[int, ...], dtype: Dtype) -> object:
    dims = (ctypes.c_int64 * len(shape))(*shape)
    strides = (ctypes.c_int64 * len(shape))(*_strides(shape))
    buffer = _PyBuffer()
    _api.PyObject_GetBuffer(data, ctypes.byref(buffer), 0)
    tensor = managed.tensor
    tensor.data = buffer.buf
    tensor.device = _Device(*CPU)
    tensor.ndim = len(shape)
    tensor.dtype = _DataType(dtype.dlpack, 8 * dtype.size, 1)
    tensor.shape = dims
    tensor.strides = strides
    address = ctypes.addressof(managed)
    _alive[address] = (managed, dims, strides, buffer)
    deleter = ctypes.cast(_delete, ctypes.c_void_p).value
    return dlpack_capsule(address, deleter, isinstance(managed, _ManagedVersioned))


def _strides(shape: tuple[int, ...]) -> list[int]:
    """Strides in elements of a dense row-major array."""
    result, step = [], 1
    for dim in reversed(shape):
        result.append(step)
        step *= max(dim, 1)
    return result[::-1]
