"""The writer and the converters under a system that fails: the old file or the new (WRITE-4)."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import faults
import numpy as np
import pytest
from children import in_child

import weig
from weig.backends import atomic
from weig.tools.cli import main

OLD = b"old"
TENSORS = {"a": np.arange(3000, dtype=np.int16), "b": np.ones((20, 30), np.float32)}
FORMATS = ("weig", "npz", "safetensors")
SAVE = """
import sys, numpy as np, weig
tensors = {"a": np.arange(3000, dtype=np.int16), "b": np.ones((20, 30), np.float32)}
try:
    weig.save(sys.argv[1], tensors)
except weig.WeigError as error:
    print(error)
"""
# Runs a command in a child that is killed before the first, the second ... step, up to its end.
KILL = """
import ctypes, json, os, sys
from pathlib import Path
import numpy, safetensors.numpy, weig
from weig.tools.cli import main
from weig.tools import convert_npz, convert_safetensors, convert_weig
kill_at = ctypes.CDLL(None).faults_kill_at
base, source, name, old = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
found = []
for step in range(1, 2000):
    folder = base / str(step)
    folder.mkdir()
    target = folder / name
    if old:
        target.write_text(old)
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        with weig.open(source) as file:
            tensors = dict(file.arrays())
        kill_at(step)
        if sys.argv[5:] == ["save"]:
            weig.save(target, tensors)
        elif main(["convert", source, str(target), "--force"]):
            os._exit(1)
        kill_at(0)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    content = target.read_bytes().hex() if target.exists() else None
    found.append((status, content, sorted(path.name for path in folder.iterdir())))
    if status != -9:
        break
