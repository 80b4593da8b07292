"""A tensor of a file: its facts, and its bytes where they lie."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Literal

from weig.backends.interface import Opened
from weig.spec.dtypes import BY_CODE

if TYPE_CHECKING:
    import numpy as np

    class Exporter: ...

else:
    try:
        from weig.backends._buffer import Exporter
    except ImportError:  # not built: memoryview(view) then needs Python 3.12
        Exporter = object


class TensorView(Exporter):
    """A read-only tensor. Making one touches no tensor byte; it keeps the file's memory alive.

    ``.data`` is the tensor's bytes, dense and row-major, in the host's byte order: the very bytes
    of the file where the file has that order, and one conversion pass into fresh memory, made at
    the first use, where it has the other. ``memoryview(view)``, ``numpy.asarray(view)`` and DLPack
    stand on the same memory. BF16 and F8 have no buffer format: they give no memoryview.
    """

    __slots__ = ("_buffer", "_converted", "_dtype", "_opened", "name", "nbytes", "offset", "shape")

    def __init__(
        self,
        opened: Opened,
        buffer: memoryview,
        name: str,
        code: int,
        shape: tuple[int, ...],
        offset: int,
        nbytes: int,
    ) -> None:
        self._opened = opened
        self._buffer = buffer
        self._dtype = BY_CODE[code]
        self._converted: memoryview | None = None
        self.name = name
        self.shape = shape
        self.offset = offset
        self.nbytes = nbytes

    @property
    def dtype(self) -> str:
        """The dtype's name (SPEC.md, section 8)."""
        return self._dtype.name

    @property
    def owner(self) -> object:
        """What two views of one open file have in common, and of two files never."""
        return self._opened

    @property
    def backing(self) -> Literal["file", "copy"]:
        """``file`` where the bytes are those of the file's own memory, ``copy`` where converted."""
        return "copy" if self._is_foreign() else "file"

    @property
    def data(self) -> memoryview:
        """The bytes in the host's order, read-only, of shape (nbytes,)."""
        if not self._is_foreign():
            return self._buffer[self.offset : self.offset + self.nbytes]
        if self._converted is None:
            self._converted = self._opened.swapped(self.offset, self.nbytes, self._dtype.unit)
        return self._converted

    def numpy(self) -> np.ndarray:
        """A read-only array over the same memory; BF16 and F8 have the dtypes of ml_dtypes."""
        import numpy as np

        array = np.frombuffer(self.data, dtype=self._dtype.to_numpy())
        return array.reshape(self.shape)

    def tobytes(self) -> bytes:
        """The canonical bytes: row-major, little-endian on every host."""
        if sys.byteorder == "little" or self._dtype.unit == 1:
            return bytes(self.data)
        import numpy as np

        return np.frombuffer(self.data, f"u{self._dtype.unit}").byteswap().tobytes()

    def __buffer__(self, flags: int, /) -> memoryview:
        try:
            return self.numpy().data
        except ValueError:
            # Plain bytes here would be taken for an array of U8 by numpy.asarray.
            raise BufferError(f"{self.dtype} has no buffer format; take .data") from None

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"{self.dtype} cannot be given as {dtype} without a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A DLPack capsule over the same memory (CPU only).

        A consumer that asks for version 1 is told that the memory is read-only. An older one
        cannot be told: writing through its tensor ends the process.
        """
        from weig.backends.dlpack import capsule

        return capsule(self, self._dtype, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a scalar has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<TensorView {self.name!r} {self.dtype} {list(self.shape)}>"

    def _is_foreign(self) -> bool:
        return self._dtype.unit > 1 and self._opened.byte_order != sys.byteorder
