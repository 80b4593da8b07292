"""How the cases of one guarded pass are staged, and what its adapters are started with."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from weig.conformance.adapter import Adapter
from weig.conformance.manifest import Case
from weig.conformance.protocol import Answer, Hello
from weig.conformance.staging import COPY_LIMIT, NotStageableError, Staged

__all__ = ["LARGEST", "Guard", "Mode", "poison"]

LARGEST = 64 << 20  # bytes of a file that the library copies; see COPY_LIMIT in preload.c


class Mode(StrEnum):
    """How reads outside of a file are made visible. The order is the one in which they run."""

    RESERVE = "reserve"  # nothing can be read beside a map
    ABUT = "abut"  # the map is a copy that ends where nothing can be read
    POISON = "poison"  # the bytes behind the end of the file are set, to two values

    @property
    def preloads(self) -> bool:
        """Whether it takes a library in the adapter's process."""
        return self is not Mode.POISON

    def applies(self, case: Case) -> bool:
        """Whether this mode could show anything with a case."""
        if case.kind not in ("file", "sparse", "symlink") or not case.size:
            return False
        if self is not Mode.RESERVE and case.held is not None:
            return False  # a copy does not change with its file, and a change ends the poison
        if self is Mode.POISON:  # of a file that is linked, not copied, the original would get it
            return case.size <= COPY_LIMIT and case.size % mmap.PAGESIZE != 0
        return self is Mode.RESERVE or case.size <= LARGEST


@dataclass(frozen=True, slots=True)
class Guard:
    """One pass over the cases. ``folder`` holds the staged files, in ``rooms``, and the proofs.

    ``library`` is preloaded, ``fill`` the poison. ``answers`` gathers what the adapters say, by
    label and case.
    """

    mode: Mode
    folder: Path
    library: Path | None = None
    fill: int = 0
    answers: dict[tuple[str, str], Answer] = field(default_factory=dict)

    @property
    def rooms(self) -> Path:
        return self.folder / "rooms"

    def proof(self, number: int) -> Path:
        """The file in which the library tells what it did in one adapter."""
        return self.folder / f"proof-{number}"

    def armed(self, adapter: Adapter, number: int) -> Adapter:
        """The adapter, to be started with the library."""
        if self.library is None:
            return adapter
        self.proof(number).touch()
        others = os.environ.get("LD_PRELOAD")
        environment = (
            ("LD_PRELOAD", f"{self.library}:{others}" if others else str(self.library)),
            ("WEIG_GUARD", str(self.mode)),
            ("WEIG_GUARD_FILES", f"{os.path.realpath(self.rooms)}/"),
            ("WEIG_GUARD_PROOF", str(self.proof(number))),
        )
        return replace(adapter, environment=environment)

    def claims(self, hello: Hello) -> Hello:
        """What may be judged: no alignment, where the map is put at an odd address."""
        if self.mode is Mode.ABUT:
            return replace(hello, profiles=hello.profiles - {"mmap"})
        return hello

    def prepared(self, staged: Staged) -> Staged:
        """Makes a staged file ready; raises NotStageableError where that is not possible."""
        if self.rooms not in staged.path.parents:
            raise NotStageableError("too large to be copied to where it can be guarded")
        if self.mode is Mode.POISON and staged.identity is not None:
            try:
                poison(staged.path, self.fill)
                os.utime(staged.path, ns=(staged.identity[1], staged.identity[1]))
            except OSError as error:
                raise NotStageableError(f"cannot be poisoned: {error.strerror}") from None
        return staged


def poison(path: Path, fill: int) -> None:
    """Sets the bytes between the end of a file and the end of its page, in memory.

    Files of file systems that keep them in memory go on showing these bytes to whoever maps them.
    """
    with path.open("r+b") as file:
        size = os.fstat(file.fileno()).st_size
        page = mmap.PAGESIZE
        start = size - size % page
        if size == start:
            return
        # Python maps nothing behind the end of a file, so the file ends further back meanwhile.
        file.truncate(start + page)
        with mmap.mmap(file.fileno(), page, offset=start) as memory:
            file.truncate(size)
            memory[size - start :] = bytes([fill]) * (page - (size - start))
