"""The benchmark as a whole, on a tiny model: what the report holds, and that every option moves something in it."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from engine.bench import figures, machine, ours, run, stock
from engine.bench.figures import RATIOS
from engine.bench.report import report_lines
from engine.bench.run import BenchOptions, bench
from engine.bench.synthetic import SHAPES
from engine.cli import main
from engine.errors import OptionError
from engine.experience import Experience
from engine.loading import LoadedModel, load
from engine.messages import LoadModel
from engine.paths import models_dir
from tests.engine.test_bench_synthetic import tiny_shape
from tests.families import make_tiny
from tests.machine import free_ram

ALONE: dict[str, Any] = {"predictor": "none", "prefetch": "off"}
QUICK = {"tokens": 6, "repeats": 2, "warm_up": 2, "peers": ()}


@pytest.fixture(autouse=True)
def small_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "COPY_BYTES", 1_000_000)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny("olmoe", tmp_path_factory.mktemp("bench") / "chat", tokenizer=True)


@pytest.fixture(scope="module")
def report(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A whole run with the usual peers, in float32; nobody is fetched ahead, so that counts are the same every time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "COPY_BYTES", 1_000_000)
        patch.setenv("GREENROOM_DATA", str(tmp_path_factory.mktemp("data")))
        command = LoadModel(str(model), dtype="float32", threads=1, **ALONE)
        found = bench(BenchOptions(command, tokens=6, repeats=2, warm_up=2))
        assert list(models_dir().iterdir()) == [], "accelerate's copy of the experts is gone"
    return found


def _paths(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {path["path"]: path for path in report["paths"]}


def _quick(model: Path, load: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    return bench(BenchOptions(LoadModel(str(model), threads=1, **(load or {})), **(QUICK | options)))


def test_every_path_decodes_the_same_tokens(report: dict[str, Any]) -> None:
    answers = {key: path["answers"] for key, path in _paths(report).items()}
    assert set(answers) >= {
        "ours 100%", "ours 75%", "ours 50%", "ours 25%", "ours 25%, rest on disk only",
        "transformers eager", "transformers grouped_mm", "transformers batched_mm",
        "accelerate 25%", "accelerate 25%, rest on disk only",
    }  # fmt: skip
    reference = answers["transformers eager"]
    assert [len(answer) for answer in reference] == [6, 6]
    assert {key for key, answer in answers.items() if answer != reference} == set()


def _over(paths: dict[str, Any], ours: str, other: str) -> float:
    """The median of the rounds' own ratios."""
    rounds = [paths[key]["tokens_per_second"]["rounds"] for key in (ours, other)]
    return median(a / b for a, b in zip(*rounds, strict=True))


def test_every_ratio_is_the_median_of_the_rounds_own(report: dict[str, Any]) -> None:
    paths, ratios = _paths(report), report["ratios"]
    assert set(ratios) == set(RATIOS) - {"quarter_vs_llama"}
    assert all(ratio is not None and ratio > 0 for ratio in ratios.values())
    rate = {key: path["tokens_per_second"] for key, path in paths.items()}
    for one in rate.values():
        assert len(one["rounds"]) == 2
        assert one["min"] <= one["median"] <= one["max"]
    medians = {key: one["median"] for key, one in rate.items()}
    best = max((key for key in medians if key.startswith("transformers")), key=lambda key: medians[key])
    assert ratios["resident_vs_best_stock"] == _over(paths, "ours 100%", best)
    assert ratios["half_vs_resident"] == _over(paths, "ours 50%", "ours 100%")
    assert ratios["quarter_vs_resident"] == _over(paths, "ours 25%", "ours 100%")
    held = "{} 25%, rest on disk only"
    assert ratios["quarter_vs_accelerate"] == _over(paths, held.format("ours"), held.format("accelerate"))


def test_costs_are_those_of_decode_per_token(report: dict[str, Any]) -> None:
    paths = _paths(report)
    whole, quarter = paths["ours 100%"], paths["ours 25%"]
    assert (whole["hit_rate"], whole["bytes_per_token"], whole["stall_per_token"]) == (1.0, 0.0, 0.0)
    uses = report["model"]["layers"] * report["model"]["top_k"]  # per token
    missed = (1 - quarter["hit_rate"]) * uses
    assert quarter["bytes_per_token"] == pytest.approx(missed * report["model"]["expert_bytes"])
    assert quarter["hit_rate"] < 1
    assert quarter["stall_per_token"] > 0
    assert set(quarter["prefetch"]) == {"used", "late", "wasted", "bytes", "wasted_bytes", "wasted_share"}
    assert paths["transformers eager"]["hit_rate"] is None
    memory = {key: path["memory_bytes"] for key, path in paths.items()}
    assert memory["ours 25%"] < memory["ours 100%"] == memory["transformers eager"]


def test_what_waits_on_disk_is_cached_for_one_kind_of_path_and_never_for_the_other(report: dict[str, Any]) -> None:
    share = {key: path["cached_share"] for key, path in _paths(report).items()}
    if share["ours 25%"] is None or share["ours 25%, rest on disk only"] == 1.0:
        pytest.skip("this system does not tell, or the temporary folder lives in memory")
    assert share["ours 25%"] == share["accelerate 25%"] == 1.0
    assert share["ours 25%, rest on disk only"] == share["accelerate 25%, rest on disk only"] == 0.0


