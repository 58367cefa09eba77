"""The memory plan: what the user asks for in words, and who gets how much of one memory."""

import re
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest

from engine.errors import MemoryPlanError, OptionError
from engine.hardware.plan import (
    AUTO_SHARE,
    FIRST_CONTEXT,
    Demand,
    MemoryPlan,
    kv_bytes_per_token,
    parse_experts,
    plan_memory,
    scores_bytes_per_token,
    what_is_counted,
    workspace_bytes,
)

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


def on_a_card(vram: float, ram: float) -> Demand:
    """The same model on a machine with so many GB of either memory free."""
    return replace(BIG, memory="VRAM", free=int(vram * GB), workspace_bytes=600 * MB, host_free=int(ram * GB))


def held(plan: MemoryPlan, tokens: int) -> int:
    """Bytes on the device when the KV cache holds so many tokens."""
    demand = plan.demand
    fixed = demand.dense_bytes + demand.workspace_bytes
    return fixed + plan.slots_at(tokens) * demand.slot_bytes + tokens * demand.token_bytes


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


def test_auto_fills_four_fifths_of_what_is_free_and_keeps_to_it_while_the_conversation_grows():
    plan = plan_memory(BIG, "auto")
    assert plan.context == 8192
    for tokens in (FIRST_CONTEXT, 3000, 5000, 8192):
        assert 16 * GB - BIG.slot_bytes < held(plan, tokens) <= 16 * GB
    assert max(held(plan, tokens) for tokens in (FIRST_CONTEXT, 8192)) == plan.needed <= 16 * GB
    assert held(plan, 0) <= 16 * GB


def test_auto_takes_no_more_slots_than_there_are_experts():
    plan = plan_memory(replace(BIG, free=900 * GB), "auto")
    assert plan.slots == plan.slots_at(plan.context) == BIG.total_experts
    assert (plan.verdict, plan.on_disk, plan.notes) == ("fits", 0, ())


# ------------------------------------------------------------------------------------ experts and a growing context


def test_experts_have_the_room_of_context_that_is_not_there_yet():
    short, long = plan_memory(BIG, "auto", 2048), plan_memory(BIG, "auto", 32_768)
    assert short.slots == long.slots
    assert long.slots_at(32_768) < short.slots_at(2048)


