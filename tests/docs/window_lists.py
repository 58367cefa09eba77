"""Prints what a window offers, as JSON: ``python -m tests.docs.window_lists LOG``, run in a copy that was changed.

The window is real; its engine answers What if by the real replay, and only notes everything else.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PySide6.QtWidgets import QApplication, QComboBox

from app.engine_client import EngineClient
from app.main_window import MainWindow
from app.selftest_tools import until
from app.settings import Settings
from app.theme import Theme
from engine.messages import Command, Event, ListModels, LoadModel, ModelList, ModelSummary, PlanMemory, WhatIf
from engine.whatif import what_if
from tests.app.conftest import ObedientEngine
from tests.app.dialogs.stage import planned

MODEL = ModelSummary("demo", "Demo", layers=30, experts=32, top_k=16, dtype="float32", total_bytes=10**9)


class Engine(ObedientEngine):
    def send(self, command: Command) -> None:
        answers: dict[type[Command], Callable[[Any], Event]] = {
            ListModels: lambda asked: ModelList((MODEL,)),
            PlanMemory: planned,
            WhatIf: what_if,
        }
        answer = answers.get(type(command))
        if answer is None:
            super().send(command)
        else:
            self.emit(answer(command))


def names(box: QComboBox) -> list[str]:
    return [box.itemText(place) for place in range(box.count())]


def look(log: Path, policy: str, folder: Path) -> dict[str, Any]:
    made: list[Engine] = []
    client = EngineClient(lambda emit: made.append(Engine(emit)) or made[0])  # type: ignore[func-returns-value]
    window = MainWindow(client, Theme("dark"), Settings(folder / "settings.json"), folder / "conversations", "test")
    window.show()
    window.start("demo")
    until(lambda: window.state.model is not None, 30, "the model")

    window.surfaces.open_picker()
    picker = window.surfaces.picker
    assert picker is not None
    until(lambda: picker.chosen() is not None, 30, "the list of models")
    picker.details.advanced.fold.click()
    choice = picker.details.advanced.policy
    found: dict[str, Any] = {
        "picker": {"policies": names(choice.box), "predictors": names(picker.details.advanced.predictor.box)}
    }
    choice.box.setCurrentText(policy)
    found["picker"]["sentence"] = choice.sentence.text()
    picker.load_button.click()
    found["loaded"] = [command.policy for command in made[0].sent if isinstance(command, LoadModel)][-1]
    picker.close()

    window.surfaces.open_preferences()
    preferences = window.surfaces.preferences
    assert preferences is not None
    found["preferences"] = {"policies": names(preferences.policy), "predictors": names(preferences.predictor)}
    preferences.close()

    window.surfaces.open_what_if()
    dialog = window.surfaces.what_if
    assert dialog is not None
    dialog.with_predictors.setChecked(True)
    dialog.choose_logs([log])
    until(lambda: dialog.result_shown is not None, 60, "the replay")
    assert not dialog.chart.grab().isNull()  # every line can be drawn
    found["what if"] = {
        "policies": [line.policy for line in dialog.chart.lines],
        "predictors": [row[0] for row in dialog.predictors.rows],
    }
    dialog.close()
    window.close()
    return found


if __name__ == "__main__":
    app = QApplication([])
    with tempfile.TemporaryDirectory() as place:
        print(json.dumps(look(Path(sys.argv[1]), sys.argv[2], Path(place))))
