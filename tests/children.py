"""Work in a child process, under limits that would harm the tests themselves."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path


def in_child(work: Callable[[], None]) -> int:
    """Runs ``work`` in a child; gives its exit code, or minus the signal that ended it."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def limit_address_space(more: int) -> None:
    """Lets this process map only ``more`` bytes beyond what it has."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
