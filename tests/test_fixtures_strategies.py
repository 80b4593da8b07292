"""What the strategies promise, judged by the oracle."""

from __future__ import annotations

import fixtures_oracle as oracle
from hypothesis import HealthCheck, given, settings

from weig.fixtures import strategies
from weig.fixtures.builder import Built, Span
from weig.fixtures.image import Image
from weig.fixtures.model import Model

quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def reader(data: bytes) -> oracle.Read:
    return Image(len(data), ((0, data),)).read


@quick
@given(strategies.models())
def test_models_hold_what_their_shapes_say(model: Model) -> None:
    assert len({tensor.name for tensor in model.tensors}) == len(model.tensors)
    for tensor in model.tensors:
        assert tensor.data is not None
        assert len(tensor.data) == tensor.nbytes


@quick
@given(strategies.built_files())
def test_good_files_break_no_rule_and_say_what_they_mean(built: Built) -> None:
    data = built.image.to_bytes()
    assert oracle.broken(reader(data), len(data), deep=True) == set()
    found = oracle.tensors(reader(data))
    assert [(name.encode(), code, shape) for name, code, shape, _, _ in found] == [
        (tensor.name, tensor.dtype.code, tensor.shape) for tensor in built.model.tensors
    ]
    for index, (*_, offset, size) in enumerate(found):
        assert built.layout.spans[f"data[{index}]"] == Span(offset, size)


def test_mutated_files_break_many_rules() -> None:
    seen: set[str] = set()

    @settings(quick, max_examples=400, database=None, derandomize=True)
    @given(strategies.mutated_files())
    def collect(data: bytes) -> None:
        seen.update(rule for rule, _ in oracle.broken(reader(data), len(data)))

    collect()
    assert len(seen) >= 20, sorted(seen)
