"""Which model is there, or on its way: asks the engine for it and remembers the choice for the next start.

Before a load begins its source is written into the settings, and taken out when the load failed, when the model has
answered, or when the program is closed. A start that still finds it there knows that this model took the program down,
while it was loaded or at its first answer, and does not try it again by itself.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, Signal, Slot

from app.engine_client import EngineClient
from app.remembered import chosen_for, preferred, remember, remembered
from app.settings import Settings
from engine.messages import EngineReady, Failed, LoadModel, ModelLoaded, Progress

log = logging.getLogger("greenroom.model")

DEMO = "demo"


@dataclass(frozen=True, slots=True)
class Loading:
    """What the window knows of a load. ``fraction`` None: under way, nobody knows how far."""

    task: str
    detail: str = ""
    fraction: float | None = None


def demo_at_work(settings: Settings) -> LoadModel:
    """The demo with half of its experts, for it would fit whole: so one sees them come and go."""
    return replace(preferred(settings, DEMO), experts="50%")


class ModelState(QObject):
    """``starting`` -> ``loading`` -> ``model`` or ``problem``; ``changed`` after every step."""

    changed = Signal()
    load_began = Signal()  # the present model, if any, is about to go
    loaded = Signal(object)  # ModelLoaded
    refused = Signal(str)  # why there is no model

    def __init__(self, client: EngineClient, settings: Settings, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._client = client
        self._settings = settings
        self._wanted: LoadModel | None = None
        self.engine: EngineReady | None = None
        self.model: ModelLoaded | None = None
        self.loading: Loading | None = None
        self.problem = ""  # why there is no model, in a sentence
        self.stopping = False
        self.broken = False  # the engine could not start
        client.ready.connect(self._ready)
        client.progress.connect(self._progress)
        client.model_loaded.connect(self._loaded)
        client.model_unloaded.connect(self._unloaded)
        client.finished.connect(self._answered)
        client.failed.connect(self._failed)

    @property
    def wanted(self) -> LoadModel | None:
        """The latest load that was asked for."""
        return self._wanted

    @property
    def wanted_source(self) -> str:
        return self._wanted.source if self._wanted is not None else ""

    @property
    def hint(self) -> str:
        """What to write for this model, or that there is none; for a box that is still empty."""
        if self.model is None:
            waits = self.tr("Type already; you can send once the model is ready")
            return self.tr("Choose a model first") if self.problem else waits
        if self.model.languages:
            return self.tr("A text to translate")
        return self.tr("A text to complete") if self.model.one_text else self.tr("Ask anything")

    def first_model(self, asked_for: str | None) -> LoadModel | None:
        """What to load at the start: what was asked for, else the last model, else the demo; None after a crash."""
        settings = self._settings
        crashed, settings.loading_source = settings.loading_source, ""
        if settings.startup == "none" and not asked_for:
            self.problem = self.tr(
                "Choose a model, or load the demo. The preferences say that none is loaded at the start."
            )
            return None
        chosen = settings.startup_source if settings.startup == "chosen" else ""
        source = asked_for or chosen or settings.last_source or DEMO
        if crashed and crashed == source and not asked_for:
            self.problem = self.tr(
                "“%1” ended the program the last time, before it had answered, so it was not loaded again. "
                "Choose it once more with less memory for experts, or choose another model."
            ).replace("%1", source)
            return None
        if source == settings.last_source or source in settings.model_loads:
            return remembered(settings, source)
        return demo_at_work(settings) if source == DEMO else preferred(settings, source)

    def with_preferences(self, command: LoadModel) -> LoadModel:
        """What the command leaves as it is by default, and nobody chose for this model, is as the preferences say."""
        settings, plain = self._settings, LoadModel(command.source)
        preferred = {
            "threads": int(settings.threads),
            "predictor": settings.predictor,
            "prefetch": settings.prefetch,
            "reads": settings.reads,
            "keep_past": settings.keep_past,
        }
        chosen = chosen_for(settings, command.source)
        open_to_choice = {
            name: value
            for name, value in preferred.items()
            if name not in chosen and getattr(command, name) == getattr(plain, name)
        }
        return replace(command, **open_to_choice)  # type: ignore[arg-type]

    def expect(self) -> None:
        """A load will be asked for once the engine is there."""
        if not self.broken:
            self.problem = ""
            self.changed.emit()

    def load(self, command: LoadModel) -> None:
        command = self.with_preferences(command)
        self._wanted = command
        self._settings.loading_source = command.source
        self.model, self.problem, self.stopping = None, "", False
        self.loading = Loading(self.tr("Loading %1").replace("%1", command.source))
        self._client.send(command)
        self.load_began.emit()
        self.changed.emit()

    def cancel(self) -> None:
        """Give up the load under way."""
        if self.loading is not None:
            self.stopping = True
            self._client.stop()
            self.changed.emit()

    @Slot(object)
    def _ready(self, event: EngineReady) -> None:
        self.engine = event
        self.changed.emit()

    @Slot(object)
    def _progress(self, event: Progress) -> None:
        if self.loading is not None:
            self.loading = Loading(event.task, event.detail, event.fraction)
            self.changed.emit()

    @Slot(object)
    def _loaded(self, event: ModelLoaded) -> None:
        settings, wanted = self._settings, self._wanted
        if wanted is not None:
            settings.last_source, settings.last_experts = wanted.source, wanted.experts
            settings.last_context = wanted.context
            settings.last_device, settings.last_dtype = wanted.device, wanted.dtype
            remember(settings, wanted)
        self.loading, self.problem, self.model, self.stopping = None, "", event, False
        self.changed.emit()
        self.loaded.emit(event)

    @Slot()
    def _answered(self) -> None:
        """The model has shown that it can: the next start may load it again."""
        if self.model is not None:  # else another one is being loaded, and this is the last word of the one before
            self._settings.loading_source = ""

    @Slot()
    def _unloaded(self) -> None:
        self.model = None
        self.changed.emit()

    @Slot(object)
    def _failed(self, event: Failed) -> None:
        if event.details:
            log.error("The engine failed to %s: %s\n%s", event.doing, event.text, event.details)
        self.broken = self.broken or event.doing == "start"
        if event.doing in ("load", "start"):
            self._settings.loading_source = ""
            self.loading, self.problem, self.stopping = None, event.text, False
            self.changed.emit()
            self.refused.emit(event.text)

    def engine_ended(self) -> None:
        """The engine thread is gone though nobody asked it to go."""
        self.model, self.loading = None, None
        self.problem = self.tr("The engine has ended. Your conversations are saved; start Greenroom again.")
        self.changed.emit()
