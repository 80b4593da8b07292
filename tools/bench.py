"""``weig bench``: what opening, loading and saving cost, against safetensors in the same run."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from weig.spec.errors import WeigError

if TYPE_CHECKING:
    from weig.tools.bench_report import Row

WHAT = ("one", "all", "names", "validate", "swap", "save", "import", "memory")
BASE = "safetensors"
MIB = 1 << 20
DESCRIPTION = """\
Each measurement is made in a process of its own, in which the libraries are imported and have
opened a small file before the clock starts. Loaders take turns; the median of the runs is shown
with the least and the most. Files are in the page cache (or, with --cold, out of it: how much
stayed is said). Validation is on everywhere."""
EPILOG = """\
WHAT is any of
  one       open, take one tensor as an array
  all       open, take all tensors as arrays; and the same, reading a byte of each page
  names     open, list the names
  validate  open alone, in ns a tensor: the whole check of the file
  swap      a tensor of the other byte order, against a plain copy
  save      writing with fsync, against plain writes with fsync
  import    importing, and listing names from the command line
  memory    what the resident set grows by when a large file is opened and listed
A row says whether arrays are views of the file or copies."""
# Runs in a bare interpreter: what it imports is what is measured.
SETTINGS = ("tensors", "elements", "runs", "size", "large", "cold", "cpu")
IMPORT = """\
import time
start, cpu = time.perf_counter(), time.process_time()
{code}
seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
import sys
print('{{"seconds": %r, "cpu": %r}}' % (seconds, cpu), file=sys.stderr)
"""


class Subject(NamedTuple):
    """Who is measured: a name of `weig.tools.bench_child.MEASURES`, or ``code`` to run."""

    label: str
    measure: str
    options: dict[str, Any]
    gives: str = "-"


class Group(NamedTuple):
    """Subjects that are compared; ``value`` makes a number in ``unit`` of a child's answer."""

    title: str
    unit: str
    value: Callable[[dict[str, float]], float]
    subjects: list[Subject]
    base: str = BASE
    files: bool = False  # reads files: so it can be measured cold


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from weig.backends import BACKENDS

    parser = commands.add_parser(
        "bench",
        help="measure opening and loading against safetensors",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", nargs="*", metavar="WHAT", help=f"of: {', '.join(WHAT)} (all)")
    parser.add_argument("--tensors", type=_positive, default=100_000, metavar="N")
    parser.add_argument("--elements", type=_positive, default=64, metavar="N", help="F32, a tensor")
    parser.add_argument("--runs", type=_positive, default=5, metavar="N")
    parser.add_argument(
        "--size", type=_positive, default=256, metavar="MIB", help="for swap and save (256)"
    )
    parser.add_argument(
        "--large", type=_positive, default=1024, metavar="MIB", help="for memory (1024)"
    )
    parser.add_argument(
        "--backend",
        action="append",
        choices=BACKENDS,
        help="a loader to measure, again for more (all that are built but kaitai)",
    )
    parser.add_argument("--cold", action="store_true", help="drop files from the page cache first")
    parser.add_argument("--dir", metavar="FOLDER", help="where to make the files (a temporary one)")
    parser.add_argument("--cpu", action="store_true", help="CPU time, not time (busy machines)")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="all runs, for machines")
    shape.add_argument("--markdown", action="store_true", help="a table for a README")
    parser.set_defaults(run=run, parser=parser)


def run(args: argparse.Namespace) -> int:
    """Measures and prints; gives the exit status. Raises WeigError and OSError."""
    unknown = sorted({*args.what} - {*WHAT})
    if unknown:
        args.parser.error(f"no measurement {unknown[0]!r}; there are {', '.join(WHAT)}")
    from weig.backends import available
    from weig.tools import bench_report

    try:
        import safetensors
    except ImportError:
        raise WeigError("UNSUPPORTED", "bench needs the package safetensors") from None
    del safetensors
    backends = args.backend or [name for name in available() if name != "kaitai"]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=args.dir, prefix="weig-bench-") as folder:
        for group in _groups(args, Path(folder), backends):
            rows += _measure(group, args)
    facts = bench_report.machine()
    if args.json:
        about = {name: getattr(args, name) for name in SETTINGS}
        table = [row.facts() for row in rows]
        print(json.dumps({"machine": facts, "settings": about, "rows": table}))
        return 0
    print(bench_report.machine_line(facts))
    print(
        f"{args.tensors} tensors of {args.elements} F32; {args.runs} runs{', CPU time' * args.cpu}"
    )
    if args.markdown:
        print()
    for line in (bench_report.markdown if args.markdown else bench_report.text)(rows):
        print(line)
    return 0


def _groups(args: argparse.Namespace, folder: Path, backends: Sequence[str]) -> Iterator[Group]:
    """The measurements that are wanted, each with its files made when its turn comes."""
    from weig.tools import bench_files

    wanted = args.what or WHAT
    small_weig, small_st = bench_files.small(folder)
    common: dict[str, Any] = {"small_weig": str(small_weig), "small_safetensors": str(small_st)}
    if {"one", "all", "names", "validate"} & {*wanted}:
        weig, st, name = bench_files.many(folder, args.tensors, args.elements)
        common |= {"tensor": name}
        yield from _opening(wanted, backends, common, (str(weig), str(st)), args.tensors)
    if "swap" in wanted:
        yield _swapping(folder, backends, common, args.size)
    if "save" in wanted:
        yield _saving(folder, args.size)
    if "import" in wanted:
        yield _importing(common["small_weig"], backends)
    if "memory" in wanted:
        yield _memory(folder, backends, common, args.large)


