"""The plugin of pytest, in processes of its own: what it collects, what it says of a failure."""

from __future__ import annotations

import importlib.metadata
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import toy_suite

CASES = 9
SKIPPED = 3  # needs "deep" or "big-endian", which no miniature claims


# What pytest says of the import hook of an editable install (as in pyproject.toml).
HOOK = "ignore:Module already imported so cannot be rewritten:pytest.PytestAssertRewriteWarning"


class Project:
    """A folder of somebody who installed weig."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "suite").mkdir()
        self.manifest = toy_suite.write(folder / "suite")

    def pytest(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", HOOK]
        return subprocess.run(
            [*command, *words], cwd=self.folder, capture_output=True, text=True, check=False
        )

    def over(self, behaviour: str, *words: str) -> subprocess.CompletedProcess[str]:
        adapter = shlex.join(toy_suite.command(behaviour))
        return self.pytest("--weig-adapter", adapter, "--weig-manifest", str(self.manifest), *words)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def last(done: subprocess.CompletedProcess[str]) -> str:
    """The counts of the last line, without the time."""
    return done.stdout.splitlines()[-1].strip("= ").split(" in ")[0]


def test_pytest_finds_the_plugin() -> None:
    points = importlib.metadata.entry_points(group="pytest11", name="weig")
    assert {point.value for point in points} == {"weig.conformance.pytest_plugin"}


def test_a_test_a_case(project: Project) -> None:
    done = project.over("right", "-v")
    assert done.returncode == 0
    assert last(done) == f"{CASES - SKIPPED} passed, {SKIPPED} skipped"
    assert "weig[miniatures.py]::good-1 PASSED" in done.stdout
    assert f"collected {CASES} items" in done.stdout


def test_the_tests_of_the_project_stay(project: Project) -> None:
    (project.folder / "test_own.py").write_text("def test_own(): pass\n")
    assert last(project.over("right")) == f"{CASES - SKIPPED + 1} passed, {SKIPPED} skipped"
    assert last(project.over("right", "-m", "not weig")) == f"1 passed, {CASES} deselected"
    assert last(project.pytest()) == "1 passed"


@pytest.mark.parametrize(
    ("words", "counts"),
    [
        (["-k", "good-1"], f"1 passed, {CASES - 1} deselected"),
        (["-k", "TOY-1 and not choice and not bad-end"], f"3 passed, {CASES - 3} deselected"),
        (["-k", "memory", "-m", "weig"], f"1 passed, {CASES - 1} deselected"),
    ],
)
def test_selection(project: Project, words: list[str], counts: str) -> None:
    assert last(project.over("right", *words)) == counts


def test_a_failure_is_the_block_of_the_text_report(project: Project) -> None:
    done = project.over("segv", "-k", "bad-1")
    assert done.returncode == 1
    again = shlex.join(["--", *toy_suite.command("segv")])
    block = [
        "FAILED  bad-1  crash  miniatures.py",
        "  title      case bad-1",
        "  rule       TOY-1  A file must start with GOOD.",
        '  edit       set magic = "EVIL"',
        "  want       rejected with BAD",
        "  got        died of SIGSEGV without an answer",
        f"  bytes      00000000  {b'EVILbad-1'.hex(' '):<47}  EVILbad-1",
        f"                       {'^^ ^^ ^^ ^^':<47}  magic",
        "  repeat     weig conformance run -k bad-1 --isolation case"
        f" --manifest {project.manifest} {again}",
    ]
    assert "\n".join(block) in done.stdout
    assert "Traceback" not in done.stdout


def test_a_worker_is_shared_and_failures_are_repeated_alone(project: Project) -> None:
    done = project.over("sticky")  # remembers the first bad file, and refuses whatever comes then
    assert done.returncode == 1
    assert "order-dependent" in done.stdout
    assert "right alone" in done.stdout


def test_a_death_after_the_last_case_is_an_error(project: Project) -> None:
    done = project.over("dies-at-end", "-k", "good-1")
    assert last(done) == f"1 passed, {CASES - 1} deselected, 1 error"
    assert "died of SIGABRT after its answer" in done.stdout


def test_an_adapter_that_does_not_start_fails_once(project: Project) -> None:
    done = project.over("gone")
    assert last(done) == f"1 failed, {CASES - 1} skipped"
    assert "no such model" in done.stdout
    assert "weig conformance doctor -- " in done.stdout


def test_a_wrong_code_is_told_and_fails_where_asked(project: Project) -> None:
    assert last(project.over("code", "-k", "bad-1")) == f"1 passed, {CASES - 1} deselected"
    shown = project.over("code", "-k", "bad-1", "-rP").stdout
    assert "WARNING  bad-1  wrong-code  miniatures.py" in shown
    assert "    got      rejected with WORSE" in shown
    strict = project.over("code", "-k", "bad-1", "--weig-strict-codes")
    assert last(strict) == f"1 failed, {CASES - 1} deselected"


def test_known_failures(project: Project) -> None:
    path = project.folder / "known.toml"
    path.write_text('[[known]]\ncase = "bad-*"\noutcome = "crash"\nreason = "it is old"\n')
    done = project.over("segv", "--weig-known", str(path), "-k", "bad-1 or bad-2", "-rs")
    assert last(done) == f"2 skipped, {CASES - 2} deselected"
    assert "known: crash: it is old" in done.stdout
    fixed = project.over("right", "--weig-known", str(path), "-k", "bad-1")
    assert fixed.returncode == 1
    assert "passes, but is listed as a known failure" in fixed.stdout


def test_two_adapters(project: Project) -> None:
    second = ["--weig-adapter", shlex.join(toy_suite.command("segv"))]
    done = project.over("right", *second, "-k", "bad-1", "-v")
    assert last(done) == f"1 failed, 1 passed, {2 * CASES - 2} deselected"
    assert "weig[miniatures.py#2]::bad-1 FAILED" in done.stdout


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--weig-manifest", "/nowhere"], "cannot read the manifest /nowhere"),
        (["--weig-known", "/nowhere"], "/nowhere: No such file"),
        (["--weig-adapter", "'"], "--weig-adapter: No closing quotation"),
        (["--weig-adapter", ""], "--weig-adapter: a command is wanted"),
        (["--weig-timeout", "0"], "--weig-timeout: a positive number"),
    ],
)
def test_bad_usage_is_one_line(project: Project, words: list[str], text: str) -> None:
    done = project.over("right", *words)
    assert done.returncode == 4
    errors = [line for line in (done.stdout + done.stderr).splitlines() if text in line]
    assert len(errors) == 1
    assert "Traceback" not in done.stdout + done.stderr


def test_the_bundled_suite_is_the_default(project: Project) -> None:
    adapter = shlex.join(toy_suite.command("right"))
    done = project.pytest("--weig-adapter", adapter, "--collect-only", "-q")
    assert "weig[miniatures.py]::sentinel." in done.stdout


def test_without_the_option_nothing_is_imported(project: Project) -> None:
    (project.folder / "test_own.py").write_text(
        "import sys\n"
        "def test_own():\n"
        "    found = {name for name in sys.modules if name.split('.')[0] == 'weig'}\n"
        "    assert found == {'weig', 'weig.conformance', 'weig.conformance.pytest_plugin'}\n"
    )
    assert last(project.pytest()) == "1 passed"
