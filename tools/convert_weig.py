"""WEIG as one end of a conversion."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import weig
from weig.backends import ModelFile, TensorView, writer
from weig.tools.exchange import PIECE, Options, Origin, reordered, unchanged


@contextmanager
def read(path: str) -> Iterator[Origin]:
    """Opens a WEIG file (mapped: it must not be cut while it is converted). Raises WeigError."""
    with weig.open(path) as file:
        tensors = {
            view.name: writer.Source(
                view.dtype, view.shape, partial(_pieces, file, view), key=view.offset
            )
            for view in file.views()
        }
        yield Origin(tensors)


def write(path: str, origin: Origin, options: Options) -> None:
    """Writes the canonical file. Raises WeigError, also for what no file can hold."""
    writer.save(path, origin.tensors, byte_order=options.byte_order, progress=options.progress)


def _pieces(file: ModelFile, view: TensorView) -> Iterator[memoryview]:
    end = view.offset + view.nbytes
    raw = (file.read(start, min(PIECE, end - start)) for start in range(view.offset, end, PIECE))
    little = reordered(raw, view.dtype, file.byte_order)
    return unchanged(little, file.check_unmodified)
