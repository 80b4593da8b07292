"""The pieces that cases are made of: image, builder, expressions, edits."""

from __future__ import annotations

from pathlib import Path

import pytest
from bytes_of import printed_examples

from weig.fixtures.builder import Plan, build
from weig.fixtures.edits import Edit, apply, remodel
from weig.fixtures.expressions import evaluate
from weig.fixtures.image import Image
from weig.fixtures.model import Model, Tensor, fill, swap_units
from weig.spec import layout
from weig.spec.dtypes import BY_NAME, DTYPES


def tensor(name: bytes, dtype: str, shape: tuple[int, ...], data: bytes | None = None) -> Tensor:
    code = BY_NAME[dtype]
    return Tensor(name, code, shape, fill(code, shape, 1) if data is None else data)


TWO = Model((tensor(b"w", "F32", (2, 3)), tensor(b"b", "U16", (3,))))


def test_the_worked_example_comes_out_byte_for_byte() -> None:
    model = Model(
        (
            tensor(b"b", "BF16", (3,), bytes.fromhex("803f004080bf")),
            tensor(b"w", "F32", (2,), bytes.fromhex("0000803f000000c0")),
        )
    )
    made = [build(model, None, order).image.to_bytes() for order in ("little", "big")]
    assert made == printed_examples(Path(layout.__file__).with_name("SPEC.md"))


def test_swap_units_reverses_each_unit() -> None:
    assert swap_units(b"abcdefgh", 4) == b"dcbahgfe"
    assert swap_units(b"abcdefgh", 1) == b"abcdefgh"
    assert swap_units(b"", 8) == b""


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_fill_ends_in_a_byte_that_is_not_zero(dtype: object) -> None:
    for shape in ((), (1,), (3, 5), (300,)):
        data = fill(dtype, shape, 7)  # type: ignore[arg-type]
        assert data[-1] != 0
        assert fill(dtype, shape, 7) == data  # type: ignore[arg-type]


def test_image_pieces_overlay_and_merge() -> None:
    image = Image(20).write(2, b"abcd").write(4, b"XY").write(10, b"z")
    assert image.to_bytes() == b"\0\0abXY\0\0\0\0z" + bytes(9)
    assert image.merged() == ((2, b"abXY"), (10, b"z"))
    assert image.truncate(5).to_bytes() == b"\0\0abX"
    assert image.truncate(5).append(b"!").to_bytes() == b"\0\0abX!"
    assert image.truncate(5).extend(7).to_bytes() == b"\0\0abX\0\0"
    with pytest.raises(ValueError, match="outside"):
        image.write(19, b"ab")
    with pytest.raises(ValueError, match="too many"):
        Image(1 << 40).to_bytes()


def test_plan_moves_what_it_names() -> None:
    plan = Plan(meta_gap=8, aux_gap=5, shape_shift=3, name_shift=1, data_gap=64, names_first=True)
    values = build(TWO, plan).layout.values
    assert values["header.meta_offset"] == 72
    assert values["name[0]"] % 8 == 1
    assert values["shape[1]"] % 8 == 3
    assert values["name[0]"] < values["shape[0]"]
    assert values["data[1]"] >= values["data[0]"] + 24 + 64


def test_expressions() -> None:
    names = {"file_size": 100, "meta[1].data_offset": 7, "name[0]": 3}
    assert evaluate("2**53 - 1", {}) == 9007199254740991
    assert evaluate("(file_size + 64) // 2 * 3 % 1000", names) == 246
    assert evaluate("meta[1].data_offset - name[0]", names) == 4
    assert evaluate(12, {}) == 12


@pytest.mark.parametrize(
    "text", ["__import__('os')", "f(1)", "1.5", "'a'", "[1]", "nobody", "1 if 1 else 2", "-1"]
)
def test_expressions_are_nothing_else(text: str) -> None:
    with pytest.raises(ValueError, match=r"not an expression|no such value"):
        evaluate(text, {})


@pytest.mark.parametrize("order", ["little", "big"])
def test_edits_touch_their_bytes_alone(order: str) -> None:
    built = build(TWO, None, order)  # type: ignore[arg-type]
    before = built.image.to_bytes()

    def after(**table: object) -> bytes:
        return apply(Edit.from_table(table), built, built.image)[0].to_bytes()

    changed = after(set="meta[1].pad", to="258")
    assert changed[124:128] == (258).to_bytes(4, order)  # type: ignore[arg-type]
    assert changed[:124] + changed[128:] == before[:124] + before[128:]
    assert after(swap="header.version")[4:8] == before[4:8][::-1]
    assert after(poke="aux_start + 1", hex="aabb")[161:163] == b"\xaa\xbb"
    assert after(truncate="size - 8") == before[:-8]
    assert after(append="0a", times=3) == before + b"\n\n\n"
    assert after(again="sentinel") == before + before[-8:]
    assert after(again="file") == before + before
    assert after(extend="size + 8") == before + bytes(8)
    grown = after(grow=1, by="1")
    assert [i for i, (a, b) in enumerate(zip(before, grown, strict=True)) if a != b] == (
        [152, 176] if order == "little" else [159, 183]
    )


def test_edits_that_are_none() -> None:
    built = build(TWO)
    with pytest.raises(ValueError, match="without a verb"):
        Edit.from_table({"sett": "header.flags"})
    with pytest.raises(ValueError, match="rank changes"):
        apply(Edit.from_table({"set": "shape[0]", "dims": ["1"]}), built, built.image)
    with pytest.raises(ValueError, match="no cut"):
        apply(Edit.from_table({"truncate": "size"}), built, built.image)
    with pytest.raises(ValueError, match="single bytes"):
        remodel(Edit.from_table({"data": 0, "at": 0, "hex": "01"}), TWO)


def test_fixtures_import_no_loader() -> None:
    import weig.fixtures

    for path in Path(weig.fixtures.__file__).parent.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "weig.backends" not in text
        assert "weig.conformance" not in text
