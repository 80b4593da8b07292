"""WEIG files by the generated parser that writes, with nothing but what weig.ksy says.

What the hand has to set is told in spec/generated/README.md.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from kaitai_verdicts import kaitaistruct
from test_kaitai_loader import Raw

from weig.spec.generated.python_write.weig import Weig
from weig.spec.layout import ByteOrder

Body = Weig.Container


def new(kind: Any, parent: Any, *params: Any, **fields: Any) -> Any:
    """An object below ``parent``; its assertions hold no bytes."""
    made = kind(*params, None, parent, parent._root)
    made._is_le = parent._root.first_byte == 0x47
    for name in kind._check.__code__.co_names:
        if name.startswith("check_"):
            setattr(made, name, b"")
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def file(order: ByteOrder, records: list[Raw], data: bytes, shift: int = 0) -> Any:
    """A file as ``test_kaitai_loader.build`` lays it out, in objects of the generated code."""
    root = Weig()
    root.first_byte = 0x47 if order == "little" else 0x57
    root.body = body = new(Body, root)
    places, at = [], 64 + 48 * len(records) + shift
    for record in records:
        places.append((at, at + len(record.name) + 1))
        at += len(record.name) + 1 + 8 * len(record.shape)
    region = -(-at // 64) * 64
    end = region + -(-len(data) // 8) * 8
    body.header = header = new(
        Body.FileHeader,
        body,
        magic=0x57454947,
        version=1,
        num_tensors=len(records),
        ofs_tensors=64,
        ofs_data=region,
        len_file=end + 8,
        reserved=[0, 0],
    )
    header.flags = new(Body.FlagHalves, header, first=0, second=0)
    halves = (0x454E4421, 0x57454947) if order == "little" else (0x57454947, 0x454E4421)
    body.sentinel = new(Body.EndMark, body, first=halves[0], second=halves[1])
    body.tensors = [
        tensor(body, record, names, shapes, region, data)
        for record, (names, shapes) in zip(records, places, strict=True)
    ]
    body.pairs = [row(body, i) for i in range(len(records))]
    return root


def tensor(body: Any, record: Raw, names: int, shapes: int, region: int, data: bytes) -> Any:
    made = new(
        Body.Tensor,
        body,
        ofs_name=names,
        dtype=Weig.ElementType(record.code),
        padding=0,
        ofs_shape=shapes,
        num_dims=len(record.shape),
        ofs_data=region + record.at,
        len_data=record.size,
        name_bytes=record.name,
        name_chars__enabled=False,  # the same bytes as name_bytes,
        bools__enabled=False,  # and as data
        data=data[record.at : record.at + record.size],
    )
    made.shape = new(Body.Dimensions, made)
    made.shape.dims = [
        new(Body.Dim, made.shape, i, len=length) for i, length in enumerate(record.shape)
    ]
    return made


def row(body: Any, i: int) -> Any:
    made = new(Body.PairRow, body, i)
    made.columns = [new(Body.Pair, made, i, j) for j in range(i)]
    return made


def read(data: bytes) -> Any:
    """A file whose objects can be written again, all of it read."""
    root = Weig(kaitaistruct.KaitaiStream(io.BytesIO(data)))
    root._read()
    root.body.pairs__enabled = False
    for tensor in root.body.tensors:
        tensor.name_bytes__enabled = False  # would fill what stands behind the name with zeros
        tensor.bools__enabled = False
    root._fetch_instances()
    return root


def written(root: Any) -> bytes:
    """The bytes of a file, after the checks that generated code makes before it writes."""
    check(root)
    stream = kaitaistruct.KaitaiStream(io.BytesIO(bytes(root.body.header.len_file)))
    root._write(stream)
    return bytes(stream.to_byte_array())


def check(this: Any) -> None:
    for part in parts(this):
        check(part)
    this._check()


def parts(this: Any) -> Iterator[Any]:
    """The objects right below this one."""
    for value in list(vars(this).values()):
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, kaitaistruct.ReadWriteKaitaiStruct) and item._parent is this:
                yield item
