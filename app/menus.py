"""The application menu: every entry with its key, in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Slot
from PySide6.QtGui import QAction, QActionGroup, QKeySequence
from PySide6.QtWidgets import QMenu

if TYPE_CHECKING:
    from app.surfaces import Surfaces
    from app.window_parts import WindowParts


class Menus(QObject):
    """Fills the window's menu bar. The entries that are not always possible are here by name."""

    def __init__(self, window: WindowParts, surfaces: Surfaces) -> None:
        super().__init__(window)
        self._window = window
        bar = window.top.menus
        conversations = window.conversations
        file = bar.addMenu(self.tr("&File"))
        self._add(file, self.tr("&New chat"), "Ctrl+N", window.new_chat)
        self._add(file, self.tr("Open &model…"), "Ctrl+L", surfaces.open_picker)
        file.addSeparator()
        self.copy_all = self._add(file, self.tr("&Copy conversation"), "Ctrl+Shift+C", conversations.copy_all)
        self.export = self._add(file, self.tr("&Export conversation…"), "Ctrl+E", window.export)
        self._add(file, self.tr("&Import conversations…"), "", conversations.ask_for_import)
        self.undo = self._add(file, self.tr("&Undo delete"), "Ctrl+Shift+Z", conversations.undo)
        file.addSeparator()
        preferences = self._add(file, self.tr("&Preferences…"), "Ctrl+,", surfaces.open_preferences)
        preferences.setMenuRole(QAction.MenuRole.PreferencesRole)
        file.addSeparator()
        quit_action = self._add(file, self.tr("&Quit"), "Ctrl+Q", window.close)
        quit_action.setMenuRole(QAction.MenuRole.QuitRole)
        session = bar.addMenu(self.tr("&Session"))
        self._add(session, self.tr("&What if…"), "Ctrl+Shift+W", surfaces.open_what_if)
        self._add(session, self.tr("What was &learnt…"), "Ctrl+Shift+L", surfaces.open_profile)
        session.addSeparator()
        self.stop = self._add(session, self.tr("&Stop the answer"), "Ctrl+.", window.stop)
        view = bar.addMenu(self.tr("&View"))
        self.show_sidebar = self._add(view, self.tr("&Conversations"), "Ctrl+B", window.columns.toggle_sidebar)
        self.show_panels = self._add(view, self.tr("&Panels"), "Ctrl+J", window.columns.toggle_panels)
        for action in (self.show_sidebar, self.show_panels):
            action.setCheckable(True)
        window.panels.actions_for(view.addMenu(self.tr("Pa&nels shown")))
        self._add(view, self.tr("&Search conversations"), "Ctrl+K", window.search)
        view.addSeparator()
        self.themes = self._theme_choices(view.addMenu(self.tr("&Theme")))
        help_menu = bar.addMenu(self.tr("&Help"))
        self._add(help_menu, self.tr("&Keyboard"), "F1", surfaces.show_keys)
        self._add(help_menu, self.tr("&Welcome"), "", surfaces.show_welcome)
        about = self._add(help_menu, self.tr("&About Greenroom"), "", surfaces.show_about)
        about.setMenuRole(QAction.MenuRole.AboutRole)
        window.columns.shown.connect(self._columns_shown)

    def _theme_choices(self, menu: QMenu) -> QActionGroup:
        group = QActionGroup(self)
        for name, text in (
            ("system", self.tr("Like the &system")),
            ("light", self.tr("&Light")),
            ("dark", self.tr("&Dark")),
        ):
            action = menu.addAction(text)
            action.setCheckable(True)
            action.setChecked(self._window.settings.theme == name)
            action.setData(name)
            group.addAction(action)
        group.triggered.connect(lambda action: self._window.set_theme(action.data()))
        return group

    def _add(self, menu: QMenu, text: str, keys: str, slot: object) -> QAction:
        action = menu.addAction(text)
        if keys:
            action.setShortcut(QKeySequence(keys))
        action.triggered.connect(slot)
        self._window.addAction(action)
        return action

    @Slot(bool, bool)
    def _columns_shown(self, sidebar: bool, panels: bool) -> None:
        self.show_sidebar.setChecked(sidebar)
        self.show_panels.setChecked(panels)

    def show_theme(self, name: str) -> None:
        """Mark the theme that is chosen."""
        for action in self.themes.actions():
            action.setChecked(action.data() == name)

    def refresh(self) -> None:
        """Let every entry say whether it is possible now."""
        window = self._window
        self.export.setEnabled(window.chat.session.path is not None)
        self.copy_all.setEnabled(bool(window.chat.session.turns))
        self.undo.setEnabled(window.conversations.can_undo)
        self.stop.setEnabled(window.chat.busy or window.state.loading is not None)
