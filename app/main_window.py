"""The window: conversations, the chat, the panels; menus and keys; and how it all closes."""

from __future__ import annotations

import logging
from pathlib import Path

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtGui import QCloseEvent, QKeyEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QStackedWidget, QVBoxLayout, QWidget

from app import geometry, messages
from app.answer_style import AnswerStyle, in_words
from app.background import Background
from app.chat.composer import Composer
from app.chat.controller import ChatController
from app.chat.counting import PromptCounter
from app.chat.empty import EmptyState
from app.chat.transcript import Transcript
from app.columns import ROOM_FOR_ALL, Columns
from app.conversations import Conversations
from app.drafts import Drafts
from app.engine_client import EngineClient
from app.export import Exporter
from app.menus import Menus
from app.model_state import ModelState
from app.panels_column import PanelsColumn
from app.panels_link import connect_panels
from app.settings import Settings
from app.side_sheet import SideSheet
from app.sidebar import Sidebar
from app.surfaces import Surfaces
from app.tab_order import go_on
from app.theme import Theme, space
from app.toast import Toast
from app.top_bar import TopBar
from app.window_parts import WindowParts
from engine.messages import Failed, LoadModel, ModelLoaded, Sampling

log = logging.getLogger("greenroom.window")

SHUTDOWN_SECONDS = 5.0


