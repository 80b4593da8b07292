"""The files that are measured, and the page cache under them."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from weig.backends.writer import Source

CHUNK = 8 << 20


def many(folder: Path, count: int, elements: int) -> tuple[Path, Path, str]:
    """The same ``count`` F32 tensors of ``elements`` elements as WEIG and safetensors; one name."""
    import numpy as np
    from safetensors.numpy import save_file

    import weig

    everything = np.arange(count * elements, dtype=np.float32).reshape(count, elements)
    tensors = {f"model.layers.{i}.weight": everything[i] for i in range(count)}
    paths = folder / "many.weig", folder / "many.safetensors"
    weig.save(paths[0], tensors)
    save_file(tensors, paths[1])
    return (*paths, f"model.layers.{count // 2}.weight")


def large(folder: Path, size: int) -> tuple[Path, Path]:
    """``size`` bytes in tensors of 16 MiB (or less), as WEIG and safetensors."""
    from weig.tools import convert_safetensors, convert_weig
    from weig.tools.exchange import Options, Origin

    paths = folder / "large.weig", folder / "large.safetensors"
    each = min(size, 16 << 20)
    origin = Origin({f"t{i:03}": _zeros(each) for i in range(size // each)})
    options = Options("little", lambda done, total: None)
    convert_weig.write(str(paths[0]), origin, options)
    convert_safetensors.write(str(paths[1]), origin, options)
    return paths


def foreign(folder: Path, size: int) -> Path:
    """One F32 tensor ``t`` of ``size`` bytes in the byte order that is not the host's."""
    import weig

    path = folder / "foreign.weig"
    weig.save(
        path, {"t": _zeros(size)}, byte_order="big" if sys.byteorder == "little" else "little"
    )
    return path


def small(folder: Path) -> tuple[Path, Path]:
    """One tensor ``t``, as WEIG and safetensors: opened before the clock starts."""
    import numpy as np
    from safetensors.numpy import save_file

    import weig

    paths = folder / "small.weig", folder / "small.safetensors"
    tensors = {"t": np.ones(1, np.float32)}
    weig.save(paths[0], tensors, byte_order=sys.byteorder)
    save_file(tensors, paths[1])
    return paths


def _zeros(size: int) -> Source:
    """F32 zeros, ``size`` bytes of them; none are kept."""

    def chunks() -> Iterator[bytes]:
        piece = bytes(min(size, 1 << 20))
        for start in range(0, size, len(piece)):
            yield piece[: size - start]

    return Source("F32", (size // 4,), chunks)


def warm(path: Path) -> None:
    """Reads the file, so that it lies in the page cache."""
    with open(path, "rb", buffering=0) as file:
        while file.read(CHUNK):
            pass


def chill(path: Path) -> float:
    """Asks the kernel to drop the file from the page cache; gives the part that stayed (0 to 1)."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return resident(file.fileno(), os.fstat(file.fileno()).st_size)


def resident(fd: int, size: int) -> float:
    """The part (0 to 1) of a file that lies in the page cache, by mincore; NaN where it fails."""
    pages = -(-size // mmap.PAGESIZE)
    # A private writable map, as ctypes gives no address of a read-only one; nothing is touched.
    with mmap.mmap(fd, size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as memory:
        anchor = ctypes.c_char.from_buffer(memory)
        state = ctypes.create_string_buffer(pages)
        address = ctypes.c_void_p(ctypes.addressof(anchor))
        failed = ctypes.CDLL(None).mincore(address, ctypes.c_size_t(size), state)
        del anchor
    return float("nan") if failed else sum(byte & 1 for byte in state.raw) / pages
