"""What the plugin of pytest collects: a node an adapter, below it a test a case.

The cases of an adapter share one worker, as in a run of the suite; a failure is repeated alone.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from weig.conformance import known, manifest, runner
from weig.conformance.adapter import Adapter, greet, label_of
from weig.conformance.known import Known, KnownError
from weig.conformance.lane import Lane
from weig.conformance.manifest import Case, Manifest
from weig.conformance.options import Budget, Job, Options
from weig.conformance.outcome import Bucket, Outcome, Result, SuiteError, bucket
from weig.conformance.process import no_core_files
from weig.conformance.report_text import failure, not_started
from weig.conformance.results import AdapterInfo, Results
from weig.conformance.staging import Sources, stage_room

__all__ = ["AdapterNode", "CaseItem", "adapters"]

# Only data is taken from there; nothing is imported.
BUNDLED = Path(__file__).parent.parent / "fixtures" / "corpus"


@dataclass(frozen=True)
class Suite:
    """What all adapters of a session share."""

    manifest: Manifest
    sources: Sources
    known: Sequence[Known]
    options: Options


def adapters(session: pytest.Session) -> Iterator[AdapterNode]:
    """The nodes that the command line asks for; raises pytest.UsageError."""
    config = session.config
    given = config.getoption("weig_manifest")
    listed = config.getoption("weig_known")
    timeout, strict = config.getoption("weig_timeout"), config.getoption("weig_strict_codes")
    if not timeout > 0:
        raise pytest.UsageError("--weig-timeout: a positive number of seconds is wanted")
    try:
        whole = manifest.read(Path(given) if given else BUNDLED)
        entries = known.read(Path(listed)) if listed else ()
    except (SuiteError, KnownError) as error:
        raise pytest.UsageError(str(error)) from None
    options = Options(timeout=timeout, strict_codes=strict)
    suite = Suite(whole, Sources.of(whole), entries, options)
    extra = ("--manifest", given) if given else ()
    labels: dict[str, int] = {}
    for text in config.getoption("weig_adapter"):
        command = _command(text)
        label = label_of(command)
        labels[label] = labels.get(label, 0) + 1
        if labels[label] > 1:
            label += f"#{labels[label]}"
        adapter = Adapter(label, command, (*extra, "--", *command))
        name = f"weig[{label}]"
        yield AdapterNode.from_parent(session, name=name, nodeid=name, adapter=adapter, suite=suite)


def _command(text: str) -> tuple[str, ...]:
    try:
        command = tuple(shlex.split(text))
    except ValueError as error:
        raise pytest.UsageError(f"--weig-adapter: {error}") from None
    if not command:
        raise pytest.UsageError("--weig-adapter: a command is wanted")
    return command


class AdapterNode(pytest.Collector):
    """One adapter: the worker lives from the first of its tests to the last."""

    def __init__(self, adapter: Adapter, suite: Suite, **rest: Any) -> None:
        super().__init__(**rest)
        self.adapter = adapter
        self.suite = suite
        self.problem = ""  # why the adapter did not start, in lines
        self._told = False
        self._lane: Lane | None = None
        self._stack = contextlib.ExitStack()
        self._reported: dict[str, Result] = {}

    def collect(self) -> Iterable[CaseItem]:
        # Shuffled, so that what one case leaves behind shows in another; always in the same way,
        # for pytest-xdist wants one order in all its processes.
        options = self.suite.options
        for job in runner.shuffled(self.suite.manifest.cases, options.seed):
            yield CaseItem.from_parent(self, name=job.case.ident, job=job)

    def setup(self) -> None:
        self._stack.enter_context(no_core_files())
        options = self.suite.options
        room = self._stack.enter_context(stage_room())
        started, worker = greet(self.adapter)
        if started.hello is None:
            info = self._info(started.problem, started.stderr)
            self.problem = "\n".join(not_started(info))
            return
        self._lane = Lane(
            self.adapter,
            started.hello,
            started.seconds,
            self.suite.sources,
            options,
            room,
            Budget(options.repeats, options.hangs, options.faults),
            worker,
        )
        self._stack.callback(self._lane.close)

    def teardown(self) -> None:
        """Ends the worker; fails where that throws another light on what was reported."""
        with self._stack:
            if self._lane is None:
                return
            self._lane.finish()
            late = [
                result
                for case, result in self._lane.results.items()
                if result != self._reported[case]
            ]
        late = list(known.apply(self.suite.known, late, []).results)
        blocks = [self.block(result) for result in late if self.judged(result) is Bucket.FAILED]
        if blocks:
            pytest.fail("\n\n".join(["after the last case", *blocks]), pytrace=False)

    def settle(self, job: Job) -> Result:
        """The result of one case, known failures applied."""
        if self._lane is None:
            if self._told:
                pytest.skip("the adapter did not start")
            self._told = True
            pytest.fail(self.problem, pytrace=False)
        result = self._lane.settle(job)
        self._reported[job.case.ident] = result
        return known.apply(self.suite.known, [result], [job.case.ident]).results[0]

    def judged(self, result: Result) -> Bucket:
        return bucket(result.outcome, self.suite.options.strict_codes)

    def block(self, result: Result) -> str:
        """The lines of the text report about a failure."""
        whole = self.suite.manifest
        options = self.suite.options
        case = next(case for case in whole.cases if case.ident == result.case)
        results = Results(
            whole.format,
            whole.suite,
            options.seed,
            options.isolation,
            options.strict_codes,
            0.0,
            (self._info(),),
            (result,),
        )
        return "\n".join(failure([result], results, whole, case, self.suite.sources))

    def _info(self, problem: str = "", stderr: str = "") -> AdapterInfo:
        adapter = self.adapter
        return AdapterInfo(
            adapter.label, adapter.command, adapter.again, problem=problem, stderr=stderr
        )


class CaseItem(pytest.Item):
    """One case with one adapter. ``-k`` finds it by its id, chapter, rules and tags."""

    def __init__(self, job: Job, **rest: Any) -> None:
        super().__init__(**rest)
        self.job = job
        case = job.case
        self.extra_keyword_matches.update({case.chapter, case.level, *case.rules, *case.tags})
        self.add_marker(pytest.mark.weig)

    def runtest(self) -> None:
        node = self.parent
        assert isinstance(node, AdapterNode)
        try:
            result = node.settle(self.job)
        except SuiteError as error:
            pytest.fail(f"a fault of the suite itself: {error}", pytrace=False)
        judged = node.judged(result)
        if judged is Bucket.FAILED:
            pytest.fail(node.block(result), pytrace=False)
        if judged is Bucket.SKIPPED:
            pytest.skip(f"{result.outcome}: {result.detail}" if result.detail else result.outcome)
        if result.outcome is not Outcome.PASS:
            warning = node.block(result).replace("FAILED", "WARNING", 1)
            self.add_report_section("call", "weig", warning)

    def reportinfo(self) -> tuple[Path, None, str]:
        case: Case = self.job.case
        return self.path, None, f"{self.parent.name if self.parent else ''} {case.ident}"