def test_the_page_names_every_path_and_explains_every_ratio(report: dict[str, Any]) -> None:
    text = "\n".join(report_lines(report))
    for path in report["paths"]:
        assert path["path"] in text
    for name in report["ratios"]:
        assert f"{name}: {RATIOS[name]}" in text
    assert "1 thread for everybody" in text
    assert "past the file cache" in text or "through the file cache" in text
    assert "median of 2 rounds" in text


def test_rounds_ask_different_things_and_a_prompt_of_the_users_is_asked_each_time(model: Path) -> None:
    several = _quick(model, experts=("100%",))
    first, second = _paths(several)["ours 100%"]["answers"]
    assert first != second
    own = _quick(model, experts=("100%",), prompt="Hello")
    assert len(set(own["settings"]["prompt_tokens"])) == 1
    assert any("by heart" in note for note in own["notes"])


def test_the_policy_decides_hits(model: Path) -> None:
    rates = {
        policy: _paths(_quick(model, ALONE | {"policy": policy}, experts=("5 slots",)))["ours 5 slots"]["hit_rate"]
        for policy in ("lru", "lfu")
    }
    assert rates["lru"] != rates["lfu"]


def test_the_predictor_and_prefetch_decide_what_is_fetched_ahead(model: Path) -> None:
    def ahead(**load: Any) -> dict[str, Any]:
        return _paths(_quick(model, load, experts=("50%",)))["ours 50%"]["prefetch"]

    fetched = ahead(predictor="previous-token", prefetch="on")
    assert fetched["used"] + fetched["late"] + fetched["wasted"] > 0
    assert fetched["bytes"] >= fetched["wasted_bytes"]
    for nobody in ({"predictor": "previous-token", "prefetch": "off"}, {"predictor": "none", "prefetch": "on"}):
        assert ahead(**nobody)["bytes"] == 0


