"""Loaders in processes of their own, and faults of the operating system to run them under."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from weig.backends import BACKENDS, MODES

HERE = Path(__file__).parent
ADAPTERS = HERE.parent / "conformance" / "adapters"
# The loaders behind Python, and the C and the C++ library without it.
LOADERS = [f"{backend} {mode}" for backend in BACKENDS for mode in MODES]
LIBRARIES = [f"{adapter} {mode}" for adapter in ("c-adapter", "cpp-adapter") for mode in MODES]


class Answer(NamedTuple):
    """What a loader says of a file: ``ok`` or a code, and the digests of the tensors."""

    code: str
    digests: tuple[str, ...] = ()


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """For what is built once: it goes with this process."""
    return tempfile.TemporaryDirectory()


@functools.cache
def adapter(language: str) -> Path:
    """The adapter of the C or the C++ library, built where it stands; skips without a compiler."""
    _build(["make", "-s", "-C", str(ADAPTERS / language)])
    return ADAPTERS / language / f"weig-adapter-{language}"


@functools.cache
def shim() -> Path:
    """tests/faults.c, to be preloaded."""
    out = Path(_folder().name) / "faults.so"
    _build(["cc", "-O1", "-shared", "-fPIC", "-Wall", "-o", str(out), str(HERE / "faults.c")])
    return out


def _build(words: list[str]) -> None:
    """Runs a compiler, or make; skips where there is none."""
    if not shutil.which(words[0]) or not shutil.which("cc") or not shutil.which("c++"):
        pytest.skip("there is no compiler")
    if "libasan" in os.environ.get("LD_PRELOAD", ""):
        pytest.skip("AddressSanitizer wants to be the first library, and takes terabytes")
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def answers(
    path: Path,
    *,
    prefix: list[str] | None = None,
    environment: Mapping[str, str] | None = None,
    subjects: list[str] | None = None,
) -> dict[str, Answer]:
    """What each loader says of the file; all loaders of Python in one process.

    ``prefix`` is a command that runs the processes (strace), ``environment`` is added to theirs.
    """
    env = os.environ | (environment or {})
    found: dict[str, Answer] = {}
    wanted = LOADERS + LIBRARIES if subjects is None else subjects
    loaders = [subject for subject in wanted if subject in LOADERS]
    if loaders:
        words = [
            *(prefix or []),
            sys.executable,
            str(HERE / "faults_child.py"),
            str(path),
            *loaders,
        ]
        done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=120)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        said = json.loads(done.stdout)
        found |= {
            subject: Answer(code, tuple(digests)) for subject, (code, digests) in said.items()
        }
    for subject in wanted:
        if subject not in LOADERS:
            found[subject] = _adapter_answer(subject, path, prefix or [], env)
    return found


def _adapter_answer(subject: str, path: Path, prefix: list[str], env: Mapping[str, str]) -> Answer:
    language, mode = subject.replace("-adapter", "").split()
    request = f"load\t1\t{path}\tdata=sha256\tvia={mode}\n"
    done = subprocess.run(
        [*prefix, str(adapter(language))],
        input=request,
        capture_output=True,
        text=True,
        env=env,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, ""), (subject, done)
    answer = json.loads(done.stdout)
    if answer["status"] != "accepted":
        return Answer(answer["error"] if answer["status"] == "rejected" else answer["status"])
    return Answer("ok", tuple(tensor["sha256"] for tensor in answer["tensors"]))


def digests(tensors: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """What a loader must say of the tensors that were saved: in the order of their names."""
    return tuple(hashlib.sha256(tensors[name].tobytes()).hexdigest() for name in sorted(tensors))


@functools.cache
def strace() -> str:
    """The command; skips where it is not there, or may not trace."""
    command = shutil.which("strace")
    if command is None:
        pytest.skip("strace is not installed")
    words = [command, "-f", "--seccomp-bpf", "-e", "trace=close", "true"]
    if subprocess.run(words, capture_output=True).returncode:
        pytest.skip("strace may not trace here")
    if "libasan" in os.environ.get("LD_PRELOAD", ""):
        pytest.skip("AddressSanitizer and strace do not go together")
    return command


def injecting(rules: list[str], log: Path, path: Path | None = None) -> list[str]:
    """The command that makes system calls fail: ``rules`` are strace's, ``path`` is the file that
    they are for. Its log says what was done (`injected`)."""
    calls = ",".join(rule.split(":")[0] for rule in rules)
    words = [strace(), "-f", "--seccomp-bpf", "-qq", "-o", str(log), "-e", f"trace={calls}"]
    words += ["-P", str(path)] if path else []
    return words + [word for rule in rules for word in ("-e", f"inject={rule}")] + ["--"]


def injected(log: Path) -> int:
    """How many faults there were."""
    return log.read_text(encoding="utf-8", errors="replace").count("(INJECTED)")


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[None]:
    """A tmpfs of ``size`` bytes over a folder; skips where we may not mount."""
    words = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=777", "weig-test", str(folder)]
    if os.geteuid() != 0 or not shutil.which("mount"):
        pytest.skip("only root mounts a small disk")
    if subprocess.run(words, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@contextmanager
def public_folder() -> Iterator[Path]:
    """A folder that others may come to, which those of pytest are not."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


def become_nobody() -> None:
    """Gives up the rights of root, which no permission stops. For a child process."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
