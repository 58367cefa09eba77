"""The check at load finds what goes on wrongly from a past, and mends it where only a layer is at fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.cache_utils import Cache, DynamicCache

from engine.dense import load_dense
from engine.kv.check import PastKind
from engine.loading import inspect
from tests.engine.chats import Stock, chat_with, chunks_of
from tests.families import make_tiny, stock

PROMPT = torch.randint(3, 120, (60,), generator=torch.Generator().manual_seed(4)).tolist()


def kind_of(folder: Path, dtype: torch.dtype = torch.float32) -> PastKind:
    found = inspect(str(folder))
    return load_dense(found.folder, found.skeleton, found.index.names, dtype, torch.device("cpu"))[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_recurrent_layer_that_begins_anew_in_each_pass_is_fed_token_by_token(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    kind = kind_of(make_tiny("jamba", tmp_path), dtype)
    assert kind.stepped == ("model.layers.0.mamba", "model.layers.2.mamba")
    assert kind.in_pieces


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", ["qwen2_moe", "qwen3_next", "gpt_oss", "minimax", "deepseek_v4"])
def test_a_model_that_goes_on_rightly_is_left_alone(family: str, dtype: torch.dtype, tmp_path: Path) -> None:
    kind = kind_of(make_tiny(family, tmp_path), dtype)
    assert (kind.stepped, kind.in_pieces) == ((), True)
    assert kind.needs_checkpoints == (family != "qwen2_moe")
    assert issubclass(kind.cache_class, DynamicCache)
    assert (kind.cache_class is DynamicCache) == (family != "minimax")


def test_a_model_that_is_wrong_as_a_whole_reads_a_prompt_in_one_pass_and_then_token_by_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attention, of all things, forgets its past whenever a pass has several tokens."""
    folder = make_tiny("qwen2_moe", tmp_path)
    theirs = Stock(stock(folder))
    honest = DynamicCache.update

    def forgetful(self: Cache, keys: torch.Tensor, values: torch.Tensor, layer: int, *a: Any, **b: Any) -> Any:
        seen = self.get_seq_length(layer)
        every, each = honest(self, keys, values, layer, *a, **b)
        if seen and keys.shape[-2] > 1:
            every, each = every.clone(), each.clone()
            every[..., :seen, :] = 0
            each[..., :seen, :] = 0
        return every, each

    with monkeypatch.context() as patch:
        patch.setattr(DynamicCache, "update", forgetful)
        with chat_with(folder) as chat:
            assert not chat.loaded.past_kind.in_pieces
            chunks_of(16, monkeypatch)
            first = chat.say(PROMPT)
            second = chat.say([*first.conversation, *PROMPT[:5]])
    assert first.prefilled == [len(PROMPT)]
    assert second.prefilled == [1] * 6
    theirs.check(first)
    theirs.check(second)


def test_nothing_is_read_from_the_disk_for_it(tmp_path: Path) -> None:
    with chat_with(make_tiny("jamba", tmp_path)) as chat:
        assert chat.loaded.runtime.observer.counters(0).fetched_bytes == 0
        assert chat.loaded.runtime.observer.counters(0).hook_calls == 0
