"""One adapter process: starts it, asks it, ends it.

Three pipes and the process itself are watched together, so that neither a chatty adapter (standard
error is always drained) nor a silent one (every wait has a deadline) can block the suite, and a
death is seen at once even where a child of the adapter keeps its pipes open. An adapter leads its
own process group, and the whole group is killed with it.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import selectors
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, cast

from weig.conformance.protocol import MAX_LINE
from weig.conformance.text import excerpt

__all__ = ["Ending", "Fault", "FaultKind", "Reply", "StartError", "Worker", "no_core_files"]

STDERR_TAIL = 8192  # bytes of standard error that are kept
GRACE = 2.0  # seconds to end after standard input was closed
_CHUNK = 65536
_LINGER = 1.0  # seconds to die after a pipe was closed, before that counts as closing it alive


class StartError(Exception):
    """The command cannot be run at all; the text is the operating system's reason."""


class FaultKind(StrEnum):
    """How a process can fail to answer."""

    CRASH = "crash"
    HANG = "hang"
    GARBAGE = "garbage"


@dataclass(frozen=True, slots=True)
class Reply:
    """One line, as the adapter wrote it, and what already stood behind it."""

    line: bytes
    extra: bytes
    seconds: float


@dataclass(frozen=True, slots=True)
class Fault:
    """There is no answer. ``text`` says what came instead, ``signal`` the name of a deadly one."""

    kind: FaultKind
    text: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process ended. ``status`` is negative for a signal, as in `subprocess`.

    ``killed`` tells that the suite ended it. ``extra`` is what it wrote after its last answer,
    ``peak_rss`` the most memory (bytes) that it or a child it waited for had resident. Linux
    counts in it what the suite had resident when it started the process.
    """

    status: int
    killed: bool
    extra: bytes
    peak_rss: int
    stderr: str

    @property
    def signal(self) -> str | None:
        """The name of the signal that it died of by itself."""
        return signal_name(-self.status) if self.status < 0 and not self.killed else None


@contextlib.contextmanager
def no_core_files() -> Iterator[None]:
    """Lets no process that is started in this context write a core file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))