def test_what_decides_how_ours_runs_reaches_the_load(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[LoadModel] = []

    def noted(command: LoadModel, *rest: Any) -> LoadedModel:
        loads.append(command)
        return load(command, *rest)

    monkeypatch.setattr(ours, "load", noted)
    wanted = {"policy": "lfu", "predictor": "popularity", "prefetch": "on", "reads": "buffered", "dtype": "bfloat16"}
    found = _quick(model, wanted, experts=("100%", "25%"))
    assert [command.experts for command in loads] == ["100%", "25%"]
    assert loads[0].threads == 1
    for name, value in wanted.items():
        assert {getattr(command, name) for command in loads} == {value}
        assert found["settings"][name] == value
    assert _paths(found)["ours 100%"]["hit_rate"] == 1.0, "all are in memory before the first token, warm-up or not"
    assert found["model"]["expert_bytes"] == _quick(model, {"dtype": "float32"})["model"]["expert_bytes"] / 2


def test_what_learns_is_taught_once_and_the_others_begin_with_what_it_knows(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[dict[str, Any] | None] = []
    real = ours.Experience

    def noted(loaded: LoadedModel, command: LoadModel, *, tables: dict[str, Any] | None, **rest: Any) -> Experience:
        begun.append(tables)
        assert rest.get("writer") is None, "the user's profile is neither used nor changed"
        return real(loaded, command, tables=tables, **rest)

    monkeypatch.setattr(ours, "Experience", noted)
    said: list[str] = []
    command = LoadModel(str(model), threads=1, predictor="gate-fitted")
    bench(BenchOptions(command, ("100%", "50%", "25%"), 4, 1, warm_up=200, peers=()), said.append)
    assert begun[:2] == [None, None], "who has everybody in memory hardly listens"
    assert begun[2]
    assert said.count("ours 100%: warming up") == 1
    assert said.count("ours 50%: warming up") == 2
    assert said.count("ours 25%: warming up") == 1


def test_cold_reads_from_disk_only_and_says_what_the_link_allows(model: Path) -> None:
    found = _quick(model, cold=True, experts=("100%", "25%"), repeats=1)
    paths = _paths(found)
    assert set(paths) == {"ours 100%", "ours 25%, rest on disk only", "ours 25%, nobody fetched ahead"}
    link = found["link"]
    assert link["compute_from"] == "all experts in memory"
    assert found["ratios"]["quarter_vs_resident"] == _over(paths, "ours 25%, rest on disk only", "ours 100%")
    plain = next(row for row in link["rows"] if "nobody" in row["path"])
    assert plain["bound"] == "sum"
    assert plain["fetch_seconds"] == plain["bytes_per_token"] / plain["rate_bytes_per_second"]
    rates = sorted(row["rate_bytes_per_second"] for row in link["rows"])
    assert rates[0] <= link["rate_bytes_per_second"] <= rates[-1]
    assert all(0 < row["link_busy_share"] <= 1 for row in link["rows"])
    assert plain["sum_seconds"] == pytest.approx(plain["fetch_seconds"] + plain["compute_seconds"])
    assert plain["measured_vs_bound"] == plain["measured_seconds"] / plain["sum_seconds"]
    ahead = next(row for row in link["rows"] if "nobody" not in row["path"])
    assert ahead["measured_vs_bound"] == ahead["measured_seconds"] / ahead["max_seconds"]
    text = "\n".join(report_lines(found))
    assert "x of bytes / rate + compute" in text
    assert "x of max(compute, bytes / rate)" in text
    assert _quick(model, experts=("25%",))["link"] is None
    (alone,) = _quick(model, ALONE, cold=True, experts=("25%",))["link"]["rows"]
    assert (alone["path"], alone["bound"]) == ("ours 25%, rest on disk only", "sum")


def test_where_not_everything_fits_contenders_take_turns_in_memory(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = _quick(model, experts=("100%", "50%"))
    needs = [path["memory_bytes"] for path in together["paths"]]
    free_ram(monkeypatch, int(max(needs) / run.MEMORY_SHARE) + 10)
    in_turn = _quick(model, experts=("100%", "50%"))
    assert together["settings"]["together"] and not in_turn["settings"]["together"]
    assert any("loaded anew for every round" in note for note in in_turn["notes"])
    assert [path["answers"] for path in in_turn["paths"]] == [path["answers"] for path in together["paths"]]

    free_ram(monkeypatch, int(min(needs) / run.MEMORY_SHARE) + 10)
    half = _quick(model, experts=("100%", "50%"))
    assert list(_paths(half)) == ["ours 50%"]
    assert half["ratios"]["half_vs_resident"] is None
    assert any("ours 100% was left out: it needs" in note for note in half["notes"])
    assert any("half_vs_resident is unknown: ours 100% was not measured" in note for note in half["notes"])


def test_without_accelerate_it_says_what_to_install(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stock.importlib.util, "find_spec", lambda name: None)
    found = _quick(model, peers=("accelerate",), experts=("25%",), repeats=1)
    assert any("accelerate 25% was left out: accelerate is not installed" in note for note in found["notes"])
    assert found["ratios"]["quarter_vs_accelerate"] is None


def test_a_busy_machine_is_named(report: dict[str, Any]) -> None:
    path = _paths(report)["ours 100%"]
    assert figures.find_disturbance([path | {"cpu_share": 0.99}]) == []
    assert "got 30% of a processor" in figures.find_disturbance([path | {"cpu_share": 0.3}])[0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tokens": 0}, "tokens and repeats are 1 or more"),
        ({"experts": ("auto",)}, 'not "auto"'),
        ({"experts": ("a lot",)}, "no amount of memory"),
        ({"tokens": 5000}, "measure at most"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_what_could(model: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        _quick(model, **options)


# ---------------------------------------------------------------------------------------------- the terminal


def test_the_verb_measures_a_model(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", str(model), "--experts", "100%,50%", "--tokens", "4", "--repeats", "1", "--warm-up", "0"]
    command += ["--peer", "transformers", "--threads", "1", "--prompt", "Hi"]
    assert main([*command, "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["settings"]["tokens"], found["settings"]["repeats"], found["settings"]["threads"]) == (4, 1, 1)
    assert "round 1 of 1: ours 50%" in err
    assert "warming up" not in err
    assert found["ratios"]["resident_vs_best_stock"] > 0
    assert main([*command, "--warm-up", "1"]) == 0
    out, err = capsys.readouterr()
    assert "resident_vs_best_stock: ours with all experts in memory" in out
    assert "ours 50%: warming up" in err


def test_the_verb_writes_a_synthetic_model_once_and_deletes_it_when_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SHAPES, "olmoe", tiny_shape("olmoe"))
    command = ["bench", "--synthetic", "olmoe", "--layers", "2", "--tokens", "4", "--repeats", "1", "--warm-up", "0"]
    command += ["--peer", "none", "--experts", "25%"]
    assert main(command) == 0
    out, err = capsys.readouterr()
    assert "OLMoE-1B-7B shape, 2 of 3 layers, random weights" in out
    assert "2 layers x 8 experts" in out
    assert "random tokens" in out
    assert "stays for the next time" in out
    assert "writing" in err
    (folder,) = models_dir().iterdir()
    assert main([*command, "--delete", "--json"]) == 0
    out, err = capsys.readouterr()
    assert "writing" not in err
    assert "The synthetic model was deleted." in json.loads(out)["notes"]
    assert not folder.exists()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 1, "one of the two"),
        (["demo", "--synthetic", "olmoe"], 1, "one of the two"),
        (["demo", "--layers", "2"], 1, "--synthetic"),
        (["--synthetic", "gpt"], 1, "choose olmoe"),
        (["nowhere"], 1, "no folder nowhere"),
        (["demo", "--policy", "fifo"], 2, "invalid choice"),
        (["demo", "--peer", "vllm"], 2, "invalid choice"),
    ],
)
def test_errors_are_sentences(arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    if code == 2:
        with pytest.raises(SystemExit) as end:
            main(["bench", *arguments])
        assert end.value.code == 2
    else:
        assert main(["bench", *arguments]) == code
    assert said in capsys.readouterr().err
