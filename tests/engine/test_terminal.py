"""The chat at a terminal stays in step with the engine: every answer is the one to the question above it."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from engine import loading
from engine.cli import main
from engine.experts import forward
from engine.messages import CacheCounters, Command, Failed, Finished, Generate, LoadModel, Started, Timings, Token
from engine.service import EngineService
from engine.sessions.reader import read_conversation
from tests.engine.experts.cards import stand_in

Chat = Callable[..., tuple[str, str, list[str]]]


@pytest.fixture
def chat(
    tiny_chat_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Chat:
    """Types two lines at a chat with a model on a card; what came out, what was said beside it, and the log's texts."""
    monkeypatch.setattr(loading, "make_devices", lambda names: [stand_in()[0]])

    def run(name: str) -> tuple[str, str, list[str]]:
        log = tmp_path / f"{name}.jsonl"
        words = ["--max-tokens", "12", "--temperature", "0", "--threads", "1", "--device", "cuda", "--experts", "60%"]
        monkeypatch.setattr("sys.stdin", io.StringIO("Hello there\nAnd what else?\n"))
        assert main(["chat", str(tiny_chat_model), *words, "--predictor", "none", "--log", str(log)]) == 0
        out, beside = capsys.readouterr()
        conversation = read_conversation(log)
        leaf = conversation.chosen_leaf()
        assert leaf is not None
        return out, beside, [message.text for message in conversation.path_to(leaf.id)]

    return run


def test_memory_that_ran_out_in_an_answer_is_said_and_every_answer_stays_with_its_question(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = chat("calm")
    count, honest = [0], forward.experts_forward

    def narrow(module: Any, *arguments: Any) -> Any:
        result = honest(module, *arguments)
        layer = getattr(module, "greenroom_layer", None)  # none while a load looks at what is not an expert
        count[0] += layer == 0
        if layer == 1 and count[0] in (2, 5):
            count[0] += 1
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return result

    monkeypatch.setitem(ALL_EXPERTS_FUNCTIONS._global_mapping, forward.IMPLEMENTATION, narrow)
    out, beside, texts = chat("scarce")
    assert beside.count("VRAM ran out in an answer") == 2
    assert (out, texts) == (expected[0], expected[2])
    assert [texts[0], texts[2]] == ["Hello there", "And what else?"]


def test_what_an_earlier_request_still_says_is_not_taken_for_the_answer(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = chat("calm")
    honest = EngineService.send

    def send(self: EngineService, command: Command) -> None:
        if isinstance(command, LoadModel | Generate):
            self._tell(Started("earlier", 3, 0, ("An old note.",)))
            self._tell(Token("earlier", "old words", 1))
            self._tell(Failed("generate", "An old fault.", "earlier"))
            self._tell(Finished("earlier", "end", "old words", Timings(), CacheCounters(), 1))
        honest(self, command)

    monkeypatch.setattr(EngineService, "send", send)
    out, beside, texts = chat("busy")
    assert (out, texts) == (expected[0], expected[2])
    assert "old" not in beside.lower()
