"""The C++20 loader as weig knows loaders: the door to `weig.backends._cpp`, which does the work."""

from __future__ import annotations

from weig.backends.interface import Mode, Opened

try:
    import weig.backends._cpp as _cpp
except ModuleNotFoundError:  # not built here
    _cpp = None  # type: ignore[assignment]

__all__ = ["NAME", "available", "open"]

NAME = "cpp"


def available() -> bool:
    """Whether the extension module is built."""
    return _cpp is not None


def open(path: str, mode: Mode) -> Opened:
    """Opens a file and checks all of level *open*. Raises WeigError, straight from C++."""
    return _cpp.open(path, mode)
