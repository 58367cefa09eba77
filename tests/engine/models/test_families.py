"""Quirks of checkpoints and routers, on the chat's own way: the stock model's answer with a quarter of the experts.

Every family is compared in test_every_family.py, those that also see or hear in test_language_half.py, too. What else
transformers 5.24 has on its registry writes no text token by token and is refused by name.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.engine.chats import Chat, Stock, Turn, chat_with
from tests.families import EXPERTS, make_tiny, stock

PROMPT = torch.randint(3, 128, (20,), generator=torch.Generator().manual_seed(1)).tolist()
MORE = [5, 6, 7, 8]


def talk(chat: Chat) -> tuple[Turn, Turn]:
    first = chat.say(PROMPT)
    return first, chat.say([*first.conversation, *MORE])


def check_equal(folder: Path) -> None:
    """Loading a quarter changes nothing, and really is a quarter."""
    theirs = Stock(stock(folder))
    with chat_with(folder) as chat:
        for turn in talk(chat):
            theirs.check(turn)
        info, counters = chat.loaded.info, chat.loaded.runtime.observer.counters(0)
    assert info.slots * 4 == info.total_experts == info.layers * info.experts
    assert counters.prefill_misses + counters.decode_misses > 0
    assert counters.fetched_bytes > 0


@pytest.mark.parametrize("family", ["deepseek_v3", "gpt_oss"])
def test_experts_of_one_layer_split_over_files(family: str, tmp_path: Path) -> None:
    folder = make_tiny(family, tmp_path, shards=3)
    assert len(list(folder.glob("*.safetensors"))) == 3
    check_equal(folder)


@pytest.mark.parametrize("family", ["qwen2_moe", "mixtral"])
def test_tied_embeddings(family: str, tmp_path: Path) -> None:
    check_equal(make_tiny(family, tmp_path, changes={"tie_word_embeddings": True}))


@pytest.mark.parametrize("renormalised", [True, False])
def test_top_k_with_and_without_renormalisation(renormalised: bool, tmp_path: Path) -> None:
    check_equal(make_tiny("qwen3_moe", tmp_path, changes={"norm_topk_prob": renormalised}))


def test_every_expert_chosen_by_every_token(tmp_path: Path) -> None:
    check_equal(make_tiny("mixtral", tmp_path, changes={"num_experts_per_tok": EXPERTS}))


@pytest.mark.parametrize("family", ["qwen2_moe", "granitemoe", "gpt_oss"])
def test_one_expert_only(family: str, tmp_path: Path) -> None:
    one = {"num_experts": 1} if family == "qwen2_moe" else {"num_local_experts": 1}
    folder = make_tiny(family, tmp_path, changes=one | {"num_experts_per_tok": 1})
    theirs = Stock(stock(folder))
    with chat_with(folder) as chat:
        for turn in talk(chat):
            theirs.check(turn)
        assert chat.loaded.info.total_experts == chat.loaded.info.layers


def test_one_expert_disturbed_shows_in_the_logits(tmp_path: Path) -> None:
    """The comparison above would notice a wrong expert."""
    folder = make_tiny("qwen2_moe", tmp_path)
    theirs = Stock(stock(folder))
    with chat_with(folder) as chat:
        theirs.check(chat.say(PROMPT))
        used = int(chat.loaded.runtime.observer.chat[1].argmax())
    tensors = load_file(folder / "model.safetensors")
    tensors[f"model.layers.1.mlp.experts.{used}.down_proj.weight"].mul_(1.1)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with chat_with(folder) as chat:
        turn = chat.say(PROMPT)
    with pytest.raises(AssertionError, match="of the largest logit"):
        theirs.check(turn)
