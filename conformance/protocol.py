"""The adapter protocol, version 1 (PROTOCOL.md): requests to write, answers to read.

A request is one line of text, an answer one JSON object on one line. An answer is read strictly:
what does not follow PROTOCOL.md to the letter raises `ProtocolError` and is *garbage*, so that an
adapter's author hears of it here and not from another suite.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from weig.conformance.text import excerpt

__all__ = [
    "ALIGN_MAPPED",
    "BACKINGS",
    "MAX_DATA",
    "MAX_LINE",
    "PROFILES",
    "VERSION",
    "Accepted",
    "Answer",
    "Hello",
    "Internal",
    "ProtocolError",
    "Rejected",
    "TensorAnswer",
    "Unmodified",
    "Unsupported",
    "access_request",
    "check_request",
    "hello_request",
    "load_request",
    "open_request",
    "parse_answer",
    "parse_hello",
]

VERSION = 1
MAX_DATA = 4096  # bytes of a tensor that may stand in an answer as hex
MAX_LINE = 64 << 20  # bytes of the longest answer; bounds the memory of the suite, not of a loader
MAX_ALIGN = 65536
ALIGN_MAPPED = 64  # what the address of a mapped tensor must be a multiple of
BACKINGS = ("mmap", "copy")
PROFILES = ("core", "data", "big-endian", "deep", "mmap", "held-mmap", "held-read")

_SHA256 = re.compile(r"[0-9a-f]{64}")
_HEX = re.compile(r"(?:[0-9a-f]{2})*")


class ProtocolError(Exception):
    """An answer that PROTOCOL.md does not allow; the text says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Hello:
    """What an adapter claims. ``dtypes`` is None where it names none: it claims them all."""

    loader: str
    version: str
    language: str
    spec: tuple[str, ...]
    profiles: frozenset[str]
    dtypes: frozenset[str] | None = None
    limits: Mapping[str, int] = field(default_factory=dict)

    @property
    def strange(self) -> list[str]:
        """The profiles that it claims and that there are not, sorted."""
        return sorted(self.profiles - set(PROFILES))


@dataclass(frozen=True, slots=True)
class TensorAnswer:
    """One tensor of an accepted answer; None is what the adapter did not say."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    sha256: str | None = None
    data: bytes | None = None
    backing: str | None = None
    align: int | None = None


@dataclass(frozen=True, slots=True)
class Accepted:
    """The file is good and this is what it holds, in file order."""

    byte_order: str
    count: int
    tensors: tuple[TensorAnswer, ...]


@dataclass(frozen=True, slots=True)
class Rejected:
    """A deliberate refusal, with a code of the format's specification."""

    error: str
    message: str = ""
    field: str = ""


@dataclass(frozen=True, slots=True)
class Unsupported:
    """Legal, as far as the loader can tell, but it cannot do it."""

    message: str = ""


@dataclass(frozen=True, slots=True)
class Internal:
    """An exception that the loader's author did not foresee."""

    message: str = ""


@dataclass(frozen=True, slots=True)
class Unmodified:
    """The file that is held open is still what it was."""


Answer = Accepted | Rejected | Unsupported | Internal | Unmodified


def hello_request() -> bytes:
    """The line that asks an adapter who it is and what it claims."""
    return f"hello\t{VERSION}\n".encode("ascii")


def load_request(ident: str, path: str, data: str, level: str, via: str | None = None) -> bytes:
    """The line that asks an adapter to load one file.

    Raises ValueError where a field could not be told from two: no field holds a blank, a TAB or
    anything but printable ASCII.
    """
    return _request("load", ident, path, f"data={data}", f"level={level}", *_via(via))


def open_request(ident: str, path: str, level: str, via: str) -> bytes:
    """The line that asks an adapter to load one file and hold it open, its content untouched."""
    return _request("open", ident, path, "data=none", f"level={level}", *_via(via))


def check_request(ident: str) -> bytes:
    """The line that asks whether the file that is held open was changed."""
    return _request("check", ident)


def access_request(ident: str, data: str) -> bytes:
    """The line that asks for the tensors of the file that is held open."""
    return _request("access", ident, f"data={data}")


def _via(way: str | None) -> tuple[str, ...]:
    return () if way is None else (f"via={way}",)


def _request(*fields: str) -> bytes:
    for text in fields:
        if not text.isascii() or not text.isprintable() or " " in text:
            raise ValueError(f"not a field of a request: {text!r}")
    return "\t".join(fields).encode("ascii") + b"\n"


def parse_hello(line: bytes) -> Hello:
    """Reads the answer to ``hello``; raises ProtocolError."""
    table = _object(line)
    protocol = _whole(table, "protocol")
    if protocol != VERSION:
        raise ProtocolError(f"speaks protocol {protocol}, the suite speaks {VERSION}")
    dtypes = _texts(table, "dtypes") if "dtypes" in table else None
    limits = table.get("limits", {})
    if not isinstance(limits, dict):
        _wrong("limits", "an object of numbers", limits)
    return Hello(
        loader=_text(table, "loader"),
        version=_text(table, "version"),
        language=_text(table, "language"),
        spec=tuple(_texts(table, "spec")),
        profiles=frozenset(_texts(table, "profiles")),
        dtypes=None if dtypes is None else frozenset(dtypes),
        limits={key: _whole(limits, key, "limits.") for key in limits},
    )


