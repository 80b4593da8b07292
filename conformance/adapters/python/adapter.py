"""The reader of this folder behind the adapter protocol (PROTOCOL.md)."""

from __future__ import annotations

import ctypes
import hashlib
import json
import sys
import traceback
from typing import Any

from weig_reader import DTYPES, Tensor, WeigError, WeigFile

MAX_HEX = 4096  # bytes of a tensor that an answer may show
MAX_ALIGN = 65536
HELLO = {
    "protocol": 1,
    "loader": "weig-python",
    "version": "0.1.0",
    "language": "python",
    "spec": ["1"],
    "profiles": ["core", "data", "big-endian", "deep", "mmap"],
    "dtypes": [dtype.name for dtype in DTYPES],
}

Answer = dict[str, Any]


class Buffer(ctypes.Structure):
    """The beginning of Python's Py_buffer (its whole size is 80 bytes): where the memory is."""

    _fields_ = (("address", ctypes.c_void_p), ("rest", ctypes.c_char * 120))


def align(view: memoryview) -> int:
    """The largest power of two that divides the address of the first byte, at most 65536.

    There is no plain way to ask: ctypes wants memory that may be written to.
    """
    buffer = Buffer()
    python = ctypes.pythonapi
    python.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(buffer), 0)
    address = buffer.address or 0
    python.PyBuffer_Release(ctypes.byref(buffer))
    return min(address & -address or MAX_ALIGN, MAX_ALIGN)


def load(path: str, options: dict[str, str]) -> Answer:
    """The answer for a good file; raises WeigError for a bad one."""
    mode = options.get("via", "mmap")
    with WeigFile(path, mode, options.get("level") == "deep") as file:
        digests: dict[tuple[int, int, str], Answer] = {}  # aliases are read once
        tensors = []
        for tensor in file:
            item = {
                "name": tensor.name,
                "dtype": tensor.dtype.name,
                "shape": tensor.shape,
                "nbytes": tensor.nbytes,
                "backing": "mmap" if mode == "mmap" else "copy",
                "align": align(tensor.raw),
            }
            if options.get("data") != "none":
                place = (tensor.record.data_offset, tensor.nbytes, tensor.dtype.name)
                if place not in digests:
                    digests[place] = content(tensor, options.get("data") == "hex")
                item.update(digests[place])
            tensors.append(item)
        order = "little" if file.order == "<" else "big"
        return {"status": "accepted", "byte_order": order, "count": len(file), "tensors": tensors}


def content(tensor: Tensor, shown: bool) -> Answer:
    """The canonical bytes, or their digest."""
    if shown and tensor.nbytes <= MAX_HEX:
        return {"data": b"".join(tensor.chunks("<")).hex()}
    digest = hashlib.sha256()
    for piece in tensor.chunks("<"):
        digest.update(piece)
    return {"sha256": digest.hexdigest()}


def answer(fields: list[str]) -> Answer:
    """The answer to one request, split at its TABs."""
    verb, ident, path = (*fields, "", "")[:3]
    if verb == "hello":
        return HELLO
    if verb != "load" or not path:
        return {"id": ident, "status": "unsupported", "message": "no such request"}
    options = dict(field.partition("=")[::2] for field in fields[3:])
    try:
        return {"id": ident, **load(path, options)}
    except WeigError as error:
        refusal = {"error": error.code, "message": error.message, "field": error.field}
        return {"id": ident, "status": "rejected", **refusal}
    except Exception as error:
        traceback.print_exc()
        return {"id": ident, "status": "internal", "message": repr(error)}


def main() -> None:
    for line in sys.stdin.buffer:
        print(json.dumps(answer(line.rstrip(b"\n").decode("ascii").split("\t"))), flush=True)


if __name__ == "__main__":
    main()