def test_slots_are_given_back_step_by_step_and_the_note_says_how_many():
    plan = plan_memory(BIG, "auto")
    steps = [plan.slots_at(tokens) for tokens in range(0, 8193, 64)]
    assert steps == sorted(steps, reverse=True)
    assert steps[: FIRST_CONTEXT // 64 + 1] == [plan.slots] * (FIRST_CONTEXT // 64 + 1)
    assert max(before - after for before, after in pairwise(steps)) == 1
    given_back = plan.slots - steps[-1]
    note = f"Of {plan.slots:,} expert slots {given_back} are given back as the conversation grows to 8,192 tokens."
    assert plan.notes == (note,)
    assert given_back == pytest.approx(6144 * BIG.kv_bytes_per_token / BIG.slot_bytes, abs=1)


def test_no_conversation_grows_beyond_its_context():
    plan = plan_memory(BIG, "auto", 4096)
    assert plan.slots_at(10**9) == plan.slots_at(4096) >= 1


def test_what_fits_whole_gives_nothing_back():
    plan = plan_memory(BIG, "1000 slots", 8192)
    assert plan.slots == plan.slots_at(8192) == 1000
    assert plan.notes == ()


def test_a_wish_is_met_to_the_byte_or_refused():
    needed = BIG.dense_bytes + BIG.workspace_bytes + 1000 * BIG.slot_bytes + 1024 * BIG.kv_bytes_per_token
    assert plan_memory(replace(BIG, free=needed), "1000 slots", 1024).slots == 1000
    with pytest.raises(MemoryPlanError) as refused:
        plan_memory(replace(BIG, free=needed - 1), "1000 slots", 1024)
    assert refused.value.shortfall == 1


def test_a_wish_that_fits_only_at_the_start_is_met_there_and_gives_way_later():
    needed = BIG.dense_bytes + BIG.workspace_bytes + 1000 * BIG.slot_bytes + FIRST_CONTEXT * BIG.kv_bytes_per_token
    plan = plan_memory(replace(BIG, free=needed), "1000 slots", 8192)
    assert (plan.slots, plan.context) == (1000, 8192)
    assert plan.slots_at(8192) == 1000 - 64
    assert "Of 1,000 expert slots 64 are given back" in plan.notes[0]
    with pytest.raises(MemoryPlanError):
        plan_memory(replace(BIG, free=needed - 1), "1000 slots", 8192)


def test_every_layout_keeps_a_slot_to_the_end():
    lean = replace(BIG, least_slots=3, free=BIG.dense_bytes + BIG.workspace_bytes + 3 * BIG.slot_bytes + 805_306_368)
    assert plan_memory(lean, "30 slots", 8192).slots_at(8192) == 3
    assert plan_memory(lean, "1 slot", 8192).slots == 3
    with pytest.raises(MemoryPlanError):
        plan_memory(replace(lean, free=lean.free - 1), "30 slots", 8192)


def test_context_nobody_asked_for_gives_way_and_it_is_said():
    plan = plan_memory(replace(BIG, free=4 * GB), "25 slots")
    assert 512 <= plan.context < 8192
    assert held(plan, plan.context) <= 4 * GB
    assert f"{plan.context:,} tokens instead of 8,192" in plan.notes[0]


def test_context_nobody_asked_for_gives_way_before_a_wish_for_experts_does():
    tight = BIG.dense_bytes + BIG.workspace_bytes + 1000 * BIG.slot_bytes + 600 * BIG.kv_bytes_per_token
    plan = plan_memory(replace(BIG, free=tight), "1000 slots")
    assert (plan.slots, plan.slots_at(plan.context), plan.context) == (1000, 1000, 600)


def test_a_context_that_was_asked_for_does_not_give_way():
    with pytest.raises(MemoryPlanError, match="Choose a context of at most 8,042 tokens"):
        plan_memory(replace(BIG, free=4 * GB), "25 slots", 16_384)


def test_auto_shares_a_tight_memory_between_context_and_experts():
    plan = plan_memory(replace(BIG, free=5 * GB), "auto")
    assert plan.slots_at(plan.context) * BIG.slot_bytes > 0.9 * plan.kv_bytes
    assert plan.context >= 512


def test_big_experts_leave_a_short_context_rather_than_fail():
    mixtral = replace(BIG, slot_bytes=352_321_536, total_experts=256, kv_bytes_per_token=131_072)
    plan = plan_memory(replace(mixtral, free=int(3.8 * GB)), "auto")
    assert (plan.slots, plan.slots_at(plan.context)) == (1, 1)
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


def test_a_negative_context_means_nothing():
    with pytest.raises(OptionError, match="-5 is no length"):
        plan_memory(BIG, "auto", -5)


def test_a_model_without_a_kv_cache_plans_too():
    plan = plan_memory(replace(BIG, kv_bytes_per_token=0), "auto")
    assert plan.kv_bytes == 0
    assert plan.slots == plan.slots_at(plan.context)


# -------------------------------------------------------------------------------------------------------- too big


@pytest.mark.parametrize("experts", ["auto", "25%", "64 slots"])
def test_what_does_not_fit_says_which_memory_by_how_much_and_what_to_change(experts):
    with pytest.raises(MemoryPlanError) as refused:
        plan_memory(replace(BIG, free=2 * GB, memory="VRAM"), experts)
    text = str(refused.value)
    assert text.startswith("Not enough VRAM")
    assert "2.00 GB are free" in text
    assert "are missing" in text
    assert text.endswith("lose other programs.")


@pytest.mark.parametrize(
    ("experts", "context"), [("900 slots", 8192), ("900 slots", 0), ("100%", 0), ("1 slot", 40_960), ("auto", 40_960)]
)
def test_the_missing_amount_would_have_been_enough_and_a_byte_less_would_not(experts, context):
    poor = replace(BIG, free=int(3.2 * GB))
    with pytest.raises(MemoryPlanError) as refused:
        plan_memory(poor, experts, context)
    missing = refused.value.shortfall
    assert f"{missing / 1e9:.2f} GB are missing" in str(refused.value)
    assert plan_memory(replace(poor, free=poor.free + missing), experts, context).slots >= 1
    with pytest.raises(MemoryPlanError):
        plan_memory(replace(poor, free=poor.free + missing - 1), experts, context)


def test_the_advice_would_have_helped():
    with pytest.raises(MemoryPlanError) as refused:
        plan_memory(replace(BIG, free=10 * GB), "900 slots")
    [size] = re.findall(r"Give experts at most ([\d.]+ GB)", str(refused.value))
    assert plan_memory(replace(BIG, free=10 * GB), size).slots > 600
    with pytest.raises(MemoryPlanError) as refused:
        plan_memory(replace(BIG, free=4 * GB), "1 slot", 40_000)
    [tokens] = re.findall(r"context of at most ([\d,]+) tokens", str(refused.value))
    assert plan_memory(replace(BIG, free=4 * GB), "1 slot", int(tokens.replace(",", ""))).slots == 1


# ----------------------------------------------------------------------------------------------- tiers on machines


def tiers(plan: MemoryPlan) -> dict[str, int]:
    return {tier.memory: tier.experts for tier in plan.tiers}


@pytest.mark.parametrize(
    ("vram", "ram", "verdict"),
    [
        (7.4, 27, "fits with disk"),
        (11.3, 27, "fits with disk"),
        (23.2, 27, "fits with disk"),
        (7.4, 57, "fits with disk"),
        (11.3, 57, "fits with disk"),
        (11.3, 90, "fits"),  # RAM keeps all of them
        (23.2, 57, "fits with disk"),
        (79, 27, "fits"),  # the card does
    ],
)
def test_a_30b_model_on_usual_machines(vram, ram, verdict):
    """Experts of 58 GB; cards of 8, 12, 24 and 80 GB with 32, 64 and 96 GB of RAM."""
    demand = on_a_card(vram, ram)
    plan = plan_memory(demand, "auto")
    assert plan.verdict == verdict
    assert plan.context == 8192
    assert plan.needed <= vram * GB * AUTO_SHARE["VRAM"]
    assert plan.host_slots * demand.slot_bytes <= ram * GB * AUTO_SHARE["RAM"]
    at = tiers(plan)
    assert at["VRAM"] == plan.slots
    assert at["disk"] == demand.total_experts - max(at["VRAM"], at["RAM"])
    assert (plan.on_disk == 0) == (verdict == "fits")
    assert plan.on_disk >= at["disk"]


def test_more_memory_of_either_kind_never_leaves_more_on_disk():
    by_ram = [plan_memory(on_a_card(11.3, ram), "auto").on_disk for ram in (8, 16, 32, 64, 96)]
    by_vram = [plan_memory(on_a_card(vram, 16), "auto").on_disk for vram in (6, 8, 12, 24, 48, 80)]
    assert by_ram == sorted(by_ram, reverse=True)
    assert by_vram == sorted(by_vram, reverse=True)


def test_ram_keeps_no_copy_of_what_stays_on_the_card():
    plan = plan_memory(on_a_card(79, 500), "auto")
    assert (plan.slots_at(plan.context), plan.host_slots) == (BIG.total_experts, 0)


def test_ram_keeps_what_the_card_will_give_back():
    brim = on_a_card(0, 500)
    whole = brim.dense_bytes + brim.workspace_bytes + brim.total_experts * brim.slot_bytes
    plan = plan_memory(replace(brim, free=whole + 4096 * brim.token_bytes), "100%", 8192)
    assert plan.slots == BIG.total_experts > plan.slots_at(8192)
    assert (plan.host_slots, plan.verdict) == (BIG.total_experts, "fits")


def test_a_laptop_without_a_card_runs_it_from_disk():
    plan = plan_memory(replace(BIG, free=12 * GB), "auto")
    assert plan.verdict == "fits with disk"
    assert plan.host_slots == 0
    assert list(tiers(plan)) == ["RAM", "disk"]
    assert sum(tiers(plan).values()) == BIG.total_experts
    assert 500 < plan.slots < 700


def test_a_card_too_small_for_the_dense_part_is_too_small_whatever_the_ram():
    with pytest.raises(MemoryPlanError, match="Not enough VRAM") as refused:
        plan_memory(on_a_card(3.4, 500), "auto")
    assert refused.value.shortfall > 0


def test_further_cards_hold_equal_shares_of_the_experts():
    one = on_a_card(12, 32)
    rest = plan_memory(one, "auto").slots
    two = plan_memory(replace(one, others_free=(12 * GB,)), "auto")
    assert two.slots == 2 * rest
    assert two.slots_at(two.context) == 2 * plan_memory(one, "auto").slots_at(8192)
    tight = plan_memory(replace(one, others_free=(12 * GB, 3 * GB)), "auto")  # the smallest counts for all
    assert tight.slots == 3 * ((int(3 * GB * 0.9) - 500 * MB) // one.slot_bytes)


def test_a_further_card_that_is_too_small_is_said_to_be():
    demand = replace(on_a_card(20, 32), others_free=(2 * GB,))
    with pytest.raises(MemoryPlanError, match="further card") as refused:
        plan_memory(demand, "1000 slots", 2048)
    enough = 2 * GB + refused.value.shortfall
    assert plan_memory(replace(demand, others_free=(enough,)), "1000 slots", 2048).slots == 1000
    with pytest.raises(MemoryPlanError):
        plan_memory(replace(demand, others_free=(enough - 1,)), "1000 slots", 2048)


def test_the_file_cache_is_left_out_and_the_plan_says_so():
    said = what_is_counted("Direct, 2 in flight")
    assert "not the system's file cache" in said
    assert said.endswith("Reading: direct, 2 in flight.")


# ------------------------------------------------------------------------------------------- what a config costs


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


QWEN3_30B = SimpleNamespace(num_attention_heads=32, hidden_size=2048, intermediate_size=6144)


def test_workspace_grows_with_the_width_and_is_larger_on_a_card():
    ram = workspace_bytes(QWEN3_30B, 2, 8, "RAM")
    assert 200 * MB < ram < 300 * MB
    assert workspace_bytes(QWEN3_30B, 2, 8, "VRAM") - ram == 300 * MB
    assert workspace_bytes(QWEN3_30B, 4, 8, "RAM") > ram
    assert workspace_bytes(SimpleNamespace(), 2, 8, "RAM") == 200 * MB


def test_attention_that_writes_its_scores_out_takes_its_room_as_the_context_grows():
    scores = scores_bytes_per_token(QWEN3_30B, 2)
    assert scores == 32 * 512 * 6
    plain, eager = plan_memory(BIG, "auto"), plan_memory(replace(BIG, scores_bytes_per_token=scores), "auto")
    assert eager.slots_at(8192) < plain.slots_at(8192)
    assert eager.workspace_bytes - plain.workspace_bytes == 8192 * scores
    assert held(eager, 8192) <= 16 * GB
