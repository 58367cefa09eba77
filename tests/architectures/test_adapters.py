"""Families off transformers' registry: their chat is the stock model's, and everything else knows their experts too."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel
from transformers.models.llama4.configuration_llama4 import Llama4Config
from transformers.models.llama4.modeling_llama4 import Llama4ForConditionalGeneration
from transformers.models.step3p7.configuration_step3p7 import Step3p7TextConfig
from transformers.models.step3p7.modeling_step3p7 import Step3p7SparseMoeBlock

from engine.errors import ModelError
from engine.generation.generate import Decoded, Prefilled, TextGenerator
from engine.inspection import describe
from engine.loading import LoadedModel, inspect, load
from engine.messages import LoadModel, Sampling
from engine.models import adapters
from engine.models.adapters import adapt
from engine.models.adapters.base import AdaptedBlock, Experts
from engine.models.adapters.llama4 import Llama4Block
from engine.models.adapters.step3p7 import Step3p7Block
from engine.verify import verify
from tests.families import ADAPTED_FAMILIES, EXPERTS, TOP_K, make_tiny, stock, tiny_config

PROMPT = torch.randint(3, 128, (30,), generator=torch.Generator().manual_seed(1)).tolist()
PIECE = 7  # tokens of a prefill pass here
ANSWER = 8  # tokens
GREEDY = Sampling(temperature=0.0, max_tokens=ANSWER)


@pytest.fixture(params=ADAPTED_FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def loaded(family: str, tmp_path: Path) -> Iterator[LoadedModel]:
    model = load(LoadModel(str(make_tiny(family, tmp_path)), experts="25%", dtype="float32", device="cpu"))
    yield model
    model.close()


@torch.inference_mode()
def stock_logits(model: PreTrainedModel, tokens: list[int], piece: int) -> torch.Tensor:
    """Logits of the answer's tokens, ``[answer, vocabulary]``: the prompt in passes of ``piece``, then one by one."""
    ends = [*range(piece, len(PROMPT), piece), *range(len(PROMPT), len(tokens))]
    rows, cache, start = [], None, 0
    for end in ends:
        out = model(torch.tensor([tokens[start:end]]), cache=cache, use_cache=True)
        cache, start = out.cache, end
        if end >= len(PROMPT):
            rows.append(out.logits[0, -1])
    return torch.stack(rows)


def largest_difference(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).abs().max() / one.abs().max())


def test_a_chat_in_pieces_is_the_stock_models(
    family: str, loaded: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.generation.passes.CHUNK", PIECE)
    ours: list[torch.Tensor] = []
    head = loaded.model.get_output_embeddings()
    head.register_forward_hook(lambda module, args, output: ours.append(output[0, -1].clone()))
    generator = TextGenerator(loaded, ends=set())
    passes = [step.record for step in generator.complete(PROMPT, GREEDY) if isinstance(step, Prefilled | Decoded)]
    records = [record for record in passes if record is not None]
    logits = torch.stack(ours[-ANSWER:])
    tokens = [*PROMPT, *logits.argmax(-1).tolist()]

    model = stock(tmp_path)
    expected = stock_logits(model, tokens, len(PROMPT))
    assert largest_difference(expected, logits) <= 1e-5
    assert expected.argmax(-1).tolist() == tokens[len(PROMPT) :]
    # Doge picks the experts of a token by the scores of its neighbours too: it must not be read in pieces
    assert (largest_difference(expected, stock_logits(model, tokens, PIECE)) > 1e-3) == (family == "doge")
    prefill = [record.tokens for record in records if record.phase == "prefill"]
    assert max(prefill) == (len(PROMPT) if family == "doge" else PIECE)

    assert loaded.info.slots * 4 == loaded.info.total_experts
    routed = sum(int(record.counts.sum()) for record in records)
    wanted = (len(PROMPT) + ANSWER - 1) * loaded.info.layers * loaded.info.top_k
    assert routed < wanted if family == "longcat_flash" else routed == wanted  # zero experts are none of ours
    assert all((record.routed is None) == (record.tokens > 1) for record in records)
    assert any(record.missed.any() for record in records)


@pytest.mark.parametrize("family", [*ADAPTED_FAMILIES, "qwen3_vl_moe"])
def test_verify_goes_a_whole_chat(family: str, tmp_path: Path) -> None:
    command = LoadModel(str(make_tiny(family, tmp_path)), experts="25%", device="cpu")
    verdict = verify(command, "", 12)
    assert [step.step for step in verdict.steps if not step.equal] == []
    assert verdict.equal
    second = next(step for step in verdict.steps if step.step == "second turn")
    assert (second.reused == 0) == (family == "doge")


def test_inspect_knows_the_shape(family: str, tmp_path: Path) -> None:
    facts = describe(LoadModel(str(make_tiny(family, tmp_path)), device="cpu"))
    sparse = {"dbrx": 2, "longcat_flash": 2, "llama4_text": 2}.get(family, 3)
    experts = 16 if family == "doge" else EXPERTS
    assert (facts["layers"], facts["experts"], facts["top_k"]) == (sparse, experts, TOP_K)
    assert 0 < facts["expert_bytes_stored"] < facts["total_bytes"]


# ------------------------------------------------------------------------------------------- each one's own


def test_zero_experts_are_chosen_and_need_no_weights(tmp_path: Path) -> None:
    """transformers saves matrices for them that nothing uses; a checkpoint without is as good."""
    folder = make_tiny("longcat_flash", tmp_path)
    chosen: list[int] = []
    with_them = logits_of(folder, chosen)
    assert max(chosen) >= EXPERTS
    file = folder / "model.safetensors"
    tensors = load_file(file)
    unused = [name for name in tensors if any(f".experts.{number}." in name for number in range(EXPERTS, EXPERTS + 4))]
    assert unused
    save_file({name: tensors[name] for name in tensors if name not in unused}, file, metadata={"format": "pt"})
    torch.testing.assert_close(logits_of(folder, []), with_them, rtol=0, atol=0)


def test_llama4_with_one_expert_for_each_token(tmp_path: Path) -> None:
    """As the released models have it."""
    folder = make_tiny("llama4_text", tmp_path, changes={"num_experts_per_tok": 1})
    with torch.inference_mode():
        expected = stock(folder)(torch.tensor([PROMPT])).logits[0]
    assert largest_difference(expected, logits_of(folder, [])) <= 1e-5


def test_a_count_of_experts_that_does_not_fit_the_weights(tmp_path: Path) -> None:
    changes = {"ffn_config": {"ffn_hidden_size": 24, "moe_num_experts": 7, "moe_top_k": TOP_K}}
    folder = make_tiny("dbrx", tmp_path)
    tiny_config("dbrx", **changes).save_pretrained(folder)
    with pytest.raises(ModelError, match="config"):
        inspect(str(folder))


def test_an_expert_without_its_down_projection_is_missed(tmp_path: Path) -> None:
    folder = make_tiny("jetmoe", tmp_path)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    del tensors["model.layers.1.mlp.output_linear.weight"]
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"model\.layers\.1\.mlp\.experts\.down_proj"):
        inspect(str(folder))


