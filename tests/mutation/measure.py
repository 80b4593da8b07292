"""Mutation testing of the pure loader with cosmic-ray, the conformance suite as its test.

    make mutation

Every mutant is put into a copy of the tree, never into the tree itself, and tried by `trial.py`.
One that survives must be explained in `survivors.toml`, and what is explained there must survive:
otherwise the exit status is 1.
"""

from __future__ import annotations

import argparse
import ast
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from difflib import unified_diff
from fnmatch import fnmatchcase
from pathlib import Path
from queue import SimpleQueue

from cosmic_ray.commands import init
from cosmic_ray.config import load_config
from cosmic_ray.modules import find_modules
from cosmic_ray.mutating import use_mutation
from cosmic_ray.plugins import get_operator
from cosmic_ray.tools.filters.operators_filter import OperatorsFilter
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import TestOutcome, WorkerOutcome, WorkItem, WorkResult
from survivors import Mutant, read, unexplained, unused
from trial import STAGES, SURVIVES

ROOT = Path(__file__).resolve().parents[2]
HERE = Path("tests/mutation")
CONFIG = HERE / "cosmic-ray.toml"
BUILD = ROOT / ".build/mutation"
PACKAGES = Path(sysconfig.get_path("platlib"))
IN_ANNOTATION = WorkResult(WorkerOutcome.SKIPPED, "in a type annotation")
SURVIVED = "survived"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", "-j", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--module", default="*", metavar="GLOB", help="only modules like this")
    parser.add_argument(
        "--resume", action="store_true", help="go on where a run of this tree stopped"
    )
    args = parser.parse_args(argv)
    os.chdir(ROOT)
    start = time.monotonic()
    config = load_config(str(CONFIG))
    modules = [
        path
        for path in sorted(find_modules(map(Path, config["module-path"])))
        if fnmatchcase(str(path), args.module) and path.read_text("utf-8")
    ]
    if not args.resume:
        shutil.rmtree(BUILD, ignore_errors=True)
        BUILD.mkdir(parents=True)
    with use_db(str(BUILD / "session.sqlite"), WorkDB.Mode.create) as session:
        if not args.resume:
            init(modules, session, config.operators_config)
            OperatorsFilter().filter(session, argparse.Namespace(config=str(CONFIG)))
            skip_annotations(session)
        trees = [copy(BUILD / str(number), modules) for number in range(args.jobs)]
        run(session, trees)
        failed = report(session, modules)
    print(f"{time.monotonic() - start:.0f} s; the session is {BUILD / 'session.sqlite'}")
    return 1 if failed else 0


