"""Shared by all tests: no network, tiny models; where there is no display, Qt draws into memory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="session")
def tiny_chat_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random qwen2_moe folder with tokenizer and ChatML template: loads at once, answers nonsense. Read only."""
    from tests.families import make_tiny  # torch only where a test needs it

    return make_tiny("qwen2_moe", tmp_path_factory.mktemp("tiny") / "chat", tokenizer=True)
