"""Loaders and the writer. `open` picks the fastest loader that is built."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from weig.backends.file import ModelFile, enough_memory
from weig.backends.interface import Loader, Mode
from weig.backends.view import TensorView
from weig.spec.errors import WeigError, escape
from weig.spec.layout import ByteOrder

if TYPE_CHECKING:
    from weig.backends.writer import Source

__all__ = ["BACKENDS", "ModelFile", "TensorView", "WeigError", "available", "open", "save"]

# The fastest first.
BACKENDS = ("cpp", "c", "pure", "kaitai")
MODES = ("mmap", "read")
PathLike = str | bytes | os.PathLike[str] | os.PathLike[bytes]


def loader(name: str) -> Loader:
    """The loader of that name. Raises WeigError UNSUPPORTED where there is none, or not here."""
    if name not in BACKENDS:
        raise WeigError("UNSUPPORTED", f"no backend {name!r}; there are {', '.join(BACKENDS)}")
    module = cast(Loader, importlib.import_module(f"weig.backends.{name}.loader"))
    if not module.available():
        raise WeigError("UNSUPPORTED", f"the backend {name!r} is not built or not installed here")
    return module


def available() -> tuple[str, ...]:
    """The backends that can be used here, the fastest first."""
    return tuple(name for name in BACKENDS if _can_use(name))


def _can_use(name: str) -> bool:
    try:
        loader(name)
    except (WeigError, ImportError):
        return False
    return True


def open(path: PathLike, mode: Mode = "mmap", backend: str | None = None) -> ModelFile:
    """Opens a file after all of level *open* was checked (SPEC.md).

    ``mode`` is ``mmap`` (opening costs the metadata alone; for files that nobody cuts or overwrites
    in place) or ``read`` (a private copy, which nothing that happens to the file can harm).
    ``backend`` names a loader; without it the environment variable WEIG_BACKEND does, or the
    fastest that is built is taken. Raises WeigError alone, for what the file is or says.
    """
    if mode not in MODES:
        raise ValueError(f"mode must be one of {MODES}, not {mode!r}")
    name = backend or os.environ.get("WEIG_BACKEND") or next(filter(_can_use, BACKENDS))
    text = _text(path)
    chosen = loader(name)
    try:
        with enough_memory(text):
            opened = chosen.open(text, mode)
    except WeigError as error:
        raise _naming(text, error) from None
    return ModelFile(opened, text, mode, name)


def _naming(path: str, error: WeigError) -> WeigError:
    """The same error, with the file in its message: a loader tells what is wrong, not where."""
    shown = escape(path)
    if shown in error.message:
        return error
    return WeigError(error.code, f"{shown}: {error.message}", field=error.field, rule=error.rule)


def _text(path: PathLike) -> str:
    text = os.fsdecode(path)
    if "\0" in text:
        raise WeigError("IO", "a path cannot hold a NUL")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise WeigError("IO", f"{escape(text)}: no path of this file system") from None
    return text


def save(
    path: PathLike,
    tensors: Mapping[str, Source | Any],
    *,
    byte_order: ByteOrder = "little",
    order: Sequence[str] | None = None,
) -> None:
    """Writes the canonical file (SPEC.md, sections 15 and 16); see `weig.backends.writer.save`."""
    from weig.backends.writer import save as write

    write(_text(path), tensors, byte_order=byte_order, order=order)