print(json.dumps(found))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an old file, and nothing else."""
    made = tmp_path / "folder"
    made.mkdir()
    (made / "t.weig").write_bytes(OLD)
    return made


@pytest.fixture
def anybodys() -> Iterator[Path]:
    with faults.public_folder() as made:
        yield made


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.weig"
    weig.save(path, TENSORS)
    return path


def new_file(tmp_path: Path) -> bytes:
    weig.save(tmp_path / "new", TENSORS)
    return (tmp_path / "new").read_bytes()


NOTHING, WRITTEN = "nothing was written", "it was written"
FAULTS = {
    "reserve: the disk is full": ("fallocate:error=ENOSPC", NOTHING),
    "reserve: the quota is used up": ("fallocate:error=EDQUOT", NOTHING),
    "reserve: the file system cannot": ("fallocate:error=EOPNOTSUPP", None),
    "first write: the disk is full": ("pwrite64:error=ENOSPC:when=1", NOTHING),
    "last write: the disk fails": ("pwrite64:error=EIO:when=4", NOTHING),
    "writes are interrupted": ("pwrite64:error=EINTR:when=1+2", None),
    "mode: no rights": ("fchmod:error=EPERM", NOTHING),
    "sync: the disk fails": ("fsync:error=EIO:when=1", NOTHING),
    "sync of the folder: the disk fails": ("fsync:error=EIO:when=2", WRITTEN),
    "sync of the folder: cannot": ("fsync:error=EINVAL:when=2", None),
    "link: no rights": ("linkat:error=EPERM", NOTHING),
    "link: the disk is full": ("linkat:error=ENOSPC:when=2", NOTHING),
    "rename: the disk fails": ("rename:error=EIO", NOTHING),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_calls_that_fail_while_saving(folder: Path, tmp_path: Path, fault: str) -> None:
    rule, outcome = FAULTS[fault]
    log = tmp_path / "log"
    words = [*faults.injecting([rule], log), sys.executable, "-B", "-c", SAVE]
    done = subprocess.run([*words, str(folder / "t.weig")], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    if "linkat" in rule and not faults.injected(log):
        pytest.skip("the file system has no files without a name")
    assert faults.injected(log)
    if outcome is None:
        assert done.stdout == ""
    else:
        assert done.stdout.startswith("IO: ")
        assert outcome in done.stdout
    expected = OLD if outcome == NOTHING else new_file(tmp_path)
    assert (folder / "t.weig").read_bytes() == expected
    assert os.listdir(folder) == ["t.weig"]


@pytest.mark.parametrize("old", ["", "old"])
def test_a_kill_at_every_call_of_save(tmp_path: Path, source: Path, old: str) -> None:
    check_kills(tmp_path, source, "t.weig", old, ["save"])


@pytest.mark.parametrize("old", ["", "old"])
@pytest.mark.parametrize("kind", FORMATS)
def test_a_kill_at_every_call_of_convert(tmp_path: Path, source: Path, kind: str, old: str) -> None:
    if kind == "safetensors":
        pytest.importorskip("safetensors")
    check_kills(tmp_path, source, f"t.{kind}", old, [])


def check_kills(base: Path, source: Path, name: str, old: str, how: list[str]) -> None:
    (base / "kills").mkdir()
    words = [sys.executable, "-c", KILL, str(base / "kills"), str(source), name, old, *how]
    environment = os.environ | {"LD_PRELOAD": str(faults.shim())}
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    found: list[tuple[int, str | None, list[str]]] = json.loads(done.stdout)
    status, new, names = found[-1]
    assert (status, names) == (0, [name])
    assert new not in (None, old.encode().hex())
    states = [content for _, content, _ in found]
    before = old.encode().hex() if old else None
    turn = states.index(new)
    assert turn > 15  # there are that many steps before the last of them
    assert states == [before] * turn + [new] * (len(states) - turn)
    if has_nameless_files(base):
        # Only where a file is replaced, and there between two calls, is there another name.
        stray = [names for _, _, names in found if set(names) - {name}]
        assert len(stray) == (2 if old else 0)


def has_nameless_files(folder: Path) -> bool:
    try:
        os.close(os.open(folder, os.O_RDWR | os.O_TMPFILE))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("old", [False, True])
def test_a_file_system_without_nameless_files(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    """One without them, and a system without /proc: the new file has a name of its own then."""
    target, new = folder / "t.weig", new_file(tmp_path)
    if not old:
        target.unlink()
    log = tmp_path / "log"
    words = faults.injecting(["openat:error=EOPNOTSUPP:when=1"], log, folder)
    done = subprocess.run([*words, sys.executable, "-B", "-c", SAVE, str(target)])
    assert done.returncode == 0
    assert "O_TMPFILE" in log.read_text(encoding="utf-8").splitlines()[0]
    assert target.read_bytes() == new
    target.write_bytes(OLD) if old else target.unlink()
    monkeypatch.setattr(atomic, "DESCRIPTORS", "/nowhere")
    names: list[str] = []
    save_watching(target, names)
    assert len(names) == (2 if old else 1)
    assert target.read_bytes() == new
    assert os.listdir(folder) == ["t.weig"]


def save_watching(target: Path, names: list[str]) -> None:
    """Saves, and tells which names the folder has meanwhile."""

    def chunks() -> Iterator[bytes]:
        names.extend(os.listdir(target.parent))
        yield TENSORS["a"].tobytes()

    source = weig.backends.writer.Source("I16", (3000,), chunks)
    weig.save(target, {"a": source, "b": TENSORS["b"]})


def test_short_writes(tmp_path: Path, source: Path) -> None:
    """Seven bytes at a time, and before each an interruption."""
    code = (
        "import ctypes, sys; from weig.tools.cli import main\n"
        "ctypes.CDLL(None).faults_short_writes(1)\n"
        "sys.exit(main(['convert', *sys.argv[1:]]))"
    )
    environment = os.environ | {"LD_PRELOAD": str(faults.shim())}
    for kind in FORMATS:
        slow, fast = tmp_path / f"slow.{kind}", tmp_path / f"fast.{kind}"
        words = [sys.executable, "-c", code, str(source), str(slow)]
        assert subprocess.run(words, env=environment, capture_output=True).returncode == 0
        assert main(["convert", str(source), str(fast)]) == 0
        assert slow.read_bytes() == fast.read_bytes()


def test_a_full_disk(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A disk that holds the tensors and not what goes with them, so that nobody knows before."""
    with faults.small_disk(folder, 128 << 10):
        disk = os.statvfs(folder)
        free = disk.f_bavail * disk.f_frsize
        source = tmp_path / "s.weig"
        weig.save(source, {"a": np.full(free - 16, 7, np.uint8)})
        with weig.open(source) as file, pytest.raises(weig.WeigError, match="No space left"):
            weig.save(folder / "t.weig", file)
        assert os.listdir(folder) == []
        for kind in FORMATS:
            capsys.readouterr()
            assert main(["convert", str(source), str(folder / f"t.{kind}")]) == 1
            line = capsys.readouterr().err
            assert line.startswith(f"weig: error: IO: {folder}/t.{kind}: No space left on device;")
            assert (line.count("\n"), os.listdir(folder)) == (1, [])
        assert main(["fixtures", "write", "--small", str(folder / "new")]) == 1
        line = capsys.readouterr().err.splitlines()[-1]
        wanted = f"IO: {folder}/new: No space left on device; nothing was written"
        assert line == f"weig: error: {wanted}"
        assert os.listdir(folder) == []