def _opening(
    wanted: Sequence[str],
    backends: Sequence[str],
    common: dict[str, Any],
    paths: tuple[str, str],
    count: int,
) -> Iterator[Group]:
    options = common | {"path": paths[0]}

    def subjects(kind: str, weig_gives: str, st_gives: str) -> list[Subject]:
        st = Subject(BASE, f"st-{kind}", common | {"path": paths[1]}, st_gives)
        return [st] + [
            Subject(f"weig {name}", f"weig-{kind}", options | {"backend": name}, weig_gives)
            for name in backends
        ]

    if "one" in wanted:
        yield Group("open, one array", "ms", _ms, subjects("one", "view", "copy"), files=True)
    if "all" in wanted:
        yield Group("open, all arrays", "ms", _ms, subjects("all", "view", "copy"), files=True)
        reading = options | {"backend": backends[0], "mode": "read"}
        touching = [
            *subjects("touch", "view", "copy"),
            Subject(f"weig {backends[0]}, read", "weig-touch", reading, "copy"),
        ]
        yield Group("open, all arrays, touch pages", "ms", _ms, touching, files=True)
    if "names" in wanted:
        yield Group("open, list names", "ms", _ms, subjects("names", "-", "-"), files=True)
    if "validate" in wanted:

        def each(answer: dict[str, float]) -> float:
            return 1e9 * answer["seconds"] / count

        yield Group("open alone", "ns a tensor", each, subjects("open", "-", "-"))


def _swapping(folder: Path, backends: Sequence[str], common: dict[str, Any], size: int) -> Group:
    from weig.tools import bench_files

    path = bench_files.foreign(folder, size * MIB)
    options = common | {"path": str(path), "tensor": "t"}
    subjects = [
        Subject("memcpy", "memcpy", options | {"backend": backends[0]}, "copy"),
        *(
            Subject(f"weig {name}", "swap", options | {"backend": name}, "copy")
            for name in backends
        ),
    ]

    def speed(answer: dict[str, float]) -> float:
        return size * MIB / answer["seconds"] / 1e9

    return Group(f"byte swap, {size} MiB", "GB/s", speed, subjects, base="memcpy")


def _saving(folder: Path, size: int) -> Group:
    options = {"size": size * MIB, "target": str(folder / "saved")}
    subjects = [
        Subject("plain writes", "raw-save", options),
        Subject("weig", "save", options),
        Subject(BASE, "st-save", options),
    ]

    def speed(answer: dict[str, float]) -> float:
        return size * MIB / answer["seconds"] / 1e6

    return Group(f"save, {size} MiB", "MB/s", speed, subjects, base="plain writes")


def _importing(path: str, backends: Sequence[str]) -> Group:
    listing = (
        "from weig.tools.cli import main\n"
        f"main(['inspect', '--names', '--backend', {backends[0]!r}, {path!r}])"
    )
    code = {
        BASE: "import safetensors",
        "numpy": "import numpy",
        "weig": "import weig",
        **{
            f"weig, loader {name}": f"import weig.backends; weig.backends.loader({name!r})"
            for name in backends
        },
        "weig inspect --names": listing,
    }
    subjects = [Subject(label, "code", {"code": text}) for label, text in code.items()]
    return Group("import", "ms", _ms, subjects)


def _memory(folder: Path, backends: Sequence[str], common: dict[str, Any], size: int) -> Group:
    from weig.tools import bench_files

    weig, st = bench_files.large(folder, size * MIB)
    subjects = [
        Subject(BASE, "st-names", common | {"path": str(st)}),
        *(
            Subject(f"weig {name}", "weig-names", common | {"path": str(weig), "backend": name})
            for name in backends
        ),
    ]

    def grown(answer: dict[str, float]) -> float:
        return (answer["anon"] + answer["file"]) / 1024

    return Group(f"resident set, {size} MiB listed", "KiB", grown, subjects)


def _measure(group: Group, args: argparse.Namespace) -> list[Row]:
    """Runs a group: all subjects once, then again, so that a noisy minute is shared."""
    from weig.tools.bench_files import chill, warm
    from weig.tools.bench_report import Row

    cold = args.cold and group.files
    values: dict[str, list[float]] = {subject.label: [] for subject in group.subjects}
    stayed = 0.0
    for _ in range(args.runs):
        for subject in group.subjects:
            if "path" in subject.options:
                path = Path(subject.options["path"])
                if cold:
                    stayed = max(stayed, chill(path))
                else:
                    warm(path)
            answer = _child(subject)
            if args.cpu:
                answer["seconds"] = answer["cpu"]
            values[subject.label].append(group.value(answer))
    title = group.title
    if cold:
        title += ", cold" if not stayed else f", cold ({stayed:.0%} stayed cached)"
    base = statistics.median(values[group.base])
    return [
        Row(
            title,
            subject.label,
            group.unit,
            tuple(values[subject.label]),
            subject.gives,
            statistics.median(values[subject.label]) / base if base else float("nan"),
            group.base,
        )
        for subject in group.subjects
    ]


def _child(subject: Subject) -> dict[str, float]:
    """One measurement in a process of its own. Raises WeigError UNSUPPORTED where it fails."""
    if subject.measure == "code":
        words = ["-c", IMPORT.format(code=subject.options["code"])]
    else:
        words = ["-m", "weig.tools.bench_child", subject.measure, json.dumps(subject.options)]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    output = done.stderr if subject.measure == "code" else done.stdout
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:]
        raise WeigError("UNSUPPORTED", f"{subject.label}, {subject.measure}: {''.join(last)}")
    answer: dict[str, float] = json.loads(output)
    return answer


def _ms(answer: dict[str, float]) -> float:
    return 1e3 * answer["seconds"]


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError("must be a number above 0")
    return int(text)
