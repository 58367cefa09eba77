"""Models that also see or hear answer with their language half: as the whole stock model does, and without its towers.

The families are all those on transformers' registry whose checkpoints hold more than text, and some models whose
language half is another family (mistral4 in mistral3, deepseek_v3 in kimi_k25, qwen3_moe in internvl, lfm2_moe in
lfm2_vl).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import PreTrainedModel

from engine.experts.routers import RouterTaps
from engine.generation.generate import Decoded, Ended, TextGenerator
from engine.inspection import describe
from engine.loading import LoadedModel, load
from engine.messages import ChatMessage, LoadModel, Sampling
from engine.models.catalog import summarize
from engine.models.hub import HubFile, HubModel
from engine.planning import plan_from_hub
from tests.engine.experts.test_routers import ALL, Listener
from tests.families import SEEING_FAMILIES, make_tiny, stock, tiny_config, tiny_tokenizer

PROMPT = torch.randint(3, 128, (1, 20), generator=torch.Generator().manual_seed(1))
STEPS = 6


@dataclass
class Run:
    """Logits of the prompt and of each decode step, float32, and the greedy tokens."""

    logits: list[torch.Tensor]
    tokens: list[int]


@torch.inference_mode()
def run(model: PreTrainedModel) -> Run:
    """Prefill, then one token at a time on the KV cache."""
    out = model(PROMPT, use_cache=True)
    result = Run([out.logits[0]], [])
    for _ in range(STEPS):
        token = out.logits[:, -1:].argmax(-1)
        out = model(token, cache=out.cache, use_cache=True)
        result.tokens.append(int(token))
        result.logits.append(out.logits[0])
    return result


def largest_difference(one: Run, other: Run) -> float:
    """Of any logit at any step, relative to the largest logit."""
    scale = max(float(logits.abs().max()) for logits in one.logits)
    return max(float((a - b).abs().max()) for a, b in zip(one.logits, other.logits, strict=True)) / scale


CHUNK = PROMPT[0].tolist()
GREEDY = Sampling(temperature=0.0, max_tokens=STEPS)


@dataclass
class Half:
    """A checkpoint of a family, what the whole stock model answers, and ours with a quarter of its experts."""

    folder: Path
    expected: Run
    loaded: LoadedModel


def quarter(folder: Path) -> LoadModel:
    return LoadModel(str(folder), experts="25%", dtype="float32", device="cpu")


@pytest.fixture(scope="module", params=SEEING_FAMILIES)
def half(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Half]:
    folder = make_tiny(request.param, tmp_path_factory.mktemp(request.param))
    loaded = load(quarter(folder))
    yield Half(folder, run(stock(folder)), loaded)
    loaded.close()


class Reached(TorchDispatchMode):
    """Collects every tensor that an operation is given."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[int] = set()

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.ids.update(id(value) for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor))
        return operation(*args, **(kwargs or {}))


def test_text_is_answered_as_by_the_whole_model(half: Half) -> None:
    got = run(half.loaded.model)
    assert largest_difference(half.expected, got) <= 1e-5
    assert got.tokens == half.expected.tokens
    assert half.loaded.info.slots * 4 == half.loaded.info.total_experts
    assert half.loaded.runtime.observer.counters(half.loaded.runtime.evictions).fetched_bytes > 0


def test_a_chat_has_the_whole_models_tokens(half: Half) -> None:
    """Through the chat's own way, twice: the second time goes on from what the cache holds."""
    generator = TextGenerator(half.loaded, ends=set())
    for prompt, expected in (
        (CHUNK, half.expected.tokens),
        ([*CHUNK, half.expected.tokens[0]], half.expected.tokens[1:]),
    ):
        steps = list(generator.complete(prompt, GREEDY))
        assert [step.reason for step in steps if isinstance(step, Ended)] == ["length"]
        assert sum(isinstance(step, Decoded) for step in steps) == STEPS
        assert generator.past.tokens[len(prompt) :][: len(expected)] == expected[: STEPS - 1]


def test_nothing_is_in_memory_that_text_does_not_reach(half: Half) -> None:
    with Reached() as reached, torch.inference_mode():
        half.loaded.model(torch.cat([PROMPT] * 2, dim=1))
    idle = [name for name, weight in half.loaded.model.named_parameters() if id(weight) not in reached.ids]
    assert idle == []


def test_routers_are_found_and_tapped(half: Half) -> None:
    heard = Listener()
    taps = RouterTaps(half.loaded.model, half.loaded.expert_modules, ALL, heard)
    run(half.loaded.model)
    taps.close()
    assert taps.missing == []
    assert {layer for layer, _, _ in heard.routers} == set(range(half.loaded.info.layers))


