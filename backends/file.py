"""An open file: a mapping of names to tensors."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from weig.backends.interface import Mode, Opened, Progress
from weig.backends.view import TensorView
from weig.spec.errors import WeigError, escape
from weig.spec.layout import ByteOrder

if TYPE_CHECKING:
    import numpy as np


class ModelFile(Mapping[str, TensorView]):
    """The tensors of one file by name, in file order. Made by `weig.open`; a context manager.

    Everything of level *open* (SPEC.md) holds for it. Every method raises WeigError CLOSED after
    `close`; views, arrays and buffers that were given out before stay good.
    """

    def __init__(self, opened: Opened, path: str, mode: Mode, backend: str) -> None:
        self._opened: Opened | None = opened
        self._buffer = opened.buffer()
        self.path = path
        self.mode: Mode = mode
        self.backend = backend
        self.byte_order: ByteOrder = opened.byte_order
        self.file_size = opened.file_size

    def __getitem__(self, name: str) -> TensorView:
        """The tensor of that name. Raises WeigError NO_SUCH_TENSOR."""
        opened = self._live()
        i = self._index(name)
        if i < 0:
            raise WeigError("NO_SUCH_TENSOR", f"no tensor is named {escape(str(name))!r}")
        return TensorView(opened, self._buffer, *opened.record(i))

    def __iter__(self) -> Iterator[str]:
        with enough_memory(self.path):
            return iter(self._live().names())

    def __len__(self) -> int:
        return self._live().count

    def __contains__(self, name: object) -> bool:
        return self._index(name) >= 0

    def get(self, name: str, default: Any = None) -> Any:
        """The tensor of that name, or ``default``."""
        return self[name] if name in self else default  # noqa: SIM401

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def views(self) -> list[TensorView]:
        """All tensors in file order: one call, where iterating makes one a tensor."""
        opened, buffer = self._live(), self._buffer
        with enough_memory(self.path):
            return [TensorView(opened, buffer, *record) for record in opened.records()]

    def arrays(self) -> dict[str, np.ndarray]:
        """All tensors as read-only arrays in the host's byte order, in file order; the fast way."""
        with enough_memory(self.path):
            return self._live().arrays()

    def mapped_tensor(self, name: str) -> TensorView:
        """The tensor with its bytes ready: where they lie, or converted now (the other order)."""
        view = self[name]
        _ = view.data
        return view

    def read(self, offset: int, size: int) -> memoryview:
        """``size`` bytes of the file from ``offset`` on, as they stand in it; read-only, no copy.

        Raises WeigError BAD_DATA_RANGE where they do not all lie in the file.
        """
        self._live()
        if offset < 0 or size < 0 or offset > self.file_size or size > self.file_size - offset:
            raise WeigError(
                "BAD_DATA_RANGE",
                f"offset {offset} with size {size} is not inside the file's {self.file_size} bytes",
            )
        return self._buffer[offset : offset + size]

    def verify(self, progress: Progress | None = None) -> None:
        """Deep verification (SPEC.md, section 12): PAD-1 and BOOL-1.

        Raises WeigError NONZERO_PADDING or BAD_BOOL. ``progress`` gets (done, total) in bytes.
        """
        with enough_memory(self.path):
            self._live().verify(progress)

    def check_unmodified(self) -> None:
        """Raises WeigError MODIFIED where the opened file changed since (OPEN-10)."""
        self._live().check_unmodified()

    def prefetch(self, *, wait: bool = False) -> None:
        """Asks the kernel to read the data in; with ``wait``, returns when it is resident."""
        self._live().prefetch(wait)

    @property
    def closed(self) -> bool:
        return self._opened is None

    def close(self) -> None:
        """Closes the file. Memory stays as long as a view of it lives. May be called again."""
        opened, self._opened = self._opened, None
        self._buffer = memoryview(b"")
        # Views of a file of the other byte order convert when they are first used: they keep the
        # loader's object, and it goes with the last of them.
        if opened is not None and opened.byte_order == sys.byteorder:
            opened.close()

    def __enter__(self) -> ModelFile:
        self._live()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._opened is None else f"{self._opened.count} tensors"
        return f"<ModelFile {os.fspath(self.path)!r} {self.mode} {self.backend}, {state}>"

    def _live(self) -> Opened:
        if self._opened is None:
            raise WeigError("CLOSED", f"{escape(self.path)} is closed")
        return self._opened

    def _index(self, name: object) -> int:
        opened = self._live()
        if not isinstance(name, str):
            return -1
        try:
            name.encode()
        except UnicodeEncodeError:  # a lone surrogate is in no name (NAME-4)
            return -1
        return opened.index(name)


@contextmanager
def enough_memory(path: str) -> Iterator[None]:
    """OPEN-9 for what takes memory in proportion to the table, in opening and after it."""
    try:
        yield
    except MemoryError:
        raise WeigError("TOO_LARGE", f"{escape(path)}: not enough memory", rule="OPEN-9") from None
