"""Router taps on real models of every family: what is delivered is what the model computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from engine.experts import routers
from engine.experts.ranking import RankingSearch, capped
from engine.experts.routers import RouterTaps
from engine.loading import LoadedModel, load
from engine.messages import LoadModel
from engine.models.skeleton import _experts_modules
from engine.prediction.predictors import Sample, Wants
from engine.prediction.prompter import Prompter
from engine.prediction.shape import Shape
from tests.families import (
    ADAPTED_FAMILIES,
    EXPERTS,
    FAMILIES,
    MORE_FAMILIES,
    TOP_K,
    make_tiny,
    randomise,
    tiny_config,
)

ALL = Wants.ROUTER | Wants.LOOK | Wants.TOKEN
PROMPT = torch.randint(3, 128, (1, 24), generator=torch.Generator().manual_seed(1))


@dataclass
class Listener:
    """Everything that was told, copied."""

    said: list[str] = field(default_factory=list)
    tokens: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    routers: list[tuple[int, np.ndarray, np.ndarray]] = field(default_factory=list)
    looks: list[tuple[int, int, np.ndarray]] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    def token(self, hidden: np.ndarray, embedding: np.ndarray) -> None:
        self.said.append("token")
        self.tokens.append((hidden.copy(), embedding.copy()))

    def router(self, layer: int, inputs: np.ndarray, scores: np.ndarray) -> None:
        self.said.append(f"router {layer}")
        self.routers.append((layer, inputs.copy(), scores.copy()))

    def look(self, layer: int, distance: int, scores: np.ndarray) -> None:
        self.said.append(f"look {layer} {distance}")
        self.looks.append((layer, distance, scores.copy()))

    def study(self, sample: Sample) -> None:
        self.said.append("study")
        self.samples.append(sample)


@dataclass
class Tapped:
    """A resident model with taps, and the picks that its experts modules were called with."""

    model: PreTrainedModel
    taps: RouterTaps
    heard: Listener
    picks: list[tuple[int, list[int]]] = field(default_factory=list)

    @torch.inference_mode()
    def decode(self, steps: int) -> torch.Tensor:
        """Prefill, ``steps`` greedy tokens; logits of the last."""
        out = self.model(PROMPT, use_cache=True, logits_to_keep=1)
        for _ in range(steps):
            out = self.model(out.logits[:, -1:].argmax(-1), cache=out.cache, use_cache=True, logits_to_keep=1)
        return out.logits


def tapped(
    family: str, wants: Wants = ALL, study: int = 0, change: Callable[[PreTrainedModel], object] = lambda model: None
) -> Tapped:
    model = AutoModelForCausalLM.from_config(tiny_config(family)).eval().requires_grad_(False)
    randomise(model)
    change(model)
    modules = _experts_modules(model)
    heard = Listener()
    result = Tapped(model, RouterTaps(model, [path for path, _ in modules], wants, heard, study), heard)
    for layer, (_, module) in enumerate(modules):

        def note(module: torch.nn.Module, args: tuple[torch.Tensor, ...], layer: int = layer) -> None:
            heard.said.append(f"experts {layer}")
            result.picks.append((layer, args[1][-1].tolist()))

        module.register_forward_pre_hook(note)
    return result


@pytest.mark.parametrize("family", (*FAMILIES, *MORE_FAMILIES))
def test_scores_agree_with_the_picks_in_every_family(family: str) -> None:
    tap = tapped(family)
    tap.decode(5)
    assert tap.taps.missing == []
    assert len(tap.heard.routers) == len(tap.picks) > 0
    for (layer, inputs, scores), (picked_in, picks) in zip(tap.heard.routers, tap.picks, strict=True):
        assert layer == picked_in
        assert (inputs.dtype, scores.dtype) == (np.float32, np.float32)
        assert scores.shape == (EXPERTS,)
        assert inputs.shape == (tap.model.config.hidden_size,)
        others = np.delete(scores, picks)
        assert scores[picks].min() >= others.max() - 1e-6, f"layer {layer}"


@pytest.mark.parametrize("family", ADAPTED_FAMILIES)
def test_scores_agree_with_the_picks_of_adapted_blocks(family: str, tmp_path: Path) -> None:
    """Numbers past the last expert are LongCat's zero experts."""
    loaded = load(LoadModel(str(make_tiny(family, tmp_path)), experts="25%", dtype="float32", device="cpu"))
    heard, picks = Listener(), []
    taps = RouterTaps(loaded.model, loaded.expert_modules, ALL, heard)
    for path in loaded.expert_modules:
        module = loaded.model.get_submodule(path)
        module.register_forward_pre_hook(lambda module, args: picks.append(args[1][-1].tolist()))
    Tapped(loaded.model, taps, heard).decode(5)
    loaded.close()
    assert taps.missing == []
    assert len(heard.routers) == len(picks) == loaded.info.layers * 6
    for (_, _, scores), chosen in zip(heard.routers, picks, strict=True):
        real = [expert for expert in chosen if expert < loaded.info.experts]
        assert not real or scores[real].min() >= np.delete(scores, real).max() - 1e-6
    assert len(heard.looks) > 0


