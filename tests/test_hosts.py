"""What `make hosts` compares between hosts is right on this one; the host names it takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from bytes_of import one_tensor


@pytest.mark.parametrize("byte_order", ["little", "big"])
def test_values_are_those_of_the_file(byte_order: str, checkout: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.weig"
    data = (1).to_bytes(4, byte_order) + (0xFFFFFFFE).to_bytes(4, byte_order)
    path.write_bytes(one_tensor(data, 5, (2,), byte_order))
    done = subprocess.run(
        [sys.executable, ".ci/values.py", str(path)],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert lines[:3] == ["t.weig mmap", "'t' I32 (2,) [1, -2]", "{'t': [1, -2]}"]
    # Views, arrays and arrays of the other byte order are saved alike, in both modes.
    assert len(set(lines[3:6] + lines[9:12])) == 1
    assert (len(lines), lines[6]) == (12, "t.weig read")


def test_an_unknown_host_is_bad_usage(checkout: Path) -> None:
    done = subprocess.run(
        [".ci/hosts", "weig", "vax"], cwd=checkout, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (2, "no such host: vax\n")
