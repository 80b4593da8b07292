"""Examines a new adapter step by step, in the order in which things can go wrong, with hints.

`examine` gives one finding a step and stops at the first step that the later ones need. It needs
no cases; `handful` picks the few that a newcomer should try first.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from weig.conformance.hints import of_death, of_line
from weig.conformance.manifest import Case
from weig.conformance.outcome import Outcome, Result
from weig.conformance.process import Fault, FaultKind, Reply, StartError, Worker, no_core_files
from weig.conformance.protocol import (
    PROFILES,
    Answer,
    Hello,
    ProtocolError,
    Rejected,
    Unsupported,
    hello_request,
    load_request,
    parse_answer,
    parse_hello,
)
from weig.conformance.staging import stage_room
from weig.conformance.text import cut, printable
from weig.conformance.verdict import describe, unclaimed

__all__ = ["Finding", "examine", "handful", "of_results"]

BANNER_WAIT = 0.3  # seconds in which an adapter that was asked nothing must write nothing


@dataclass(frozen=True, slots=True)
class Finding:
    """One step. ``problem`` is empty where it went well; ``hints`` say what to do about it."""

    step: str
    problem: str = ""
    hints: tuple[str, ...] = ()
    hello: Hello | None = None


def examine(command: Sequence[str], timeout: float) -> Iterator[Finding]:
    """The findings about an adapter without any case: starting, speaking, ending."""
    with no_core_files(), stage_room() as room:
        try:
            worker = Worker(command)
        except StartError as error:
            yield Finding("it starts", str(error), _why_no_start(command))
            return
        yield Finding("it starts")
        try:
            talked = yield from _conversation(worker, room, timeout)
        finally:
            ending = worker.finish(timeout)
        if not talked:
            return
        if ending.killed:
            yield Finding(
                "it ends when its input ends",
                f"still running {timeout:g} s after its standard input was closed",
                ("Read lines until the end of standard input, then leave the loop and return.",),
            )
        elif ending.signal:
            yield Finding("it ends when its input ends", f"died of {ending.signal}", of_death(""))
        else:
            yield Finding("it ends when its input ends")
        yield _alone(command, room, timeout)


def _conversation(worker: Worker, room: Path, timeout: float) -> Generator[Finding, None, bool]:
    """Everything that one process is asked; the value is whether it came to the end."""
    step = "it writes nothing before it is asked"
    banner = worker.ask(b"", BANNER_WAIT)
    if isinstance(banner, Reply):
        yield Finding(
            step,
            f"it wrote {_show(banner.line)}",
            ("Standard output belongs to the protocol: print banners and logs to standard error.",),
        )
        return False
    if banner.kind is FaultKind.CRASH:
        yield Finding(step, banner.text, of_death(worker.stderr))
        return False
    yield Finding(step)

    step = "it answers hello with one line"
    reply = worker.ask(hello_request(), timeout)
    if isinstance(reply, Fault):
        yield Finding(step, reply.text, _why_no_answer(worker, reply))
        return False
    if reply.extra:
        yield Finding(
            step,
            f"it wrote more behind the line: {_show(reply.extra)}",
            ("One request, one line: JSON without line breaks, and nothing else printed.",),
        )
        return False
    yield Finding(step)

    step = "the line is what PROTOCOL.md asks for"
    try:
        hello = parse_hello(reply.line)
    except ProtocolError as error:
        yield Finding(step, str(error), of_line(reply.line))
        return False
    yield Finding(step, hello=hello)

    step = "it claims core, and profiles that there are"
    if hello.strange or "core" not in hello.profiles:
        names = ", ".join(hello.strange)
        problem = f"no such profile: {names}" if names else "core is not claimed"
        hint = f"There are {', '.join(PROFILES)}. A case of what is not claimed is not run."
        yield Finding(step, printable(problem), (hint,))
    else:
        yield Finding(step)

    missing = str(room / "0000.weig")
    for step, request, ident in (
        ("it answers an unknown verb with unsupported", b"juggle\t0001\n", "0001"),
        ("it rejects a file that does not exist", load_request("0002", missing, "sha256", "open"),
         "0002"),
        ("it ignores a key that it does not know",
         load_request("0003", missing, "none", "open")[:-1] + b"\tcolour=green\n", "0003"),
    ):  # fmt: skip
        finding = _exchange(worker, step, request, ident, timeout)
        yield finding
        if finding.problem:
            return False
    early = worker.early()
    if early is not None:
        yield Finding("it writes nothing more", early, ("Print each answer once.",))
        return False
    return True


def _exchange(worker: Worker, step: str, request: bytes, ident: str, timeout: float) -> Finding:
    """One request in a conversation that has begun well."""
    reply = worker.ask(request, timeout)
    if isinstance(reply, Fault):
        return Finding(step, reply.text, _why_no_answer(worker, reply))
    if reply.extra:
        return Finding(
            step, f"more than one line: {_show(reply.extra)}", ("Print each answer once.",)
        )
    try:
        answer: Answer = parse_answer(reply.line, ident)
    except ProtocolError as error:
        return Finding(step, str(error), (*of_line(reply.line), *_late(reply.line, ident)))
    if b"juggle" in request:
        right = isinstance(answer, Unsupported)
    else:
        right = isinstance(answer, Rejected)
    if right:
        return Finding(step)
    return Finding(
        step,
        printable(describe(answer)),
        (
            'Any exception that you expect is "rejected" with a code; "internal" is for the rest.',
            'A verb that you do not know: {"id": <its second field>, "status": "unsupported"}.',
        ),
    )


def _late(line: bytes, ident: str) -> tuple[str, ...]:
    """A hint where a line answers the request before ``ident``."""
    before = f'"{int(ident) - 1:04d}"'.encode()
    return ("That answers an earlier request. Print each answer once.",) if before in line else ()


def _alone(command: Sequence[str], room: Path, timeout: float) -> Finding:
    """A process that is given one load request, no hello, and then the end of its input."""
    step = "it also serves one request alone, without hello"
    worker = Worker(command)
    request = load_request("0004", str(room / "0000.weig"), "sha256", "open")
    reply = worker.ask(request, timeout, last=True)
    ending = worker.finish(timeout)
    if isinstance(reply, Fault):
        return Finding(
            step, reply.text, (*of_death(ending.stderr), "Expect no hello before a load.")
        )
    if ending.extra:
        return Finding(step, f"more than one line: {_show(ending.extra)}")
    try:
        parse_answer(reply.line, "0004")
    except ProtocolError as error:
        return Finding(step, str(error), of_line(reply.line))
    return Finding(step)


def _why_no_start(command: Sequence[str]) -> tuple[str, ...]:
    """What is wrong with a command that the operating system will not run."""
    program = Path(command[0])
    found = shutil.which(command[0])
    if found is None and not program.exists():
        place = "" if os.sep in command[0] else " (a program of this directory is ./NAME)"
        return (f"There is no program {command[0]!r} here{place}.",)
    if program.is_dir():
        return ("That is a directory.",)
    if found is None:
        return (f"It may not be executed: chmod +x {command[0]}",)
    with open(found, "rb") as file:
        first = file.readline(256)
    if first.startswith(b"\xef\xbb\xbf"):
        return ("The file starts with a byte order mark: save it as UTF-8 without one.",)
    if first.startswith(b"#!") and first.endswith(b"\r\n"):
        return ("Its #! line ends with CR LF: save the file with LF line ends.",)
    if first.startswith(b"#!"):
        return (f"Is the interpreter of its first line there? {_show(first)}",)
    return ("A script needs a first line like #!/usr/bin/env python3, or name the interpreter.",)


def _why_no_answer(worker: Worker, fault: Fault) -> tuple[str, ...]:
    """Hints for silence; ends the adapter's input to see whether it only kept its answer back."""
    if fault.kind is not FaultKind.HANG:
        return of_death(worker.stderr)
    late = worker.late_output()
    if late:
        return (
            f"Once its input was closed it wrote {_show(late)}: the answer was kept in a buffer,"
            " or it reads all of its input first.",
            "Flush after every line: print(..., flush=True), fflush(stdout), std::endl, ...",
            "Read line by line, and answer each line before you read the next.",
        )
    return (
        "Does it read standard input line by line (LF), and know the verb hello?",
        "Try it by hand: printf 'hello\\t1\\n' | COMMAND",
        *of_death(worker.stderr),
    )


