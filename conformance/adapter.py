"""An adapter to test: its command, and what it says of itself when it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from weig.conformance.process import Fault, StartError, Worker
from weig.conformance.protocol import Hello, ProtocolError, hello_request, parse_hello

__all__ = ["START_TIMEOUT", "Adapter", "Started", "greet", "label_of"]

START_TIMEOUT = 30.0  # seconds to answer hello


@dataclass(frozen=True, slots=True)
class Adapter:
    """A command to test. ``again`` is what selects it on the suite's own command line.

    ``environment`` is added to that of the suite.
    """

    label: str
    command: tuple[str, ...]
    again: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()

    def start(self) -> Worker:
        """A process of it; raises StartError."""
        return Worker(self.command, self.environment)


@dataclass(frozen=True, slots=True)
class Started:
    """An adapter and what it said to ``hello``: None, and the ``problem``, where it said nothing.

    ``seconds`` is how long it took to say it. ``guarded`` names the guards that it ran under,
    ``unguarded`` says of others why not.
    """

    adapter: Adapter
    hello: Hello | None
    seconds: float = 0.0
    problem: str = ""
    stderr: str = ""
    guarded: tuple[str, ...] = ()
    unguarded: tuple[str, ...] = ()


def greet(adapter: Adapter) -> tuple[Started, Worker | None]:
    """Starts a worker and says hello; the worker is given on, alive, where it answered well."""
    try:
        worker = adapter.start()
    except StartError as error:
        return Started(adapter, None, problem=f"cannot be started: {error}"), None
    reply = worker.ask(hello_request(), START_TIMEOUT)
    try:
        if isinstance(reply, Fault):
            raise ProtocolError(reply.text)
        if reply.extra:
            raise ProtocolError("wrote more than one line in answer to hello")
        return Started(adapter, parse_hello(reply.line), reply.seconds), worker
    except ProtocolError as error:
        stderr = worker.kill().stderr
        return Started(adapter, None, problem=f"hello: {error}", stderr=stderr), None


def label_of(command: Sequence[str]) -> str:
    """A short name for a command: of the script that an interpreter runs, or of the program."""
    script = next((word for word in command[1:] if Path(word).is_file()), command[0])
    return Path(script).name
