"""The memory plan: what the user asks for in words, and who gets how much of one memory."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from engine.errors import MemoryPlanError, OptionError
from engine.hardware.plan import WORKSPACE, Demand, kv_bytes_per_token, parse_experts, plan_memory

GB = 10**9
MB = 10**6
# about Qwen3-30B-A3B in bf16: 48 layers of 128 experts
BIG = Demand(
    memory="RAM",
    free=20 * GB,
    dense_bytes=3 * GB,
    slot_bytes=9_437_184,
    total_experts=48 * 128,
    kv_bytes_per_token=98_304,
    longest_context=40_960,
)


@pytest.mark.parametrize(
    ("text", "slots"),
    [
        ("25%", 1536),
        ("12.5 %", 768),
        ("100%", 6144),
        ("0%", 1),
        ("2GB", 211),
        ("2 gb", 211),
        ("1.5 GiB", 170),
        ("750 MB", 79),
        ("9437184 B", 1),
        ("1TB", 6144),
        ("64 slots", 64),
        ("1 slot", 1),
        ("0 slots", 1),
        ("99999 slots", 6144),
    ],
)
def test_memory_for_experts_can_be_said_in_many_ways(text, slots):
    assert parse_experts(text, BIG.total_experts, BIG.slot_bytes) == slots


def test_auto_leaves_the_number_to_the_plan():
    assert parse_experts(" Auto ", 100, 1) is None


@pytest.mark.parametrize("text", ["", "much", "64", "25 percent", "-3GB", "2 GB!", "1e3 MB", "½%", "110%", "nan%"])
def test_what_means_nothing_is_refused_with_all_that_would(text):
    with pytest.raises(OptionError) as refused:
        parse_experts(text, 100, 1 * MB)
    for way in ("auto", "25%", "2GB", "64 slots"):
        assert way in str(refused.value)


def test_less_than_one_expert_is_refused_with_its_size():
    with pytest.raises(OptionError, match=r"9\.4 MB"):
        parse_experts("5 MB", BIG.total_experts, BIG.slot_bytes)


def test_auto_fills_four_fifths_of_what_is_free_after_everything_else():
    plan = plan_memory(BIG, "auto")
    assert plan.context == 8192
    assert 16 * GB - BIG.slot_bytes < plan.needed <= 16 * GB
    assert plan.needed == plan.dense_bytes + plan.expert_bytes + plan.kv_bytes + plan.workspace_bytes
    assert plan.notes == ()


def test_auto_takes_no_more_slots_than_there_are_experts():
    assert plan_memory(replace(BIG, free=900 * GB), "auto").slots == BIG.total_experts


def test_experts_and_context_share_one_budget():
    short, long = plan_memory(BIG, "auto", 1024), plan_memory(BIG, "auto", 32_768)
    assert long.slots < short.slots
    assert abs(long.needed - short.needed) <= BIG.slot_bytes


def test_a_wish_is_met_to_the_byte_or_refused():
    needed = BIG.dense_bytes + WORKSPACE + 1000 * BIG.slot_bytes + 4096 * BIG.kv_bytes_per_token
    assert plan_memory(replace(BIG, free=needed), "1000 slots", 4096).slots == 1000
    with pytest.raises(MemoryPlanError):
        plan_memory(replace(BIG, free=needed - 1), "1000 slots", 4096)


def test_context_nobody_asked_for_gives_way_and_it_is_said():
    plan = plan_memory(replace(BIG, free=4 * GB), "25 slots")
    assert 512 <= plan.context < 8192
    assert plan.needed <= 4 * GB
    assert f"{plan.context:,} tokens instead of 8,192" in plan.notes[0]


def test_a_context_that_was_asked_for_does_not_give_way():
    with pytest.raises(MemoryPlanError, match="shorter context"):
        plan_memory(replace(BIG, free=4 * GB), "25 slots", 16_384)


def test_auto_shares_a_tight_memory_between_context_and_experts():
    plan = plan_memory(replace(BIG, free=5 * GB), "auto")
    assert plan.expert_bytes > 0.9 * plan.kv_bytes
    assert plan.context >= 512


def test_auto_takes_the_last_fifth_only_when_nothing_else_fits_and_says_so():
    plan = plan_memory(replace(BIG, free=int(3.5 * GB)), "auto")
    assert 3.5 * GB * 0.8 < plan.needed <= 3.5 * GB
    assert any("nearly full" in note for note in plan.notes)


def test_no_model_gets_more_context_than_it_was_made_for():
    plan = plan_memory(BIG, "auto", 100_000)
    assert plan.context == 40_960
    assert "made for 40,960 tokens" in plan.notes[0]
    assert plan_memory(replace(BIG, longest_context=2048), "auto").context == 2048


@pytest.mark.parametrize("experts", ["auto", "25%", "64 slots"])
def test_what_does_not_fit_says_which_memory_by_how_much_and_what_to_change(experts):
    with pytest.raises(MemoryPlanError) as refused:
        plan_memory(replace(BIG, free=2 * GB, memory="VRAM"), experts)
    text = str(refused.value)
    assert text.startswith("Not enough VRAM")
    assert "2.00 GB are free" in text
    assert "are missing" in text
    assert text.endswith("lose other programs.")


def test_the_missing_amount_would_have_been_enough():
    with pytest.raises(MemoryPlanError) as refused:
        plan_memory(replace(BIG, free=10 * GB), "900 slots", 8192)
    missing = BIG.dense_bytes + WORKSPACE + 900 * BIG.slot_bytes + 8192 * BIG.kv_bytes_per_token - 10 * GB
    assert f"{missing / 1e9:.2f} GB are missing" in str(refused.value)
    assert "Give experts at most" in str(refused.value)
    assert plan_memory(replace(BIG, free=10 * GB + missing), "900 slots", 8192).slots == 900


def test_a_model_without_a_kv_cache_plans_too():
    assert plan_memory(replace(BIG, kv_bytes_per_token=0), "auto").kv_bytes == 0


@pytest.mark.parametrize(
    ("config", "size"),
    [
        ({"num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128}, 98_304),
        ({"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64}, 2 * 4 * 16 * 2 * 2),
        ({"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64, "num_key_value_heads": None}, 512),
        (  # multi-head latent attention, kept by transformers as full keys and values
            {
                "num_hidden_layers": 27,
                "num_attention_heads": 16,
                "num_key_value_heads": 16,
                "kv_lora_rank": 512,
                "qk_nope_head_dim": 128,
                "qk_rope_head_dim": 64,
                "v_head_dim": 128,
            },
            27 * 16 * (192 + 128) * 2,
        ),
        ({}, 0),
    ],
)
def test_what_one_token_of_context_costs(config, size):
    assert kv_bytes_per_token(SimpleNamespace(**config), 2) == size
