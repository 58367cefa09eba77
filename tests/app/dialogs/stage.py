"""A picker on the screen whose engine only notes what it is asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from app.dialogs.budget import slots_of
from app.dialogs.model_picker import ModelPicker
from app.engine_client import EngineClient
from app.settings import Settings
from app.theme import Theme
from engine.messages import (
    Command,
    Event,
    LoadModel,
    MemoryBar,
    MemoryPart,
    MemoryPlanned,
    ModelList,
    ModelSummary,
    PlanMemory,
)

GB = 10**9
LONG = "/home/ä/模型/🎭 my models" + "/deeper" * 30 + "/mixtral"


def planned(question: PlanMemory, **changes: object) -> MemoryPlanned:
    """What an engine with room for everything says about the model of ``summary``: 960 experts of 1 MB each."""
    slots = slots_of(question.experts, 960, 10**6) or 960
    tokens = question.context or 8192
    parts = (MemoryPart("dense", GB // 5), MemoryPart("experts", slots * 10**6), MemoryPart("kv", tokens * 10**4))
    bars = (MemoryBar("RAM", 16 * GB, (*parts, MemoryPart("workspace", GB // 5), MemoryPart("other", 4 * GB))),)
    disk = MemoryBar("disk", 520_000_000, (MemoryPart("experts", 520_000_000 * (960 - slots) // 960),))
    plan = MemoryPlanned(
        question,
        "fits with disk" if slots < 960 else "fits",
        (*bars, disk),
        dtype="float32",
        slots=slots,
        slots_at_full_context=slots,
        total_experts=960,
        slot_bytes=10**6,
        dense_bytes=GB // 5,
        context=tokens,
        longest_context=32768,
        kv_bytes=tokens * 10**4,
        workspace_bytes=GB // 5,
        on_disk=960 - slots,
    )
    return replace(plan, **changes)  # type: ignore[arg-type]


class Library:
    """An engine thread that only notes what it is asked."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self.sent: list[Command] = []

    def start(self) -> None:
        pass

    def send(self, command: Command) -> None:
        self.sent.append(command)

    def stop(self) -> None:
        pass

    def join(self, timeout: float | None = None) -> None:
        pass


class Stage:
    """A picker on the screen, its client, and what the client was asked."""

    def __init__(self, qtbot: QtBot, theme: Theme, settings: Settings | None = None) -> None:
        made: list[Library] = []

        def make(emit: Callable[[Event], None]) -> Library:
            made.append(Library(emit))
            return made[0]

        self.client = EngineClient(make)
        self.sent = made[0].sent
        self.settings = settings or Settings(None)
        self.picker = ModelPicker(self.client, theme, self.settings)
        self.loads: list[LoadModel] = []
        self.picker.load_requested.connect(self.loads.append)
        qtbot.addWidget(self.picker)
        with qtbot.waitExposed(self.picker):
            self.picker.show()

    def answer(self, *models: ModelSummary) -> None:
        self.client.model_list.emit(ModelList(models))

    def plan(self, question: PlanMemory | None = None, **changes: object) -> MemoryPlanned:
        """Answer a question about memory; where none is named, the last one about the chosen model."""
        question = question or [asked for asked in self.questions() if asked.source == self.chosen()][-1]
        plan = planned(question, **changes)
        self.client.memory_planned.emit(plan)
        return plan

    def questions(self) -> list[PlanMemory]:
        return [command for command in self.sent if isinstance(command, PlanMemory)]

    def names(self) -> list[str]:
        rows = self.picker.filtered
        return [rows.index(row, 0).data() for row in range(rows.rowCount())]

    def chosen(self) -> str:
        model = self.picker.chosen()
        return model.source if model else ""

    def words(self) -> list[str]:
        labels = self.picker.findChildren(QLabel)
        return [label.text() for label in labels if label.isVisible() and label.text()]
