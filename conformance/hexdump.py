"""The bytes that a case is about, each row with the names of the fields under it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from weig.conformance.manifest import Case, Span
from weig.conformance.staging import Sources, content

__all__ = ["Row", "Under", "annotated", "rows"]

ROW = 16
MAX_ROWS = 8
_MORE = "..."
_MARK, _FIELD = "^^", "--"


@dataclass(frozen=True, slots=True)
class Under:
    """What stands under the bytes ``low`` to ``high`` (exclusive) of a row."""

    low: int
    high: int
    field: str
    edited: bool


@dataclass(frozen=True, slots=True)
class Row:
    """At most 16 bytes from ``offset`` on; none where that is past the end of the file.

    ``apart``: it does not follow the row before. ``cut``: there is more that is not shown.
    """

    offset: int
    data: bytes
    under: tuple[Under, ...] = ()
    apart: bool = False
    cut: bool = False

    @property
    def text(self) -> str:
        """The bytes as ASCII, a dot for what is not printable."""
        return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in self.data)


def rows(case: Case, sources: Sources) -> Iterator[Row]:
    """The rows that hold the marks of a case, at most eight."""
    starts = sorted({at for mark in case.marks[:MAX_ROWS] for at in _rows_of(mark)})
    shown = starts[:MAX_ROWS]
    last: int | None = None
    for at in shown:
        data = content(case, sources, at, ROW)
        cut = at == shown[-1] and len(starts) > MAX_ROWS
        apart = bool(data) and last is not None and at != last + ROW
        under = tuple(_under(case, at, len(data))) if data else ()
        yield Row(at, data, under, apart, cut)
        last = at if data else last


def annotated(case: Case, sources: Sources) -> Iterator[str]:
    """The rows as text: ``^^`` under edited bytes, ``--`` under a field."""
    for row in rows(case, sources):
        if row.apart:
            yield f"           {_MORE}"
        if row.data:
            hexes = f"{row.data.hex(' '):<{3 * ROW - 1}}"
            yield f"bytes      {row.offset:08x}  {hexes}  {row.text}"
        else:
            yield f"bytes      {row.offset:08x}  past the end of the file"
        for under in row.under:
            sign = _MARK if under.edited else _FIELD
            cells = (sign if under.low <= i < under.high else "  " for i in range(ROW))
            yield f"           {'':8}  {' '.join(cells)}  {under.field}"
        if row.cut:
            yield f"           {_MORE}"


def _rows_of(mark: Span) -> range:
    """Where the rows start that hold a mark; no more of them than are shown."""
    first = mark.offset - mark.offset % ROW
    end = mark.offset + min(max(mark.length, 1), ROW * (MAX_ROWS + 1))
    return range(first, end, ROW)


def _under(case: Case, at: int, length: int) -> Iterator[Under]:
    """The marks and fields that reach into a row, in the order of the file."""
    marked = {(mark.offset, mark.length) for mark in case.marks}
    spans = [(mark, True) for mark in case.marks]
    spans += [(span, False) for span in case.fields if (span.offset, span.length) not in marked]
    spans.sort(key=lambda item: (item[0].offset, item[0].length))
    for span, edited in spans:
        if span.offset < at + length and at < span.offset + span.length:
            low, high = max(span.offset - at, 0), min(span.offset + span.length - at, length)
            yield Under(low, high, span.field, edited)
