"""Tries mutants, one after another: says what catches each, or that it survives.

    python -S trial.py TREE PACKAGES

TREE is a copy of the repository, under the name weig; PACKAGES is the folder of all other packages.
``-S`` keeps an editable install's hook away, which would bring the original instead. For every line
of standard input, which names a stage, the tree as it is by then is tried, and a line answers.

A mutant is tried in a fork of this process, which has imported and read all but the loader before:
most are caught within a few cases, and starting would cost ten times as much. The engine of the
conformance suite runs the cases; its worker is the fork itself. Stage "first" is the suite with the
loader mapping. Stage "rest", for those alone that survive the first, is the suite with the loader
reading; then some tests, of what the suite cannot see: the place that an error names, blocks that
no small file fills, how a file is used from Python; and at the end the few cases of the suite that
take time, once: what they weigh is the work on the table, in both modes the same.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weig.conformance.lane import Job

STAGES = ("first", "rest")
SURVIVES = "survives"
# A mutant that hangs is caught. Seconds of the processor, so that a busy machine catches none;
# those of the clock are for who waits.
BUSY, BUSY_TESTS = 4.0, 20.0
TIMEOUT = 20.0  # seconds a case
SILENCE = 300.0  # seconds without a word, at whatever it is
HANGS = ("SIGPROF", "SIGALRM", "SIGKILL")
SLOW = {"slow", "memory"}  # the tags of the cases that take more time than all others together
TESTS = ("tests/test_pure_loader.py", "tests/test_contract.py", "-k", "pure")
# Memory that a process may write to: a mutant must not starve the machine.
MEMORY = 8 << 30
# What a loader and the tests need and no mutant can change.
WARM = ("hashlib", "mmap", "ml_dtypes", "hypothesis", "pytest")


class CaughtError(Exception):
    """Something failed. The text says what."""


def limit(busy: float, waiting: float) -> None:
    """From now on so many seconds: then a signal ends this process. 0 takes the limit away."""
    signal.setitimer(signal.ITIMER_PROF, busy)
    signal.setitimer(signal.ITIMER_REAL, waiting)


class InProcess:
    """The bundled adapter in this process, as far as the engine wants a worker."""

    stderr = ""

    def __init__(self, mode: str) -> None:
        from weig.tools.adapter import Adapter

        self._adapter = Adapter("pure", mode)

    def ask(self, request: bytes, timeout: float, last: bool = False) -> Any:
        from weig.conformance.process import Reply

        fields = request.decode().rstrip("\n").split("\t")
        start = time.monotonic()
        limit(BUSY, timeout)
        line = json.dumps(self._adapter.answer(fields)).encode() + b"\n"
        limit(0, 0)
        return Reply(line, b"", time.monotonic() - start)

    def early(self) -> str | None:
        return None

    def kill(self) -> None:
        pass


class Suite:
    """The conformance suite, read once."""

    def __init__(self, tree: Path, room: Path) -> None:
        from weig.conformance import manifest
        from weig.conformance.runner import shuffled
        from weig.conformance.staging import Sources

        whole = manifest.read(tree / "fixtures/corpus")
        jobs = shuffled(whole.cases, 0)
        self.quick = [job for job in jobs if not SLOW & job.case.tags]
        self.slow = [job for job in jobs if SLOW & job.case.tags]
        self.room = room
        self.sources = Sources.of(whole)
        for case in whole.cases:
            if case.kind == "file" and case.file is not None:
                self.sources.small(case)

    def run(self, mode: str, jobs: Sequence[Job], say: Callable[[str], None]) -> None:
        """Raises CaughtError for the first case that fails; says each before it is tried."""
        from weig.conformance.lane import Budget, Lane
        from weig.conformance.outcome import Bucket, bucket
        from weig.conformance.protocol import parse_hello
        from weig.conformance.runner import Adapter, Options
        from weig.tools.adapter import hello

        words = ("-m", "weig.tools.cli", "adapter", "--backend", "pure", "--mode", mode)
        adapter = Adapter(mode, (sys.executable, "-S", *words), ())
        options = Options(timeout=TIMEOUT, repeats=0)
        budget = Budget(repeats=0, hangs=1, faults=1)
        said = parse_hello(json.dumps(hello("pure", mode)).encode() + b"\n")
        worker: Any = InProcess(mode)
        lane = Lane(adapter, said, 0.5, self.sources, options, self.room, budget, worker)
        for job in jobs:
            say(f"suite {mode} {job.case.ident}")
            result = lane.settle(job)
            if bucket(result.outcome, strict_codes=True) is Bucket.FAILED:
                raise CaughtError(f"suite {mode} {result.case} {result.outcome}")


def tests(tree: Path, say: Callable[[str], None]) -> None:
    """Raises CaughtError for the first test of the second stage that fails."""
    import pytest

    failed: list[str] = []

    class Listener:
        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed:
                failed.append(report.nodeid)

    say("tests")
    os.chdir(tree)
    limit(BUSY_TESTS, SILENCE)
    status = pytest.main(
        [*TESTS, "-q", "-x", "--tb=no", "--assert=plain", "-p", "no:cacheprovider"], [Listener()]
    )
    if status:
        raise CaughtError(f"tests {failed[0] if failed else status}")


def trial(tree: Path, suite: Suite, stage: str, report: int) -> None:
    """In the fork: writes what it is about to try, line by line, and what came of it."""

    def say(text: str) -> None:
        os.write(report, f"{text}\n".encode())

    try:
        if stage == STAGES[0]:
            suite.run("mmap", suite.quick, say)
        else:
            suite.run("read", suite.quick, say)
            tests(tree, say)
            suite.run("mmap", suite.slow, say)
        say(SURVIVES)
    except CaughtError as error:
        say(str(error))


def attempt(tree: Path, suite: Suite, stage: str) -> str:
    """What comes of the tree as it is now, in a line."""
    from weig.conformance.staging import clear

    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            trial(tree, suite, stage, writing)
        except BaseException as error:
            os.write(writing, f"suite {type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(0)
    os.close(writing)
    last = _last_line(reading, child)
    _, status = os.waitpid(child, 0)
    clear(suite.room)
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return f"{last} {'hang' if name in HANGS else name}"
    return last


def _last_line(reading: int, child: int) -> str:
    """The last line that a child writes until it ends. One that is silent for too long is ended."""
    text = b"suite import\n"
    while True:
        if not select.select([reading], [], [], SILENCE)[0]:
            os.kill(child, signal.SIGKILL)
        chunk = os.read(reading, 1 << 16)
        if not chunk:
            break
        text = (text + chunk)[-(1 << 12) :]
    os.close(reading)
    return text.decode("utf-8", "replace").splitlines()[-1]


def main(tree: Path, packages: str) -> None:
    paths = [str(tree.parent), packages]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.path[:0] = paths
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    for name in WARM:
        importlib.import_module(name)
    with tempfile.TemporaryDirectory(prefix="weig-") as room:
        suite = Suite(tree, Path(room))
        gc.freeze()  # what the forks share stays shared
        for line in sys.stdin:
            print(attempt(tree, suite, line.strip()), flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(Path(sys.argv[1]).resolve(), sys.argv[2])
