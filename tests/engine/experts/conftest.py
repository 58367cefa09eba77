"""What the tests of reading experts share."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.messages import ReadMode
from tests.engine.experts.opened import WAYS, forced


@pytest.fixture(params=WAYS)
def reads(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ReadMode:
    """Every way to read that systems and disks allow."""
    return forced(request.param, tmp_path, monkeypatch)