def parse_answer(line: bytes, ident: str) -> Answer:
    """Reads the answer to the request ``ident``; raises ProtocolError."""
    table = _object(line)
    got = table.get("id")
    if got != ident:
        raise ProtocolError(f"the id is {excerpt(got)}, the request's is {excerpt(ident)}")
    match _text(table, "status"):
        case "accepted":
            return _accepted(table)
        case "rejected":
            code = _text(table, "error")
            if not code:
                raise ProtocolError("error is empty: a refusal names its code")
            return Rejected(code, _optional(table, "message"), _optional(table, "field"))
        case "unsupported":
            return Unsupported(_optional(table, "message"))
        case "internal":
            return Internal(_optional(table, "message"))
        case "unmodified":
            return Unmodified()
        case other:
            raise ProtocolError(f"no such status: {excerpt(other)}")


def _accepted(table: Mapping[str, Any]) -> Accepted:
    order = _text(table, "byte_order")
    if order not in ("little", "big"):
        _wrong("byte_order", '"little" or "big"', order)
    tensors = table.get("tensors")
    if not isinstance(tensors, list):
        _wrong("tensors", "a list", tensors)
    return Accepted(
        byte_order=order,
        count=_whole(table, "count"),
        tensors=tuple(_tensor(item, f"tensors[{i}]") for i, item in enumerate(tensors)),
    )


def _tensor(table: object, where: str) -> TensorAnswer:
    if not isinstance(table, dict):
        _wrong(where, "an object", table)
    at = where + "."
    shape = table.get("shape")
    if not isinstance(shape, list) or not all(type(dim) is int and dim >= 0 for dim in shape):
        _wrong(at + "shape", "a list of whole numbers", shape)
    digest = table.get("sha256")
    if digest is not None and not (isinstance(digest, str) and _SHA256.fullmatch(digest)):
        _wrong(at + "sha256", "64 lower-case hex digits", digest)
    align = _whole(table, "align", at) if "align" in table else None
    if align is not None and (align & (align - 1) or not 1 <= align <= MAX_ALIGN):
        _wrong(at + "align", f"a power of two up to {MAX_ALIGN}", align)
    backing = table.get("backing")
    if backing is not None and backing not in BACKINGS:
        _wrong(at + "backing", " or ".join(f'"{word}"' for word in BACKINGS), backing)
    return TensorAnswer(
        name=_text(table, "name", at),
        dtype=_text(table, "dtype", at),
        shape=tuple(shape),
        nbytes=_whole(table, "nbytes", at),
        sha256=digest,
        data=_data(table, at),
        backing=backing,
        align=align,
    )


def _data(table: Mapping[str, Any], at: str) -> bytes | None:
    text = table.get("data")
    if text is None:
        return None
    if not isinstance(text, str) or not _HEX.fullmatch(text):
        _wrong(at + "data", "pairs of lower-case hex digits", text)
    if len(text) > 2 * MAX_DATA:
        raise ProtocolError(f"{at}data: {len(text) // 2} bytes; past {MAX_DATA}, send sha256")
    return bytes.fromhex(text)


def _object(line: bytes) -> dict[str, Any]:
    """The one JSON object of an answer line (the line as read, with its LF)."""
    if not line.endswith(b"\n"):
        raise ProtocolError("the line has no end (LF)")
    body = line[:-1]
    if body.endswith(b"\r"):
        raise ProtocolError("the line ends with CR LF; it must end with LF alone")
    if not body.strip():
        raise ProtocolError("the line is empty")
    if body.startswith(b"\xef\xbb\xbf"):
        raise ProtocolError("the line starts with a byte order mark")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ProtocolError(f"not UTF-8 at byte {error.start}: {excerpt(body)}") from None
    try:
        table = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
        if "\\u" in text:  # only an escape can make half a surrogate pair
            json.dumps(table, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise ProtocolError("a string holds half a surrogate pair") from None
    except RecursionError:
        raise ProtocolError("nested too deeply") from None
    except ValueError as error:
        raise ProtocolError(f"not JSON ({error}): {excerpt(text)}") from None
    if not isinstance(table, dict):
        raise ProtocolError(f"not a JSON object: {excerpt(text)}")
    return table


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ProtocolError(f"the key {excerpt(twice)} stands twice in one object")
    return table


def _no_constant(word: str) -> NoReturn:
    raise ProtocolError(f"{word} is not JSON")


def _text(table: Mapping[str, Any], key: str, at: str = "") -> str:
    value = table.get(key)
    if not isinstance(value, str):
        _wrong(at + key, "a string", value)
    return value


def _optional(table: Mapping[str, Any], key: str) -> str:
    """A string for people; nothing where it is missing, null or something else."""
    value = table.get(key)
    return value if isinstance(value, str) else ""


def _texts(table: Mapping[str, Any], key: str) -> list[str]:
    value = table.get(key)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        _wrong(key, "a list of strings", value)
    return value


def _whole(table: Mapping[str, Any], key: str, at: str = "") -> int:
    value = table.get(key)
    if type(value) is not int or value < 0:
        _wrong(at + key, "a whole number, written without fraction or exponent", value)
    return value


def _wrong(where: str, want: str, got: object) -> NoReturn:
    raise ProtocolError(f"{where} must be {want}, not {excerpt(got)}")
