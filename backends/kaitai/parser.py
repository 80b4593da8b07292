"""The generated parser, and its errors turned into ours.

spec/weig.ksy says most rules; every field and every assertion in it names its rule in a key that
the compiler ignores. tools/ksc.mjs collects these keys into spec/generated/checks.json, by the path
that the generated code puts into its errors. So the .ksy alone knows which check stands for which
rule, and rules.toml alone knows which code that is.

After an error the parser's objects may hold half of something: they are dropped here, never used.
"""

from __future__ import annotations

import functools
import importlib.resources
import json
import mmap
import tomllib
from collections.abc import Iterator
from typing import Any, NamedTuple

from kaitaistruct import KaitaiStream, KaitaiStructError

from weig.backends.interface import Record
from weig.spec.errors import CODES, WeigError, escape
from weig.spec.generated.python.weig import Weig  # type: ignore[attr-defined]
from weig.spec.layout import (
    HEADER_FIELDS,
    MAX_NAME_BYTES,
    RECORD_FIELDS,
    RECORD_SIZE,
    ByteOrder,
)

# What generated code raises for a file: its own errors, and the decoder's.
_REFUSALS = (KaitaiStructError, UnicodeDecodeError)
_HEADER = {f"header.{name}": (offset, size) for name, offset, size in HEADER_FIELDS}
_RECORD = {f"meta[].{name}": (offset, size) for name, offset, size in RECORD_FIELDS}


class Check(NamedTuple):
    """One check of the .ksy: the rule it stands for, and the field (``meta[].name``)."""

    rule: str
    field: str


class Parsed(NamedTuple):
    """A record and the ranges of the file that it owns in the aux area, as (start, end)."""

    record: Record
    name: tuple[int, int]
    shape: tuple[int, int]


class Source:
    """The memory that the parser reads from, until `drop`.

    The parser's objects refer to each other in circles and so live until the garbage collector
    comes round; without this, so would the mapping.
    """

    def __init__(self, memory: mmap.mmap) -> None:
        self.read, self.seek, self.tell = memory.read, memory.seek, memory.tell

    def drop(self) -> None:
        del self.read, self.seek, self.tell


def parse_header(stream: KaitaiStream) -> Any:
    """The root object: header and sentinel are checked, no record is read yet."""
    try:
        return Weig(stream)
    except _REFUSALS as error:
        raise _translated(error, stream, None) from None


def byte_order(root: Any) -> ByteOrder:
    return "little" if root.is_le else "big"


def parse_records(root: Any, stream: KaitaiStream) -> Iterator[Parsed]:
    """Each record with its name and shape, all that weig.ksy says about it being checked.

    The same as reading ``root.body.tensors``, but one at a time: the tree of objects that the
    parser makes for a record is many times larger than the record.
    """
    header = root.body.header
    for i in range(header.num_tensors):
        try:
            stream.seek(header.ofs_tensors + i * RECORD_SIZE)
            yield _parsed(Weig.Container.Tensor(stream, root.body, root, root.is_le))
        except _REFUSALS as error:
            raise _translated(error, stream, (root, i)) from None


def _parsed(tensor: Any) -> Parsed:
    shape = tuple(dim.len for dim in tensor.shape.dims)
    return Parsed(
        (tensor.name, int(tensor.dtype), shape, tensor.ofs_data, tensor.len_data),
        (tensor.ofs_name, tensor.ofs_name + len(tensor.name_bytes) + 1),
        (tensor.ofs_shape, tensor.ofs_shape + 8 * len(shape)),
    )


def refusal(rule: str, field: str, detail: str) -> WeigError:
    """The error for a broken rule, with the code that rules.toml gives it."""
    code = rule_codes()[rule]
    return WeigError(code, f"{CODES[code]}: {field}{detail} ({rule})", field=field, rule=rule)


@functools.cache
def rule_codes() -> dict[str, str]:
    """Rule id -> the (first) error code that is right for it."""
    text = importlib.resources.files("weig.spec").joinpath("rules.toml").read_text("utf-8")
    return {
        rule: facts["codes"][0]
        for rule, facts in tomllib.loads(text)["rules"].items()
        if facts.get("codes")
    }


@functools.cache
def checks() -> dict[str, Check]:
    """The path of a check in weig.ksy -> what it stands for."""
    file = importlib.resources.files("weig.spec").joinpath("generated", "checks.json")
    rows = json.loads(file.read_text("utf-8"))
    return {row["path"]: Check(row["rule"], row["field"]) for row in rows}


def _translated(
    error: Exception, stream: KaitaiStream, record: tuple[Any, int] | None
) -> WeigError:
    """The WeigError for what generated code raised; ``record`` is (root, index) in the table."""
    if isinstance(error, UnicodeDecodeError):
        check = Check("NAME-4", "meta[].name")
    elif isinstance(error, EOFError):
        # All ranges are checked against the size of the file: it became shorter while it was read.
        return WeigError("TRUNCATED", f"the file ends early: {error}", field="header.file_size")
    else:
        check = checks()[getattr(error, "src_path", "")]
    stopped = stream.pos()
    if record is None:
        order: ByteOrder = "little" if _bytes_at(stream, 0, 1) == b"G" else "big"
        field, detail = check.field, _number(stream, order, 0, _HEADER.get(check.field))
        if field == "header.file_size":
            detail += f"; the file has {stream.size()}"
        return refusal(check.rule, field, detail)
    root, i = record
    order, start = byte_order(root), root.body.header.ofs_tensors + i * RECORD_SIZE
    field = check.field.replace("meta[]", f"meta[{i}]")
    if check.field in _RECORD:
        return refusal(check.rule, field, _number(stream, order, start, _RECORD[check.field]))
    if check.field == "meta[].name":
        at = _integer(stream, order, start, 8)
        text = _bytes_at(stream, at, MAX_NAME_BYTES + 1).split(b"\0")[0]
        return refusal(check.rule, field, f' = "{escape(text[:80])}"')
    if check.field == "meta[].shape[]":  # the parser stopped behind the dimension
        first = _integer(stream, order, start + 16, 8)
        field = f"meta[{i}].shape[{(stopped - first) // 8 - 1}]"
        return refusal(check.rule, field, _number(stream, order, stopped - 8, (0, 8)))
    return refusal(check.rule, field, "")


def _number(
    stream: KaitaiStream, order: ByteOrder, start: int, field: tuple[int, int] | None
) -> str:
    """The value of a field for a message; nothing where it is no number."""
    if field is None:
        return ""
    value = _integer(stream, order, start + field[0], field[1])
    return f" = {value} ({value:#x})"


def _integer(stream: KaitaiStream, order: ByteOrder, at: int, size: int) -> int:
    return int.from_bytes(_bytes_at(stream, at, size), order)


def _bytes_at(stream: KaitaiStream, at: int, size: int) -> bytes:
    """Up to ``size`` bytes; fewer where the file ends."""
    stream.seek(min(at, stream.size()))
    data: bytes = stream.read_bytes(min(size, stream.size() - stream.pos()))
    return data
