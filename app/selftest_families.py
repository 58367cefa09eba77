"""Models of other families in the same window: each is loaded, asked, and its experts are shown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from app.selftest_tools import check, until
from engine.messages import Cell, ExpertSnapshot, Finished, LoadModel

if TYPE_CHECKING:
    from app.main_window import MainWindow

QUESTION = "What is the capital of France?"


class FamilySteps:
    """Part of the self-test: ``--families FOLDER...``."""

    window: MainWindow
    answers: list[Finished]

    def step_family(self, folder: Path) -> str:
        """Load a quarter of the model's experts, ask it, and look for its experts in the heatmap."""
        window, state = self.window, self.window.state
        window.chat.new_chat()
        window.load(LoadModel(str(folder), experts="25%"))
        until(lambda: state.loading is None and state.wanted_source == str(folder), 600, f"{folder.name} to load")
        model = state.model
        check(model is not None and model.source == str(folder), state.problem or "another model is loaded")
        assert model is not None
        snapshots: list[ExpertSnapshot] = []
        window.client.expert_snapshot.connect(snapshots.append)
        asked = len(self.answers)
        QTest.keyClicks(window.composer.input, QUESTION)
        QTest.keyClick(window.composer.input, Qt.Key.Key_Return)
        check(window.chat.busy, "Enter sent nothing")
        until(lambda: len(self.answers) > asked and not window.chat.busy, 600, "the end of the answer")
        window.client.expert_snapshot.disconnect(snapshots.append)
        answer = self.answers[-1]
        check(answer.reason in ("end", "length"), f"it ended with {answer.reason}: {answer.error}")
        check(bool(snapshots), "no expert was shown")
        layers = int((snapshots[-1].answer.sum(axis=1) > 0).sum())
        check(layers == model.layers, f"of {model.layers} layers only {layers} show that they used experts")
        resident = int((snapshots[-1].cells & Cell.RESIDENT != 0).sum())
        check(resident <= model.slots, f"{resident} experts are shown in {model.slots} slots")
        return f"{model.family}: {model.layers} layers, {answer.timings.answer_tokens} tokens"