def test_fixtures_that_are_not_complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A limit of the file's size stands for a full disk: only the manifest is larger."""
    there = tmp_path / "there"
    there.mkdir()
    (there / "manifest.json").write_text("{}", encoding="utf-8")
    (there / "mine").write_text("", encoding="utf-8")

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        for directory in (there, tmp_path / "new"):
            if main(["fixtures", "write", "--small", str(directory)]) != 1:
                os._exit(43)

    assert in_child(work) == 0
    assert sorted(os.listdir(tmp_path)) == ["there"]
    assert (there / "mine").exists()
    assert not (there / "manifest.json").exists()


def test_an_archive_of_fixtures_is_whole_or_not_there(tmp_path: Path) -> None:
    def work() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        os._exit(42 if main(["fixtures", "archive", str(tmp_path / "x.tar.gz")]) == 1 else 43)

    assert in_child(work) == 42
    assert os.listdir(tmp_path) == []


def test_a_full_disk_for_temporary_files(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Who is told that a disk is full must be told which."""
    path = tmp_path / "x.npz"
    np.savez(path, a=np.asfortranarray(np.ones((200, 200))))
    with faults.small_disk(folder, 64 << 10):
        monkeypatch.setattr("tempfile.tempdir", str(folder))
        assert main(["convert", str(path), str(tmp_path / "x.weig")]) == 1
    assert f"{folder}: No space left on device" in capsys.readouterr().err
    assert not (tmp_path / "x.weig").exists()


@pytest.mark.parametrize("kind", FORMATS)
def test_no_permission(anybodys: Path, kind: str) -> None:
    """As nobody. A folder that may not be read is enough to write into."""
    source = anybodys / "source.weig"
    weig.save(source, TENSORS)
    modes = {"shut": 0o555, "drop": 0o333, "sticky": 0o1777, "open": 0o777}
    for name, mode in modes.items():
        folder = anybodys / name
        folder.mkdir()
        (folder / f"t.{kind}").write_bytes(OLD)
        folder.chmod(mode)
    assert main(["convert", str(source), str(anybodys / f"warm.{kind}")]) == 0
    sticky = 1 if os.geteuid() == 0 else 0  # nobody may not replace what is root's there

    def work() -> None:
        faults.become_nobody()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        got = [
            main(["convert", "--force", str(source), str(anybodys / name / f"t.{kind}")])
            for name in modes
        ]
        os._exit(42 if got == [1, 0, sticky, 0] else 43)

    assert in_child(work) == 42
    for name in modes:
        (anybodys / name).chmod(0o755)
        assert os.listdir(anybodys / name) == [f"t.{kind}"], name


def test_owner_and_group_of_a_file_that_is_replaced(anybodys: Path) -> None:
    """They stay where we may give them; else the rights of that group go to no other group."""
    if os.geteuid() != 0:
        pytest.skip("only root gives files to others")
    path = anybodys / "t.weig"
    anybodys.chmod(0o777)
    weig.save(path, TENSORS)
    os.chown(path, 65534, 12345)
    path.chmod(0o664)
    weig.save(path, TENSORS)
    status = path.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o7777) == (65534, 12345, 0o664)

    def work() -> None:
        faults.become_nobody()
        weig.save(path, TENSORS)

    assert in_child(work) == 0
    status = path.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o7777) == (65534, 65534, 0o604)


def test_targets_that_no_file_can_replace(source: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What --force cannot mean is said before anything is read."""
    words = [sys.executable, "-m", "weig.tools.cli", "convert", str(source)]
    options = ["--to", "npz", "--force"]
    for target in ("/dev/stdout", "/dev/full", "/dev/fd/1", str(source.parent)):
        done: Any = subprocess.run([*words, target, *options], capture_output=True, text=True)
        wanted = f"NOT_REGULAR_FILE: {target} is there and not a regular file"
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"weig: error: {wanted}\n"
