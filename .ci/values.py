"""What numpy sees in good files, and what the writer makes of it: the same text on every host.

    python .ci/values.py FILE...

The adapter protocol compares bytes; this compares numbers, by way of both byte orders and both
modes. What Debian's numpy cannot do is left out: the types of ml_dtypes, and more dimensions
than numpy 1 has.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path

import weig
from weig.backends.interface import Mode
from weig.spec.dtypes import BY_NAME

MAX_DIMENSIONS = 32
MODES: tuple[Mode, ...] = ("mmap", "read")


def main(paths: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            for mode in MODES:
                show(Path(path), mode, Path(folder) / "saved.weig")


def show(path: Path, mode: Mode, target: Path) -> None:
    """Prints a file's values, and the digests of what is saved from its views and arrays."""
    with weig.open(path, backend="pure", mode=mode) as file:
        print(path.name, mode)
        views = dict(file.items())
        # Copies, since what shares memory is saved as one: that depends on the order of the host.
        native = {
            name: view.numpy().copy()
            for name, view in views.items()
            if not BY_NAME[view.dtype].ml and len(view.shape) <= MAX_DIMENSIONS
        }
        for name, array in native.items():
            print(f"{name!r} {views[name].dtype} {array.shape} {array.tolist()}")
        if len(native) == len(views):
            print({name: array.tolist() for name, array in file.arrays().items()})
        other = {name: array.astype(array.dtype.newbyteorder()) for name, array in native.items()}
        for tensors in (views, native, other):
            weig.save(target, tensors)
            print(hashlib.sha256(target.read_bytes()).hexdigest())


if __name__ == "__main__":
    main(sys.argv[1:])
