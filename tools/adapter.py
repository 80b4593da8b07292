"""``weig adapter``: a bundled loader behind the adapter protocol (conformance/PROTOCOL.md)."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, cast

from weig.backends import BACKENDS, MODES, open
from weig.backends.file import ModelFile
from weig.backends.interface import Mode
from weig.backends.view import TensorView
from weig.spec.dtypes import DTYPES
from weig.spec.errors import WeigError

LANGUAGES = {"pure": "python", "c": "c", "cpp": "c++", "kaitai": "python"}
PROFILES = ("core", "data", "big-endian", "deep", "held-mmap", "held-read")
LEVELS = ("open", "deep")
HEX_LIMIT = 4096  # bytes of a tensor that data=hex shows
MAX_ALIGN = 65536
# The largest file that reading loaders copy in a test: past the longest read(2) of Linux, and no
# slower than need be. Mapping has no such limit.
MAX_READ = 2**31 - 1

Answer = dict[str, Any]
Keys = dict[str, str]


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
    adapter = Adapter(args.backend, args.mode)
    # Bytes, split at LF alone: a carriage return or U+2028 in a line belongs to it.
    for line in sys.stdin.buffer:
        fields = line.rstrip(b"\n").decode("utf-8", "surrogateescape").split("\t")
        print(json.dumps(adapter.answer(fields)), flush=True)
    return 0


class Adapter:
    """Answers requests; ``mode`` is how files are opened where a request does not say."""

    def __init__(self, backend: str, mode: str) -> None:
        self._backend = backend
        self._mode = mode
        self._held: ModelFile | None = None

    def answer(self, fields: list[str]) -> Answer:
        """The answer to one request."""
        match fields:
            case ["hello", *_]:
                return hello(self._backend, self._mode)
            case ["load" | "open" as verb, ident, path, *keys]:
                return {"id": ident, **_refusals(self._load, path, _keys(keys), verb == "open")}
            case ["check", ident, *_] if self._held is not None:
                return {"id": ident, **_refusals(_check, self._held)}
            case ["access", ident, *keys] if self._held and _data(_keys(keys)) in CONTENT:
                return {"id": ident, **_refusals(accepted, self._held, _data(_keys(keys)))}
        return {
            "id": fields[1] if len(fields) > 1 else "",
            "status": "unsupported",
            "message": f"no verb {fields[0]!r} with {len(fields) - 1} fields",
        }

    def _load(self, path: str, keys: Keys, hold: bool) -> Answer:
        """Opens a file, for ``hold`` until the next one, and says what is in it."""
        if self._held is not None:
            self._held.close()
            self._held = None
        mode = keys.get("via", self._mode)
        for key, value, known in (
            ("via", mode, MODES), ("data", _data(keys), CONTENT),
            ("level", keys.get("level", "open"), LEVELS),
        ):  # fmt: skip
            if value not in known:
                return {"status": "unsupported", "message": f"no {key} {value!r}"}
        if mode == "read" and _is_good_giant(path, self._backend):
            return {"status": "unsupported", "message": f"more than {MAX_READ} bytes to copy"}
        file = open(path, mode=cast(Mode, mode), backend=self._backend)
        try:
            if keys.get("level") == "deep":
                file.verify()
            result = accepted(file, _data(keys))
            if hold:
                self._held = file
            return result
        finally:
            if self._held is not file:
                file.close()


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


def _is_good_giant(path: str, backend: str) -> bool:
    """Whether only its size is in the way of copying a file. A bad one is left to the copier."""
    try:
        if os.stat(path).st_size > MAX_READ:
            open(path, mode="mmap", backend=backend).close()
            return True
    except (OSError, WeigError):
        pass
    return False


def _keys(fields: list[str]) -> Keys:
    return dict(field.partition("=")[::2] for field in fields)


def _data(keys: Keys) -> str:
    return keys.get("data", "none")


def _check(file: ModelFile) -> Answer:
    file.check_unmodified()
    return {"status": "unmodified"}


def _refusals(work: Callable[..., Answer], *arguments: Any) -> Answer:
    """What ``work`` answers, or why it refused."""
    try:
        return work(*arguments)
    except WeigError as error:
        status = "unsupported" if error.code == "UNSUPPORTED" else "rejected"
        place = {"field": error.field} if error.field else {}
        return {"status": status, "error": error.code, "message": error.message, **place}
    except Exception as error:
        traceback.print_exc()
        return {"status": "internal", "message": f"{type(error).__name__}: {error}"}


def accepted(file: ModelFile, data: str) -> Answer:
    from weig.backends.dlpack import address

    show = CONTENT[data]
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


CONTENT: dict[str, Callable[[TensorView], Answer]] = {
    "none": _nothing,
    "sha256": _sha256,
    "hex": _hex,
}
