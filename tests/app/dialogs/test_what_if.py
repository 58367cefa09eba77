"""Session > What if: the engine's figures in words and as lines, in the real window with a tiny model."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QDialogButtonBox

from app.dialogs.what_if import WhatIfDialog
from app.dialogs.what_if_chart import WhatIfChart, style_of
from app.dialogs.what_if_figures import additions, arrival_rate, budgets, logs_of, sentences, setting_in
from app.main_window import MainWindow
from app.messages import SmallDialog
from app.theme import Theme
from engine.messages import (
    POLICIES,
    CacheCounters,
    CacheSnapshot,
    StopWhatIf,
    WhatIf,
    WhatIfProgress,
    WhatIfResult,
)
from engine.sessions.log import SessionLog
from engine.whatif import what_if
from tests.app.conftest import Bench
from tests.engine.routing import Routing, write_log

GB = 10**9


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_log(tmp_path / "log.jsonl", Routing(6, 16, 4), [(20, 60)], policy="lru", slots=40)


def replayed(log: Path, predictors: tuple[str, ...] = ()) -> WhatIfResult:
    present = setting_in(log)
    assert present is not None
    return what_if(WhatIf("w", (str(log),), tuple(POLICIES), budgets(present), predictors))


# ------------------------------------------------------------------------------------------- the arithmetic


def test_the_log_says_how_it_ran_and_which_sizes_are_worth_a_try(log: Path) -> None:
    present = setting_in(log)
    assert present is not None
    assert (present.total, present.slots, present.policy, present.slot_bytes) == (96, 40, "lru", 1000)
    big = dataclasses.replace(present, slot_bytes=GB // 4)
    assert additions(big) == {GB: 44, 2 * GB: 48, 4 * GB: 56}
    assert list(additions(present)) == [7000, 14000, 28000]  # a gigabyte is more than all of it: parts of what lacks
    sizes = [int(size.split()[0]) for size in budgets(big)]
    assert sizes == sorted(set(sizes))
    assert {40, 44, 48, 56, 96} <= set(sizes)
    assert additions(dataclasses.replace(present, slots=96)) == {}


def test_it_says_what_more_memory_buys_and_whether_a_policy_does_better(log: Path) -> None:
    result, present = replayed(log), setting_in(log)
    assert present is not None
    more, other = sentences(result, present, rate=1e6)
    lru = next(line for line in result.lines if line.policy == "lru")
    now, then = (next(p for p in lru.points if p.slots == slots) for slots in (40, 47))
    assert (
        more.splitlines()[0] == f"Now: {now.hit_rate:.0%} hits, {now.bytes_per_token / 1e3:.0f} kB to fetch per token."
    )
    saved = now.bytes_per_token - then.bytes_per_token
    told = f"7 kB more: {then.hit_rate:.0%} hits, {saved / 1e3:.0f} kB less per token: {saved / 1e3:.1f} ms sooner."
    assert more.splitlines()[1] == told
    best = max((line for line in result.lines if line.policy != "belady"), key=lambda line: at(line, 40))
    bound = next(line for line in result.lines if line.policy == "belady")
    assert best.policy in other
    assert f"{at(best, 40):.0%}" in other
    assert f"{at(bound, 40):.0%}" in other
    assert "sooner" not in sentences(result, present, rate=None)[0]  # nothing was measured, so nothing is promised
    full = dataclasses.replace(present, slots=96)
    assert "buy nothing" in sentences(result, full, None)[0]
    best_now = dataclasses.replace(present, policy=best.policy)
    assert f"No other policy beats {best.policy}" in sentences(result, best_now, None)[1]


def at(line, slots: int) -> float:
    return next(point.hit_rate for point in line.points if point.slots == slots)


def test_the_rate_is_of_what_was_waited_for() -> None:
    def snapshot(**counted: float) -> CacheSnapshot:
        return CacheSnapshot(CacheCounters(**counted), None, None, None, None, 1, 1)  # type: ignore[arg-type]

    assert arrival_rate(None) is None
    assert arrival_rate(snapshot()) is None
    assert arrival_rate(snapshot(fetched_bytes=500, prefetch_bytes=100, stall_seconds=2.0)) == 200


def test_all_chats_of_a_model_are_found_and_odd_files_passed_over(log: Path, tmp_path: Path) -> None:
    SessionLog.create_at(tmp_path / "silent.jsonl", "greenroom test").close()
    (tmp_path / "torn.jsonl").write_text("no log at all")
    assert logs_of(tmp_path, "made-up", lambda: False) == [log]
    assert logs_of(tmp_path, "another", lambda: False) == []
    assert logs_of(tmp_path, "made-up", lambda: True) == []


def test_a_chat_with_two_models_keeps_no_other_from_being_replayed(log: Path, tmp_path: Path) -> None:
    mixed = write_log(tmp_path / "mixed.jsonl", Routing(6, 16, 4), [(20, 60)], policy="lru", slots=40)
    lines = mixed.read_text("utf-8").splitlines()
    model = next(line for line in lines if line.startswith('{"type":"model"'))
    lines.insert(lines.index(model), model.replace("made-up", "another"))
    mixed.write_text("\n".join(lines) + "\n", "utf-8")
    assert setting_in(mixed) == setting_in(log)
    logs = logs_of(tmp_path, "made-up", lambda: False)
    assert logs == [log]
    assert what_if(WhatIf("w", tuple(map(str, logs)), (), ("40 slots",))).answers == 1


# ------------------------------------------------------------------------------------------------ the chart


@pytest.fixture
def chart(theme: Theme, log: Path, qtbot) -> WhatIfChart:
    present = setting_in(log)
    assert present is not None
    chart = WhatIfChart(theme)
    qtbot.addWidget(chart)
    chart.resize(700, 420)
    chart.show_lines(replayed(log).lines, present)
    chart.show()
    return chart


def test_every_policy_has_its_own_dash_and_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "added", "One more.")
    monkeypatch.setitem(POLICIES, "another", "And one more.")
    styles = [style_of(name) for name in (*POLICIES, "belady")]
    assert len({(dash, mark) for _, dash, mark in styles}) == len(styles)
    assert len({color for color, _, _ in styles}) == len(styles)


def test_the_pointer_reads_figures_and_the_keys_do_too(chart: WhatIfChart, qtbot) -> None:
    assert chart.readout() == []
    line = chart.lines[0]
    place = chart.point(line.policy, 4)
    assert place is not None
    QTest.mouseMove(chart, place.toPoint() + QPoint(2, 30))
    qtbot.waitUntil(lambda: bool(chart.readout()))
    read = {policy: rate for policy, rate, _ in chart.readout()}
    assert read == {line.policy: f"{100 * line.points[4].hit_rate:.1f}%" for line in chart.lines}
    assert next(iter(read)) == "belady"  # the most hits first
    QTest.keyClick(chart, Qt.Key.Key_Right)
    assert {rate for _, rate, _ in chart.readout()} == {f"{100 * one.points[5].hit_rate:.1f}%" for one in chart.lines}
    assert "lru" in chart.accessibleDescription()


def test_a_click_picks_the_nearest_line_but_never_the_bound(chart: WhatIfChart) -> None:
    picked: list[tuple[str, int]] = []
    chart.picked.connect(lambda policy, place: picked.append((policy, place)))
    for line in chart.lines[:2]:
        QTest.mouseClick(chart, Qt.MouseButton.LeftButton, pos=chart.point(line.policy, 2).toPoint())
    QTest.mouseClick(chart, Qt.MouseButton.LeftButton, pos=chart.point("belady", 2).toPoint())
    assert picked[:2] == [(line.policy, 2) for line in chart.lines[:2]]
    assert picked[2][0] in POLICIES


# ------------------------------------------------------------------------------------------------ the dialog


def opened(window: MainWindow) -> WhatIfDialog:
    window.surfaces.open_what_if()
    assert window.surfaces.what_if is not None
    return window.surfaces.what_if


def test_without_an_answer_it_says_what_to_do(bench: Bench, qtbot) -> None:
    dialog = opened(bench.start())
    qtbot.waitUntil(lambda: "Ask the model something" in dialog.message.text())
    assert dialog.message.isVisible()
    assert not dialog.use_button.isVisible()
    assert not [command for command in bench.engine.sent if isinstance(command, WhatIf)]


def test_closing_it_ends_the_replay_and_lines_appear_as_they_are_done(bench: Bench, log: Path, qtbot) -> None:
    dialog = opened(bench.start())
    dialog.choose_logs([log])
    qtbot.waitUntil(lambda: isinstance(bench.engine.sent[-1], WhatIf))
    asked = bench.engine.sent[-1]
    assert isinstance(asked, WhatIf)
    lines = replayed(log).lines
    bench.engine.emit(WhatIfProgress(asked.request_id, 0.4, "replaying eam", lines[:2]))
    qtbot.waitUntil(lambda: dialog.chart.lines == lines[:2])
    assert (dialog.progress.value(), dialog.detail.text()) == (400, "replaying eam")
    QTest.keyClick(dialog, Qt.Key.Key_Escape)
    assert bench.engine.sent[-1] == StopWhatIf(asked.request_id)
    assert not dialog.isVisible()


def test_this_chat_is_replayed_and_use_this_loads_it(window: MainWindow, qtbot) -> None:
    QTest.keyClicks(window.composer.input, "Hello there")
    QTest.keyClick(window.composer.input, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: not window.chat.busy, timeout=60_000)
    dialog = opened(window)
    dialog.with_predictors.setChecked(True)
    dialog.look()
    qtbot.waitUntil(lambda: dialog.result_shown is not None, timeout=60_000)
    assert [line.policy for line in dialog.chart.lines] == [*POLICIES, "belady"]
    assert {"popularity", "eam", "previous-token"} <= {row[0] for row in dialog.predictors.rows}
    assert all(share.endswith("%") for row in dialog.predictors.rows for share in row[1:2])
    assert "hits" in dialog.words[0].text() or "buy nothing" in dialog.words[0].text()
    assert not dialog.use_button.isEnabled()  # it is what runs now
    slots = dialog.size_choice.itemData(1)
    dialog.chart.picked.emit("lru", 1)
    assert dialog.use_button.isEnabled()
    QTest.mouseClick(dialog.use_button, Qt.MouseButton.LeftButton)
    question = dialog.findChildren(SmallDialog)[-1]
    yes = [
        b
        for b in question.buttons.buttons()
        if question.buttons.buttonRole(b) == QDialogButtonBox.ButtonRole.AcceptRole
    ]
    QTest.mouseClick(yes[0], Qt.MouseButton.LeftButton)
    assert not dialog.isVisible()
    qtbot.waitUntil(lambda: window.state.model is not None and window.state.model.slots == slots, timeout=60_000)
    assert window.state.model is not None
    assert window.state.model.policy == "lru"
