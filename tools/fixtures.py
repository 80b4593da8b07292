"""``weig fixtures``: lists, writes and packs the test files of the suite."""

from __future__ import annotations

import argparse
import contextlib
import filecmp
import gzip
import io
import json
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from weig.spec.errors import WeigError, escape

DESCRIPTION = """\
The files of the suite: good and bad ones, made on purpose. The small ones stand in the package;
sparse files beyond 4 GiB and special files (FIFO, socket, directory) are made by `write`."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "fixtures",
        help="list, write or pack the test files of the suite",
        description=DESCRIPTION,
        epilog="Exit status: 0 done; 1 the corpus is not what the cases make; 2 bad usage.",
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    write = actions.add_parser("write", help="write every file and a manifest.json into a folder")
    write.add_argument("directory", type=_folder, metavar="DIR")
    write.add_argument(
        "--small", action="store_true", help="no sparse and special files (as in the package)"
    )
    write.set_defaults(run=_write)
    listing = actions.add_parser("list", help="print the cases")
    listing.add_argument("--json", action="store_true", help="the manifest's entry, a line a case")
    listing.set_defaults(run=_list)
    archive = actions.add_parser("archive", help="pack the small files, with the page about them")
    archive.add_argument("out", type=Path, metavar="OUT.tar.gz")
    archive.set_defaults(run=_archive)
    check = actions.add_parser("check", help="compare the package's files with the cases")
    check.set_defaults(run=_check)


def _folder(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("the name of a folder is empty")
    return Path(text)


def _write(args: argparse.Namespace) -> int:
    from weig.fixtures import materialize

    def report(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    with _whole(args.directory):
        path = materialize.write(args.directory, special=not args.small, report=report)
    for row in json.loads(path.read_text(encoding="utf-8"))["cases"]:
        if "unavailable" in row:
            report(f"not made: {row['id']}: {row['unavailable']}")
    print(path)
    return 0


@contextlib.contextmanager
def _whole(directory: Path) -> Iterator[None]:
    """A folder with a manifest is complete: one that does not get so far has none, and goes where
    it was not there before. Raises WeigError for an OSError of the block."""
    new, manifest = not directory.exists(), directory / "manifest.json"
    try:
        if not new:
            manifest.unlink(missing_ok=True)
        yield
    except BaseException as error:
        if new:
            shutil.rmtree(directory, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                manifest.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        outcome = "nothing was written" if new else "what is in it is not complete"
        reason = escape(error.strerror or str(error))
        raise WeigError("IO", f"{escape(str(directory))}: {reason}; {outcome}") from None


def _list(args: argparse.Namespace) -> int:
    from weig.fixtures import manifest

    for row in manifest.build()["cases"]:
        if args.json:
            print(json.dumps(row))
        else:
            answer = " ".join(row["errors"]) or row["expect"]
            print(f"{row['id']:<44} {row['level']:<5} {answer:<40} {row['title']}")
    return 0


def _archive(args: argparse.Namespace) -> int:
    """The same files give the same archive: no times, no owners, one order."""
    from weig.backends.atomic import replacing, write_all
    from weig.fixtures import materialize

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in [*sorted(materialize.CORPUS.iterdir()), materialize.PAGE]:
            data = path.read_bytes()
            entry = tarfile.TarInfo(f"weig-fixtures/{path.name}")
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    data = gzip.compress(packed.getvalue(), mtime=0)
    with replacing(str(args.out), len(data)) as fd:
        write_all(fd, memoryview(data), 0)
    print(args.out)
    return 0


def _check(args: argparse.Namespace) -> int:
    from weig.fixtures import materialize

    with tempfile.TemporaryDirectory() as name:
        made = Path(name)
        materialize.write(made, special=False)
        wanted = {path.name for path in made.iterdir()}
        kept = {path.name for path in materialize.CORPUS.iterdir()}
        both = sorted(wanted & kept)
        _, differing, _ = filecmp.cmpfiles(made, materialize.CORPUS, both, shallow=False)
    faults = [f"missing: {file}" for file in sorted(wanted - kept)]
    faults += [f"of no case: {file}" for file in sorted(kept - wanted)]
    faults += [f"different: {file}" for file in differing]
    for fault in faults:
        print(fault)
    if not faults:
        print(f"{len(wanted)} files are what the cases make")
    return 1 if faults else 0
