"""``weig adapter``: a bundled loader behind the adapter protocol (conformance/PROTOCOL.md)."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

from weig.backends import BACKENDS, MODES, open
from weig.backends.file import ModelFile
from weig.backends.view import TensorView
from weig.spec.dtypes import DTYPES
from weig.spec.errors import WeigError

LANGUAGES = {"pure": "python", "c": "c", "cpp": "c++", "kaitai": "python"}
PROFILES = ("core", "data", "big-endian", "deep")
HEX_LIMIT = 4096  # bytes of a tensor that data=hex shows
MAX_ALIGN = 65536
# The largest file that reading loaders copy in a test: past the longest read(2) of Linux, and no
# slower than need be. Mapping has no such limit.
MAX_READ = 2**31 - 1

Answer = dict[str, Any]


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "adapter",
        help="answer the adapter protocol with a bundled loader",
        description="Reads requests from standard input and answers each with a line of JSON, "
        "as conformance/PROTOCOL.md says, until the input ends.",
    )
    parser.add_argument("--backend", required=True, choices=BACKENDS, help="the loader")
    parser.add_argument(
        "--mode", choices=MODES, default="mmap", help="where a request does not say (%(default)s)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    # Bytes, split at LF alone: a carriage return or U+2028 in a line belongs to it.
    for line in sys.stdin.buffer:
        fields = line.rstrip(b"\n").decode("utf-8", "surrogateescape").split("\t")
        print(json.dumps(answer(fields, args.backend, args.mode)), flush=True)
    return 0


def answer(fields: list[str], backend: str, mode: str) -> Answer:
    """The answer to one request."""
    verb = fields[0]
    if verb == "hello":
        return hello(backend, mode)
    if verb != "load" or len(fields) < 3:
        return {
            "id": fields[1] if len(fields) > 1 else "",
            "status": "unsupported",
            "message": f"no verb {verb!r} with {len(fields) - 1} fields",
        }
    keys = dict(field.partition("=")[::2] for field in fields[3:])
    return {"id": fields[1], **load(fields[2], backend, keys.get("via", mode), keys)}


def hello(backend: str, mode: str) -> Answer:
    import weig

    return {
        "protocol": 1,
        "loader": f"weig-{backend}",
        "version": weig.__version__,
        "language": LANGUAGES[backend],
        "spec": ["1"],
        "profiles": [*PROFILES, *(["mmap"] if mode == "mmap" else [])],
        "dtypes": [dtype.name for dtype in DTYPES],
        "limits": {"max_size": MAX_READ} if mode == "read" else {},
    }


def load(path: str, backend: str, mode: str, keys: dict[str, str]) -> Answer:
    """Opens a file and says what is in it, or why it is refused."""
    try:
        with open(path, mode="read" if mode == "read" else "mmap", backend=backend) as file:
            if keys.get("level") == "deep":
                file.verify()
            return accepted(file, keys.get("data", "none"))
    except WeigError as error:
        status = "unsupported" if error.code == "UNSUPPORTED" else "rejected"
        place = {"field": error.field} if error.field else {}
        return {"status": status, "error": error.code, "message": error.message, **place}
    except Exception as error:
        traceback.print_exc()
        return {"status": "internal", "message": f"{type(error).__name__}: {error}"}


def accepted(file: ModelFile, data: str) -> Answer:
    from weig.backends.dlpack import address

    show = CONTENT.get(data, _nothing)
    base = address(file.read(0, file.file_size))
    tensors = []
    for view in file.views():
        foreign = view.backing == "copy"
        where = (address(view.data) if foreign else base + view.offset) or MAX_ALIGN
        tensors.append(
            {
                "name": view.name,
                "dtype": view.dtype,
                "shape": view.shape,
                "nbytes": view.nbytes,
                "backing": "copy" if foreign or file.mode == "read" else "mmap",
                "align": min(where & -where, MAX_ALIGN),
                **show(view),
            }
        )
    return {
        "status": "accepted",
        "byte_order": file.byte_order,
        "count": len(file),
        "tensors": tensors,
    }


def _nothing(view: TensorView) -> Answer:
    return {}


def _sha256(view: TensorView) -> Answer:
    # The canonical bytes are the memory itself on a little-endian host: no copy of a big tensor.
    data = view.data if sys.byteorder == "little" else view.tobytes()
    return {"sha256": hashlib.sha256(data).hexdigest()}


def _hex(view: TensorView) -> Answer:
    return {"data": view.tobytes().hex()} if view.nbytes <= HEX_LIMIT else _sha256(view)


CONTENT: dict[str, Callable[[TensorView], Answer]] = {"sha256": _sha256, "hex": _hex}
