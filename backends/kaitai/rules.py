"""The rules that weig.ksy does not say, over records that the parser has passed.

A .ksy has no sets, no sorting and no fold: what compares records with each other is here, in the
order of the spec, and so is what would take it a step a byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from weig.backends.interface import Progress, Record
from weig.backends.kaitai.parser import Parsed, refusal
from weig.spec.dtypes import BY_NAME
from weig.spec.errors import escape

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BOOL = BY_NAME["BOOL"].code
_CHUNK = 1 << 22
Range = tuple[int, int]


def check_name(i: int, name: str) -> None:
    """NAME-5; the parser has checked NAME-1 to NAME-4."""
    if _CONTROL.search(name):
        raise refusal("NAME-5", f"meta[{i}].name", f' = "{escape(name[:80])}"')


def index_names(records: Iterable[Record]) -> dict[str, int]:
    """Name -> index of its record. NAME-6: text that is equal has equal UTF-8 bytes."""
    index: dict[str, int] = {}
    for i, (name, *_) in enumerate(records):
        first = index.setdefault(name, i)
        if first != i:
            raise refusal("NAME-6", f"meta[{i}].name", f" is that of meta[{first}]")
    return index


def check_apart(records: list[Record]) -> None:
    """DATA-4: sorted by where they start, each tensor that is not empty ends before the next.

    Aliases are equal in all three of offset, size and dtype, so they stand side by side.
    """
    spans = sorted((at, n, code, i) for i, (_, code, _, at, n) in enumerate(records) if n)
    for a, b in pairwise(spans):
        if b[0] < a[0] + a[1] and a[:3] != b[:3]:
            raise refusal("DATA-4", f"meta[{b[3]}].data_offset", f" = {b[0]} in meta[{a[3]}]")


def check_deep(
    data: memoryview, owned: Iterable[Range], records: list[Record], progress: Progress | None
) -> None:
    """PAD-1 and BOOL-1 over the bytes of the whole file; ``owned`` are all ranges with an owner."""
    gaps = list(_gaps(owned))
    bools = sorted(
        {(at, at + n): i for i, (_, c, _, at, n) in enumerate(records) if c == _BOOL}.items()
    )
    total = sum(end - start for start, end in gaps) + sum(b - a for (a, b), _ in bools)
    done = 0
    for start, end in gaps:
        for at, chunk in _chunks(data, start, end):
            rest = chunk.lstrip(b"\0")
            if rest:
                where = at + len(chunk) - len(rest)
                raise refusal("PAD-1", f"byte {where}", f" = {rest[0]:#04x}")
            done = _advance(done + len(chunk), total, progress)
    for (start, end), i in bools:
        for at, chunk in _chunks(data, start, end):
            rest = chunk.lstrip(b"\0\1")
            if rest:
                where = at + len(chunk) - len(rest)
                raise refusal("BOOL-1", f"meta[{i}]", f", byte {where} = {rest[0]:#04x}")
            done = _advance(done + len(chunk), total, progress)
    _advance(total, total, progress)


def _advance(done: int, total: int, progress: Progress | None) -> int:
    if progress is not None:
        progress(done, total)
    return done


def owned_ranges(parsed: Iterable[Parsed], table: Range, size: int) -> Iterator[Range]:
    """Every range of the file that something owns (PAD-1), in no order; some may coincide."""
    yield 0, 64
    yield table
    for item in parsed:
        yield item.name
        yield item.shape
        yield item.record[3], item.record[3] + item.record[4]
    yield size - 8, size


def _gaps(owned: Iterable[Range]) -> Iterator[Range]:
    """What lies between the ranges. The sentinel is one of them, so nothing lies behind."""
    reached = 0
    for start, end in sorted(owned):
        if start > reached:
            yield reached, start
        reached = max(reached, end)


def _chunks(data: memoryview, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    for at in range(start, end, _CHUNK):
        yield at, bytes(data[at : min(at + _CHUNK, end)])
