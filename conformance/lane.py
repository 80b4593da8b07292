"""Takes cases, one after another, through one adapter: in a shared worker, or each one alone.

A fault (crash, hang, garbage) in a shared worker decides nothing by itself: the case is repeated
alone, and that result counts. Where it does not repeat, the case before is repeated too, for a
loader may die late of what it did early; where neither repeats, the case is *order-dependent*.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from weig.conformance.adapter import Adapter, greet
from weig.conformance.held import Step, alter, talk
from weig.conformance.manifest import Case
from weig.conformance.memory import Scales
from weig.conformance.options import FAULTS, Budget, Job, Options
from weig.conformance.outcome import Outcome, Result
from weig.conformance.pace import TRIES, allowed, shortest
from weig.conformance.process import Ending, Fault, FaultKind, Reply, StartError, Worker
from weig.conformance.protocol import (
    Answer,
    Hello,
    ProtocolError,
    load_request,
    parse_answer,
)
from weig.conformance.staging import (
    COPY_LIMIT,
    NotStageableError,
    Sources,
    Staged,
    clear,
    stage,
)
from weig.conformance.verdict import Verdict, judge, unclaimed

__all__ = ["Lane"]

GIANT = 1 << 30  # bytes; a wrong answer about a larger file is not repeated
SLOWEST_READ = 100 << 20  # bytes a second that a loader may need for a giant file ...
LONGEST_READ = 60.0  # ... in at most so many seconds more than a case has anyway

_WRONG = frozenset({Outcome.WRONG_VERDICT, Outcome.WRONG_CONTENT, Outcome.INTERNAL})


@dataclass
class Lane:
    """One adapter's way through a share of the cases. Used by one thread.

    `run` does it all; or `settle` case by case, `finish`, and `close` in any case.
    """

    adapter: Adapter
    hello: Hello
    hello_seconds: float
    sources: Sources
    options: Options
    room: Path
    budget: Budget
    worker: Worker | None = None
    scales: Scales | None = None  # made when the first case is weighed
    paces: dict[str, float | None] = field(default_factory=dict)  # seconds by case
    previous: Job | None = None  # the last case that the live worker answered
    results: dict[str, Result] = field(default_factory=dict)

    def run(
        self, jobs: Sequence[Job], progress: Callable[[Result], None], stop: threading.Event
    ) -> list[Result]:
        """Takes the jobs in order, until ``stop`` is set. Always ends the worker."""
        try:
            for job in jobs:
                if stop.is_set():
                    break
                progress(self.settle(job))
            self.finish()
        finally:
            self.close()
        return list(self.results.values())

    def settle(self, job: Job) -> Result:
        """One case. It may change the result of the one before, in ``results``."""
        result = self._settled(job)
        self.results[job.case.ident] = result
        return result

    def _settled(self, job: Job) -> Result:
        """The result of one case, repeats included."""
        missing = unclaimed(job.case, self.hello)
        if missing is not None:
            return self._result(job, Outcome.NOT_CLAIMED, missing)
        held, via = job.case.held, self.options.via
        if held is not None and via not in (None, held.via):
            return self._result(job, Outcome.NOT_CLAIMED, f"held open by {held.via}")
        if self.budget.spent:
            return self._result(job, Outcome.NOT_RUN, "gave up after so many faults")
        try:
            alone = (
                self.options.isolation == "case" or self._weighs(job) or job.case.pace is not None
            )
            result = self._alone(job) if alone else self._shared(job)
            small = job.case.size <= GIANT
            if result.outcome in _WRONG and small and self.budget.repeat():
                result = self._repeat(job, result, alone)
        except NotStageableError as error:
            return self._result(job, Outcome.NOT_RUN, str(error))
        self.budget.count(result.outcome)
        return result

    def _repeat(self, job: Job, first: Result, alone: bool) -> Result:
        """A wrong answer once more, alone, and with the bytes themselves where digests differ."""
        if not alone:
            again = self._alone(job)
            if again.outcome is Outcome.PASS:
                text = f"{first.outcome} in a shared worker{self._after()}, right alone"
                return replace(first, outcome=Outcome.ORDER_DEPENDENT, detail=text)
            first = again
        if any(item.where.endswith(".sha256") for item in first.differences):
            shown = self._alone(job, data="hex")
            if shown.outcome is first.outcome:
                return shown
        return first

    def _shared(self, job: Job) -> Result:
        """One case in the live worker, which is started, or replaced, where need be."""
        if self.worker is not None and (trouble := self.worker.early()):
            self.close()
            self._suspect(trouble)
        if self.worker is None:
            self.previous = None
            _, self.worker = greet(self.adapter)
            if self.worker is None:
                return self._alone(job)
        staged = self._stage(job)
        try:
            staged, step, reply = self._talk(self.worker, job, staged, None, self._timeout(job))
            result = self._judge(job, staged, step, reply)
        finally:
            clear(self.room)
        if result.outcome in FAULTS.values():
            self.close()
            return self._after_fault(job, result)
        self.previous = job
        return result

    def _after_fault(self, job: Job, first: Result) -> Result:
        """What counts after a fault in a shared worker."""
        alone = self._alone(job)
        if alone.outcome is not Outcome.PASS:
            return alone
        after = self._after()
        if self.previous is not None and self._blame_previous():
            return alone
        text = f"{first.detail}, in a shared worker{after}; right alone"
        return replace(alone, outcome=Outcome.ORDER_DEPENDENT, detail=text, stderr=first.stderr)

    def _suspect(self, trouble: str) -> None:
        """The worker is in trouble after an answer that was right: repeats that case alone."""
        if self.previous is None or self._blame_previous():
            return
        before = self.results[self.previous.case.ident]
        if before.outcome is Outcome.PASS:
            text = f"{trouble}; right alone"
            self.results[before.case] = replace(
                before, outcome=Outcome.ORDER_DEPENDENT, detail=text
            )

    def _blame_previous(self) -> bool:
        """Repeats the last answered case alone; where that is a fault, it is its result."""
        if self.previous is None:
            return False
        alone = self._alone(self.previous)
        if alone.outcome not in FAULTS.values():
            return False
        self.results[self.previous.case.ident] = alone
        return True

    def _alone(self, job: Job, data: str | None = None) -> Result:
        """One case in a process of its own: one line, then the end of its standard input."""
        timeout = self._timeout(job) + 4 * self.hello_seconds  # starting counts here
        staged = self._stage(job)
        try:
            worker = self.adapter.start()
        except StartError as error:
            clear(self.room)
            return self._result(job, Outcome.CRASH, f"cannot be started: {error}")
        try:
            # To be weighed, a worker must live a little longer than its answer.
            measured = self._weighs(job)
            staged, step, reply = self._talk(worker, job, staged, data, timeout, last=not measured)
            own = worker.own_peak() if measured else 0
            ending = worker.kill() if isinstance(reply, Fault) else worker.finish(timeout)
        except BaseException:
            worker.kill()
            raise
        if isinstance(reply, Reply):
            reply = _whole_life(reply, ending)
        result = self._judge(job, staged, step, reply)
        clear(self.room)
        result = replace(result, stderr="" if result.outcome is Outcome.PASS else ending.stderr)
        if not measured:
            return result
        self.scales = self.scales or Scales(self.adapter)
        # It may hold the file, and swap it.
        room = (self.options.memory or 0) + 2 * job.case.size
        return self.scales.weighed(result, (own, ending.peak_rss), room)

    def _stage(self, job: Job) -> Staged:
        staged = stage(job.case, self.sources, self.room, job.number)
        if self.options.guard is None:
            return staged
        try:
            return self.options.guard.prepared(staged)
        except NotStageableError:
            clear(self.room)
            raise

    def _weighs(self, job: Job) -> bool:
        return self.options.memory is not None and "memory" in job.case.tags

    def _talk(
        self,
        worker: Worker,
        job: Job,
        staged: Staged,
        data: str | None,
        timeout: float,
        last: bool = False,
    ) -> tuple[Staged, Step, Reply | Fault]:
        """Asks all that a case asks, as long as the answers are right.

        Gives the file as it is then, the step that decides and its reply. ``last`` closes standard
        input behind the last request.
        """
        *steps, final = self._steps(job, staged, data)
        for step in steps:
            staged = alter(staged, step.before)
            reply = worker.ask(step.request, timeout)
            if self._judge(job, staged, step, reply).outcome is not Outcome.PASS:
                return staged, step, reply
        staged = alter(staged, final.before)
        return staged, final, worker.ask(final.request, timeout, last)

    def _steps(self, job: Job, staged: Staged, data: str | None) -> list[Step]:
        case, path = job.case, str(staged.path)
        data = data or self._content(case)

        def verdict(answer: Answer, with_content: bool) -> Verdict:
            return judge(case, answer, self.hello, with_content)

        if case.held is not None:
            return list(talk(case, job.number, path, data, verdict))
        request = load_request(job.number, path, data, case.level, self.options.via)
        return [Step(request, lambda answer: verdict(answer, data != "none"))]

    def _timeout(self, job: Job) -> float:
        """Seconds for one case; a file of gigabytes may be read as a whole."""
        pace = self._pace(job)
        if pace is not None:
            smaller, seconds = pace
            return allowed(seconds, job.case.size / smaller.size, self.options.timeout)
        return self.options.timeout + min(job.case.size / SLOWEST_READ, LONGEST_READ)

    def _pace(self, job: Job) -> tuple[Case, float] | None:
        """The smaller case that a case is measured by, and how long it took; None without one."""
        if job.case.pace is None:
            return None
        smaller = self.sources.manifest.case(job.case.pace)
        if smaller.ident not in self.paces:
            staged = stage(smaller, self.sources, self.room, job.number)
            [step] = self._steps(replace(job, case=smaller), staged, None)
            tries = 1 if self.options.isolation == "case" else TRIES
            self.paces[smaller.ident] = shortest(
                self.adapter.command, step.request, tries, self.options.timeout
            )
            clear(self.room)
        seconds = self.paces[smaller.ident]
        return None if seconds is None else (smaller, seconds)

    def _content(self, case: Case) -> str:
        """Whether digests are asked for: where they are claimed, and the file is no giant."""
        if "data" not in self.hello.profiles:
            return "none"
        if case.want is not None:
            tensors = case.want.tensors  # none where they are too many to compare
            wanted = bool(tensors) and all(tensor.sha256 is not None for tensor in tensors)
        else:
            wanted = case.size <= COPY_LIMIT
        return "sha256" if wanted else "none"

    def _judge(self, job: Job, staged: Staged, step: Step, reply: Reply | Fault) -> Result:
        """The result of one exchange."""
        result = self._judged(job, staged, step, reply)
        if not step.where or result.outcome is Outcome.PASS:
            return result
        return replace(result, detail=f"{step.where}: {result.detail}".removesuffix(": "))

    def _judged(self, job: Job, staged: Staged, step: Step, reply: Reply | Fault) -> Result:
        if isinstance(reply, Reply) and reply.extra:
            text = f"more than one line in answer: {reply.extra[:60]!r}"
            reply = Fault(FaultKind.GARBAGE, text, reply.seconds)
        if isinstance(reply, Fault):
            stderr = self.worker.stderr if self.worker else ""
            text = reply.text
            if reply.kind is FaultKind.HANG and (pace := self._pace(job)):
                text = f"{text}, and {pace[0].ident} took {pace[1]:.4f} s"
            return self._result(job, FAULTS[reply.kind], text, reply.seconds, stderr)
        try:
            answer = parse_answer(reply.line, job.number)
        except ProtocolError as error:
            return self._result(job, Outcome.GARBAGE, str(error), reply.seconds)
        if self.options.guard is not None:
            self.options.guard.answers[self.adapter.label, job.case.ident] = answer
        verdict = step.judge(answer)
        result = Result(
            self.adapter.label,
            job.case.ident,
            verdict.outcome,
            reply.seconds,
            verdict.detail,
            verdict.differences,
        )
        change = staged.modified()
        if change is not None:
            return replace(result, outcome=Outcome.MODIFIED_INPUT, detail=change)
        return result

    def _result(
        self, job: Job, outcome: Outcome, detail: str, seconds: float = 0.0, stderr: str = ""
    ) -> Result:
        return Result(self.adapter.label, job.case.ident, outcome, seconds, detail, (), stderr)

    def _after(self) -> str:
        return f" after {self.previous.case.ident}" if self.previous is not None else ""

    def finish(self) -> None:
        """The end of the input: a worker that dies of it puts its last case under suspicion."""
        if self.worker is None:
            return
        ending = self.worker.finish(self.options.timeout)
        self.worker = None
        if ending.extra:
            self._suspect(f"wrote without being asked: {ending.extra[:60]!r}")
        elif ending.killed:
            self._suspect("did not end when its standard input ended")
        elif ending.signal is not None:
            self._suspect(f"died of {ending.signal} at the end of its input")

    def close(self) -> None:
        """Ends the worker, whatever it does."""
        if self.worker is not None:
            self.worker.kill()
            self.worker = None


def _whole_life(reply: Reply, ending: Ending) -> Reply | Fault:
    """An answer given alone, with what the process did after it."""
    if ending.extra:
        text = f"more than one line in answer: {ending.extra[:60]!r}"
        return Fault(FaultKind.GARBAGE, text, reply.seconds)
    if ending.killed:
        text = "answered, but did not end when its standard input ended"
        return Fault(FaultKind.HANG, text, reply.seconds)
    if ending.signal is not None:
        return Fault(FaultKind.CRASH, f"died of {ending.signal} after its answer", reply.seconds)
    return reply
