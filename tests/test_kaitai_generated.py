"""spec/weig.ksy and what is generated from it: fresh, complete, and right in two languages.

The generated parsers are run bare here, as somebody would who has only weig.ksy. What a .ksy cannot
say is listed as data: everything else must come out right.
"""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from test_kaitai_loader import ACCEPT, EXAMPLE, NOT_ACCEPT, ORDERS, PLACES, REJECT, build, edited

from weig.spec.dtypes import DTYPES
from weig.spec.errors import CODES
from weig.spec.layout import MAGIC, SENTINEL, VERSION, ByteOrder
from weig.tools.fieldmap import fields

kaitaistruct = pytest.importorskip("kaitaistruct", reason="the extra kaitai is not installed")

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "spec" / "generated"
RULES = tomllib.loads((ROOT / "spec" / "rules.toml").read_text("utf-8"))["rules"]
CHECKS = json.loads((GENERATED / "checks.json").read_text("utf-8"))
RULE_OF = {row["path"]: row["rule"] for row in CHECKS}

# Rules that no check of weig.ksy stands for, and why.
NOT_IN_KSY = {
    "NUM-1": "shows as HDR-3 or TAIL-1",
    "SHAPE-3": "a permission: any alignment is read",
    "PAD-1": "needs sorted ranges",
    "OPEN-1": "no byte of the file",
}
# Cases of the corpus that the JavaScript runtime gets wrong, and why: base id -> reason.
WRONG_IN_JAVASCRIPT = {"names.text-feff": "its TextDecoder drops a U+FEFF that starts a name"}

NODE = shutil.which("node")
needs_modules = pytest.mark.skipif(
    NODE is None or not (ROOT / "tools" / "node_modules").is_dir(),
    reason="node is not installed, or `npm ci` was not run in tools/",
)


class Verdict(NamedTuple):
    """What a bare parser says: the rule that is broken (None: the file ended), or the tensors."""

    accept: bool
    rule: str | None = None
    tensors: list[list[Any]] | None = None
    deep: str | None = None  # the rule of deep verification that is broken


def python_verdict(data: bytes) -> Verdict:
    """Everything that weig.ksy says, by the generated Python parser."""
    from weig.spec.generated.python.weig import Weig

    try:
        root = Weig.from_bytes(data)
        tensors = [
            [t.name, int(t.dtype), [d.len for d in t.shape.dims], t.ofs_data, t.len_data]
            for t in root.body.tensors
        ]
        for tensor in root.body.tensors:
            _ = tensor.name_chars
        _ = root.body.pairs
    except UnicodeDecodeError:
        return Verdict(False, "NAME-4")
    except EOFError:
        return Verdict(False)
    except kaitaistruct.KaitaiStructError as error:
        return Verdict(False, RULE_OF[error.src_path])
    try:
        for tensor in root.body.tensors:
            _ = tensor.bools
    except kaitaistruct.KaitaiStructError as error:
        return Verdict(True, None, tensors, RULE_OF[error.src_path])
    return Verdict(True, None, tensors)


def javascript_verdicts(paths: list[Path]) -> list[Verdict]:
    """The same by the generated JavaScript parser, one process for all files."""
    done = subprocess.run(
        [str(NODE), str(ROOT / "tests" / "js" / "oracle.mjs")],
        input="".join(f"{path}\n" for path in paths),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.split("\n") if line]
    assert len(rows) == len(paths)
    return [Verdict(r["accept"], r.get("rule"), r.get("tensors"), r.get("deep")) for r in rows]