def copy(folder: Path, modules: Sequence[Path]) -> Path:
    """A copy of the work tree and of what was built of it, importable as weig, compiled."""
    shutil.rmtree(folder, ignore_errors=True)
    tree = folder / "weig"
    listing = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    listed = subprocess.run(listing, capture_output=True, text=True, check=True).stdout
    for name in listed.split("\0"):
        if name and Path(name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(name, tree / name)
    shutil.copytree(PACKAGES / "weig", tree, dirs_exist_ok=True)
    subprocess.run([sys.executable, "-m", "compileall", "-q", tree], stdout=subprocess.DEVNULL)
    # Not what is mutated: a mutant as old and as large as its original must be compiled too.
    for module in modules:
        for compiled in (tree / module).parent.glob(f"__pycache__/{module.stem}.*"):
            compiled.unlink()
    return tree


class Bench:
    """A tree, and the process that tries what it holds."""

    def __init__(self, tree: Path) -> None:
        self._tree = tree
        words = [sys.executable, "-S", str(tree / HERE / "trial.py"), str(tree), str(PACKAGES)]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def check(self) -> None:
        """Ends all where the loader as it is does not pass: then no mutant tells anything."""
        for stage in STAGES:
            if (said := self._ask(stage)) != SURVIVES:
                sys.exit(f"the unchanged loader fails: {said}")

    def attempt(self, item: WorkItem, stage: str) -> WorkResult:
        (mutation,) = item.mutations
        operator = get_operator(mutation.operator_name)(**mutation.operator_args)
        path = self._tree / mutation.module_path
        with use_mutation(path, operator, mutation.occurrence) as (before, after):
            if after is None:
                return WorkResult(WorkerOutcome.NO_TEST)
            said = self._ask(stage)
        outcome = TestOutcome.SURVIVED if said == SURVIVES else TestOutcome.KILLED
        diff = "\n".join(unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm=""))
        return WorkResult(WorkerOutcome.NORMAL, f"{stage}: {said}", outcome, diff)

    def _ask(self, stage: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{stage}\n")
        return self._process.stdout.readline().strip()


def skip_annotations(session: WorkDB) -> None:
    """Takes out what changes a type annotation alone."""
    spans = {}
    for item in session.pending_work_items:
        (mutation,) = item.mutations
        path = mutation.module_path
        if path not in spans:
            spans[path] = list(annotations(path))
        if any(first <= mutation.start_pos < last for first, last in spans[path]):
            session.set_result(item.job_id, IN_ANNOTATION)


def annotations(path: Path) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """(line, column) of the start and the end of each annotation of a module."""
    tree = ast.parse(path.read_text("utf-8"))
    names = {alias.name for node in tree.body if isinstance(node, ast.ImportFrom)
             for alias in node.names}  # fmt: skip
    if "annotations" not in names:
        return  # they are evaluated
    for node in ast.walk(tree):
        found = (getattr(node, "annotation", None), getattr(node, "returns", None))
        for one in found:
            if one is not None:
                yield (one.lineno, one.col_offset), (one.end_lineno, one.end_col_offset)


def run(session: WorkDB, trees: Sequence[Path]) -> None:
    """Takes all mutants through the stages, one at a time in each tree."""
    with ExitStack() as stack:
        benches = [stack.enter_context(Bench(tree)) for tree in trees]
        free: SimpleQueue[Bench] = SimpleQueue()
        for bench in benches:
            free.put(bench)

        def work(item: WorkItem, stage: str) -> WorkResult:
            bench = free.get()
            try:
                return bench.attempt(item, stage)
            finally:
                free.put(bench)

        pool = stack.enter_context(ThreadPoolExecutor(len(benches)))
        list(pool.map(Bench.check, benches))
        for stage in STAGES:
            waiting = pending(session, stage)
            futures = {pool.submit(work, item, stage): item.job_id for item in waiting}
            for done, future in enumerate(as_completed(futures), 1):
                session.set_result(futures[future], future.result())
                if done % 100 == 0 or done == len(waiting):
                    print(f"{stage} {done}/{len(waiting)}", file=sys.stderr)
        # Had a mutant harmed the files of the suite, all that came after it would mean nothing.
        list(pool.map(Bench.check, benches))


def pending(session: WorkDB, stage: str) -> list[WorkItem]:
    """The mutants that have come as far as this stage, in the order of the source."""
    if stage == STAGES[0]:
        items = session.pending_work_items
    else:
        survived = f"{STAGES[STAGES.index(stage) - 1]}: {SURVIVES}"
        items = tuple(item for item, result in session.completed_work_items
                      if result.output == survived)  # fmt: skip
    return sorted(items, key=place)


def place(item: WorkItem) -> tuple[str, tuple[int, int], str]:
    (mutation,) = item.mutations
    return str(mutation.module_path), mutation.start_pos, mutation.operator_name


def report(session: WorkDB, modules: Sequence[Path]) -> bool:
    """Prints the score, and what is wrong with the explanations; True where anything is."""
    counts = {str(module): Counter[str]() for module in modules}
    survivors: list[Mutant] = []
    odd, skipped = [], 0
    for item, result in session.completed_work_items:
        if result.worker_outcome == WorkerOutcome.SKIPPED:
            skipped += 1
            continue
        (mutation,) = item.mutations
        count = counts[str(mutation.module_path)]
        count["mutants"] += 1
        if result.worker_outcome != WorkerOutcome.NORMAL:
            odd.append((mutation, result.output))
        elif result.test_outcome == TestOutcome.SURVIVED:
            count[SURVIVED] += 1
            survivors.append(mutant(mutation, result.diff or ""))
        else:
            count[(result.output or "").split(" ")[1]] += 1
    stages = sorted({stage for count in counts.values() for stage in count} - {"mutants", SURVIVED})
    columns = ("mutants", *stages, SURVIVED)
    counts["all"] = sum(counts.values(), Counter())
    width = max(map(len, counts))
    print(f"{'':<{width}}", *(f"{column:>9}" for column in columns))
    for name, count in counts.items():
        print(f"{name:<{width}}", *(f"{count[column]:>9}" for column in columns))
    print(f"{skipped} more are left out: see {CONFIG}")
    total, lived = counts["all"]["mutants"], counts["all"][SURVIVED]
    print(f"{total - lived} of {total} are caught, {lived} survive")
    explanations = [one for one in read() if Path(one.module) in modules]
    for one in (missing := unexplained(survivors, explanations)):
        print(f"SURVIVES, NOT EXPLAINED  {one.module} {one.function}\n  - {one.line}")
        print(f"  + {one.mutant}")
    for one in (stale := unused(survivors, explanations)):
        print(f"EXPLAINED, NOT SURVIVING  {one.module} {one.function}\n  - {one.line}")
        print(f"  + {one.mutant}")
    for mutation, output in odd:
        print(f"NOT TRIED  {mutation}: {output}")
    return bool(missing or stale or odd)


def mutant(mutation, diff: str) -> Mutant:  # type: ignore[no-untyped-def]
    lines = diff.splitlines()
    changed = [line for line in lines if not line.startswith(("---", "+++"))]
    removed = [line[1:].strip() for line in changed if line.startswith("-")]
    added = [line[1:].strip() for line in changed if line.startswith("+")]
    module, function = str(mutation.module_path), mutation.definition_name or ""
    return Mutant(module, function, removed[0], " ".join(added))


if __name__ == "__main__":
    sys.exit(main())
