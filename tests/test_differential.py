"""All loaders, in both modes, say the same of every file: also of files that nobody thought of."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import weig
from weig.backends import BACKENDS, MODES
from weig.fixtures import strategies as weig_files
from weig.spec.errors import CODES

LOADERS = [(backend, mode) for backend in BACKENDS for mode in MODES]
SETTINGS = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def said(path: Path, backend: str, mode: str) -> Any:
    """Everything that a loader says of a file, but the words of its message."""
    try:
        file = weig.open(path, mode, backend)
    except weig.WeigError as error:
        check(error)
        return "rejected"
    with file:
        views = [facts(view) for view in file.views()]
        assert [facts(view) for view in file.values()] == views
        assert list(file) == [view[0] for view in views]
        assert len(file) == len(views)
        return file.byte_order, views, deeply(file)


def deeply(file: weig.ModelFile) -> bool:
    try:
        file.verify()
    except weig.WeigError as error:
        check(error)
        return False
    return True


def check(error: weig.WeigError) -> None:
    assert error.code in CODES
    assert str(error).isprintable()


def facts(view: weig.TensorView) -> tuple[Any, ...]:
    return view.name, view.dtype, view.shape, view.offset, view.tobytes()


@SETTINGS
@given(data=weig_files.mutated_files())
def test_mutated_files(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "t.weig"
    path.write_bytes(data)
    answers = {(b, m): said(path, b, m) for b, m in LOADERS}
    first = answers[LOADERS[0]]
    assert all(answer == first for answer in answers.values()), answers


@SETTINGS
@given(data=weig_files.files())
def test_good_files_are_taken(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "t.weig"
    path.write_bytes(data)
    answers = {(b, m): said(path, b, m) for b, m in LOADERS}
    first = answers[LOADERS[0]]
    assert first != "rejected"
    assert all(answer == first for answer in answers.values()), answers


@SETTINGS
@given(data=st.binary(max_size=300))
@example(b"")
@example(b"GIEW")
@example(b"WEIG" * 18)
def test_any_bytes(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "t.weig"
    path.write_bytes(data)
    assert {said(path, b, m) for b, m in LOADERS} == {"rejected"}


@pytest.mark.parametrize("bad", [False, True])
def test_aliases_are_looked_at_once(tmp_path: Path, backend: str, bad: bool) -> None:
    """20,000 records of one BOOL tensor of 1 MiB: 20 GB for who looks at each (OPEN-5)."""
    count, nbytes = 20_000, 1 << 20
    names = [f"t{i}".encode() + b"\0" for i in range(count)]
    table_end = 64 + 48 * count
    name_at = table_end + 8
    data_at = (name_at + sum(map(len, names)) + 63) // 64 * 64
    file_size = data_at + nbytes + 8
    out = [struct.pack("<IIQQQQQQQ", 0x57454947, 1, count, 64, data_at, file_size, 0, 0, 0)]
    for name in names:
        out.append(struct.pack("<QIIQQQQ", name_at, 12, 0, table_end, 1, data_at, nbytes))
        name_at += len(name)
    head = b"".join([*out, struct.pack("<Q", nbytes), *names]).ljust(data_at, b"\0")
    data = b"\1" * (nbytes - 1) + (b"\2" if bad else b"\0")
    path = tmp_path / "t.weig"
    path.write_bytes(head + data + struct.pack("<Q", 0x57454947454E4421))
    with weig.open(path, backend=backend) as file:
        if bad:
            with pytest.raises(weig.WeigError, match="BAD_BOOL"):
                file.verify()
            return
        touched: list[int] = []
        file.verify(lambda done, total: touched.append(done))
        assert touched[-1] <= file.file_size
