"""The bytes of a file with the names of their fields; of a bad file, as far as they can be told."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from weig.backends.pure.source import Source
from weig.spec.errors import WeigError
from weig.tools.fieldmap import Field, fields

if TYPE_CHECKING:
    from weig.tools.fieldmap import Read

RECORDS = 32  # as many records are shown unless the caller says otherwise
SHOWN = 64  # bytes of a field
WIDTH = 16


class Dump(NamedTuple):
    """A field and the first of its bytes."""

    field: Field
    data: bytes


def dump(path: str, records: int = RECORDS) -> Iterator[Dump]:
    """The fields in the order of `weig.tools.fieldmap.fields`, each with up to `SHOWN` bytes.

    Raises WeigError IO or NOT_REGULAR_FILE; nothing for what the file says.
    """
    source = Source(path)
    read = _reader(source)
    for field in fields(read, source.size, records):
        yield Dump(field, read(field.offset, min(field.length, SHOWN)))


def lines(path: str, records: int = RECORDS, wrong: str | None = None) -> Iterator[str]:
    """The dump as lines of text; the field ``wrong`` is pointed at."""
    for field, data in dump(path, records):
        mark = "   <-- wrong" if field.path == wrong else ""
        text = f"{field.path} = {field.text}{mark}"
        for start in range(0, len(data), WIDTH):
            row = data[start : start + WIDTH].hex(" ")
            yield f"{field.offset + start:08x}  {row:<{3 * WIDTH - 1}}  {text}".rstrip()
            text = ""
        if field.length > len(data):
            yield f"{'':8}  ... {field.length - len(data)} bytes more"


def facts(path: str, error: WeigError) -> Iterator[str]:
    """Of a file that was refused: header, sentinel and the record that is at fault, as lines."""
    found = re.match(r"meta\[(\d+)\]", error.field or "")
    prefix = f"{found[0]}." if found else "header."
    records = int(found[1]) + 1 if found else 0
    for field, _ in dump(path, records):
        if field.path.startswith(("header.", prefix)) or field.path == "sentinel":
            mark = "   <-- wrong" if field.path == error.field else ""
            yield f"  {field.path:<24} {field.text}{mark}"


def _reader(source: Source) -> Read:
    def read(offset: int, size: int) -> bytes:
        try:
            return os.pread(source.fd, min(size, source.size - offset), offset)
        except OSError as error:
            raise WeigError("IO", f"reading at {offset}: {error.strerror}") from None

    return read
