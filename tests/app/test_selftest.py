"""``python -m app --self-test`` with a tiny model: every step holds, and the pictures show something."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PySide6.QtGui import QImage

from app.__main__ import arguments, main
from app.gaps import GapMeter
from engine.version import __version__
from tests.families import PAIRS, make_pair, make_tiny


@pytest.mark.timeout(600)
def test_self_test_holds_and_leaves_pictures_and_a_report(tmp_path: Path, tiny_chat_model: Path) -> None:
    out, data, home = tmp_path / "out", tmp_path / "data", tmp_path / "home"
    home.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "app", "--self-test", str(out), "--model", str(tiny_chat_model)],
        capture_output=True,
        text=True,
        timeout=580,
        env={**os.environ, "GREENROOM_DATA": str(data), "HOME": str(home), "XDG_DATA_HOME": "", "XDG_CACHE_HOME": ""},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((out / "report.json").read_text("utf-8"))
    assert report["ok"] is True
    assert all(step["ok"] for step in report["steps"])
    assert {"starting", "loading", "decoding", "stopping", "quitting"} <= set(report["longest_gap_ms"])
    for kind in ("gap", "work"):
        for phase, longest in report[f"longest_{kind}_ms"].items():
            assert report[f"p99_{kind}_ms"].get(phase, 0) <= longest
    assert report["p99_work_ms"]["decoding"] > 0
    assert report["expert_hook_calls"] > 0
    assert report["expert_hits"] + report["expert_misses"] > 0
    for name in (
        "03-empty",
        "05-answered",
        "06-stopped",
        "07-markdown",
        "08-picker",
        "11-refused",
        "14-what-if",
        "15-preferences",
        "20-about",
        "24-answer-settings",
        "25-preset-name",
    ):
        for mode in ("light", "dark"):
            picture = QImage(str(out / f"{name}-{mode}.png"))
            seen = {picture.pixel(x, y) for x in range(0, picture.width(), 7) for y in range(0, picture.height(), 7)}
            assert len(seen) > 10, f"{name}-{mode}"
    assert (out / "200%" / "07-markdown-dark.png").exists()
    assert list(data.rglob("*")) == [data / "models"]  # where the demo would be; all else of the user is left alone
    assert list(home.rglob("*")) == []


def test_self_test_says_where_it_cannot_write(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QT_QPA_PLATFORM", "offscreen")
    (tmp_path / "taken").write_text("mine")
    assert main(["--self-test", str(tmp_path / "taken")]) == 1
    assert (
        capsys.readouterr().err
        == f"Nothing can be written to {tmp_path / 'taken'}: File exists. Name another folder.\n"
    )


def test_version_needs_no_window(capsys) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"greenroom {__version__}\n"


def test_arguments() -> None:
    options = arguments(["--model", "demo", "--data", "x", "--self-test", "y"])
    assert (options.model, options.data, options.self_test) == ("demo", "x", "y")


def test_gap_meter_counts_by_phase_and_not_while_paused(qapp, qtbot) -> None:
    import time

    meter = GapMeter("one")
    qtbot.waitUntil(lambda: "one" in meter.longest_ms)
    meter.phase = "two"
    assert meter.longest_ms["two"] == 0
    qtbot.waitUntil(lambda: meter.longest_ms["two"] > 0)
    before = meter.longest_ms["two"]
    with meter.paused():
        time.sleep(1)
    assert meter.longest_ms["two"] == before
    qtbot.wait(20)
    assert meter.longest_ms["two"] < 1000
    time.sleep(1)
    qtbot.waitUntil(lambda: meter.longest_ms["two"] >= 1000)
    assert meter.p99_ms["two"] == meter.longest_ms["two"]
    meter.phase = "three"
    meter._last, meter._began_in = meter._clock(), "three"
    for _ in range(200):
        meter._tick()
    assert meter.p99_ms["three"] < 1000
    meter.stop()


FAMILIES = (
    "arctic",
    "dbrx",
    "doge",
    "jetmoe",
    "llama4_text",
    "longcat_flash",
    "step3p7",
    "qwen3_vl_moe",
    "gpt_oss",
    "jamba",
)


@pytest.mark.timeout(300)
def test_models_of_other_families_answer_in_the_window(tmp_path: Path) -> None:
    folders = [make_tiny(family, tmp_path / family, tokenizer=True) for family in FAMILIES]
    folders += [make_pair(family, tmp_path / family) for family in PAIRS]
    done = subprocess.run(
        [sys.executable, "-m", "app", "--self-test", str(tmp_path / "out"), "--families", *map(str, folders)],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "GREENROOM_DATA": str(tmp_path / "data")},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))
    asked = [step["name"] for step in report["steps"] if step["ok"] and step["name"].startswith("family ")]
    assert asked == [f"family {folder.name}" for folder in folders]
