"""A log alone gives back every hit and miss of the run that wrote it, and says what others would have cost."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.cli import main
from engine.errors import OptionError, SessionError
from engine.experts.policies import make_policy
from engine.experts.records import Deed
from engine.hardware.plan import MemoryPlan
from engine.messages import POLICIES, LoadModel
from engine.replay.compare import Outcome, compare, parse_budgets, parse_policies
from engine.replay.live import replay_live
from engine.replay.trace import Loaded, Step, Trace, read_trace
from engine.sessions.log import SessionLog
from engine.sessions.packing import pack_ahead
from engine.sessions.reader import recount
from tests.engine.listening import Engine, Talk
from tests.engine.routing import Routing, write_log


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine() as engine:
        yield engine


@pytest.mark.parametrize("policy", POLICIES)
def test_every_hit_and_miss_of_a_live_run_is_met_again(
    engine: Engine, tiny_chat_model: Path, tmp_path: Path, policy: str
) -> None:
    """Several answers, one of them stopped, others of another conversation in between, then a new start."""
    engine.send(LoadModel(str(tiny_chat_model), experts="50%", policy=policy))
    one, other = Talk(engine, tmp_path, "one"), Talk(engine, tmp_path, "other")
    one.ask("Hello there, how are you today?")
    one.ask("Tell me about boats.", stop=True)
    other.ask("Who wrote this?")
    one.ask("And about bridges?")
    engine.send(LoadModel(str(tiny_chat_model), experts="25%", policy=policy))
    one.ask("Once more, please.")
    other.ask("And what else?")
    for talk in (one, other):
        live = replay_live(read_trace([talk.path]))
        assert live.exact, live.reason
        counted = recount(talk.path)
        assert (live.decode_hits, live.decode_misses) == (counted.decode_hits, counted.decode_misses)
        assert live.passes == counted.passes > 3
        assert live.decode_misses > 0
    assert replay_live(read_trace([one.path])).settings == [f"{policy}, 12 slots", f"{policy}, 6 slots"]


def test_the_state_in_the_log_is_what_makes_it_exact(engine: Engine, tiny_chat_model: Path, tmp_path: Path) -> None:
    engine.send(LoadModel(str(tiny_chat_model), experts="50%", policy="lfu"))
    one, other = Talk(engine, tmp_path, "one"), Talk(engine, tmp_path, "other")
    other.ask("A conversation before.")
    one.ask("Hello there, how are you today?")
    lines = [json.loads(line) for line in one.path.read_text(encoding="utf-8").splitlines()]
    for line in lines:
        line.pop("state", None)
    one.path.write_text("".join(json.dumps(line) + "\n" for line in lines).replace(": ", ":"), encoding="utf-8")
    live = replay_live(read_trace([one.path]))
    assert not live.exact
    assert live.unknown == live.passes
    assert "does not say what the policy had seen" in live.reason


def test_an_answer_that_broke_off_is_followed_by_what_the_cache_holds(
    engine: Engine, tiny_chat_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.experts.store import DiskStore

    engine.send(LoadModel(str(tiny_chat_model), experts="50%", policy="next-use"))
    talk = Talk(engine, tmp_path, "one")
    talk.ask("Hello there, how are you today?")
    honest, reads = DiskStore.read, itertools.count()

    def failing(self: DiskStore, *place: Any) -> int:
        if place[0] == 2 and next(reads) == 2:  # two layers are over
            raise OSError("the disk is gone")
        return honest(self, *place)

    with monkeypatch.context() as patch:
        patch.setattr(DiskStore, "read", failing)
        broken = talk.ask("Tell me about boats.")
    assert broken.reason == "error"
    talk.ask("And about bridges?")
    live = replay_live(read_trace([talk.path]))
    assert live.exact, live.reason
    counted = recount(talk.path, "one-3")  # the layers that the broken pass came through are in the log, too
    assert (counted.decode_hits, counted.decode_misses) == (broken.cache.decode_hits, broken.cache.decode_misses)
    assert (counted.prefill_hits, counted.prefill_misses) == (broken.cache.prefill_hits, broken.cache.prefill_misses)
    assert counted.prefill_misses + counted.decode_misses > 0


@pytest.mark.parametrize("policy", ["lfu", "next-use"])
def test_experts_that_all_fitted_leave_by_what_was_used_when_the_conversation_needs_their_room(
    engine: Engine, tiny_chat_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    def giving_way(self: MemoryPlan, tokens: int) -> int:
        return self.slots if tokens < 120 else self.slots // 2

    monkeypatch.setattr(MemoryPlan, "slots_at", giving_way)
    engine.send(LoadModel(str(tiny_chat_model), experts="100%", policy=policy, predictor="none"))
    talk = Talk(engine, tmp_path, "one")
    talk.ask("Hello there, how are you today?", tokens=150)
    trace = read_trace([talk.path])
    assert {note[1] for step in trace.steps for note in step.ahead.tolist()} == {Deed.RESIZE}
    live = replay_live(trace)
    assert live.exact, live.reason
    assert live.decode_misses > 0


def test_a_changed_log_is_noticed(engine: Engine, tiny_chat_model: Path, tmp_path: Path) -> None:
    engine.send(LoadModel(str(tiny_chat_model), experts="50%", policy="lru"))
    talk = Talk(engine, tmp_path, "one")
    talk.ask("Hello there, how are you today?")
    content = talk.path.read_text(encoding="utf-8")
    talk.path.write_text(content.replace('"policy":"lru"', '"policy":"eam"'), encoding="utf-8")
    assert not replay_live(read_trace([talk.path])).exact
    talk.path.write_text(content.replace('"policy":"lru"', '"policy":"of tomorrow"'), encoding="utf-8")
    live = replay_live(read_trace([talk.path]))
    assert live.unknown == live.passes
    assert "of tomorrow" in live.reason


# --------------------------------------------------------------------------------------- other settings


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    log = tmp_path_factory.mktemp("made-up") / "log.jsonl"
    return read_trace([write_log(log, Routing(6, 16, 4), [(60, 80), (300, 80)])])


@pytest.fixture(scope="module")
def outcomes(trace: Trace) -> list[Outcome]:
    return compare(trace, list(POLICIES), parse_budgets("1 slots,3 slots,12.5%,25%,50%,75%,100%", trace.model))


def test_nobody_beats_belady(outcomes: list[Outcome]) -> None:
    bound = {outcome.budget: outcome.decode_misses for outcome in outcomes if outcome.policy == "belady"}
    assert len(bound) == 7
    for outcome in outcomes:
        assert outcome.decode_misses >= bound[outcome.budget], (outcome.policy, outcome.budget)


def test_a_bigger_budget_never_misses_more_under_belady_and_all_fit_in_the_end(outcomes: list[Outcome]) -> None:
    bound = [outcome.decode_misses for outcome in outcomes if outcome.policy == "belady"]
    assert bound == sorted(bound, reverse=True)
    full = {(o.decode_misses, o.prefill_misses) for o in outcomes if o.budget.text == "100%"}
    assert len(full) == 1  # with room for all, each is fetched once, whatever the policy


def test_lru_gets_nothing_below_one_tokens_cycle_and_next_use_does(outcomes: list[Outcome]) -> None:
    rate = {o.policy: o.decode_hit_rate for o in outcomes if o.budget.text == "12.5%"}  # 12 slots, a token wants 24
    assert rate["lru"] == 0
    assert rate["next-use"] is not None
    assert rate["next-use"] > 0.15


def test_next_use_is_the_best_of_them_on_made_up_routing(outcomes: list[Outcome]) -> None:
    for budget in ("12.5%", "50%", "75%"):
        hits = {o.policy: o.decode_hits for o in outcomes if o.budget.text == budget and o.policy != "belady"}
        assert max(hits, key=hits.__getitem__) == "next-use"


def test_belady_agrees_with_a_search_through_all_choices() -> None:
    """Small enough to try every eviction: the fewest decode misses there can be, prompts in between included."""
    random = np.random.default_rng(3)
    for slots in (2, 3):
        for _ in range(6):
            steps = []
            for number in range(7):
                phase, size = ("prefill", 2) if number in (2, 5) else ("decode", 1)
                wanted = tuple(
                    (layer, np.sort(random.choice(3, size, replace=False)), np.ones(size, np.uint32))
                    for layer in range(2)
                )
                # of one token each, whatever they want: a prompt of several would stream past the cache
                steps.append(Step(phase, 1, wanted, np.zeros((2, 3), bool)))  # type: ignore[arg-type]
            model = Loaded("", "", 2, 3, 2, slots, 1, "lru", (), np.empty(0), None)
            small = Trace((), model, tuple(steps))
            found = compare(small, [], parse_budgets(f"{slots} slots", model))[0].decode_misses
            assert found == _fewest(steps, slots)


def _fewest(steps: list[Step], slots: int) -> int:
    calls = [
        (frozenset((layer, int(e)) for e in experts), step.phase == "decode")
        for step in steps
        for layer, experts, _ in step.wanted
    ]
    costs: dict[frozenset[tuple[int, int]], int] = {frozenset(): 0}
    for wanted, counted in calls:
        after: dict[frozenset[tuple[int, int]], int] = {}
        for held, cost in costs.items():
            cost += len(wanted - held) * counted
            others = held - wanted
            for kept in itertools.combinations(sorted(others), min(len(others), slots - len(wanted))):
                state = wanted | frozenset(kept)
                after[state] = min(cost, after.get(state, cost))
        costs = after
    return min(costs.values())


def test_bytes_per_token_are_the_misses(trace: Trace, outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        assert outcome.bytes_per_token == outcome.decode_misses * 1000 / 160
        uses = outcome.decode_hits + outcome.decode_misses
        assert uses == 160 * 6 * 4


def test_a_replay_that_shares_priorities_equals_one_policy_with_one_cache(trace: Trace) -> None:
    both = compare(trace, ["next-use"], parse_budgets("25%,50%", trace.model))
    alone = compare(trace, ["next-use"], parse_budgets("50%", trace.model))
    assert [o.decode_misses for o in both if o.budget.text == "50%"] == [o.decode_misses for o in alone]


def test_several_logs_are_one_stream(trace: Trace, tmp_path: Path) -> None:
    logs = [write_log(tmp_path / f"{n}.jsonl", Routing(6, 16, 4, seed=n), [(20, 30)]) for n in range(2)]
    together = read_trace(logs)
    assert together.tokens("decode") == 60
    budgets = parse_budgets("50%", together.model)
    first, second = (compare(read_trace([log]), ["lfu"], budgets)[0] for log in logs)
    joined = compare(together, ["lfu"], budgets)[0]
    assert joined.prefill_misses < first.prefill_misses + second.prefill_misses  # the second does not start cold


# ------------------------------------------------------------------------------------------- the verb


def test_the_verb_prints_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write_log(tmp_path / "log.jsonl", Routing(6, 16, 4), [(20, 40)])
    assert main(["replay", str(log)]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in POLICIES)
    assert "belady (the bound)" in printed
    assert "12.5%     25%     50%     75%" in printed
    assert "of the way from lru to the bound" in printed


def test_the_verb_prints_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write_log(tmp_path / "log.jsonl", Routing(6, 16, 4), [(20, 40)])
    assert main(["replay", str(log), "--policy", "lru,eam", "--experts", "25%,40 slots", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["decode_tokens"], report["prefill_tokens"], report["answers"]) == (40, 20, 1)
    rows = [(row["policy"], row["experts"], row["slots"]) for row in report["results"]]
    assert rows == [(name, *budget) for name in ("lru", "eam", "belady") for budget in (("25%", 24), ("40 slots", 40))]
    closed = {row["policy"]: row["closed"] for row in report["results"]}
    assert (closed["lru"], closed["belady"]) == (0, 1)
    assert report["live"]["exact"] is False  # made up misses


def test_logs_that_cannot_be_replayed_are_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty.jsonl"
    SessionLog.create_at(empty, "greenroom test").close()
    small = write_log(tmp_path / "small.jsonl", Routing(2, 4, 1), [(2, 2)])
    large = write_log(tmp_path / "large.jsonl", Routing(3, 4, 1), [(2, 2)])
    for logs, words in (
        ([empty], "no forward passes"),
        ([small, large], "two models"),
        ([tmp_path / "none.jsonl"], "none.jsonl"),
    ):
        assert main(["replay", *map(str, logs)]) == 1
        assert words in capsys.readouterr().err
    with pytest.raises(SessionError):
        read_trace([empty])
    for arguments, words in ((["--policy", "mru"], "no policy 'mru'"), (["--experts", "auto"], "no memory to look at")):
        assert main(["replay", str(small), *arguments]) == 1
        assert words in capsys.readouterr().err


def test_what_an_answer_left_behind_is_done_again_before_the_next(tmp_path: Path) -> None:
    """Deeds that cannot be done end what can be known, as damage does."""
    for notes, can_be_done in (
        ([(-1, Deed.DROP, 3, -1), (-1, Deed.BRING, 3, -1), (-1, Deed.LET_GO, 3, -1)], True),
        ([(-1, Deed.DROP, 3, -1), (-1, Deed.TAKE_BACK, 3, 2)], False),
        ([(-1, Deed.TAKE_BACK, 3, -1)], False),
        ([(-1, 9, 3, -1)], False),
    ):
        log = write_log(tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl", Routing(2, 4, 1), [(2, 4)])
        lines = log.read_text(encoding="utf-8").splitlines()
        last = max(number for number, line in enumerate(lines) if line.startswith('{"type":"pass"'))
        lines.insert(last, json.dumps({"type": "settled", "bytes": 0, "ahead": pack_ahead(notes)}))
        log.write_text("\n".join(lines) + "\n", encoding="utf-8")
        assert replay_live(read_trace([log])).unknown == (0 if can_be_done else 1), notes


def test_a_line_that_cannot_be_read_may_have_been_a_pass(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.jsonl", Routing(2, 4, 1), [(2, 4)])
    lines = log.read_text(encoding="utf-8").splitlines()
    passes = [number for number, line in enumerate(lines) if line.startswith('{"type":"pass"')]
    lines[passes[2]] = lines[passes[2]][:40]
    log.write_text("\n".join(lines) + "\n", encoding="utf-8")
    live = replay_live(read_trace([log]))
    assert (live.passes, live.unknown) == (4, 2)


def test_a_damaged_pass_ends_what_can_be_known(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.jsonl", Routing(2, 4, 1), [(2, 4)])
    lines = log.read_text(encoding="utf-8").splitlines()
    lines[5] = lines[5].replace('"routed":"', '"routed":"AAAA')
    log.write_text("\n".join(lines) + "\n", encoding="utf-8")
    live = replay_live(read_trace([log]))
    assert live.unknown == live.passes - 2
    assert not live.exact


@pytest.mark.parametrize(
    ("was", "damaged"),
    [
        ('"layers":2', '"layers":1000000000'),
        ('"layers":2', '"layers":1e999'),
        ('"experts":4', '"experts":0'),
        ('"top_k":1', '"top_k":0'),
        ('"slots":4', '"slots":1000000000000'),
        ('"arenas":[]', '"arenas":[{"slots":1000000000000,"layers":[0,1]}]'),
        ('"arenas":[]', '"arenas":5'),
    ],
)
def test_a_model_record_with_wild_numbers_is_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], was: str, damaged: str
) -> None:
    log = write_log(tmp_path / "log.jsonl", Routing(2, 4, 1), [(2, 4)])
    text = log.read_text(encoding="utf-8")
    assert was in text
    log.write_text(text.replace(was, damaged), encoding="utf-8")
    assert main(["replay", str(log)]) == 1
    assert "does not say which model answered" in capsys.readouterr().err


def test_shares_that_are_none_are_not_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write_log(tmp_path / "log.jsonl", Routing(2, 4, 1), [(2, 4)])
    wild = f"[{10**400},NaN,1e999,-3]"
    with log.open("a", encoding="utf-8") as file:
        file.write(f'{{"type":"message","id":"a","role":"assistant","text":"","predictor":"gate","accuracy":{wild}}}\n')
    assert main(["replay", str(log), "--json"]) == 0
    report = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert {row["source"] for row in report["predictors"] if row["predictor"] == "gate"} == {"not in the log"}


def test_names_and_budgets_in_words(trace: Trace) -> None:
    assert parse_policies("all") == list(POLICIES)
    assert parse_policies("eam, lru,eam") == ["eam", "lru"]
    assert [budget.slots for budget in parse_budgets("12.5%,7 slots,10KB", trace.model)] == [12, 7, 10]
    for wrong in ("", " , "):
        with pytest.raises(OptionError):
            parse_policies(wrong)
        with pytest.raises(OptionError):
            parse_budgets(wrong, trace.model)
    assert make_policy("lru", 1, 1).name == "lru"