def test_the_figures_leave_out_what_sees_and_hears(half: Half) -> None:
    facts = describe(quarter(half.folder))
    held = {id(tensor): tensor.nbytes for tensor in half.loaded.model.state_dict(keep_vars=True).values()}
    # a tensor that text shares with pictures is read whole: Ernie's two rows of router corrections
    assert 0 <= facts["total_bytes"] - facts["expert_bytes_stored"] - sum(held.values()) < facts["total_bytes"] / 1000
    assert facts["total_bytes"] < sum(file.stat().st_size for file in half.folder.glob("*.safetensors"))
    assert facts["dense_bytes"] == sum(parameter.nbytes for parameter in half.loaded.model.parameters())
    summary = summarize(str(half.folder))
    assert not summary.problem
    assert (summary.total_bytes, summary.expert_bytes) == (facts["total_bytes"], facts["expert_bytes_stored"])


def test_the_user_is_told_that_only_text_is_read(half: Half) -> None:
    told = [note for note in half.loaded.info.notes if "only text is read" in note]
    assert len(told) == 1
    assert told[0].startswith("This model can also take pictures")
    assert told[0] in describe(quarter(half.folder))["plan"]["notes"]


@pytest.mark.parametrize(
    ("family", "taken"),
    [
        ("qwen3_vl_moe", "pictures and video."),
        ("qwen3_omni_moe", "pictures, video and sound."),
        ("muse_spark", "pictures, video and sound."),
        ("gemma4", "pictures and video."),  # this one was made without ears
        ("aria", "pictures."),
    ],
)
def test_it_is_said_what_the_model_could_take(family: str, taken: str, tmp_path: Path) -> None:
    notes = describe(quarter(make_tiny(family, tmp_path)))["plan"]["notes"]
    assert f"This model can also take {taken} Greenroom uses its language half: only text is read." in notes


def test_a_model_on_the_hub_is_planned_without_its_towers(tmp_path: Path) -> None:
    folder = make_tiny("qwen3_vl_moe", tmp_path)
    here = describe(quarter(folder))
    files = (HubFile("model.safetensors", (folder / "model.safetensors").stat().st_size, "0" * 40, True),)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    summary, plan = plan_from_hub(HubModel("owner/tiny", "0" * 40, files, config=config))
    assert plan is not None
    assert (summary.total_bytes, summary.expert_bytes) == (here["total_bytes"], here["expert_bytes_stored"])
    assert plan.dense_bytes == here["dense_bytes"]
    assert any("only text is read" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("family", "reason"),
    [
        ("openai_privacy_filter", "writes no text: it labels the words of a text"),
        ("diffusion_gemma", "does not write its answer token by token"),
        ("gemma4_vision", "is not a text model that answers"),
    ],
)
def test_what_writes_no_text_is_refused_with_the_reason(family: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}), "utf-8")
    save_file({"weight": torch.zeros(1)}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    problem = summarize(str(tmp_path)).problem
    assert problem.startswith(f"{family} {reason}")


def test_the_template_may_come_with_the_processor(tmp_path: Path) -> None:
    """A folder as processors write it: the chat template in a file of its own, beside what pictures need."""
    make_tiny("qwen3_vl_moe", tmp_path, tokenizer=True)
    template = tiny_tokenizer(tmp_path).chat_template
    (tmp_path / "chat_template.jinja").unlink()
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": template}), "utf-8")
    (tmp_path / "preprocessor_config.json").write_text('{"image_processor_type": "Qwen2VLImageProcessorFast"}', "utf-8")
    (tmp_path / "processor_config.json").write_text('{"processor_class": "Qwen3VLProcessor"}', "utf-8")
    assert summarize(str(tmp_path)).has_template
    loaded = load(quarter(tmp_path))
    assert loaded.info.has_template
    generator, question = TextGenerator(loaded), [ChatMessage("user", "What is the capital of France?")]
    assert loaded.tokenizer is not None
    assert "<|im_start|>user" in loaded.tokenizer.decode(generator.prompt(question, 6).ids)
    assert any(isinstance(step, Ended) for step in generator.answer(question, GREEDY))
    loaded.close()


def test_experts_for_pictures_are_told_from_those_for_text(tmp_path: Path) -> None:
    """Ernie numbers both in one row; only the first half may be read."""
    folder = make_tiny("ernie4_5_vl_moe", tmp_path)
    loaded = load(quarter(folder))
    assert loaded.info.total_experts == 2 * tiny_config("ernie4_5_vl_moe").get_text_config().moe_num_experts
    assert all("text_moe" in path for path in loaded.expert_modules)
    loaded.close()
