"""The bytes that a case is about, each row with the names of the fields under it."""

from __future__ import annotations

from collections.abc import Iterator

from weig.conformance.manifest import Case, Span
from weig.conformance.staging import Sources, content

__all__ = ["annotated"]

ROW = 16
MAX_ROWS = 8
_MARK, _FIELD = "^", "-"


def annotated(case: Case, sources: Sources) -> Iterator[str]:
    """Rows of hex around the marks of a case: ``^^`` under edited bytes, ``--`` under a field."""
    rows = sorted({at for mark in case.marks[:MAX_ROWS] for at in _rows_of(mark)})
    last: int | None = None
    for at in rows[:MAX_ROWS]:
        data = content(case, sources, at, ROW)
        if not data:
            yield f"bytes      {at:08x}  past the end of the file"
            continue
        if last is not None and at != last + ROW:
            yield "           ..."
        last = at
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)
        yield f"bytes      {at:08x}  {data.hex(' '):<{3 * ROW - 1}}  {text}"
        for span, sign in _spans_of(case, at, len(data)):
            yield f"           {'':8}  {_under(span, at, len(data), sign)}  {span.field}"
    if len(rows) > MAX_ROWS:
        yield "           ..."


def _rows_of(mark: Span) -> range:
    """Where the rows start that hold a mark; no more of them than are shown."""
    first = mark.offset - mark.offset % ROW
    end = mark.offset + min(max(mark.length, 1), ROW * (MAX_ROWS + 1))
    return range(first, end, ROW)


def _spans_of(case: Case, at: int, length: int) -> Iterator[tuple[Span, str]]:
    marked = {(mark.offset, mark.length) for mark in case.marks}
    spans = [(mark, _MARK) for mark in case.marks]
    spans += [(span, _FIELD) for span in case.fields if (span.offset, span.length) not in marked]
    spans.sort(key=lambda item: (item[0].offset, item[0].length))
    for span, sign in spans:
        if span.offset < at + length and at < span.offset + span.length:
            yield span, sign


def _under(span: Span, at: int, length: int, sign: str) -> str:
    low, high = max(span.offset - at, 0), min(span.offset + span.length - at, length)
    cells = [sign * 2 if low <= i < high else "  " for i in range(ROW)]
    return " ".join(cells)
