"""``weig inspect``: what a file holds and how it is laid out; of a bad file, what can be told."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from weig.spec.errors import WeigError, escape

if TYPE_CHECKING:
    from weig.backends import ModelFile
    from weig.tools.inspect_layout import Row

# These say nothing about the inside of a file.
OUTSIDE = ("IO", "NOT_REGULAR_FILE", "TOO_LARGE", "UNSUPPORTED")
COLUMNS = ("name", "dtype", "shape", "bytes", "offset", "alias of")


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from weig.backends import BACKENDS

    parser = commands.add_parser(
        "inspect",
        help="show what a file holds: header, tensors, layout, bytes",
        description="Shows the header, the tensors and the layout of a file. Reads no tensor byte "
        "(--hex reads the first ones). Names are shown escaped; in --json they are exact.",
        epilog="A bad file is shown as far as it can be told, then its error. Exit status: 0 the "
        "file is good; 1 it is bad; 2 bad usage.",
    )
    parser.add_argument("file", metavar="FILE")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--hex", action="store_true", help="the bytes, with the fields' names")
    what.add_argument("--names", action="store_true", help="the tensors' names alone, a line each")
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.add_argument("--backend", choices=BACKENDS, help="the loader (else: the fastest)")
    parser.add_argument(
        "-n", type=_count, dest="limit", metavar="LIMIT", help="show so many tensors (--hex: 32)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Shows one file; gives 0, or raises the WeigError of a bad one after showing what can be."""
    import weig

    try:
        file = weig.open(args.file, backend=args.backend)
    except WeigError as error:
        if error.code not in OUTSIDE:
            _show_bad(args, error)
        raise
    with file:
        if args.names:
            _show_names(file, args)
        elif args.hex:
            _show_hex(args, None)
        else:
            _show(file, args)
    return 0


def _show_names(file: ModelFile, args: argparse.Namespace) -> None:
    names = list(file)[: args.limit]
    if args.json:
        _print_json(names)
    else:
        print("".join(f"{escape(name)}\n" for name in names), end="")


def _show(file: ModelFile, args: argparse.Namespace) -> None:
    from weig.tools import inspect_layout as layout

    head = layout.header(file)
    rows = layout.rows(file, head)
    facts = _facts(file, head, rows)
    if args.json:
        facts["tensors"] = [_tensor(row) for row in rows[: args.limit]]
        _print_json(facts)
        return
    print(
        f"{escape(file.path)}: WEIG {head['version']}, {file.byte_order}-endian, "
        f"{len(file)} tensors, {file.file_size} bytes, flags {head['flags']:#x}"
    )
    print()
    for line in _table([_cells(row) for row in rows[: args.limit]]):
        print(line)
    if args.limit is not None and args.limit < len(rows):
        print(f"... {len(rows) - args.limit} more")
    print()
    for line in _layout_lines(facts):
        print(line)


def _facts(file: ModelFile, head: dict[str, int], rows: Sequence[Row]) -> dict[str, Any]:
    from weig.tools import inspect_layout as layout

    held = [row.view for row in rows if row.view.nbytes]
    offset, size = layout.largest_gap(head, rows)
    return {
        "file": file.path,
        "backend": file.backend,
        "version": head["version"],
        "byte_order": file.byte_order,
        "flags": head["flags"],
        "bytes": file.file_size,
        "tensor_count": len(rows),
        "regions": [region._asdict() for region in layout.regions(head, rows)],
        "largest_gap": {"offset": offset, "bytes": size},
        "offset_alignment": layout.alignment([view.offset for view in held]),
        "address_alignment": layout.alignment([_base(file) + view.offset for view in held]),
        "not_canonical": (reason := layout.not_canonical(head, rows)),
        "canonical": reason is None,
        "in_record_order": layout.in_record_order(rows),
    }


def _base(file: ModelFile) -> int:
    """The address of the file's memory."""
    import numpy as np

    return int(np.frombuffer(file.read(0, file.file_size), np.uint8).ctypes.data)


def _tensor(row: Row) -> dict[str, Any]:
    view = row.view
    return {
        "name": view.name,
        "dtype": view.dtype,
        "shape": list(view.shape),
        "bytes": view.nbytes,
        "offset": view.offset,
        "alias_of": row.alias_of,
    }


def _cells(row: Row) -> tuple[str, ...]:
    view = row.view
    alias = "" if row.alias_of is None else escape(row.alias_of)
    shape = str(list(view.shape))
    return (escape(view.name), view.dtype, shape, str(view.nbytes), str(view.offset), alias)


def _table(body: list[tuple[str, ...]]) -> Iterator[str]:
    """Columns as wide as what stands in them; numbers to the right."""
    widths = [max(map(len, column)) for column in zip(COLUMNS, *body, strict=True)]
    for cells in (COLUMNS, *body):
        yield "  ".join(
            cell.rjust(width) if title in ("bytes", "offset") else cell.ljust(width)
            for title, cell, width in zip(COLUMNS, cells, widths, strict=True)
        ).rstrip()


def _layout_lines(facts: dict[str, Any]) -> Iterator[str]:
    for region in facts["regions"]:
        size = region["end"] - region["start"]
        text = f"{region['name']:<12} {region['start']:>12} to {region['end']:<12} {size} bytes"
        padding = size - region["used"]
        yield f"{text}, {padding} of them padding" if padding else text
    gap = facts["largest_gap"]
    if gap["bytes"]:
        yield f"largest gap in the data region: {gap['bytes']} bytes at {gap['offset']}"
    if facts["offset_alignment"]:
        yield (
            f"smallest alignment of a tensor: offset {facts['offset_alignment']}, "
            f"address {facts['address_alignment']}"
        )
    if not facts["canonical"]:
        yield f"canonical: no ({facts['not_canonical']})"
    elif facts["in_record_order"]:
        yield "canonical: yes (padding not read)"
    else:
        yield "canonical: yes, for an access order of its own (padding not read)"


def _show_bad(args: argparse.Namespace, error: WeigError) -> None:
    """What can be told of a file that was refused; its error line comes after."""
    if args.hex:
        _show_hex(args, error)
    elif args.json:
        about = {name: getattr(error, name) for name in ("code", "message", "field", "rule")}
        _print_json({"file": args.file, "error": about})
    elif error.code != "BAD_MAGIC" and not args.names:
        from weig.tools.inspect_hex import facts

        print(f"{escape(args.file)}: not a good WEIG file; it says")
        for line in facts(args.file, error):
            print(line)


def _show_hex(args: argparse.Namespace, error: WeigError | None) -> None:
    from weig.tools import inspect_hex

    records = inspect_hex.RECORDS if args.limit is None else args.limit
    if not args.json:
        for line in inspect_hex.lines(args.file, records, error.field if error else None):
            print(line)
        return
    fields = [
        {**field._asdict(), "hex": data.hex()}
        for field, data in inspect_hex.dump(args.file, records)
    ]
    _print_json({"file": args.file, "error": error.code if error else None, "fields": fields})


def _print_json(value: object) -> None:
    import json

    print(json.dumps(value))


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError("must be a number, 0 or more")
    return int(text)
