"""``weig convert``: between WEIG and the formats that models come in, a piece at a time."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from typing import TYPE_CHECKING, Any, cast

from weig.spec.errors import escape
from weig.tools.progress import ProgressLine, human

if TYPE_CHECKING:
    from weig.tools.exchange import Format, Origin

FORMATS = ("weig", "safetensors", "npz")
DESCRIPTION = """\
Converts between WEIG and safetensors or npz (by suffix, or --from and --to), and between WEIG
files (of the two byte orders, or to the canonical file). The source is taken for hostile and
checked before anything is written. Tensors pass a piece at a time: memory does not grow with the
model. OUT appears complete or not at all."""
EPILOG = """\
What one format has and the other has not: WEIG keeps no metadata (see --metadata); safetensors and
npz have no aliases, so tied tensors are written once each; npz has neither BF16 nor F8; WEIG has no
F4, F6, complex128, strings or objects: such files are refused.
Exit status: 0 done; 1 a file is bad or cannot be converted; 2 bad usage, also where OUT is there
already and --force was not given."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "convert",
        help="convert between WEIG and safetensors or npz",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source", metavar="IN")
    parser.add_argument("target", metavar="OUT")
    parser.add_argument("--from", dest="source_format", choices=FORMATS, help="the format of IN")
    parser.add_argument("--to", dest="target_format", choices=FORMATS, help="the format of OUT")
    parser.add_argument("--byte-order", choices=("little", "big"), help="of a WEIG file (little)")
    parser.add_argument(
        "--metadata", choices=("drop", "refuse"), default="drop", help="of safetensors (drop)"
    )
    parser.add_argument("--force", action="store_true", help="replace OUT where it is there")
    parser.add_argument("--json", action="store_true", help="the summary for machines")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Converts one file; gives the exit status. Raises WeigError."""
    from weig.tools.cli import fail
    from weig.tools.exchange import ConversionError

    try:
        summary = _convert(args)
    except ConversionError as refused:
        return fail(str(refused), refused.status)
    if args.json:
        import json

        print(json.dumps(summary))
    else:
        print(
            f"{escape(args.target)}: {summary['tensors']} tensors, {human(summary['bytes'])}, "
            f"{summary['seconds']:.1f} s"
        )
    return 0


def _convert(args: argparse.Namespace) -> dict[str, Any]:
    from weig.backends.atomic import existing
    from weig.tools.exchange import ConversionError, Options

    began = time.monotonic()
    names = _formats(args)
    existing(args.target)  # what cannot be replaced is refused before anything is read
    reader, writer = (
        cast("Format", importlib.import_module(f"weig.tools.convert_{name}")) for name in names
    )
    with reader.read(args.source) as origin:
        shared = _expanded(origin) if names[1] != "weig" else 0
        if origin.metadata and args.metadata == "refuse":
            raise ConversionError(_metadata(args, origin))
        _check_space(args.target, origin, shared=names[1] == "weig")
        with ProgressLine(f"convert {escape(args.source)}") as line:
            writer.write(args.target, origin, Options(args.byte_order or "little", line))
    if origin.metadata:
        _note(_metadata(args, origin))
    if shared:
        _note(f"{shared} tensors that share bytes were written once each")
    return {
        "in": args.source,
        "out": args.target,
        "from": names[0],
        "to": names[1],
        "byte_order": args.byte_order or "little",
        "tensors": len(origin.tensors),
        "bytes": os.stat(args.target).st_size,
        "metadata_dropped": origin.metadata,
        "aliases_expanded": shared,
        "seconds": time.monotonic() - began,
    }


def _formats(args: argparse.Namespace) -> tuple[str, str]:
    """The formats of IN and OUT. Raises ConversionError (bad usage)."""
    from weig.tools.exchange import ConversionError

    source = args.source_format or _by_suffix(args.source, "--from")
    target = args.target_format or _by_suffix(args.target, "--to")
    if "weig" not in (source, target):
        raise ConversionError(f"{source} to {target}: one of the two must be weig", 2)
    if args.byte_order and target != "weig":
        raise ConversionError("--byte-order is for WEIG files alone", 2)
    if os.path.lexists(args.target) and not args.force:
        raise ConversionError(f"{escape(args.target)} is there already; --force replaces it", 2)
    return source, target


def _by_suffix(path: str, option: str) -> str:
    from weig.tools.exchange import ConversionError

    suffix = os.path.splitext(path)[1].removeprefix(".").lower()
    if suffix not in FORMATS:
        known = ", ".join(f".{name}" for name in FORMATS)
        raise ConversionError(f"{escape(path)}: the suffix is none of {known}; say {option}", 2)
    return suffix


def _expanded(origin: Origin) -> int:
    """How many tensors are the bytes of another one."""
    from weig.tools.exchange import nbytes

    held = [source for source in origin.tensors.values() if source.key is not None]
    groups = {(source.key, source.dtype) for source in held if nbytes(source)}
    return sum(1 for source in held if nbytes(source)) - len(groups)


def _metadata(args: argparse.Namespace, origin: Origin) -> str:
    return f"{escape(args.source)}: WEIG cannot keep its metadata ({origin.metadata} entries)"


def _check_space(path: str, origin: Origin, *, shared: bool) -> None:
    """Refuses a copy that the disk cannot hold; sparse files declare terabytes."""
    from weig.tools.exchange import ConversionError, total

    needed = total(origin, shared=shared)
    status = os.statvfs(os.path.dirname(os.path.realpath(path)))
    free = status.f_bavail * status.f_frsize
    if needed > free:
        raise ConversionError(
            f"{escape(path)} needs {human(needed)}; the disk has {human(free)} free"
        )


def _note(text: str) -> None:
    print(f"weig: note: {text}", file=sys.stderr)
