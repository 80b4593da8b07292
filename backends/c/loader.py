"""The C loader as a backend (see `weig.backends.interface.Loader`)."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from weig.backends.interface import Mode

if TYPE_CHECKING:
    from weig.backends.c.opened import OpenedC

NAME = "c"


def available() -> bool:
    """Whether the library is built."""
    return find_spec("weig.backends._c") is not None


def open(path: str, mode: Mode) -> OpenedC:
    """Opens and checks a file. Raises WeigError."""
    from weig.backends.c.opened import OpenedC

    return OpenedC(path, mode)