@torch.inference_mode()
def test_step3p7s_block_computes_what_its_own_does() -> None:
    """Its experts by one of transformers' functions, limits and scaling included."""
    config = Step3p7TextConfig(
        hidden_size=32, num_hidden_layers=1, moe_intermediate_size=16, share_expert_dim=24, n_routed_experts=EXPERTS,
        num_experts_per_tok=TOP_K, swiglu_limits=[0.1], moe_router_scaling_factor=1.5, mlp_layer_types=["sparse"],
    )  # fmt: skip
    config._experts_implementation = "batched_mm"
    own = Step3p7SparseMoeBlock(config, 0)
    for parameter in own.parameters():
        parameter.normal_(0, 0.3, generator=torch.Generator().manual_seed(parameter.numel()))
    block = Step3p7Block(own, config)
    block.experts.load_state_dict(own.experts.state_dict())
    hidden = torch.randn(1, 9, 32, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(block(hidden), own(hidden))
    assert isinstance(block.experts, Experts)


# ------------------------------------------------------------------------------------------- all of them


def test_a_language_half_inside_a_larger_model_is_adapted_in_place() -> None:
    text = tiny_config("llama4_text").to_dict()
    with torch.device("meta"):
        model = Llama4ForConditionalGeneration(Llama4Config(text_config=text))
    adapt(model)
    block = model.get_submodule("language_model.model.layers.1.feed_forward")
    assert isinstance(block, Llama4Block)
    assert block.experts.config is model.language_model.config


def test_each_is_small_and_called_as_its_family() -> None:
    files = sorted(Path(adapters.__file__).parent.glob("[!_]*.py"))
    for file in (file for file in files if file.name != "base.py"):
        assert len(file.read_text("utf-8").splitlines()) <= 60, file.name
        kinds = vars(importlib.import_module(f"engine.models.adapters.{file.stem}")).values()
        blocks = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, AdaptedBlock)]
        replaced = [block.replaces.__module__ for block in blocks if block is not AdaptedBlock]
        assert replaced == [f"transformers.models.{file.stem}.modeling_{file.stem}"] * len(replaced) != []


@torch.inference_mode()
def logits_of(folder: Path, chosen: list[int]) -> torch.Tensor:
    """``[tokens, vocabulary]`` of the prompt with a quarter of the experts; adds the router's choices to ``chosen``."""
    loaded = load(LoadModel(str(folder), experts="25%", dtype="float32", device="cpu"))
    try:
        for path in loaded.expert_modules:
            module = loaded.model.get_submodule(path)
            module.register_forward_pre_hook(lambda module, args: chosen.extend(args[1].flatten().tolist()))
        loaded.runtime.begin_pass("prefill", len(PROMPT))
        return loaded.model(torch.tensor([PROMPT])).logits[0]
    finally:
        loaded.close()
