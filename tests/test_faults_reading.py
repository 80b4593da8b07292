"""Loaders under an operating system that fails: every fault ends in an answer (OPEN-9, OPEN-11).

All four loaders in both modes, and the C and the C++ library without Python.
"""

from __future__ import annotations

import errno
import faulthandler
import json
import mmap
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import faults
import numpy as np
import pytest
from children import in_child, limit_address_space

import weig

TENSORS = {
    "a": np.arange(3000, dtype=np.float32),
    "b": np.arange(10_000, dtype=np.uint16).reshape(100, 100),
}
# What each loader answers, by the last word of its name: a code, or several of which any is right.
Expected = dict[str, str]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "t.weig"
    weig.save(made, TENSORS)
    return made


def both(codes: str) -> Expected:
    return {"mmap": codes, "read": codes}


FAULTS: dict[str, tuple[list[str], Expected]] = {
    "open: no rights": (["openat:error=EACCES"], both("IO")),
    "open: too many files of the process": (["openat:error=EMFILE"], both("IO")),
    "open: too many files of the system": (["openat:error=ENFILE"], both("IO")),
    "open: the disk fails": (["openat:error=EIO"], both("IO")),
    "open: no memory": (["openat:error=ENOMEM"], both("IO TOO_LARGE")),
    "open: a file that is too large": (["openat:error=EOVERFLOW"], both("IO TOO_LARGE")),
    "fstat: the disk fails": (["newfstatat,fstat:error=EIO"], both("IO")),
    "fstat: the disk fails later": (["newfstatat,fstat:error=EIO:when=2+2"], both("ok IO")),
    "fstat: the disk fails at times": (["newfstatat,fstat:error=EIO:when=2+3"], both("ok IO")),
    "read: the disk fails": (["read,pread64,preadv,preadv2:error=EIO"], both("IO")),
    "read: stale handle of a network": (["read,pread64,preadv,preadv2:error=ESTALE"], both("IO")),
    "map: no memory": (["mmap:error=ENOMEM"], {"mmap": "TOO_LARGE", "read": "ok"}),
    "map: not of this file system": (["mmap:error=ENODEV"], {"mmap": "IO", "read": "ok"}),
    "map: no rights": (["mmap:error=EACCES"], {"mmap": "IO", "read": "ok"}),
    "map: locked": (["mmap:error=EAGAIN"], {"mmap": "IO", "read": "ok"}),
    "a second descriptor: too many": (["fcntl:error=EMFILE"], {"mmap": "ok IO", "read": "ok"}),
    "advice is not taken": (["fadvise64:error=EINVAL"], both("ok")),
    "close: the disk fails": (["close:error=EIO"], both("ok")),
    "close: interrupted": (["close:error=EINTR"], both("ok")),
    "interrupted once": (["openat,read,pread64,preadv,preadv2:error=EINTR:when=1+2"], both("ok")),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_calls_that_fail(path: Path, tmp_path: Path, fault: str) -> None:
    check_injected(path, tmp_path, *FAULTS[fault])


@pytest.mark.parametrize("error", ["ENODEV", "EOPNOTSUPP", "ENOSYS"])
def test_a_file_system_that_cannot_map(path: Path, tmp_path: Path, error: str) -> None:
    """Who asks for a map is told; who asks for a copy gets it, without a map."""
    check_injected(path, tmp_path, [f"mmap:error={error}"], {"mmap": "IO", "read": "ok"})


def check_injected(path: Path, tmp_path: Path, rules: list[str], expected: Expected) -> None:
    log = tmp_path / "log"
    for group in (faults.LOADERS, *([subject] for subject in faults.LIBRARIES)):
        found = faults.answers(path, prefix=faults.injecting(rules, log, path), subjects=group)
        happened = faults.injected(log)
        for subject, answer in found.items():
            assert answer.code in expected[subject.split()[1]].split(), subject
            if answer.code == "ok":
                assert answer.digests == faults.digests(TENSORS), subject
            assert happened or answer.code == "ok", subject
        assert happened or len(group) == 1


def test_short_and_interrupted_reads(path: Path, tmp_path: Path) -> None:
    """Seven bytes at a time, and before each an interruption: nobody takes that for the end."""
    for subject in faults.LOADERS + faults.LIBRARIES:
        log = tmp_path / subject
        found = faults.answers(path, environment=reading(path, "short", log), subjects=[subject])
        assert found[subject] == ("ok", faults.digests(TENSORS)), subject
        # Both ends are read by everybody; who copies reads everything.
        least = path.stat().st_size // 7 if "read" in subject else 10
        assert log.stat().st_size >= least, subject


def reading(path: Path, how: str, log: Path) -> dict[str, str]:
    return {
        "LD_PRELOAD": str(faults.shim()),
        "FAULTS_FILE": str(path),
        "FAULTS_READ": how,
        "FAULTS_LOG": str(log),
    }


@pytest.mark.parametrize("error", [errno.EINVAL, errno.EIO, errno.EOPNOTSUPP])
def test_a_file_system_that_does_not_tell_where_holes_are(
    path: Path, tmp_path: Path, error: int
) -> None:
    log = tmp_path / "log"
    found = faults.answers(path, environment=reading(path, f"holes:{error}", log))
    assert set(found.values()) == {("ok", faults.digests(TENSORS))}
    copying = [subject for subject in found if "read" in subject]
    assert log.stat().st_size >= len(copying)


@pytest.mark.parametrize(
    "subject", [name for name in faults.LOADERS + faults.LIBRARIES if "read" in name]
)
def test_a_file_that_is_cut_while_it_is_opened(path: Path, tmp_path: Path, subject: str) -> None:
    """Cut before the first, the second ... call that reads it: TRUNCATED, not a wrong tensor."""
    whole = path.read_bytes()
    # To nothing for who reads field after field; into the data for who reads large parts.
    size = 0 if "kaitai" in subject else 20_000
    for call in range(1, 30):
        path.write_bytes(whole)
        log = tmp_path / str(call)
        environment = reading(path, f"cut:{call}:{size}", log)
        found = faults.answers(path, environment=environment, subjects=[subject])[subject]
        if not log.exists():  # it has all it needs before that call
            assert found == ("ok", faults.digests(TENSORS)), call
            break
        assert found.code == "TRUNCATED", call
    assert call > 3  # both ends, and the rest


@pytest.mark.parametrize("backend", ["pure", "kaitai"])
def test_a_file_that_is_cut_before_it_is_mapped(
    path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python looks at the size once more; C cannot, and its map is as good as the file."""
    real = mmap.mmap

    def late(fd: int, size: int, **options: int) -> mmap.mmap:
        os.truncate(path, 20_000)
        return real(fd, size, **options)

    monkeypatch.setattr("mmap.mmap", late)
    with pytest.raises(weig.WeigError, match="TRUNCATED"):
        weig.open(path, "mmap", backend)


def test_a_file_that_is_cut_after_it_was_opened(path: Path, mode: str, backend: str) -> None:
    """Section 17: a map dies by SIGBUS where it is touched, a copy does not care; both can tell."""

    def work() -> None:
        faulthandler.disable()
        with weig.open(path, mode, backend) as file:
            os.truncate(path, 4096)
            try:
                file.check_unmodified()
            except weig.WeigError as error:
                if error.code == "MODIFIED" and file["b"].data[9000] == 4500 % 256:
                    os._exit(42)

    assert in_child(work) == (42 if mode == "read" else -signal.SIGBUS)


def test_a_file_that_is_cut_and_then_prefetched(path: Path, backend: str) -> None:
    """Waiting for pages that are gone is an error, and no SIGBUS."""

    def work() -> None:
        with weig.open(path, "mmap", backend) as file:
            os.truncate(path, 4096)
            file.prefetch()
            try:
                file.prefetch(wait=True)
            except weig.WeigError as error:
                os._exit(42 if error.code in ("TRUNCATED", "MODIFIED") else 43)

    assert in_child(work) == 42


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100,000 tensors: a table of 5 MB, names and shapes of 7 MB, data of 6 MB."""
    return save_many(tmp_path_factory.mktemp("many"), 100_000)


def save_many(folder: Path, count: int) -> Path:
    path = folder / "many.weig"
    weig.save(path, {f"{i:064}": np.full(8, i % 251, np.uint8) for i in range(count)})
    return path


def test_little_address_space(many: Path, tmp_path: Path, mode: str, backend: str) -> None:
    """OPEN-9, at every limit from nothing up to what is enough: TOO_LARGE, and then the file."""
    path = save_many(tmp_path, 10_000) if backend == "kaitai" else many
    weig.open(path, mode, backend).close()  # what is imported late is imported now
    found = []
    for more in range(0, 256 << 20, 1 << 20):
        found.append(in_child(lambda more=more: opened_within(more, path, mode, backend)))
        if found[-1] == 0:
            break
    assert set(found) == {0, 42}


def opened_within(more: int, path: Path, mode: str, backend: str) -> None:
    limit_address_space(more)
    try:
        weig.open(path, mode, backend)
    except weig.WeigError as error:
        os._exit(42 if error.code == "TOO_LARGE" else 43)


@pytest.mark.parametrize("way", ["verify", "views", "arrays", "keys"])
def test_little_address_space_afterwards(
    many: Path, tmp_path: Path, backend: str, way: str
) -> None:
    """The same of what takes memory in proportion to the table of an open file."""
    path = save_many(tmp_path, 10_000) if backend == "kaitai" else many
    with pytest.raises(weig.WeigError):  # glibc ends a process without room for its first exception
        weig.open(tmp_path, "mmap", backend)
    with weig.open(path, "mmap", backend) as file:
        found = []
        for more in range(0, 256 << 20, 4 << 20):
            found.append(in_child(lambda more=more: used_within(more, file, way)))
            if found[-1] == 0:
                break
    assert set(found) <= {0, 42}
    assert found[-1] == 0


def used_within(more: int, file: weig.ModelFile, way: str) -> None:
    limit_address_space(more)
    try:
        list(file) if way == "keys" else getattr(file, way)()
    except weig.WeigError as error:
        os._exit(42 if error.code == "TOO_LARGE" else 43)


@pytest.mark.parametrize("subject", faults.LIBRARIES)
def test_little_address_space_without_python(tmp_path: Path, subject: str) -> None:
    """The answer, or no answer at all where the limit does not let the program start or speak."""
    path = tmp_path / "large.weig"
    weig.save(path, {"t": np.zeros(16 << 20, np.uint8)})
    language, mode = subject.replace("-adapter", "").split()
    words = [str(faults.adapter(language))]
    request = f"load\t1\t{path}\tdata=none\tvia={mode}\n"
    found = []
    for limit in range(1 << 20, 256 << 20, 1 << 20):
        done = subprocess.run(
            words,
            input=request,
            capture_output=True,
            text=True,
            preexec_fn=lambda limit=limit: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        )
        found.append(json.loads(done.stdout).get("error", "ok") if done.stdout else done.returncode)
        if found[-1] == "ok":
            break
    # 127 is the dynamic linker's; 1 is an adapter that has no memory for an answer.
    assert set(found) <= {127, 1, "TOO_LARGE", "ok"}
    assert {"TOO_LARGE", "ok"} <= set(found)


def test_too_many_open_files(path: Path, mode: str, backend: str) -> None:
    """With no descriptor left, with one, with two: IO until there are enough, and none is lost."""
    weig.open(path, mode, backend).close()
    used = max(map(int, os.listdir("/proc/self/fd"))) + 1
    found = []
    for left in range(5):

        def work(left: int = left) -> None:
            fill = [os.open("/dev/null", os.O_RDONLY) for _ in range(used)]  # no gaps below
            top = max(fill) + 1
            resource.setrlimit(resource.RLIMIT_NOFILE, (top + left, top + left))
            for _ in range(3):
                try:
                    weig.open(path, mode, backend).close()
                except weig.WeigError as error:
                    os._exit(42 if error.code == "IO" else 43)

        found.append(in_child(work))
    assert found[0] == 42
    assert found[-1] == 0
    assert found == sorted(found, reverse=True)
    assert set(found) == {0, 42}


def test_no_permission_to_read(path: Path, mode: str, backend: str) -> None:
    """As nobody: a file that may not be read, and one in a folder that may not be entered."""
    weig.open(path, mode, backend).close()
    with faults.public_folder() as folder:
        for name, rights in (("shut", 0o600), ("open", 0o755)):
            (folder / name).mkdir()
            (folder / name / "t.weig").write_bytes(path.read_bytes())
            (folder / name).chmod(rights)
        (folder / "secret.weig").write_bytes(path.read_bytes())
        (folder / "secret.weig").chmod(0o000)

        def work() -> None:
            faults.become_nobody()
            weig.open(folder / "open" / "t.weig", mode, backend).close()
            for refused in (folder / "secret.weig", folder / "shut" / "t.weig"):
                try:
                    weig.open(refused, mode, backend)
                except weig.WeigError as error:
                    if error.code != "IO":
                        os._exit(43)
                else:
                    os._exit(44)

        assert in_child(work) == 0


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tensor of 64 MiB, more than malloc gives from what it has, in the other byte order."""
    path = tmp_path_factory.mktemp("foreign") / "t.weig"
    other = "big" if sys.byteorder == "little" else "little"
    weig.save(path, {"t": np.arange(16 << 20, dtype=np.float32)}, byte_order=other)
    return path


@pytest.mark.parametrize("way", ["mapped_tensor", "arrays"])
def test_no_memory_to_convert_a_tensor(foreign: Path, backend: str, way: str) -> None:
    """OPEN-9 again, of a file that opens well."""
    with weig.open(foreign, "mmap", backend) as file:
        assert file.arrays()["t"][5] == 5

        def work() -> None:
            limit_address_space(16 << 20)
            try:
                file.mapped_tensor("t") if way == "mapped_tensor" else file.arrays()
            except weig.WeigError as error:
                os._exit(42 if error.code == "TOO_LARGE" else 43)

        assert in_child(work) == 42
