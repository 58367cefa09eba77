"""All the parts of the running program, put together in the order in which they need each other."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import cast

from PySide6.QtGui import QGuiApplication, QIcon
from PySide6.QtWidgets import QApplication, QMessageBox, QWidget

from app.crash import CrashKeeper
from app.data_folder import MoveRefused, finish
from app.engine_client import EngineClient
from app.garbage import GarbageCollector
from app.main_window import MainWindow
from app.settings import Settings
from app.theme import Mode, Theme
from engine.errors import explain
from engine.paths import resources_dir
from engine.version import __version__

log = logging.getLogger("greenroom.program")

REFUSED = 78  # exit status: it did not start, and has told the user why; packaging/commands.py knows it too


def application() -> QApplication:
    """The one QApplication, named so that desktops find its entry and icon."""
    existing = QApplication.instance()
    app = existing if isinstance(existing, QApplication) else QApplication(sys.argv[:1])
    app.setApplicationName("greenroom")
    app.setApplicationDisplayName("Greenroom")
    app.setApplicationVersion(__version__)
    QGuiApplication.setDesktopFileName("greenroom")
    app.setWindowIcon(QIcon(str(resources_dir() / "icons" / "greenroom.png")))
    return app


class Program:
    """Makes everything; ``run`` stays until the window has closed and the engine has ended."""

    def __init__(self, settings: Path | None, conversations: Path, logs: Path) -> None:
        self.app = application()
        self.app.setQuitOnLastWindowClosed(False)  # the window hides first and waits for the engine
        self.crashes = CrashKeeper(logs)
        self.crashes.install()
        self.settings = Settings(settings)
        self.theme = Theme(cast(Mode, self.settings.theme), font_size=int(self.settings.font_size))
        self.client = EngineClient()
        program = f"greenroom {__version__}"
        self.window = MainWindow(self.client, self.theme, self.settings, conversations, program)
        self.garbage = GarbageCollector(self._busy)
        self.client.ready.connect(self.garbage.set_aside)
        self.window.state.load_began.connect(self.garbage.collect_soon)
        self.restart = False  # once everything is closed, start again
        self.window.closed.connect(self._closed)

    def _closed(self) -> None:
        """Nothing writes to the data folder any more: a move of it can be finished."""
        move = self.window.surfaces.move
        if move is not None:
            self.restart = True
            try:
                finish(move)
            except (MoveRefused, OSError) as error:
                log.warning("the data were not moved: %s", error)
                self.settings.note = explain(error)
        self.app.quit()

    def _busy(self) -> bool:
        return self.window.chat.busy or self.window.state.loading is not None

    def run(self) -> int:
        return self.app.exec()


def refuse_to_start(why: str) -> int:
    """Say why there will be no window, where the user is looking; the program's exit status."""
    print(why, file=sys.stderr)
    application()
    QMessageBox.critical(cast(QWidget, None), "Greenroom", why)
    return REFUSED
