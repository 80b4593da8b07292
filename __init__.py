"""WEIG: a model-weight file that a process maps and uses as it is.

``weig.open(path)`` gives the tensors of a file; ``weig.save(path, tensors)`` writes one. Both raise
`WeigError` alone for what a file is or says. Importing weig imports neither numpy nor a loader.
"""

from __future__ import annotations

TYPE_CHECKING = False  # for type checkers, without the 5 ms of importing typing
if TYPE_CHECKING:
    from weig.backends import ModelFile, TensorView, WeigError, available, open, save

__all__ = ["ModelFile", "TensorView", "WeigError", "__version__", "available", "open", "save"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'weig' has no attribute {name!r}")
    import weig.backends

    value: object = getattr(weig.backends, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
