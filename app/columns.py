"""The three columns of the window, and the sheet that lies over them: what is shown, what folds when it gets narrow."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt, QTimer, Signal, Slot
from PySide6.QtWidgets import QApplication, QSplitter, QVBoxLayout, QWidget

from app.chat.composer import Composer
from app.chat.transcript import COLUMN_WIDTH
from app.drop_zone import DropZone
from app.panels_column import PanelsColumn
from app.settings import Settings
from app.side_sheet import SideSheet
from app.sidebar import Sidebar
from app.theme import BODY, Theme, space

ROOM_FOR_ALL = 900  # px of width; below it the panels fold by themselves
ROOM_FOR_SIDEBAR = 640
ROOM_BESIDE_SHEET = 420  # px that the chat needs beside the side sheet; with less it lies below it


class Columns(QSplitter):
    """Conversations, chat, panels. What the user wants is in ``settings``; what there is room for may be less."""

    shown = Signal(bool, bool)  # whether the conversations and the panels are

    def __init__(
        self,
        theme: Theme,
        settings: Settings,
        sidebar: Sidebar,
        centre: QWidget,
        composer: Composer,
        panels: PanelsColumn,
    ) -> None:
        super().__init__(Qt.Orientation.Horizontal)
        self._theme, self._settings, self._composer = theme, settings, composer
        self._sidebar, self._panels = sidebar, panels
        self._sheet: SideSheet | None = None
        self.middle = QWidget()
        self._middle_column = QVBoxLayout(self.middle)
        self._middle_column.setContentsMargins(0, 0, 0, 0)
        self._middle_column.setSpacing(0)
        self._middle_column.addWidget(centre, 1)
        self._composer_row = QVBoxLayout()
        self._composer_row.addWidget(composer)
        self._middle_column.addLayout(self._composer_row)
        words = self.tr("Drop text files to attach them to your message")
        self.drop_zone = DropZone(theme, self.middle, words, within=self._middle_column)  # a sheet lies on its margin
        self.drop_zone.dropped.connect(composer.attach)
        self.setHandleWidth(1)
        self.setChildrenCollapsible(False)
        for widget in (sidebar, self.middle, panels):
            self.addWidget(widget)
        self.setStretchFactor(1, 1)
        sidebar.setMinimumWidth(180)
        self.middle.setMinimumWidth(240)
        self.fit_panels()
        self.middle.installEventFilter(self)

    def put_over(self, sheet: SideSheet) -> None:
        """This sheet lies over the right of the columns when it is open."""
        self._sheet = sheet
        sheet.opened.connect(self.place_composer)
        sheet.closed.connect(self.place_composer)
        sheet.resized.connect(self.place_composer)

    def restore(self, width: int) -> None:
        """Columns as they were left, in a window of this width, px."""
        settings = self._settings
        self.show_columns(settings.sidebar_open, settings.panels_open)
        side, right = int(settings.sidebar_width), int(settings.panels_width)
        self.setSizes([side, max(320, width - side - right), right])

    def remember(self) -> None:
        """Note the widths for the next start."""
        left, _, right = self.sizes()
        if left:
            self._settings.sidebar_width = left
        if right:
            self._settings.panels_width = right

    # --------------------------------------------------------------------------------------- what is shown

    def show_columns(self, sidebar: bool, panels: bool) -> None:
        """Show or fold, for now."""
        panels = panels and not self._panels.empty
        for column, shown in ((self._sidebar, sidebar), (self._panels, panels)):
            if not shown and (focus := QApplication.focusWidget()) is not None and column.isAncestorOf(focus):
                self._composer.setFocus()  # else Qt hands it to whatever comes next
        self._sidebar.setVisible(sidebar)
        self._panels.setVisible(panels)
        self.shown.emit(sidebar, panels)
        QTimer.singleShot(0, self.place_composer)

    def resized(self, before: int, now: int) -> None:
        """The window is so wide now: fold where it gets too narrow, unfold what was open before."""
        for limit in (ROOM_FOR_ALL, ROOM_FOR_SIDEBAR):
            if (before < limit) != (now < limit):
                self.show_columns(
                    self._settings.sidebar_open and now >= ROOM_FOR_SIDEBAR,
                    self._settings.panels_open and now >= ROOM_FOR_ALL,
                )
        QTimer.singleShot(0, self.place_composer)

    @property
    def _wide(self) -> bool:
        return self.window().width() >= ROOM_FOR_ALL

    @Slot()
    def toggle_sidebar(self) -> None:
        shown = self._settings.sidebar_open = not self._sidebar_shown
        self.show_columns(shown, self._panels_shown and (self._wide or not shown))

    @Slot()
    def toggle_panels(self) -> None:
        shown = self._settings.panels_open = not self._panels_shown
        if shown and self._panels.empty:
            self._panels.bring_back()
        self.show_columns(self._sidebar_shown and (self._wide or not shown), shown)

    @Slot(bool, bool)
    def choose(self, sidebar: bool, panels: bool) -> None:
        """Show or fold the conversations and the panels, and keep it so."""
        self._settings.sidebar_open, self._settings.panels_open = sidebar, panels
        if panels and self._panels.empty:
            self._panels.bring_back()
        self.show_columns(sidebar, panels)

    @Slot()
    def panels_changed(self) -> None:
        """A column with nothing in it folds; a panel that comes back unfolds it."""
        shown = not self._panels.empty
        if shown != self._panels_shown and (not shown or self._settings.panels_open):
            self.show_columns(self._sidebar_shown, shown and self._wide)

    @property
    def _sidebar_shown(self) -> bool:
        return self._sidebar.isVisibleTo(self.window())

    @property
    def _panels_shown(self) -> bool:
        return self._panels.isVisibleTo(self.window())

    # ----------------------------------------------------------------------------------------------- places

    def fit_panels(self) -> None:
        """Larger letters want a wider column: nothing in it may be cut off."""
        inside = self._panels.widget()
        wanted = inside.minimumSizeHint().width() + space(4) if inside and self._theme.font_size > BODY else 0
        self._panels.setMinimumWidth(max(280, wanted))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self.middle and event.type() == QEvent.Type.Resize:
            QTimer.singleShot(0, self.place_composer)  # a handle was moved, or a column wants more
        return super().eventFilter(watched, event)

    @Slot()
    def place_composer(self) -> None:
        """The composer is as wide as the text above it."""
        beside = self._place_sheet()
        self._middle_column.setContentsMargins(0, 0, beside, 0)
        side = max(space(6), (self.middle.width() - beside - COLUMN_WIDTH) // 2)
        self._composer_row.setContentsMargins(side, space(2), side, space(5))

    def _place_sheet(self) -> int:
        """The sheet covers the panels where they are, else a part of the middle that gives way: so much of it, px."""
        if self._sheet is None:
            return 0
        place = self.geometry()
        panels = self._panels.width() if self._panels_shown else 0
        width = min(max(panels, self._sheet.wanted_width), place.width())
        self._sheet.setGeometry(place.right() + 1 - width, place.top(), width, place.height())
        room = self.middle.width() - (width - panels)
        return width - panels if self._sheet.isVisibleTo(self.window()) and room >= ROOM_BESIDE_SHEET else 0
