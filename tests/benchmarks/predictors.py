"""How often each predictor is right, and what it costs: ``python tests/benchmarks/predictors.py CHATS.jsonl [--json]``.

CHATS holds one ``{"prompt": .., "answer": ..}`` a line. The last 100 lines are kept from learning; of them ``--chats``
are scored. Every chat is fed to the demo model once (teacher-forced, in one prefill); what its routers saw and said is
then told to the predictors token by token, as in decode. A slot is one (token of an answer, layer, choice); a predictor
names as many experts as the router chooses. The costs are CPU time of the engine's thread per token, learning apart,
with 1 to 3 layers foreseen after every layer. One thread.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import thread_time

import numpy as np
import torch

from engine.experts.routers import RouterTaps
from engine.loading import LoadedModel, load
from engine.messages import PREDICTORS, LoadModel
from engine.prediction.predictors import Sample, Wants
from engine.prediction.predictors.gate import HORIZON
from engine.prediction.prompter import Prompter
from engine.prediction.shape import Shape

ROOT = str(Path(__file__).resolve().parents[2])
if __name__ == "__main__" and os.environ.get("OPENBLAS_NUM_THREADS") != "1":  # read when numpy is first imported
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": ROOT}
    sys.exit(subprocess.run([sys.executable, *sys.argv], env=one_thread).returncode)

HELD_OUT = 100  # last lines of the file
PREFILL = 60  # tokens studied at a time; few enough that none is dropped


@dataclass
class Chat:
    """What one chat's routers saw and said. looks: float32 ``[distance - 1, tokens, layer asked, experts]``."""

    prompt: int  # tokens
    sample: Sample
    looks: np.ndarray | None = None

    @property
    def tokens(self) -> int:
        return len(self.sample.scores)


class Recorder:
    """Feeds chats to the demo and keeps what the taps tell."""

    def __init__(self, loaded: LoadedModel) -> None:
        self.model, self.tokenizer = loaded.model, loaded.tokenizer
        self.layers = list(self.model.model.layers)
        paths = [f"model.layers.{number}.mlp.experts" for number in range(len(self.layers))]
        self.taps = RouterTaps(self.model, paths, Wants.ROUTER, self, study_tokens=1 << 20)
        self._samples: list[Sample] = []
        self._states: dict[int, torch.Tensor] = {}
        for number, layer in enumerate(self.layers):

            def keep(module: torch.nn.Module, args: tuple[torch.Tensor, ...], number: int = number) -> None:
                self._states[number] = args[0]

            layer.post_attention_layernorm.register_forward_pre_hook(keep)

    def token(self, hidden: np.ndarray, embedding: np.ndarray) -> None: ...
    def router(self, layer: int, inputs: np.ndarray, scores: np.ndarray) -> None: ...
    def look(self, layer: int, distance: int, scores: np.ndarray) -> None: ...
    def study(self, sample: Sample) -> None:
        self._samples.append(sample)

    @torch.inference_mode()
    def record(self, line: dict[str, str], looks: bool = False) -> Chat:
        """One prefill of the whole chat."""
        assert self.tokenizer is not None
        asked = [{"role": "user", "content": line["prompt"]}]
        prompt = self.tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_dict=False)
        answer = self.tokenizer(line["answer"], add_special_tokens=False)["input_ids"]
        self.model(torch.tensor([[*prompt, *answer]]), use_cache=False, logits_to_keep=1)
        sample = self._samples.pop()
        return Chat(len(prompt), sample, self._looks(sample.scores) if looks else None)

    def _looks(self, scores: np.ndarray) -> np.ndarray:
        result = np.zeros((HORIZON, *scores.shape), np.float32)
        for number, state in self._states.items():
            for distance in range(1, min(HORIZON, len(self.layers) - 1 - number) + 1):
                later = self.layers[number + distance]
                said = later.mlp.gate.forward(later.post_attention_layernorm.forward(state)[0])[0]
                result[distance - 1, :, number + distance] = said[-len(scores) :].numpy()
        return result


def chosen(chat: Chat, top_k: int) -> np.ndarray:
    """int ``[tokens, layers, top_k]``."""
    return np.argpartition(-chat.sample.scores, top_k - 1, axis=-1)[..., :top_k]


def prefill(prompter: Prompter, chat: Chat, picks: np.ndarray) -> None:
    prompter.begin_request()
    prompter.begin_pass("prefill", chat.prompt)
    for layer in range(picks.shape[1]):
        prompter.router(layer, chat.sample.inputs[chat.prompt - 1, layer], chat.sample.scores[chat.prompt - 1, layer])
        ids, counts = np.unique(picks[: chat.prompt, layer], return_counts=True)
        prompter.routed(layer, ids.tolist(), counts.astype(np.uint32))
    prompter.end_pass()


def teach(prompter: Prompter, chat: Chat) -> None:
    """A chat that was answered: its matrices are remembered, its tokens learnt from."""
    picks = chosen(chat, prompter.shape.top_k)
    prompter.resting = True
    prefill(prompter, chat, picks)
    for token in range(chat.prompt, chat.tokens):
        prompter.begin_pass("decode", 1)
        for layer, ids in enumerate(picks[token].tolist()):
            prompter.routed(layer, ids)
        prompter.end_pass()
    prompter.end_request()
    prompter.resting = False
    sample = chat.sample
    for start in range(0, chat.tokens, PREFILL):
        part = slice(max(0, start - 1), start + PREFILL)
        hidden = None if sample.hidden is None else sample.hidden[part]
        embeddings = None if sample.embeddings is None else sample.embeddings[part]
        prompter.study(Sample(sample.inputs[part], sample.scores[part], hidden, embeddings))
        while prompter.learn(1.0):
            pass


