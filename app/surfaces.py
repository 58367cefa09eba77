"""The dialogs that the menus open, made when they are first wanted, and what the window does for them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Slot

from app import data_folder, messages
from app.dialogs.about import show_about
from app.dialogs.help import show_help
from app.dialogs.model_picker import ModelPicker
from app.dialogs.preferences import Preferences
from app.dialogs.profile import ProfileDialog
from app.dialogs.welcome import Welcome
from app.dialogs.what_if import WhatIfDialog
from app.dialogs.what_if_figures import arrival_rate
from app.model_state import demo_at_work
from app.remembered import follow_preferences
from engine.messages import CacheSnapshot, LoadModel

if TYPE_CHECKING:
    from pathlib import Path

    from app.window_parts import WindowParts


class Surfaces(QObject):
    """``move``: what the program has to finish once everything is closed, and then start again; None: nothing."""

    def __init__(self, window: WindowParts, conversations: Path) -> None:
        super().__init__(window)
        self._window, self._folder = window, conversations
        self.picker: ModelPicker | None = None
        self.what_if: WhatIfDialog | None = None
        self.preferences: Preferences | None = None
        self.profile: ProfileDialog | None = None
        self.welcome: Welcome | None = None
        self.move: data_folder.Move | None = None

    def _busy(self) -> bool:
        return self._window.chat.busy or self._window.state.loading is not None

    @Slot()
    def reload(self) -> None:
        """The present model again, with what the preferences say now."""
        window = self._window
        wanted, settings = window.state.wanted, window.settings
        if wanted is not None:
            follow_preferences(settings, wanted.source)
            plain = LoadModel(wanted.source)
            window.load(
                replace(
                    wanted,
                    policy=settings.last_policy,
                    threads=plain.threads,
                    predictor=plain.predictor,
                    prefetch=plain.prefetch,
                    reads=plain.reads,
                    keep_past=plain.keep_past,
                )
            )

    # ------------------------------------------------------------------------------------------------- models

    @Slot()
    def open_picker(self) -> None:
        window = self._window
        if self.picker is None:
            self.picker = ModelPicker(window.client, window.theme, window.settings, window)
            if window.state.engine is not None:
                self.picker.details.advanced.set_cards(window.state.engine.cards)
            self.picker.load_requested.connect(window.load)
            self.picker.stop_requested.connect(window.state.cancel)
        self.picker.open()

    @Slot()
    def _forget_choices(self) -> None:
        """What the picker offers first has changed."""
        if self.picker is not None:
            self.picker.forget_choices()

    # ------------------------------------------------------------------------------------------------ what if

    @Slot()
    def open_what_if(self) -> None:
        window = self._window
        if self.what_if is None:
            self.what_if = WhatIfDialog(window.client, window.theme, window.background, self._folder, window)
            self.what_if.use_wanted.connect(self._ask_to_use)
        latest = window.client.latest(CacheSnapshot)
        assert latest is None or isinstance(latest, CacheSnapshot)
        self.what_if.open_for(window.chat.session.path, window.state.model, arrival_rate(latest))

    @Slot(str, str)
    def _ask_to_use(self, policy: str, experts: str) -> None:
        """Load the present model again with these, if the user still wants to once told what that means."""
        window, dialog = self._window, self.what_if
        model, wanted = window.state.model, window.state.wanted
        if model is None or wanted is None or dialog is None:
            return
        words = self.tr("%1 is unloaded and comes back with the policy %2 and %3 for experts.")
        words = words.replace("%1", model.name).replace("%2", policy).replace("%3", experts)
        if window.chat.busy:
            words += " " + self.tr("The answer under way is stopped; its text so far stays.")
        question = messages.SmallDialog(dialog, self.tr("Load the model again?"))
        question.add_text(words)
        question.add_button(self.tr("Cancel"))
        question.add_button(self.tr("Load"), primary=True)
        question.buttons.accepted.connect(lambda: window.load(replace(wanted, policy=policy, experts=experts)))
        question.buttons.accepted.connect(question.accept)
        question.buttons.accepted.connect(dialog.accept)
        question.present()

    # -------------------------------------------------------------------------------------------- preferences

    @Slot()
    def open_preferences(self) -> None:
        window = self._window
        if self.preferences is None:
            made = Preferences(window.theme, window.settings, window.state, window.panels, self._busy, window)
            made.theme_chosen.connect(window.set_theme)
            made.font_size_chosen.connect(window.set_font_size)
            made.columns_chosen.connect(window.columns.choose)
            made.policy_chosen.connect(self._forget_choices)
            made.reload_wanted.connect(self.reload)
            made.data.moved.connect(self._move)
            self.preferences = made
        self.preferences.open()

    @Slot(object)
    def _move(self, move: data_folder.Move) -> None:
        """Everything is copied: close, so that the rest can be taken over and the program start again there."""
        self.move = move
        if self.preferences is not None:
            self.preferences.accept()
        self._window.close()

    # ------------------------------------------------------------------------------------------- smaller ones

    @Slot()
    def open_profile(self) -> None:
        if self.profile is None:
            self.profile = ProfileDialog(self._window.client, lambda: self._window.chat.busy, self._window)
            self.profile.reload_wanted.connect(self.reload)
        self.profile.open_for(self._window.state.model)

    @Slot()
    def show_keys(self) -> None:
        show_help(self._window, self._window.top.menus)

    @Slot()
    def show_about(self) -> None:
        show_about(self._window, self._window.state.engine)

    def greet(self) -> None:
        """The welcome, once in a user's life."""
        window = self._window
        if window.settings.welcomed:
            return
        window.settings.welcomed = True
        self.show_welcome()

    @Slot()
    def show_welcome(self) -> None:
        window = self._window
        self.welcome = Welcome(window)
        self.welcome.picker_wanted.connect(self.open_picker)
        self.welcome.demo_wanted.connect(self.load_demo)
        self.welcome.destroyed.connect(self._welcome_gone)
        self.welcome.present()

    @Slot()
    def _welcome_gone(self) -> None:
        self.welcome = None

    @Slot()
    def load_demo(self) -> None:
        """Once the engine is there."""
        window = self._window
        command = demo_at_work(window.settings)
        if window.state.engine is not None:
            window.load(command)
        else:
            window.start_with(command)

    def close(self) -> None:
        """The window closes."""
        if self.what_if is not None:
            self.what_if.stop()
        if self.preferences is not None:
            self.preferences.data.close_work()
