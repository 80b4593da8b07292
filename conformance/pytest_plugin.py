"""The plugin of pytest: ``pytest --weig-adapter "COMMAND"`` makes a test of every case.

Pytest loads this in every project of an environment that weig is installed in, so it imports
nothing, and does nothing, before the option is given.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("weig", "conformance of loaders (weig)")
    group.addoption(
        "--weig-adapter",
        action="append",
        default=[],
        metavar="COMMAND",
        help="test this adapter, a test for every case; again for more",
    )
    group.addoption(
        "--weig-manifest", metavar="PATH", help="cases to test (default: the suite inside weig)"
    )
    group.addoption("--weig-known", metavar="FILE", help="a list of known failures: skipped")
    group.addoption(
        "--weig-strict-codes",
        action="store_true",
        help="a rejection with a wrong code is a failure",
    )
    group.addoption(
        "--weig-timeout",
        type=float,
        default=10.0,
        metavar="S",
        help="seconds for one case (%(default)s)",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "weig: a case of the conformance suite")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The adapters stand beside the files and folders that the session collects."""
    report = yield
    if isinstance(collector, pytest.Session) and collector.config.getoption("weig_adapter"):
        from weig.conformance import pytest_items

        report.result = [*(report.result or ()), *pytest_items.adapters(collector)]
    return report
