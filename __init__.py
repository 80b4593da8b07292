"""WEIG: a model-weight file that a process maps and uses as it is.

``weig.open(path)`` gives the tensors of a file; ``weig.save(path, tensors)`` writes one. Both raise
`WeigError` alone for what a file is or says. Importing weig imports neither numpy nor a loader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weig.backends import ModelFile, TensorView, available, open, save
    from weig.spec.errors import WeigError

__all__ = ["ModelFile", "TensorView", "WeigError", "__version__", "available", "open", "save"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name == "WeigError":
        from weig.spec.errors import WeigError as value
    elif name in __all__:
        import weig.backends

        value = getattr(weig.backends, name)
    else:
        raise AttributeError(f"module 'weig' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