def handful(cases: Sequence[Case], hello: Hello) -> list[Case]:
    """A few small cases for a first try: good files first, then bad ones of several chapters."""
    usable = [
        case
        for case in cases
        if case.kind == "file" and case.level == "open" and unclaimed(case, hello) is None
    ]
    usable.sort(key=lambda case: case.size)
    good = [case for case in usable if case.expect == "accept" and case.want]
    filled = [case for case in good if case.want and case.want.count]
    bad = {case.chapter: case for case in reversed(usable) if case.expect == "reject"}
    first = {case.ident: case for case in [*good[:1], *filled[:3], *list(bad.values())[:5]]}
    return list(first.values())


def of_results(results: Sequence[Result], cases: Sequence[Case]) -> Iterator[Finding]:
    """One finding for each of the first cases, with the hint that the answers together suggest."""
    by_id = {case.ident: case for case in cases}
    for result in results:
        case = by_id[result.case]
        step = f"case {case.ident} ({case.expect}): {printable(case.title)}"
        if result.outcome in (Outcome.PASS, Outcome.NOT_CLAIMED):
            yield Finding(step)
            continue
        parts = [result.detail] if result.detail else []
        parts += [f"{d.where}: want {d.want}, got {d.got}" for d in result.differences]
        yield Finding(step, printable(cut(f"{result.outcome}: {'; '.join(parts)}")), _about(result))


def _about(result: Result) -> tuple[str, ...]:
    """A hint for what a case shows."""
    text = " ".join([result.detail, *(item.got for item in result.differences)])
    wheres = {item.where.rpartition(".")[2] for item in result.differences}
    if "IO" in text or "No such file" in text:
        return (
            "The path is absolute: open it as it stands. Fields are split at TAB alone; take the LF"
            " (and nothing else) off the last one.",
        )
    if wheres & {"sha256", "data"}:
        return (
            "Digests are over canonical bytes: row-major, each scalar little-endian, whatever the"
            " file's and the host's byte order; bit patterns untouched.",
        )
    if result.outcome in (Outcome.CRASH, Outcome.HANG):
        return of_death(result.stderr)
    return ()


def _show(data: bytes) -> str:
    return repr(data[:100])[1:]
