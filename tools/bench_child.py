"""One measurement in a process of its own: ``python -m weig.tools.bench_child NAME OPTIONS``.

Libraries are imported before the clock starts. Prints one JSON object: ``seconds`` (wall clock),
``cpu`` (seconds of this process), and what else the measurement has. Run by `weig.tools.bench`.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, cast

Options = dict[str, Any]
# One who prepares (imports, inputs) and gives the piece of work that is timed.
Prepare = Callable[[Options], Callable[[], object]]

CHUNK = 8 << 20


def weig_one(options: Options) -> Callable[[], object]:
    """Opens and takes one tensor as an array."""
    opener, name = _weig(options), options["tensor"]
    return lambda: opener()[name].numpy()


def weig_all(options: Options) -> Callable[[], object]:
    opener = _weig(options)
    return lambda: opener().arrays()


def weig_touch(options: Options) -> Callable[[], object]:
    opener = _weig(options)
    return lambda: _touch(opener().arrays())


def weig_names(options: Options) -> Callable[[], object]:
    opener = _weig(options)
    return lambda: _listed(opener())


def weig_open(options: Options) -> Callable[[], object]:
    """The loader alone: open, check everything, give out nothing."""
    from weig.backends import loader

    _weig(options)
    opener, path = loader(options["backend"]).open, options["path"]
    return lambda: opener(path, "mmap")


def st_open(options: Options) -> Callable[[], object]:
    return _safetensors(options)


def st_one(options: Options) -> Callable[[], object]:
    opener, name = _safetensors(options), options["tensor"]
    return lambda: opener().get_tensor(name)


def st_all(options: Options) -> Callable[[], object]:
    _safetensors(options)
    from safetensors.numpy import load_file

    return lambda: load_file(options["path"])


def st_touch(options: Options) -> Callable[[], object]:
    load = st_all(options)
    return lambda: _touch(cast("dict[str, Any]", load()))


def st_names(options: Options) -> Callable[[], object]:
    opener = _safetensors(options)

    def work() -> object:
        file = opener()
        return file, list(file.keys())

    return work


def swap(options: Options) -> Callable[[], object]:
    """Converts the one tensor of a file of the other byte order into fresh memory."""
    file = _weig(options)()
    view = file[options["tensor"]]
    _touch({"": file.read(view.offset, view.nbytes)})
    return lambda: view.data


def memcpy(options: Options) -> Callable[[], object]:
    """Copies the same bytes into memory as fresh as that, in huge pages where there are any."""
    import numpy as np

    from weig.backends.pure.source import fresh

    file = _weig(options)()
    view = file[options["tensor"]]
    source = np.frombuffer(file.read(view.offset, view.nbytes), np.uint8)
    _touch({"": source})
    return lambda: np.copyto(np.frombuffer(fresh(len(source)), np.uint8), source)


def save(options: Options) -> Callable[[], object]:
    import weig
    import weig.backends.writer

    tensors = _tensors(options)
    return lambda: weig.save(options["target"], tensors)


def st_save(options: Options) -> Callable[[], object]:
    from safetensors.numpy import save_file

    tensors = _tensors(options)

    def work() -> None:
        save_file(tensors, options["target"])
        fd = os.open(options["target"], os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)

    return work


def raw_save(options: Options) -> Callable[[], object]:
    """The same bytes by plain writes, synced as the writer does."""
    tensors = [memoryview(tensor.reshape(-1)).cast("B") for tensor in _tensors(options).values()]

    def work() -> None:
        fd = os.open(options["target"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        for tensor in tensors:
            for start in range(0, len(tensor), CHUNK):
                os.write(fd, tensor[start : start + CHUNK])
        os.fsync(fd)
        os.close(fd)

    return work


MEASURES: dict[str, Prepare] = {
    "weig-one": weig_one,
    "weig-all": weig_all,
    "weig-touch": weig_touch,
    "weig-names": weig_names,
    "weig-open": weig_open,
    "st-open": st_open,
    "st-one": st_one,
    "st-all": st_all,
    "st-touch": st_touch,
    "st-names": st_names,
    "swap": swap,
    "memcpy": memcpy,
    "save": save,
    "st-save": st_save,
    "raw-save": raw_save,
}


def _weig(options: Options) -> Callable[[], Any]:
    """A function that opens the file as asked; all that it imports is imported."""
    import ml_dtypes  # the loaders import it when they meet the first BF16

    import weig

    del ml_dtypes
    backend, mode = options["backend"], options.get("mode", "mmap")
    weig.open(options["small_weig"], mode, backend).arrays()
    return lambda: weig.open(options["path"], mode, backend)


def _safetensors(options: Options) -> Callable[[], Any]:
    """The same of safetensors."""
    from safetensors import safe_open

    opener: Any = safe_open
    opener(options["small_safetensors"], framework="np").get_tensor("t")
    return lambda: opener(options["path"], framework="np")


def _tensors(options: Options) -> dict[str, Any]:
    """``size`` bytes in sixteen arrays that are in memory; and the target is not there.

    Whoever writes over an old file gets its blocks again, whoever writes a new one and renames it
    gets others: the first write to a block of a virtual disk costs several times the second.
    """
    import numpy as np

    with contextlib.suppress(FileNotFoundError):
        os.unlink(options["target"])

    count = options["size"] // 16 // 4
    return {f"t{i:02}": np.full(count, i, np.float32) for i in range(16)}


def _listed(file: Any) -> tuple[Any, list[str]]:
    """The names, and the file, which must stay open until memory is measured."""
    return file, list(file)


def _touch(arrays: dict[str, Any]) -> int:
    """Reads a byte of each page."""
    import numpy as np

    return sum(
        int(np.frombuffer(array, np.uint8)[::4096].sum())
        for array in arrays.values()
        if memoryview(array).nbytes
    )


def _resident() -> tuple[int, int]:
    """The resident set of this process in bytes: private memory, and pages of files."""
    with open("/proc/self/status", encoding="ascii") as status:
        sizes = {line.split(":")[0]: line.split()[1] for line in status if line.startswith("Rss")}
    return int(sizes.get("RssAnon", 0)) << 10, int(sizes.get("RssFile", 0)) << 10


def main(name: str, text: str) -> None:
    """Makes one measurement and prints it. What the work gives is kept until memory was read."""
    work = MEASURES[name](json.loads(text))
    before = _resident()
    cpu, wall = time.process_time_ns(), time.perf_counter_ns()
    kept = work()
    wall, cpu = time.perf_counter_ns() - wall, time.process_time_ns() - cpu
    anonymous, file = (after - at for after, at in zip(_resident(), before, strict=True))
    print(json.dumps({"seconds": wall / 1e9, "cpu": cpu / 1e9, "anon": anonymous, "file": file}))
    del kept


if __name__ == "__main__":
    main(*sys.argv[1:])
