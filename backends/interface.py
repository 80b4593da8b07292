"""What a loader is to the rest of weig: a module with three names, and the object its open gives.

Everything a person uses (`weig.backends.file.ModelFile`, `weig.backends.view.TensorView`) stands on
these alone, so that every loader behaves the same and a new one is only these few functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Protocol

from weig.spec.layout import ByteOrder

if TYPE_CHECKING:
    import numpy as np

Mode = Literal["mmap", "read"]
Progress = Callable[[int, int], None]
# name, dtype code, shape, data offset, data size
Record = tuple[str, int, tuple[int, ...], int, int]


class Opened(Protocol):
    """A file that has passed all of level *open* (SPEC.md, sections 3 to 11 and 13)."""

    @property
    def byte_order(self) -> ByteOrder: ...

    @property
    def count(self) -> int: ...

    @property
    def file_size(self) -> int: ...

    def buffer(self) -> memoryview:
        """The whole file: read-only, one dimension, format "B". It keeps the memory alive."""

    def names(self) -> list[str]:
        """All names, in file order."""

    def index(self, name: str) -> int:
        """The record of that name, or -1."""

    def record(self, i: int) -> Record:
        """One record; 0 <= i < count."""

    def records(self) -> list[Record]:
        """All records, in file order, in one call."""

    def verify(self, progress: Progress | None) -> None:
        """PAD-1 and BOOL-1. Raises WeigError. ``progress(done, total)`` is in bytes."""

    def check_unmodified(self) -> None:
        """Raises WeigError MODIFIED where the opened file changed since (OPEN-10)."""

    def prefetch(self, wait: bool) -> None:
        """Asks the kernel for the data; with ``wait``, returns when it is resident."""

    def swapped(self, offset: int, nbytes: int, unit: int) -> memoryview:
        """``nbytes`` of the file in fresh memory, each ``unit`` bytes reversed; read-only."""

    def arrays(self) -> dict[str, np.ndarray]:
        """All tensors as read-only arrays in the host's byte order, in one call."""

    def close(self) -> None:
        """Drops the loader's own hold on the memory. Buffers given out stay good."""


class Loader(Protocol):
    """The module ``weig.backends.<name>.loader``."""

    NAME: str

    def available(self) -> bool:
        """Whether it can be used here (it is built, what it needs is installed)."""

    def open(self, path: str, mode: Mode) -> Opened:
        """Opens and checks a file. Raises WeigError."""