@dataclass
class Score:
    """Of one predictor. by_distance: share of slots right 1, 2, 3 layers ahead; before: all layers, foreseen before the
    first one ran, by predictors that see that far."""

    by_distance: list[float | None]
    before: float | None
    milliseconds: float  # per token


def score(prompter: Prompter, chats: list[Chat]) -> Score:
    """Decode every answer. The predictor goes on observing, as it would, but nothing is learnt in between."""
    spent, tokens, right, wanted = 0.0, 0, 0, 0
    prompter.meter.reset()
    shape = prompter.shape
    for chat in chats:
        picks = chosen(chat, shape.top_k)
        prefill(prompter, chat, picks)
        for token in range(chat.prompt, chat.tokens):
            before, cost = _decode(prompter, chat, token, picks[token])
            spent, tokens = spent + cost, tokens + 1
            if before is not None and len(before) == shape.layers:
                named = np.argpartition(-before, shape.top_k - 1, axis=1)[:, : shape.top_k]
                right += sum(len(np.intersect1d(a, b)) for a, b in zip(named, picks[token], strict=True))
                wanted += picks[token].size
        prompter.end_request()
    shares = [prompter.meter.accuracy(distance).share for distance in range(1, HORIZON + 1)]
    return Score(shares, right / wanted if wanted else None, spent / tokens * 1e3)


def _decode(prompter: Prompter, chat: Chat, token: int, picks: np.ndarray) -> tuple[np.ndarray | None, float]:
    """What was foreseen before the first layer, and the seconds that the token cost."""
    sample, layers = chat.sample, prompter.shape.layers
    assert sample.hidden is not None
    assert sample.embeddings is not None
    ids, inputs, scores = picks.tolist(), sample.inputs[token], sample.scores[token]
    wants = prompter.wants
    began = thread_time()
    prompter.begin_pass("decode", 1)
    if Wants.TOKEN in wants:
        prompter.token(sample.hidden[token - 1], sample.embeddings[token])
    prompter.ahead(-1)
    spent = thread_time() - began
    before = prompter.predictor.ahead(-1, layers)  # for the score only
    before = None if before is None else before.copy()
    began = thread_time()
    for layer in range(layers):
        if Wants.ROUTER in wants:
            prompter.router(layer, inputs[layer], scores[layer])
        if Wants.LOOK in wants and chat.looks is not None:
            for distance in range(1, min(HORIZON, layers - 1 - layer) + 1):
                prompter.look(layer, distance, chat.looks[distance - 1, token, layer + distance])
        prompter.routed(layer, ids[layer])
        prompter.ahead(layer)
    prompter.end_pass()
    return before, spent + thread_time() - began


def lines_of(path: Path, chats: int) -> tuple[list[dict[str, str]], Iterator[dict[str, str]]]:
    """(lines to score, lines to learn from), each in an order of its own."""
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
    held, rest = lines[-HELD_OUT:], lines[:-HELD_OUT]
    shuffle = random.Random(0)
    shuffle.shuffle(rest)
    shuffle.shuffle(held)
    return held[:chats], iter(rest)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, metavar="CHATS")
    parser.add_argument("--chats", type=int, default=40, help="held-out chats to score")
    parser.add_argument("--after", type=int, nargs="+", default=[20_000], metavar="TOKENS", help="score after so many")
    parser.add_argument("--predictors", nargs="+", default=[name for name in PREDICTORS if name != "none"])
    parser.add_argument("--model", default="demo", help="folder of the demo model")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    options = parser.parse_args()
    held, rest = lines_of(options.file, options.chats)
    loaded = load(LoadModel(options.model, experts="100%", device="cpu", threads=1))
    recorder = Recorder(loaded)
    chats = [recorder.record(line, looks=True) for line in held]
    shape = Shape(loaded.info.layers, loaded.info.experts, loaded.info.top_k, chats[0].sample.inputs.shape[2])
    prompters = {name: Prompter(name, shape) for name in options.predictors}
    results: dict[str, dict[str, Score]] = {}
    learnt = 0
    for target in sorted(options.after):
        while learnt < target and (line := next(rest, None)) is not None:
            chat = recorder.record(line)
            learnt += chat.tokens
            for prompter in prompters.values():
                teach(prompter, chat)
        results[str(learnt)] = {name: score(prompter, chats) for name, prompter in prompters.items()}
        if not options.json:
            show(learnt, chats, results[str(learnt)])
    if options.json:
        print(json.dumps({after: {name: vars(one) for name, one in row.items()} for after, row in results.items()}))


def show(learnt: int, chats: list[Chat], row: dict[str, Score]) -> None:
    answered = sum(chat.tokens - chat.prompt for chat in chats)
    print(f"after {learnt:,} tokens; {len(chats)} held-out chats, {answered:,} tokens; % of slots right, one thread")
    print(f"{'predictor':<16}{'1 ahead':>9}{'2':>7}{'3':>7}{'token before':>14}{'ms a token':>12}")
    for name, one in row.items():
        shares = "".join(f"{'-' if share is None else f'{share:.1%}':>{9 if n == 0 else 7}}"
                         for n, share in enumerate(one.by_distance))  # fmt: skip
        print(f"{name:<16}{shares}{'-' if one.before is None else f'{one.before:.1%}':>14}{one.milliseconds:>12.2f}")


if __name__ == "__main__":
    main()
