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
    "profiles": ["core", "data", "big-endian", "deep", "mmap", "held-mmap", "held-read"],
    "dtypes": [dtype.name for dtype in DTYPES],
}

KEYS = {"data": ("sha256", "hex", "none"), "level": ("open", "deep"), "via": ("mmap", "read")}

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


def accepted(file: WeigFile, mode: str, options: dict[str, str]) -> Answer:
    """The answer for a good file."""
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


class Session:
    """Answers requests, and keeps the file of the last ``open``."""

    def __init__(self) -> None:
        self.held: tuple[WeigFile, str] | None = None

    def load(self, path: str, options: dict[str, str], hold: bool) -> Answer:
        if self.held:
            self.held[0].close()
            self.held = None
        mode = options.get("via", "mmap")
        file = WeigFile(path, mode, options.get("level") == "deep")
        try:
            result = accepted(file, mode, options)
            if hold:
                self.held = file, mode
            return result
        finally:
            if not self.held:
                file.close()

    def work(self, fields: list[str]) -> Answer:
        """The answer to one request without its id; raises WeigError for a refusal."""
        options = dict(field.partition("=")[::2] for field in fields if "=" in field)
        if any(options.get(key, known[0]) not in known for key, known in KEYS.items()):
            return {"status": "unsupported", "message": "no such value"}
        match fields:
            case ["load" | "open" as verb, _, path, *_]:
                return self.load(path, options, verb == "open")
            case ["check", _, *_] if self.held:
                self.held[0].check_unmodified()
                return {"status": "unmodified"}
            case ["access", _, *_] if self.held:
                return accepted(*self.held, options)
        return {"status": "unsupported", "message": "no such request"}


def answer(session: Session, fields: list[str]) -> Answer:
    """The answer to one request, split at its TABs."""
    if fields[0] == "hello":
        return HELLO
    ident = fields[1] if len(fields) > 1 else ""
    try:
        return {"id": ident, **session.work(fields)}
    except WeigError as error:
        refusal = {"error": error.code, "message": error.message, "field": error.field}
        return {"id": ident, "status": "rejected", **refusal}
    except Exception as error:
        traceback.print_exc()
        return {"id": ident, "status": "internal", "message": repr(error)}


def main() -> None:
    session = Session()
    for line in sys.stdin.buffer:
        fields = line.rstrip(b"\n").decode("ascii").split("\t")
        print(json.dumps(answer(session, fields)), flush=True)


if __name__ == "__main__":
    main()