class Worker:
    """A running adapter. Not for two threads at once.

    Always ends with `finish` or `kill`, whatever happened before.
    """

    def __init__(self, command: Sequence[str], extra: Iterable[tuple[str, str]] = ()) -> None:
        """Starts the command, with an ``extra`` environment; raises StartError where it cannot."""
        environment = {**os.environ, **dict(extra)}
        # Says where a Python adapter was when a signal killed it; nobody else reads it.
        environment.setdefault("PYTHONFAULTHANDLER", "1")
        try:
            popen = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=environment,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise StartError(reason or str(error)) from None
        self._popen = popen
        self._stdin = cast(IO[bytes], popen.stdin)
        self._stdout = cast(IO[bytes], popen.stdout)
        self._stderr = cast(IO[bytes], popen.stderr)
        self._unread = bytearray()
        self._tail = bytearray()
        self._unsent = b""
        self._exited = self._deaf = self._mute = False
        self._pidfd = _pidfd(popen.pid)
        self._selector = selectors.DefaultSelector()
        for stream in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(stream.fileno(), False)
        self._selector.register(self._stdout, selectors.EVENT_READ)
        self._selector.register(self._stderr, selectors.EVENT_READ)
        if self._pidfd is not None:
            self._selector.register(self._pidfd, selectors.EVENT_READ)

    @property
    def stderr(self) -> str:
        """The end of what it wrote on standard error since the last request."""
        return self._tail.decode("utf-8", "backslashreplace")

    def early(self) -> str | None:
        """What is wrong with the worker before it was asked anything more, or None.

        It may have written more than its answer, or have ended.
        """
        self._pump(0)
        if self._unread:
            return f"wrote without being asked: {excerpt(bytes(self._unread))}"
        if self._exited:
            return f"{self._death()} after its answer, with more requests to come"
        return None

    def ask(self, request: bytes, timeout: float, last: bool = False) -> Reply | Fault:
        """Sends one line and waits, at most ``timeout`` seconds, for one line.

        ``last`` closes standard input behind the request. After a Fault the worker is of no more
        use: `kill` it.
        """
        start = time.monotonic()
        deadline = start + timeout
        self._tail.clear()
        self._send(request)
        if last:
            self._close_stdin()
        while True:
            end = self._unread.find(b"\n")
            if end >= 0:
                line = bytes(self._unread[: end + 1])
                del self._unread[: end + 1]
                return Reply(line, bytes(self._unread), time.monotonic() - start)
            seconds = time.monotonic() - start
            if len(self._unread) > MAX_LINE:
                return Fault(
                    FaultKind.GARBAGE, f"the answer is longer than {MAX_LINE} bytes", seconds
                )
            if self._exited:
                return self._fault_of_death(seconds)
            if self._mute or self._deaf:
                deadline = min(deadline, time.monotonic() + _LINGER)
            if not self._pump(deadline - time.monotonic()):
                return self._fault_of_silence(seconds, timeout)

    def own_peak(self) -> int:
        """The most memory (bytes) that the process itself, alive, had resident since it began.

        0 where it has ended or the system does not tell. Unlike `Ending.peak_rss` it counts nothing
        that the suite had, and not the children of the process.
        """
        try:
            status = Path(f"/proc/{self._popen.pid}/status").read_text("ascii", "replace")
        except OSError:
            return 0
        found = re.search(r"^VmHWM:\s*(\d+) kB$", status, re.MULTILINE)
        return int(found[1]) * 1024 if found else 0

    def late_output(self, grace: float = GRACE) -> bytes:
        """What it writes once its standard input is closed (for an adapter that hung)."""
        self._close_stdin()
        deadline = time.monotonic() + grace
        while not self._exited and not self._unread and self._pump(deadline - time.monotonic()):
            pass
        return bytes(self._unread)

    def finish(self, grace: float = GRACE) -> Ending:
        """Closes standard input and gives the adapter ``grace`` seconds to end; else kills it."""
        self._close_stdin()
        deadline = time.monotonic() + grace
        while not self._exited and len(self._unread) <= MAX_LINE:
            if not self._pump(deadline - time.monotonic()):
                break
        return self._reap(killed=not self._exited)

    def kill(self) -> Ending:
        """Ends the adapter and all that it started, now."""
        return self._reap(killed=not self._exited)

    def _send(self, request: bytes) -> None:
        self._unsent = request
        self._write()
        if self._unsent:  # a full pipe: the adapter does not read
            self._selector.register(self._stdin, selectors.EVENT_WRITE)

    def _write(self) -> None:
        try:
            self._unsent = self._unsent[os.write(self._stdin.fileno(), self._unsent) :]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._deaf = True
            self._unsent = b""

    def _close_stdin(self) -> None:
        """Closes standard input; what a full pipe still holds up is dropped."""
        self._unsent = b""
        if not self._stdin.closed:
            if self._stdin in self._selector.get_map():
                self._selector.unregister(self._stdin)
            self._stdin.close()

    def _pump(self, timeout: float) -> bool:
        """Moves what can be moved; False where nothing came within ``timeout`` seconds."""
        if timeout < 0:
            return False
        if self._exited:
            return True
        if self._pidfd is None:  # a system where a death cannot be waited for beside the pipes
            return self._pump_polling(timeout)
        events = self._selector.select(timeout)
        for key, _ in events:
            self._move(key.fileobj)
        return bool(events)

    def _pump_polling(self, timeout: float) -> bool:
        for key, _ in self._selector.select(min(timeout, 0.02)):
            self._move(key.fileobj)
        if os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            self._see_death()
        return True

    def _move(self, stream: object) -> None:
        if stream is self._stdin:
            self._write()
            if not self._unsent:
                self._selector.unregister(self._stdin)
        elif stream is self._stdout:
            self._read_stdout()
        elif stream is self._stderr:
            self._read_stderr()
        else:
            self._see_death()

    def _see_death(self) -> None:
        """The adapter has ended: takes what it left in the pipes, which a child may still hold."""
        self._exited = True
        while not self._mute and len(self._unread) <= MAX_LINE and self._read_stdout():
            pass
        for _ in range(STDERR_TAIL // 64):  # bounded: that child may still write
            if not self._read_stderr():
                break

    def _read_stdout(self) -> bool:
        chunk = _read(self._stdout.fileno())
        if chunk == b"":
            self._mute = True
            if self._stdout in self._selector.get_map():  # a death seen before has read it out
                self._selector.unregister(self._stdout)
        self._unread += chunk or b""
        return bool(chunk)

    def _read_stderr(self) -> bool:
        chunk = _read(self._stderr.fileno())
        if chunk == b"" and self._stderr in self._selector.get_map():
            self._selector.unregister(self._stderr)
        self._tail += chunk or b""
        del self._tail[:-STDERR_TAIL]
        return bool(chunk)

    def _fault_of_death(self, seconds: float) -> Fault:
        if self._unread and self._status() == 0:
            text = f"the line has no end (LF): {excerpt(bytes(self._unread))}"
            return Fault(FaultKind.GARBAGE, text, seconds)
        partial = f" (began: {excerpt(bytes(self._unread))})" if self._unread else ""
        return Fault(FaultKind.CRASH, f"{self._death()} without an answer{partial}", seconds)

    def _fault_of_silence(self, seconds: float, timeout: float) -> Fault:
        if self._mute:
            return Fault(FaultKind.GARBAGE, "closed its standard output, no answer", seconds)
        if self._deaf:
            return Fault(FaultKind.GARBAGE, "closed its standard input, no answer", seconds)
        partial = f"; it began: {excerpt(bytes(self._unread))}" if self._unread else ""
        return Fault(FaultKind.HANG, f"no answer within {timeout:g} s{partial}", seconds)

    def _death(self) -> str:
        return describe(self._status())

    def _status(self) -> int:
        """How it ended, before it is reaped: the exit status, or minus the signal's number."""
        info = os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOWAIT)
        if info is None or info.si_code == os.CLD_EXITED:
            return info.si_status if info else 0
        return -info.si_status

    def _reap(self, killed: bool) -> Ending:
        """Kills the group, then takes the status: in this order the number is still its own."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        _, status, usage = os.wait4(self._popen.pid, 0)
        self._popen.returncode = os.waitstatus_to_exitcode(status)
        extra = bytes(self._unread)
        ending = Ending(self._popen.returncode, killed, extra, usage.ru_maxrss * 1024, self.stderr)
        self._selector.close()
        for stream in (self._stdin, self._stdout, self._stderr):
            stream.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
        return ending


def describe(status: int) -> str:
    """A process's end in words: the signal's name, or its exit status."""
    if status < 0:
        return f"died of {signal_name(-status)}"
    if 128 < status < 160:  # a shell says so of its child
        return f"ended with exit status {status} ({signal_name(status - 128)} of a child?)"
    return f"ended with exit status {status}"


def signal_name(number: int) -> str:
    """``SIGSEGV`` for 11."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _pidfd(pid: int) -> int | None:
    """A descriptor that is readable once the process has ended; None where there is no such."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _read(descriptor: int) -> bytes | None:
    """What is there, b"" at the end, None where nothing is there yet."""
    try:
        return os.read(descriptor, _CHUNK)
    except BlockingIOError:
        return None
    except OSError:
        return b""