class MainWindow(WindowParts):
    """Everything there is to see. ``closed`` is emitted once the engine has ended, or had its time."""

    closed = Signal()

    def __init__(
        self, client: EngineClient, theme: Theme, settings: Settings, conversations: Path, program: str
    ) -> None:
        super().__init__()
        self.client, self.theme, self.settings = client, theme, settings
        self._closing = self._closed = False
        self._context_used = 0
        self._first: LoadModel | None = None  # to be loaded once the engine is there
        self.state = ModelState(client, settings, self)
        self.top = TopBar(theme, self.state)
        self.background = Background(self)
        self.sidebar = Sidebar(theme, conversations, self.background)
        self.transcript = Transcript(theme)
        self.empty = EmptyState(theme, self.state)
        self.style_of_answers = AnswerStyle(settings, self)
        self.composer = Composer(theme)
        self.panels = PanelsColumn(theme, client, settings, self.background)
        self.chat = ChatController(client, self.transcript, conversations, program, self.background, self)
        self.chat.sampling = self._sampling
        self.counter = PromptCounter(client, self.state, self.chat, self.composer, self.style_of_answers, self)
        self.drafts = Drafts(conversations.parent / "drafts", self.composer, self.chat, self)
        self._lay_out()
        self.undo_toast = Toast(theme, self.columns.middle, self.composer)
        self.toast = Toast(theme, self.columns.middle, self.composer, below=self.undo_toast)
        self.conversations = Conversations(
            conversations, self.sidebar, self.chat, self.drafts, self.toast, self.undo_toast, self.background, self
        )
        self.exporter = Exporter(self, settings, self.background, self.toast)
        self.surfaces = Surfaces(self, conversations)
        self.menus = Menus(self, self.surfaces)
        self._connect()
        self._restore()
        self._style_changed()
        self.sheet.show_model(None)
        self._refresh()
        self.composer.setFocus()

    # --------------------------------------------------------------------------------------------- layout

    def _lay_out(self) -> None:
        self.setWindowTitle("Greenroom")
        self.setMinimumSize(520, 420)
        self.centre = QStackedWidget()
        self.centre.addWidget(self.empty)
        self.centre.addWidget(self.transcript)
        self.columns = Columns(self.theme, self.settings, self.sidebar, self.centre, self.composer, self.panels)
        whole = QWidget()
        rows = QVBoxLayout(whole)
        rows.setContentsMargins(0, 0, 0, 0)
        rows.setSpacing(0)
        rows.addWidget(self.top)
        rows.addWidget(self.columns, 1)
        self.setCentralWidget(whole)
        self.sheet = SideSheet(self.theme, self.style_of_answers, whole)
        self.columns.put_over(self.sheet)

    def _restore(self) -> None:
        """Size, place and columns as they were left."""
        if not geometry.restore(self, self.settings.geometry):
            self.resize(1440, 900)
        self.columns.restore(self.width())

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.panels.show_windows(True)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        before = event.oldSize().width() if event.oldSize().isValid() else ROOM_FOR_ALL
        self.columns.resized(before, self.width())
        self.composer.set_room(round(0.35 * self.height()) - space(20))

    # ------------------------------------------------------------------------------------------- wiring

    def _connect(self) -> None:
        self.top.pill.clicked.connect(self.surfaces.open_picker)
        self.client.cache_snapshot.connect(self.top.pill.show_slots)
        self.sidebar.new_chat.connect(self.new_chat)
        self.sidebar.opened.connect(self.open_conversation)
        self.sidebar.export_wanted.connect(self._export_entry)
        self.sidebar.left.connect(self.composer.setFocus)
        self.conversations.changed.connect(self._refresh)
        self.composer.sent.connect(self.send)
        self.composer.stopped.connect(self.stop)
        self.composer.options_wanted.connect(self.sheet.toggle)
        self.composer.thinking_wanted.connect(self.style_of_answers.switch_thinking)
        self.composer.languages.changed.connect(lambda *codes: self.style_of_answers.set("languages", list(codes)))
        self.sheet.closed.connect(self.composer.setFocus)
        self.style_of_answers.changed.connect(self._style_changed)
        self.composer.input.paged.connect(self.transcript.page)
        self.empty.prompt_chosen.connect(self.send)
        self.empty.choose_model.connect(self.surfaces.open_picker)
        self.empty.load_demo.connect(self.surfaces.load_demo)
        self.empty.cancelled.connect(self.state.cancel)
        self.transcript.changed.connect(self._show_centre)
        self.transcript.link_clicked.connect(lambda address: messages.ask_to_open(self, address))
        self.chat.editing.files_pasted.connect(self.composer.attach)
        self.chat.busy_changed.connect(self._refresh)
        self.chat.session_changed.connect(self._session_changed)
        self.chat.context_used.connect(self._show_context)
        self.chat.said.connect(self.sidebar.put_first)
        self.state.changed.connect(self._refresh)
        self.state.loaded.connect(self._model_loaded)
        self.state.refused.connect(self._model_refused)
        self.panels.changed.connect(self.columns.panels_changed)
        connect_panels(self.panels, self.chat)
        self.panels.replay.refused.connect(lambda why: self.toast.say(why))
        self.client.ready.connect(self._load_first)
        self.client.stopped.connect(self._engine_stopped)
        self.client.failed.connect(self._heard)

    def begin(self, model: str | None = None) -> None:
        """As ``start``; but the first time ever, ask before anything is loaded, for the demo is a download."""
        if model is None and not self.settings.welcomed and not self.settings.last_source:
            self.state.problem = self.tr("Load the demo, or choose a model.")
            self.start_with(None)
            self.surfaces.greet()
        else:
            self.start(model)
        if self.settings.damaged:
            self.settings.save()  # puts the file aside
            words = self.tr("The settings could not be read, so they begin anew. The damaged file is kept as %1.")
            self.toast.say(words.replace("%1", str(self.settings.put_aside)))
        elif self.settings.note:
            self.toast.say(self.settings.note)
            self.settings.note = ""

    def start(self, model: str | None = None) -> None:
        """Start the engine, and load the first model once it can."""
        self.start_with(self.state.first_model(model))

    def start_with(self, first: LoadModel | None) -> None:
        """Load this once the engine is there, in place of what was to be loaded; start the engine, if it was not."""
        if first is not None:
            self._first = first
            self.state.expect()
        if not self.client.running:
            self.client.start()
        self._refresh()

    @Slot()
    def _load_first(self) -> None:
        first, self._first = self._first, None
        if first is not None:
            self.state.load(first)

    @Slot()
    def _refresh(self) -> None:
        """Let everything say what can be done now."""
        state, busy = self.state, self.chat.busy
        if self.chat.busy_elsewhere:
            hint = self.tr("An answer is being written in another chat")
        elif busy:
            hint = self.tr("Type the next message while this one streams")
        else:
            hint = state.hint
        self.composer.set_state(state.model is not None, busy, hint)
        self.menus.refresh()
        self.chat.refresh_actions()
        self.sidebar.set_writing(self.chat.writing_in)
        self._show_centre()

    @Slot()
    def _show_centre(self) -> None:
        """What there is to read, or what to do while there is nothing."""
        self.centre.setCurrentWidget(self.empty if self.transcript.empty else self.transcript)

    @Slot(str)
    def _model_refused(self, problem: str) -> None:
        """In an empty chat the middle of the window says so; else a card does."""
        if not self.transcript.empty:
            actions = [self.tr("Choose a model…")]
            card = self.transcript.add_card("error", self.tr("The model was not loaded"), problem, actions)
            card.buttons[0].clicked.connect(self.surfaces.open_picker)
            self.transcript.scroll_to_end()

    @Slot(object)
    def _model_loaded(self, model: ModelLoaded) -> None:
        self.panels.set_model(model)
        self.sheet.keep_typed()  # it is meant for the model before
        self.style_of_answers.set_model(model)
        self.sheet.show_model(model)
        self._show_context(self._context_used)
        if not self.transcript.empty:
            for note in model.notes:
                self.transcript.add_card("note", self.tr("About %1").replace("%1", model.name), note)
        self._refresh()

    @Slot()
    def _style_changed(self) -> None:
        style = self.style_of_answers
        self.chat.system, self.chat.thinking = style.style.system, style.thinking
        name, details = in_words(style)
        self.composer.name_style(name, details)
        self.composer.show_thinking(style.switch, style.thinks)
        model = self.state.model
        self.composer.languages.offer(model.languages if model else (), *style.style.languages)
        self.chat.languages = self.composer.languages.chosen

    @Slot(int)
    def _show_context(self, used: int) -> None:
        self._context_used = used
        model = self.state.model
        self.composer.meter.set_context(used, model.context if model else 0)

    @Slot()
    def _session_changed(self) -> None:
        session = self.chat.session
        self.setWindowTitle(f"{session.title} – Greenroom" if session.messages else "Greenroom")  # noqa: RUF001
        self.sidebar.select(session.path)
        self._refresh()

    # ------------------------------------------------------------------------------------------ what one can do

    @Slot()
    def new_chat(self) -> None:
        self.chat.new_chat()
        self.composer.setFocus()

    @Slot(Path)
    @Slot(Path, str)
    def open_conversation(self, path: Path, message: str = "") -> None:
        self.chat.open(path, message)
        self._refresh()
        self.composer.setFocus()

    @Slot(str)
    def send(self, text: str) -> None:
        chosen, typed = self._sampling(), self.composer.message
        if chosen is not None and self.chat.send(text, chosen) and text == typed:
            self.composer.clear()  # a prompt that was offered leaves alone what was typed
        self._refresh()
        self.composer.setFocus()

    def _sampling(self) -> Sampling | None:
        """How the next answer is sampled; None while no model is ready."""
        return self.style_of_answers.style.sampling if self.state.model is not None else None

    @Slot()
    def search(self) -> None:
        """To the search field, unfolding its column."""
        if not self.sidebar.isVisibleTo(self):
            self.columns.toggle_sidebar()
        self.sidebar.start_search()

    @Slot()
    def stop(self) -> None:
        """Stop the answer, or the load when there is none."""
        if self.chat.busy:
            self.chat.stop()
        else:
            self.state.cancel()
        self.composer.setFocus()  # the button is about to be Send, and to have nothing to send

    @Slot(object)
    def load(self, command: LoadModel) -> None:
        """Load a model in place of the present one; an answer under way is stopped first."""
        if self.chat.busy:
            self.chat.stop()
        self.panels.set_model(None)
        self.composer.meter.set_context(0, 0)
        self.state.load(command)

    @Slot()
    def export(self) -> None:
        session = self.chat.session
        if session.path is not None:
            self.exporter.export(session.path, session.title, session.leaf)

    @Slot(Path, str)
    def _export_entry(self, path: Path, title: str) -> None:
        """Export from the list; of the conversation on the screen the branch that is seen."""
        leaf = self.chat.session.leaf if self.chat.session.path == path else None
        self.exporter.export(path, title, leaf)

    @Slot(str)
    def set_theme(self, name: str) -> None:
        """ "system", "light" or "dark", and keep it so."""
        self.settings.theme = name
        self.theme.set_mode(name)  # type: ignore[arg-type]
        self.menus.show_theme(name)

    @Slot(int)
    def set_font_size(self, size: int) -> None:
        """Running text has this size, px, everything else its proportion to it; and keep it so."""
        self.settings.font_size = size
        self.theme.set_font_size(size)
        self.columns.fit_panels()
        session = self.chat.session
        if session.path is not None and session.turns:  # bubbles and their buttons are as large as their letters were
            self.chat.open(session.path)

    def focusNextPrevChild(self, forward: bool) -> bool:
        """Tab: what is to be read, then what is to be written, then what lies beside it."""
        beside = self.sheet if self.sheet.isVisible() else self.panels  # the sheet covers the panels
        toasts = (self.undo_toast, self.toast)
        return go_on((self.top, self.sidebar, self.centre, *toasts, self.composer, beside), forward)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and (self.chat.busy or self.state.loading is not None):
            self.stop()
        else:
            super().keyPressEvent(event)

    # -------------------------------------------------------------------------------------------- closing

    def closeEvent(self, event: QCloseEvent) -> None:
        """Gone from the screen at once; the engine then has a few seconds to finish its files."""
        if not self._closing:
            self._remember()
            self.sheet.keep_typed()
            self.drafts.save()
            self.panels.show_windows(False)
            self.conversations.close()
            self.surfaces.close()
            self.background.close()
        if self._closing or not self.client.running:
            event.accept()
            if not self._closed:
                self._closed = True
                self.chat.close()
                self.closed.emit()
            return
        event.ignore()
        self._closing = True
        self.hide()
        self.client.shut_down(SHUTDOWN_SECONDS)

    @Slot(object)
    def _heard(self, event: Failed) -> None:
        """What went wrong beside an answer that goes on: no disk for its log, less memory than there was."""
        if event.doing in ("log", "memory"):
            log.warning("%s", event.text)
            self.toast.say(event.text)

    @Slot()
    def _engine_stopped(self) -> None:
        if self._closing:
            self.close()
        else:
            self.state.engine_ended()

    def _remember(self) -> None:
        settings = self.settings
        settings.geometry = geometry.packed(self)
        self.columns.remember()
        self.panels.remember()
        settings.loading_source = ""
