"""What stands in memory behind the end of a mapped file, in its last page.

As a script it is an adapter that answers with it: that must be caught where the bytes behind the
end of files are poisoned. (``python -I -S tail.py tail``, so it imports nothing of ours; with
``none`` it does not look there.)
"""

import ctypes
import json
import mmap
import sys
from pathlib import Path


def behind_end(path: Path) -> bytes:
    """The bytes from the end of a file to the end of its page, as a new map shows them."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as memory:
        size = len(memory)
        first = ctypes.c_char.from_buffer(memory)
        try:
            return ctypes.string_at(ctypes.addressof(first) + size, -size % mmap.PAGESIZE)
        finally:
            del first


def _answer(fields: list[str]) -> dict[str, object]:
    if fields[0] != "load":
        facts = {"protocol": 1, "loader": "tail", "version": "1", "language": "python"}
        return {**facts, "spec": ["1"], "profiles": ["core"]}
    seen = behind_end(Path(fields[2]))[:1] if sys.argv[1:] == ["tail"] else b""
    return {"id": fields[1], "status": "rejected", "error": f"TAIL_{seen.hex().upper()}"}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(_answer(line.rstrip("\n").split("\t"))), flush=True)