@needs_modules
def test_generated_files_are_fresh() -> None:
    done = subprocess.run(
        [str(NODE), str(ROOT / "tools" / "ksc.mjs"), "--check"], capture_output=True, text=True
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


def mutants() -> Iterator[tuple[str, bytes]]:
    """Every field of the example set to values near every boundary, in both byte orders."""
    near = (0, 64, 160, 192, 264, 272, 2**31, 2**32, 2**53, 2**63, 2**64 - 1)
    values = sorted({value + d for value in near for d in (-64, -8, -1, 0, 1, 8)})
    for order in ORDERS:
        for place, (_, size) in PLACES.items():
            for value in values:
                if size > 1 and 0 <= value < 1 << (8 * size):
                    yield f"{order} {place} = {value:#x}", edited(order, {place: value})
        for n in range(0, 272, 4):
            yield f"{order} cut at {n}", EXAMPLE[order][:n]


def known() -> Iterator[tuple[str, bytes, str | None]]:
    """The cases of the loader's tests: title, file, and the rule that it breaks."""
    for order in ORDERS:
        for rule, edits, _ in REJECT:
            yield f"{order} {edits}", edited(order, edits), rule
        for title, (records, data) in ACCEPT.items():
            yield f"{order} {title}", build(order, records, data, 1), None
        for title, (records, rule) in NOT_ACCEPT.items():
            yield f"{order} {title}", build(order, records, bytes(192)), rule


def test_known_cases_in_python() -> None:
    wrong = [
        (title, got)
        for title, data, rule in known()
        if (got := python_verdict(data))[:2] != (rule is None, rule)
    ]
    assert not wrong


def written(folder: Path, files: list[bytes]) -> list[Path]:
    paths = [folder / str(i) for i in range(len(files))]
    for path, data in zip(paths, files, strict=True):
        path.write_bytes(data)
    return paths


@needs_modules
def test_known_cases_in_javascript(tmp_path: Path) -> None:
    cases = list(known())
    answers = javascript_verdicts(written(tmp_path, [data for _, data, _ in cases]))
    wrong = [
        (title, got)
        for (title, _, rule), got in zip(cases, answers, strict=True)
        if got[:2] != (rule is None, rule)
    ]
    assert not wrong


@needs_modules
def test_javascript_agrees_with_python(tmp_path: Path) -> None:
    cases = list(mutants())
    answers = javascript_verdicts(written(tmp_path, [data for _, data in cases]))
    differ = []
    for (title, data), got in zip(cases, answers, strict=True):
        want = python_verdict(data)
        # Python's own decoder refuses a name before what stands behind it is looked at.
        earlier = want.rule == "NAME-4" and not got.accept
        if want != got and not earlier:
            differ.append((title, want, got))
    assert not differ, differ[:5]
    assert {answer.accept for answer in answers} == {True, False}


# The committed corpus.

CORPUS = ROOT / "fixtures" / "corpus"
MANIFEST = CORPUS / "manifest.json"
needs_corpus = pytest.mark.skipif(not MANIFEST.exists(), reason="no fixtures/corpus/manifest.json")


def corpus() -> list[dict[str, Any]]:
    cases = json.loads(MANIFEST.read_text("utf-8"))["cases"]
    return [case for case in cases if case["kind"] == "file" and case.get("file")]


def wrong(case: dict[str, Any], got: Verdict) -> str | None:
    """How a bare parser's answer is wrong for a case; None where it is right."""
    if case["expect"] == "either":
        return None
    if case["expect"] == "accept":
        if not got.accept or (got.deep and case["level"] == "deep"):
            return f"{case['id']}: refused for {got.rule or got.deep}"
        return tensors_differ(case, got)
    if case["level"] == "deep" and set(case["rules"]) & set(NOT_IN_KSY):
        return None if got.accept else f"{case['id']}: refused for {got.rule}"
    found = got.deep if case["level"] == "deep" else got.rule
    if found is None and not (case["level"] == "open" and not got.accept):
        return f"{case['id']}: accepted"
    return wrong_rule(case, found)


def wrong_rule(case: dict[str, Any], rule: str | None) -> str | None:
    codes = RULES[rule]["codes"] if rule else ["TOO_SMALL"]
    if case["errors"] and not set(codes) & set(case["errors"]):
        return f"{case['id']}: refused for {rule}, expected {case['errors']}"
    return None


def tensors_differ(case: dict[str, Any], got: Verdict) -> str | None:
    names = {dtype.code: dtype.name for dtype in DTYPES}
    if not case.get("want"):
        return None
    want = [(t["name"], t["dtype"], t["shape"], t["nbytes"]) for t in case["want"]["tensors"]]
    assert got.tensors is not None
    have = [(name, names[code], shape, size) for name, code, shape, _, size in got.tensors]
    return None if have == want else f"{case['id']}: {have} instead of {want}"


@needs_corpus
def test_corpus_in_python() -> None:
    found = [wrong(case, python_verdict((CORPUS / case["file"]).read_bytes())) for case in corpus()]
    assert not list(filter(None, found))


@needs_corpus
@needs_modules
def test_corpus_in_javascript() -> None:
    answers = javascript_verdicts([CORPUS / case["file"] for case in corpus()])
    found = [wrong(case, answer) for case, answer in zip(corpus(), answers, strict=True)]
    known = [case["id"].split("~")[0] in WRONG_IN_JAVASCRIPT for case in corpus()]
    assert not [text for text, is_known in zip(found, known, strict=True) if text and not is_known]
    still = [text for text, is_known in zip(found, known, strict=True) if is_known]
    assert all(still), "a gap is closed: take it off the list"
