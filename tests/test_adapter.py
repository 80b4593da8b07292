"""The bundled adapter, by its own protocol."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from bytes_of import example


def talk(backend: str, mode: str, *lines: str) -> list[Any]:
    run = subprocess.run(
        [sys.executable, "-m", "weig.tools.cli", "adapter", "--backend", backend, "--mode", mode],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert run.stderr == ""
    return [json.loads(line) for line in run.stdout.splitlines()]


def test_a_dialogue(tmp_path: Path, backend: str, mode: str) -> None:
    for order in ("little", "big"):
        (tmp_path / order).write_bytes(example(order))
    (tmp_path / "bad").write_bytes(example()[:-1])
    hello, little, big, bad, unknown, short, other = talk(
        backend,
        mode,
        "hello\t1",
        f"load\t1\t{tmp_path}/little\tdata=hex\tlevel=deep\tnew=key",
        f"load\t2\t{tmp_path}/big\tdata=sha256\tvia=read",
        f"load\t3\t{tmp_path}/bad",
        "sing\t4",
        "load\t5",
        f"load\t6\t{tmp_path}/little",
    )
    assert (hello["protocol"], hello["loader"]) == (1, f"weig-{backend}")
    assert ("mmap" in hello["profiles"]) == (mode == "mmap")
    assert (little["id"], little["status"], little["byte_order"]) == ("1", "accepted", "little")
    assert little["count"] == 2
    b, w = little["tensors"]
    assert (b["name"], b["dtype"], b["shape"], b["nbytes"]) == ("b", "BF16", [3], 6)
    assert (b["data"], w["data"]) == ("803f004080bf", "0000803f000000c0")
    assert b["backing"] == ("mmap" if mode == "mmap" else "copy")
    assert b["align"] >= 64
    assert (big["status"], big["byte_order"]) == ("accepted", "big")
    w = big["tensors"][1]
    assert w["sha256"] == hashlib.sha256(bytes.fromhex("0000803f000000c0")).hexdigest()
    assert w["backing"] == "copy"
    assert (bad["id"], bad["status"], bad["error"]) == ("3", "rejected", "TRUNCATED")
    assert (unknown["id"], unknown["status"]) == ("4", "unsupported")
    assert short["status"] == "unsupported"
    assert "data" not in other["tensors"][0]
    assert "sha256" not in other["tensors"][0]


def test_dashes_with_nothing_behind_are_no_run() -> None:
    """`run -- $ADAPTER` with an empty variable would test the bundled loaders, and be green."""
    command = [sys.executable, "-m", "weig.tools.cli", "conformance", "run", "-k", "header.*", "--"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == "weig: error: there is nothing after --\n"


def test_output_that_cannot_be_written_is_one_line() -> None:
    for words in (["--version"], ["spec", "rules"]):
        with open("/dev/full", "w") as full:
            command = [sys.executable, "-m", "weig.tools.cli", *words]
            run = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
        assert run.returncode == 1
        assert run.stderr.count("\n") == 1
        assert run.stderr.startswith("weig: error: IO")