@pytest.mark.parametrize("family", ["qwen2_moe", "deepseek_v3", "afmoe", "gemma4_text"])
def test_taps_do_not_change_what_the_model_says(family: str) -> None:
    with_taps, without = tapped(family), tapped(family)
    without.taps.close()
    torch.testing.assert_close(with_taps.decode(6), without.decode(6), rtol=0, atol=0)


def test_the_order_is_token_router_looks_experts() -> None:
    tap = tapped("mixtral")
    tap.decode(1)
    assert tap.heard.said[:6] == ["router 0", "experts 0", "router 1", "experts 1", "router 2", "experts 2"]
    assert tap.heard.said[6:] == [
        *("token", "router 0", "look 0 1", "look 0 2", "experts 0"),
        *("router 1", "look 1 1", "experts 1", "router 2", "experts 2"),
    ]


@pytest.mark.parametrize("family", ["mixtral", "deepseek_v3", "phimoe", "gpt_oss", "afmoe", "hy_v3", "cohere2_moe"])
def test_a_look_ahead_is_the_later_router_on_the_earlier_state(family: str) -> None:
    """Where the layers between add nothing, the look-ahead is what the later router will say."""

    def silence(model: PreTrainedModel) -> None:
        for name, parameter in model.named_parameters():
            written = name.endswith(("o_proj.weight", "o_proj.bias", "down_proj", "down_proj.weight", "down_proj_bias"))
            if written or name.endswith((".w2", "w2.weight")):
                parameter.zero_()

    tap = tapped(family, change=silence)
    tap.decode(3)
    layers = 1 + max(layer for layer, _, _ in tap.heard.routers)
    passes = len(tap.heard.routers) // layers
    said = {(n // layers, layer): scores for n, (layer, _, scores) in enumerate(tap.heard.routers)}
    per_pass = len(tap.heard.looks) // (passes - 1)  # the prefill has none
    assert per_pass == sum(min(3, layers - 1 - layer) for layer in range(layers)) > 0
    for n, (layer, distance, scores) in enumerate(tap.heard.looks):
        expected = said[1 + n // per_pass, layer + distance]
        np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)


def test_looks_are_about_the_state_before_the_norm() -> None:
    """Each layer's own norm counts: with the wrong layer's norm the scores would be others."""
    tap = tapped("qwen2_moe")
    tap.decode(2)
    layers = tap.model.model.layers
    states: list[torch.Tensor] = []
    handle = layers[0].post_attention_layernorm.register_forward_pre_hook(lambda _, args: states.append(args[0]))
    tap.decode(1)
    handle.remove()
    layer, distance, scores = tap.heard.looks[-3]
    assert (layer, distance) == (0, 1)
    with torch.inference_mode():
        expected = layers[1].mlp.gate(layers[1].post_attention_layernorm(states[-1]))[0]
    np.testing.assert_array_equal(scores, expected[0].numpy())


@pytest.mark.parametrize("family", ["qwen2_moe", "granitemoe", "lfm2_moe", "deepseek_v4", "gemma4_text"])
def test_between_two_tokens_the_final_state_and_the_new_embedding(family: str) -> None:
    tap = tapped(family)
    heads: list[torch.Tensor] = []
    embedded: list[torch.Tensor] = []
    tap.model.get_output_embeddings().register_forward_pre_hook(lambda _, args: heads.append(args[0][0, -1]))
    tap.model.get_input_embeddings().register_forward_hook(lambda _, args, output: embedded.append(output[0, -1]))
    tap.decode(3)
    assert len(tap.heard.tokens) == 3
    for n, (hidden, embedding) in enumerate(tap.heard.tokens):
        np.testing.assert_array_equal(hidden, heads[n].numpy())
        np.testing.assert_array_equal(embedding, embedded[n + 1].numpy())


@pytest.mark.parametrize(
    ("wants", "heard"),
    [
        (Wants.NOTHING, set()),
        (Wants.ROUTER, {"router"}),
        (Wants.LOOK, {"look"}),
        (Wants.TOKEN, {"token"}),
        (Wants.ROUTER | Wants.TOKEN, {"router", "token"}),
    ],
)
def test_only_what_is_wanted_is_told(wants: Wants, heard: set[str]) -> None:
    tap = tapped("mixtral", wants)
    tap.decode(2)
    assert {said.split()[0] for said in tap.heard.said} - {"experts"} == heard


def test_wants_may_change_between_passes() -> None:
    tap = tapped("mixtral", Wants.ROUTER)
    tap.decode(1)
    tap.taps.wants = Wants.LOOK
    tap.heard.said.clear()
    tap.decode(1)
    assert {said.split()[0] for said in tap.heard.said} == {"look", "experts"}


def test_a_prefill_is_handed_over_for_study() -> None:
    tap = tapped("qwen2_moe", Wants.ROUTER | Wants.TOKEN, study=10)
    final: list[torch.Tensor] = []
    tap.model.base_model.register_forward_hook(lambda _, args, output: final.append(output[0][0]))
    tap.decode(2)
    (sample,) = tap.heard.samples
    assert sample.inputs.shape == (10, 3, 32)
    assert sample.scores.shape == (10, 3, EXPERTS)
    for layer, inputs, scores in tap.heard.routers[:3]:
        np.testing.assert_array_equal(sample.inputs[-1, layer], inputs)
        np.testing.assert_allclose(sample.scores[-1, layer], scores, rtol=1e-6)
    assert sample.hidden is not None
    assert sample.embeddings is not None
    np.testing.assert_array_equal(sample.hidden, final[0][-10:].numpy())
    embedded = tap.model.get_input_embeddings()(PROMPT)[0]
    np.testing.assert_array_equal(sample.embeddings, embedded[-10:].detach().numpy())


@pytest.mark.parametrize(("study", "fetched"), [(0, 1), (10, 10), (100, 24)])
def test_of_a_prefill_only_the_rows_that_somebody_reads_are_brought_to_the_host(
    study: int, fetched: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tap = tapped("qwen2_moe", Wants.ROUTER | Wants.TOKEN, study=study)
    honest = routers._numpy
    rows: list[int] = []

    def counted(tensor: torch.Tensor) -> np.ndarray:
        rows.append(tensor.shape[0] if tensor.dim() == 2 and tensor.shape[1] == 32 else 0)  # router inputs
        return honest(tensor)

    monkeypatch.setattr(routers, "_numpy", counted)
    tap.decode(0)
    assert max(rows) == fetched
    assert len(tap.heard.routers) == 3 and len(tap.heard.samples) == bool(study)


def test_what_memory_cannot_hold_of_a_study_is_not_brought_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routers, "STUDY_BYTES", 4 * 3 * (32 + EXPERTS) * 5)
    tap = tapped("qwen2_moe", Wants.ROUTER | Wants.TOKEN, study=10)
    tap.decode(0)
    (sample,) = tap.heard.samples
    assert sample.inputs.shape == (5, 3, 32)
    monkeypatch.setattr(routers, "STUDY_BYTES", 1)
    poor = tapped("qwen2_moe", Wants.ROUTER | Wants.TOKEN, study=10)
    poor.decode(0)
    assert poor.heard.samples == []
    assert [(layer, inputs.shape) for layer, inputs, _ in poor.heard.routers] == [(layer, (32,)) for layer in range(3)]


def test_a_router_that_needs_more_than_the_state_is_not_asked_ahead() -> None:
    """deepseek_v4's first layer looks experts up by the token's id; zaya's routers pass a state to each other."""
    for family, asked in (("deepseek_v4", {1, 2, 3}), ("zaya", set())):
        tap = tapped(family)
        tap.decode(2)
        assert {layer + distance for layer, distance, _ in tap.heard.looks} == asked, family


def test_a_router_that_cannot_be_found_is_said_and_the_rest_goes_on() -> None:
    def disguise(model: PreTrainedModel) -> None:
        """The experts of one layer receive a copy of the picks, so nothing shows where these came from."""
        experts = model.model.layers[1].mlp.experts
        experts.register_forward_pre_hook(lambda module, args: (args[0], args[1].clone(), args[2]))

    tap = tapped("mixtral", change=disguise)
    tap.decode(2)
    assert tap.taps.missing == [1]
    assert {layer for layer, _, _ in tap.heard.routers} == {0, 2}
    assert {(layer, distance) for layer, distance, _ in tap.heard.looks} == {(0, 2)}


def test_close_takes_every_hook_away() -> None:
    def hooks(model: PreTrainedModel) -> int:
        return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())

    tap = tapped("mixtral")
    before = hooks(tap.model)
    tap.taps.close()
    tap.taps.close()
    bare = hooks(tap.model)
    assert before > bare == 3, "the test's own three"
    again = RouterTaps(tap.model, [path for path, _ in _experts_modules(tap.model)], ALL, tap.heard)
    tap.decode(1)
    assert hooks(tap.model) == bare + 3 + 3 + 3, "routers, norms, and the three at the ends"
    again.close()
    assert hooks(tap.model) == bare


def test_a_pass_that_breaks_off_does_not_confuse_the_next(tmp_path: Path) -> None:
    tap = tapped("mixtral")
    broken = tap.model.model.layers[1].mlp.experts.register_forward_pre_hook(_stop)
    with pytest.raises(InterruptedError):
        tap.decode(0)
    broken.remove()
    assert tap.taps.missing == [2]
    tap.picks.clear()
    tap.heard.routers.clear()
    tap.decode(3)
    assert tap.taps.missing == []
    assert [layer for layer, _, _ in tap.heard.routers] == [0, 1, 2] * 4
    for (_, _, scores), (_, picks) in zip(tap.heard.routers, tap.picks, strict=True):
        assert set(np.argsort(-scores)[:TOP_K].tolist()) == set(picks)


def _stop(module: torch.nn.Module, args: tuple[object, ...]) -> None:
    raise InterruptedError


@pytest.fixture(scope="module")
def quarter(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = make_tiny("qwen2_moe", tmp_path_factory.mktemp("taps"))
    return load(LoadModel(str(folder), experts="25%", dtype="bfloat16", device="cpu"))


def test_a_loaded_model_teaches_the_prompter(quarter: LoadedModel) -> None:
    """bfloat16, a quarter of the experts in memory: every learnt predictor has an opinion after some tokens."""
    model, info = quarter.model, quarter.info
    prompter = Prompter("blend", Shape(info.layers, info.experts, info.top_k, model.config.hidden_size))
    taps = RouterTaps(model, [path for path, _ in _experts_modules(model)], prompter.wants, prompter)
    speaking: set[str] = set()
    with torch.inference_mode():
        for _ in range(10):
            prompter.begin_request()
            prompter.begin_pass("prefill", PROMPT.shape[1])
            out = model(PROMPT, use_cache=True)
            prompter.end_pass()
            for step in range(12):
                prompter.begin_pass("decode", 1)
                out = model(torch.tensor([[3 + step]]), cache=out.cache, use_cache=True)
                members = prompter.predictor.members  # type: ignore[attr-defined]
                speaking.update(member.name for member in members if member.predict(0, 1) is not None)
                prompter.end_pass()
            prompter.end_request()
            while prompter.learn(1.0):
                pass
    taps.close()
    assert speaking >= {"gate", "gate-fitted", "call-sheet"}


def test_the_ranking_is_found_in_the_picks() -> None:
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((50, 16)).astype(np.float32)
    correction = rng.standard_normal(16).astype(np.float32)

    def found(scores: np.ndarray, tokens: int = 50) -> RankingSearch:
        search = RankingSearch(16, [np.zeros(16, np.float32), correction])
        search.learn(logits[:tokens], np.argsort(-scores, axis=1)[:tokens, :4])
        return search

    np.testing.assert_array_equal(found(logits).best.scores(logits), logits)
    corrected = 1 / (1 + np.exp(-logits)) + correction
    np.testing.assert_allclose(found(corrected).best.scores(logits), corrected, rtol=1e-5)
    assert not found(corrected).best.capped
    assert found(np.where(np.arange(16) < 8, logits, -9)).best.capped, "the second group is never chosen from"


def test_a_ranking_that_fitted_by_chance_is_given_up() -> None:
    logits = np.array([[3, 0, 0, 0], [1.1, 1, 0, 0], [1.2, 1, 0, 0]], np.float32)
    correction = np.array([0, 0.5, 0, 0], np.float32)
    picks = np.argmax(logits + correction, axis=1)[:, None]
    search = RankingSearch(4, [correction])
    search.learn(logits[:1], picks[:1])
    assert search.best.correction is None
    search.learn(logits[1:], picks[1:])
    assert search.best.correction is correction
    assert not search.settled
    while not search.settled:
        search.learn(logits, picks)
    assert not search.best.capped


def test_passed_over_experts_are_level_with_the_last_picked() -> None:
    scores = np.array([[5.0, 1.0, 4.0, 2.0]], np.float32)
    assert capped(scores, np.array([[2, 3]])).tolist() == [[2.0, 1.0, 4.0, 2.0]]
    assert capped(scores, np.array([[2, 4]])).tolist() == [[4.0, 1.0, 4.0, 2.0]], "place 4 means nobody"
