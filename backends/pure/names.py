"""Names (SPEC.md, section 7), found and decoded in runs.

Records are taken in the order of their name offsets, a window of the aux area at a time: memory
stays bounded however far apart the names lie, and one pass finds all NULs of a window.
"""

from __future__ import annotations

import numpy as np

from weig.backends.pure.header import Header
from weig.spec.errors import WeigError, quoted
from weig.spec.layout import MAX_NAME_BYTES

WINDOW = 4 << 20
Int64 = np.ndarray  # of int64


def read(buffer: memoryview, header: Header, offsets: Int64, base: int) -> tuple[list[str], Int64]:
    """All names in record order, and the offset of each one's NUL. Raises WeigError.

    ``offsets`` has the shape (count,) and lies in the aux area (NAME-1); they are those of the
    records from number ``base`` on.
    """
    count = len(offsets)
    order = _order(offsets)
    starts = offsets if order is None else offsets[order]
    numbers = np.arange(count) + base if order is None else order + base
    ends = np.empty(count, np.int64)
    names: list[str] = []
    first = 0
    while first < count:
        last = int(np.searchsorted(starts, starts[first] + WINDOW))
        ends[first:last] = _ends(buffer, header, starts[first:last], numbers[first:last])
        names += _decoded(buffer, starts[first:last], ends[first:last], numbers[first:last])
        first = last
    if order is None:
        return names, ends
    result_ends = np.empty(count, np.int64)
    result_ends[order] = ends
    by_record = [""] * count
    for i, name in zip(order.tolist(), names, strict=True):
        by_record[i] = name
    return by_record, result_ends


def check_unique(names: list[str]) -> None:
    """NAME-6. Strict UTF-8 has one form for each string, so equal strings are equal bytes."""
    if len(set(names)) == len(names):
        return
    seen: dict[str, int] = {}
    for i, name in enumerate(names):
        if name in seen:
            raise WeigError(
                "DUPLICATE_NAME",
                f"meta[{seen[name]}] and meta[{i}] are both named {quoted(name)}",
                field=f"meta[{i}].name_offset",
                rule="NAME-6",
            )
        seen[name] = i


def _order(offsets: Int64) -> Int64 | None:
    """What sorts the offsets; None where they are sorted, as in the canonical file."""
    if (offsets[1:] >= offsets[:-1]).all():
        return None
    return np.argsort(offsets, kind="stable")


def _ends(buffer: memoryview, header: Header, starts: Int64, numbers: Int64) -> Int64:
    """The offset of the NUL that ends each name of a window."""
    low = int(starts[0])
    high = min(int(starts[-1]) + MAX_NAME_BYTES + 1, header.data_offset)
    nuls = np.flatnonzero(np.frombuffer(buffer, np.uint8, high - low, low) == 0)
    nuls += low
    at = np.searchsorted(nuls, starts)
    missing = at == len(nuls)
    ends = nuls[np.minimum(at, max(len(nuls) - 1, 0))] if len(nuls) else np.zeros_like(starts)
    lengths = ends - starts
    bad = np.flatnonzero(missing | (lengths > MAX_NAME_BYTES) | (lengths == 0))
    if len(bad):
        k = int(bad[0])
        if missing[k] and header.data_offset - int(starts[k]) <= MAX_NAME_BYTES:
            raise _bad(numbers[k], "has no NUL before the data region", "NAME-2")
        if not missing[k] and lengths[k] == 0:
            raise _bad(numbers[k], "is empty", "NAME-3")
        raise _bad(numbers[k], f"is longer than {MAX_NAME_BYTES} bytes", "NAME-3")
    return ends


def _decoded(buffer: memoryview, starts: Int64, ends: Int64, numbers: Int64) -> list[str]:
    """The names of a window, in the order of their offsets."""
    if bool((starts[1:] == ends[:-1] + 1).all()):  # one after another: the usual file
        run = bytes(buffer[int(starts[0]) : int(ends[-1])])
        codes = np.frombuffer(run, np.uint8)
        if not (((codes < 0x20) & (codes != 0)) | (codes == 0x7F)).any():
            try:
                return run.decode("utf-8").split("\0")
            except UnicodeDecodeError:
                pass  # the loop below says which record it is
    return [
        _decode(bytes(buffer[start:end]), i)
        for i, start, end in zip(numbers.tolist(), starts.tolist(), ends.tolist(), strict=True)
    ]


def _decode(raw: bytes, i: int) -> str:
    try:
        name = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _bad(i, f"is not UTF-8: {quoted(raw)} ({error.reason})", "NAME-4") from None
    if any(c < " " or c == "\x7f" for c in name):
        raise _bad(i, f"has a control byte: {quoted(name)}", "NAME-5")
    return name


def _bad(i: int, text: str, rule: str) -> WeigError:
    field = f"meta[{i}].name_offset"
    return WeigError("BAD_NAME", f"meta[{i}]'s name {text}", field=field, rule=rule)
