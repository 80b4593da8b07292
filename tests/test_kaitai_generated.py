"""spec/weig.ksy and what is generated from it: fresh, complete, positions right.

test_kaitai_languages.py has what the generated parsers say of files.
"""

from __future__ import annotations

import io
import subprocess
import tomllib
from collections.abc import Iterator

import pytest
from kaitai_verdicts import CHECKS, ROOT, RULE_OF, Verdict, kaitaistruct, node, python_verdict
from test_kaitai_loader import EXAMPLE, ORDERS

from weig.spec.dtypes import DTYPES
from weig.spec.errors import CODES
from weig.spec.layout import MAGIC, SENTINEL, VERSION, ByteOrder
from weig.tools.fieldmap import fields

RULES = tomllib.loads((ROOT / "spec" / "rules.toml").read_text("utf-8"))["rules"]

# Rules that no check of weig.ksy stands for, and why.
NOT_IN_KSY = {
    "NUM-1": "shows as HDR-3 or TAIL-1",
    "SHAPE-3": "a permission: any alignment is read",
    "PAD-1": "needs sorted ranges",
    "OPEN-1": "no byte of the file",
}


def test_generated_files_are_fresh() -> None:
    done = subprocess.run(
        [node(), str(ROOT / "tools" / "ksc.mjs"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_rule_has_its_check() -> None:
    checked = {row["rule"] for row in CHECKS}
    files = {rule for rule, facts in RULES.items() if facts["level"] in ("open", "deep")}
    files = {rule for rule in files if not rule.startswith("OPEN-")} | {"OPEN-1"}
    assert checked | set(NOT_IN_KSY) == files
    assert not checked & set(NOT_IN_KSY)
    assert all(code in CODES for rule in checked for code in RULES[rule]["codes"])
    assert len(RULE_OF) == len(CHECKS)


def test_constants_are_those_of_the_spec() -> None:
    from weig.spec.generated.python.weig import Weig

    table = {member.value: member.name.upper() for member in Weig.ElementType}
    assert table == {dtype.code: dtype.name for dtype in DTYPES}
    text = (ROOT / "spec" / "weig.ksy").read_text("utf-8")
    assert f"{MAGIC:#x}" in text
    assert VERSION == 1
    assert f"{SENTINEL >> 32:#x}" in text
    assert f"{SENTINEL & 0xFFFFFFFF:#x}" in text


@pytest.mark.parametrize("order", ORDERS)
def test_worked_example_in_python(order: ByteOrder) -> None:
    want = [["b", 2, [3], 192, 6], ["w", 0, [2], 256, 8]]
    assert python_verdict(EXAMPLE[order]) == Verdict(True, None, want)


def kaitai_positions(data: bytes) -> Iterator[tuple[str, int, int]]:
    """(path, start, length) of every field, as the debug build of the parser recorded them."""
    from weig.spec.generated.python_debug.weig import Weig

    root = Weig(kaitaistruct.KaitaiStream(io.BytesIO(data)))
    root._read()
    header = root.body.header
    for name in list(header._debug):
        if name.startswith("check") or name == "flags":
            continue
        if name == "reserved":
            for k, at in enumerate(header._debug[name]["arr"]):
                yield f"header.reserved[{k}]", at["start"], at["end"] - at["start"]
            continue
        yield spell("header", name, header._debug[name])
    first, second = header.flags._debug["first"], header.flags._debug["second"]
    yield "header.flags", first["start"], second["end"] - first["start"]
    for i, tensor in enumerate(root.body.tensors):
        _ = tensor.data
        for name, at in list(tensor._debug.items()):
            if name in ("_m_name_bytes", "_m_shape") or name.startswith("check"):
                continue
            yield spell(f"meta[{i}]", name, at)
        start = tensor._debug["_m_name_bytes"]["start"]
        yield f"meta[{i}].name", start, len(tensor.name_bytes) + 1
        for k, dim in enumerate(tensor.shape.dims):
            at = dim._debug["len"]
            yield f"meta[{i}].shape[{k}]", at["start"], at["end"] - at["start"]
    sentinel = root.body.sentinel._debug
    yield "sentinel", sentinel["first"]["start"], 8


OFFICIAL = {  # id in weig.ksy -> field of SPEC.md
    "num_tensors": "tensor_count",
    "ofs_tensors": "meta_offset",
    "ofs_data": "data_offset",
    "len_file": "file_size",
    "ofs_name": "name_offset",
    "padding": "pad",
    "ofs_shape": "shape_offset",
    "num_dims": "shape_count",
    "len_data": "data_size",
    "_m_data": "data",
}


def spell(path: str, name: str, at: dict[str, int]) -> tuple[str, int, int]:
    return f"{path}.{OFFICIAL.get(name, name)}", at["start"], at["end"] - at["start"]


@pytest.mark.parametrize("order", ORDERS)
def test_field_map_has_the_positions_of_the_parser(order: ByteOrder) -> None:
    data = EXAMPLE[order]
    found = {(f.path, f.offset, f.length) for f in fields(lambda at, n: data[at : at + n], 272)}
    assert found == set(kaitai_positions(data))
