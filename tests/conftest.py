"""What many tests need: each loader in each mode, and small files made from first principles."""

from __future__ import annotations

from pathlib import Path

import pytest

from weig.backends import BACKENDS, MODES


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="session")
def checkout() -> Path:
    return Path(__file__).parent.parent
