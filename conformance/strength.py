"""How strong the suite is: which deliberately wrong loaders its cases catch, and for what reason.

The wrong loaders (*vices*) are small changes to one right loader, declared in `vices/vices.toml`.
A vice survives where no case fails for the reason it should. The right loader, as the vice "none",
runs beside them and must pass everything.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from multiprocessing import get_context
from pathlib import Path

from weig.conformance import runner
from weig.conformance.manifest import Case, Manifest
from weig.conformance.outcome import Bucket, Outcome, Result, bucket
from weig.conformance.runner import Adapter, Options

__all__ = ["NONE", "Kill", "Vice", "measure", "options", "read", "selected"]

FOLDER = Path(__file__).with_name("vices")
SHARE = 4  # loaders that a process takes at a time
SLOW = "slow"  # the tag of cases that take long
NOT_STARTED = "not-started"  # the outcome of a vice whose adapter does not even say hello
TIMEOUT = 4.0  # seconds a case ...
COSTLY_TIMEOUT = 6.0  # ... and for costly ones, whose right loader is slow on a busy host
REPEATS = 1  # enough to tell what is wrong alone from what is wrong after other cases
FAULTS = 5  # after so many the rest of the cases is not run: each costs two processes


@dataclass(frozen=True, slots=True)
class Vice:
    """One wrong loader.

    ``rules`` are those that it breaks; where there are any, a case that catches it must be about
    one of them. ``outcomes`` are those by which it must be caught. A ``costly`` one wastes memory,
    or time in proportion to the file: the cases that catch it take long, so nobody else has them.
    """

    ident: str
    what: str
    kind: str
    rules: tuple[str, ...] = ()
    outcomes: frozenset[str] = frozenset()
    costly: bool = False


NONE = Vice("none", "nothing: the right loader", "none", costly=True)

_FAILED = frozenset(str(one) for one in Outcome if bucket(one) is Bucket.FAILED) | {NOT_STARTED}


@dataclass(frozen=True, slots=True)
class Kill:
    """What became of one vice.

    ``cases`` are those that caught it in the way and for the reason it should be caught, in the
    order of the manifest; ``outcomes`` is what came of them. ``others`` are further cases that
    failed.
    """

    vice: Vice
    cases: tuple[str, ...]
    outcomes: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def survived(self) -> bool:
        """Whether the suite is too weak: for the right loader, whether it is wrong."""
        if self.vice == NONE:
            return bool(self.cases or self.others)
        return not self.cases


def read() -> tuple[Vice, ...]:
    """All vices, in the order of their table."""
    table = tomllib.loads((FOLDER / "vices.toml").read_text("utf-8"))
    return tuple(
        Vice(
            item["id"],
            item["what"],
            item["kind"],
            tuple(item["rules"]),
            frozenset(item.get("outcome", _FAILED)),
            "memory" in item.get("outcome", ()) or "OPEN-5" in item["rules"],
        )
        for item in table["vice"]
    )


def selected(vices: Sequence[Vice], globs: Sequence[str]) -> list[Vice]:
    """The vices that match one of the globs; all where there is none."""
    return [
        vice for vice in vices if not globs or any(fnmatchcase(vice.ident, glob) for glob in globs)
    ]


def options(jobs: int, seed: int) -> Options:
    """How the suite is run over vices: quick to give up."""
    return Options(jobs=jobs, seed=seed, timeout=TIMEOUT, repeats=REPEATS, hangs=1, faults=FAULTS)


def measure(
    manifest: Manifest,
    vices: Sequence[Vice],
    how: Options,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Kill, ...]:
    """Runs every case over the right loader and these vices; raises SuiteError.

    ``how.jobs`` processes share the work. (Threads would not do: the engine's own work is half of
    it.) ``progress`` is told how many loaders of how many are done.
    """
    everybody = (NONE, *vices)
    shares = list(_shares(manifest, everybody, replace(how, jobs=1)))
    kills: dict[str, Kill] = {}
    for share in _in_processes(shares, how.jobs):
        kills |= share
        progress(len(kills), len(everybody))
    return tuple(kills[vice.ident] for vice in everybody)


_Share = tuple[Manifest, Sequence[Case], Sequence[Vice], Options]


def _shares(manifest: Manifest, vices: Sequence[Vice], how: Options) -> Iterator[_Share]:
    """The work in pieces: what takes long comes first."""
    costly = [vice for vice in vices if vice.costly]
    others = [vice for vice in vices if not vice.costly]
    quick = [case for case in manifest.cases if SLOW not in case.tags]
    patient = replace(how, timeout=COSTLY_TIMEOUT)
    for start in range(0, len(costly), SHARE):
        yield manifest, manifest.cases, costly[start : start + SHARE], patient
    for start in range(0, len(others), SHARE):
        yield manifest, quick, others[start : start + SHARE], replace(how, memory=None)


def _in_processes(shares: Sequence[_Share], jobs: int) -> Iterator[dict[str, Kill]]:
    """What `_measure` makes of the shares, as it comes."""
    if jobs == 1:
        yield from map(_measure, shares)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        for future in as_completed([pool.submit(_measure, share) for share in shares]):
            yield future.result()


def _measure(share: _Share) -> dict[str, Kill]:
    manifest, cases, vices, how = share
    adapters = [Adapter(vice.ident, command(vice), ()) for vice in vices]
    done = runner.run(manifest, cases, adapters, how)
    results: dict[str, list[Result]] = {vice.ident: [] for vice in vices}
    for result in done.results:
        results[result.adapter].append(result)
    rules = {case.ident: frozenset(case.rules) for case in manifest.cases}
    return {
        vice.ident: _not_started(vice)
        if one.hello is None
        else _kill(vice, results[vice.ident], rules)
        for vice, one in zip(vices, done.started, strict=True)
    }


def command(vice: Vice) -> tuple[str, ...]:
    """The command line of a vice's adapter. (Isolated and without site it starts faster.)"""
    return (sys.executable, "-I", "-S", str(FOLDER / "adapter.py"), vice.ident)


def _not_started(vice: Vice) -> Kill:
    caught = NOT_STARTED in vice.outcomes
    return Kill(vice, ("hello",) if caught else (), (NOT_STARTED,), () if caught else ("hello",))


def _kill(vice: Vice, results: Sequence[Result], rules: Mapping[str, frozenset[str]]) -> Kill:
    caught: list[Result] = []
    others: list[Result] = []
    for result in results:
        if bucket(result.outcome, strict_codes=True) is not Bucket.FAILED:
            continue
        about = not vice.rules or rules[result.case] & set(vice.rules)
        (caught if about and result.outcome in vice.outcomes else others).append(result)
    return Kill(
        vice,
        tuple(result.case for result in caught),
        tuple(dict.fromkeys(str(result.outcome) for result in caught)),
        tuple(result.case for result in others),
    )
