"""What was measured, as tables for people and facts for machines; and on which machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

LIBRARIES = ("numpy", "safetensors")
COLUMNS = ("measurement", "loader", "median", "min to max", "ratio", "gives")


class Row(NamedTuple):
    """One loader in one measurement: all runs in ``unit``. ``base`` names what the ratio is to."""

    measurement: str
    loader: str
    unit: str
    values: tuple[float, ...]
    gives: str
    ratio: float
    base: str

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def facts(self) -> dict[str, Any]:
        return {**self._asdict(), "median": self.median}


def machine() -> dict[str, str | int]:
    """Processor, cores that this process may use, kernel, Python and libraries."""
    facts: dict[str, str | int] = {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }
    return facts | {name: importlib.metadata.version(name) for name in LIBRARIES}


def machine_line(facts: dict[str, str | int]) -> str:
    libraries = ", ".join(f"{name} {facts[name]}" for name in LIBRARIES)
    return (
        f"{facts['cpu']}, {facts['cores']} cores, {facts['kernel']}, Python {facts['python']}, "
        f"{libraries}"
    )


def markdown(rows: Sequence[Row]) -> Iterator[str]:
    yield "| " + " | ".join(COLUMNS) + " |"
    yield "| " + " | ".join("---:" if name in COLUMNS[2:5] else "---" for name in COLUMNS) + " |"
    for row in rows:
        yield "| " + " | ".join(_cells(row)) + " |"


def text(rows: Sequence[Row]) -> Iterator[str]:
    """Aligned columns, a blank line between measurements."""
    body = [_cells(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(COLUMNS, *body, strict=True)]
    before = ""
    for cells in (COLUMNS, *body):
        if cells[0] != before:
            yield ""
        before = cells[0]
        yield "  ".join(
            cell.rjust(width) if name in COLUMNS[2:5] else cell.ljust(width)
            for name, cell, width in zip(COLUMNS, cells, widths, strict=True)
        ).rstrip()


def _cells(row: Row) -> tuple[str, ...]:
    ratio = f"{_number(row.ratio)} x {row.base}" if row.ratio == row.ratio else "-"
    return (
        row.measurement,
        row.loader,
        f"{_number(row.median)} {row.unit}",
        f"{_number(min(row.values))} to {_number(max(row.values))}",
        "1" if row.base == row.loader else ratio,
        row.gives,
    )


def _number(value: float) -> str:
    """Two or three digits that count."""
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}" if abs(value) >= 1 else f"{value:.2g}"


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
