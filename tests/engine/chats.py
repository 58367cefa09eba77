"""A chat with a model, step by step, on the program's own way, and what transformers' own model says to each position.

The stock model reads a whole conversation in one pass. That gives its logits at every position, so its greedy token,
too, wherever ours answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from engine.generation.generate import Ended, Prefilled, PromptReady, TextGenerator
from engine.kv.past import Past
from engine.loading import LoadedModel, load
from engine.messages import LoadModel, Sampling

CLOSE = 1e-5  # of the largest logit
ANSWER = 6  # tokens


class Greedy:
    """Chooses the largest, and keeps all it saw."""

    def __init__(self) -> None:
        self.logits: list[torch.Tensor] = []

    def choose(self, logits: torch.Tensor, tokens: list[int]) -> int:
        self.logits.append(logits.float().cpu())
        return int(logits.argmax())


@dataclass
class Turn:
    """prefilled: tokens of each prefill pass. answer: tokens, each the largest of its ``logits``."""

    prompt: list[int]
    reused: int
    prefilled: list[int]
    answer: list[int]
    logits: list[torch.Tensor]
    reason: str

    @property
    def conversation(self) -> list[int]:
        return [*self.prompt, *self.answer]


class Chat:
    """Prompts in tokens, answered by the program; nothing ends an answer but its length."""

    def __init__(self, loaded: LoadedModel) -> None:
        self.loaded = loaded
        self.generator = TextGenerator(loaded, ends=set())

    def say(self, prompt: list[int], stop: Callable[[], bool] = lambda: False, tokens: int = ANSWER) -> Turn:
        greedy, reused, prefilled, reason = Greedy(), 0, [], ""
        for step in self.generator.complete(prompt, Sampling(max_tokens=tokens), stop, chooser=greedy):
            if isinstance(step, PromptReady):
                reused = step.reused_tokens
            elif isinstance(step, Prefilled):
                prefilled.append(step.record.tokens)
            elif isinstance(step, Ended):
                reason = step.reason
        answer = [int(logits.argmax()) for logits in greedy.logits]
        return Turn(prompt, reused, prefilled, answer, greedy.logits, reason)

    def stop_in_a_pass(self, prompt: list[int], passes: int = 3) -> Turn:
        """Answer, and stop half way through the layers of a pass."""
        layers, asked = self.loaded.info.layers, 0

        def stop() -> bool:
            nonlocal asked
            asked += 1
            return asked > passes * layers + layers // 2

        return self.say(prompt, stop)


@contextmanager
def chat_with(folder: Path, experts: str = "25%", **options: object) -> Iterator[Chat]:
    loaded = load(LoadModel(str(folder), experts, dtype="float32", device="cpu", **options))  # type: ignore[arg-type]
    try:
        yield Chat(loaded)
    finally:
        loaded.close()


class Stock:
    """transformers' own model, fully resident."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model.eval()

    @torch.inference_mode()
    def logits(self, tokens: list[int]) -> torch.Tensor:
        """``[tokens, vocabulary]``, in one pass."""
        return self._model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0].float()

    @torch.inference_mode()
    def difference_from_itself(self, tokens: list[int], piece: int) -> float:
        """Between pieces of so many tokens and one pass, as a share of the largest logit."""
        whole, past, worst = self.logits(tokens), Past(self._model), 0.0
        for start in range(0, len(tokens), piece):
            end = min(start + piece, len(tokens))
            logits = past.run(tokens[start:end], torch.device("cpu"))
            worst = max(worst, float((logits - whole[end - 1]).abs().max()))
        return worst / float(whole.abs().max())

    def check(self, turn: Turn, close: float = CLOSE) -> None:
        """The turn's tokens are this model's greedy ones, and its logits are close."""
        assert turn.answer, "nothing was answered"
        rows = self.logits(turn.conversation)[len(turn.prompt) - 1 : -1]
        scale = float(rows.abs().max())
        difference = float((torch.stack(turn.logits) - rows).abs().max())
        assert difference <= close * scale, f"{difference / scale:.1e} of the largest logit"
        assert turn.answer == rows.argmax(-1).tolist()


def chunks_of(tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on prompts are read in pieces of so many tokens."""
    monkeypatch.setattr("engine.generation.passes.CHUNK", tokens)
