"""When something breaks: it is written down in the data folder and told in words; the program goes on if it can.

Three kinds: an exception in the window's code (a dialog says so), an exception on another thread (written down), and a
crash below Python (``faulthandler`` leaves the stacks of all threads in ``crash.log`` for whoever looks into it).
"""

from __future__ import annotations

import faulthandler
import logging
import sys
import threading
import traceback
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType
from typing import TextIO

from PySide6.QtCore import QMessageLogContext, QObject, QtMsgType, Signal, qInstallMessageHandler
from PySide6.QtWidgets import QApplication

from app.messages import SmallDialog

log = logging.getLogger("greenroom.crash")

_LEVELS = {
    QtMsgType.QtDebugMsg: logging.DEBUG,
    QtMsgType.QtInfoMsg: logging.INFO,
    QtMsgType.QtWarningMsg: logging.WARNING,
    QtMsgType.QtCriticalMsg: logging.ERROR,
    QtMsgType.QtFatalMsg: logging.CRITICAL,
}


class CrashKeeper(QObject):
    """Made once, on the GUI thread; stays alive as long as the program."""

    _told = Signal(str)

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self._dialog: SmallDialog | None = None
        self._file: TextIO | None = None
        self._told.connect(self._show)  # queued when another thread emits: dialogs live on the GUI thread

    def install(self) -> None:
        """Start keeping logs in the folder and catching what nobody else catches."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handler = RotatingFileHandler(
                self.folder / "greenroom.log", maxBytes=1_000_000, backupCount=2, encoding="utf-8", delay=True
            )
            handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
            logging.getLogger().addHandler(handler)
            logging.getLogger("greenroom").setLevel(logging.INFO)
            self._file = (self.folder / "crash.log").open("a", encoding="utf-8")
            faulthandler.enable(self._file)
        except OSError as error:  # a full or read-only disk must not keep the window from opening
            print(f"No logs can be kept in {self.folder}: {error}", file=sys.stderr)
        sys.excepthook = self.caught
        threading.excepthook = self._caught_on_thread
        qInstallMessageHandler(_qt_message)

    def caught(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """An exception that nobody handled."""
        if issubclass(kind, KeyboardInterrupt):
            QApplication.quit()
            return
        log.error("unhandled exception\n%s", "".join(traceback.format_exception(kind, error, trace)))
        traceback.print_exception(kind, error, trace)
        self._told.emit(f"{kind.__name__}: {error}")

    def _caught_on_thread(self, caught: threading.ExceptHookArgs) -> None:
        if caught.exc_type is not SystemExit:
            error = caught.exc_value or caught.exc_type()
            self.caught(caught.exc_type, error, caught.exc_traceback)

    def _show(self, what: str) -> None:
        parent = QApplication.activeWindow()
        if parent is None or self._dialog is not None:
            return  # one is enough; the log has all of them
        dialog = self._dialog = SmallDialog(parent, self.tr("Something in Greenroom broke"))
        dialog.add_text(
            self.tr("You can go on, and your conversations are saved. If the window behaves oddly, start it again.")
        )
        dialog.add_text(what, "small")
        dialog.add_text(self.tr("The details are in %1").replace("%1", str(self.folder / "greenroom.log")), "small")
        dialog.add_button(self.tr("Go on")).setDefault(True)
        dialog.finished.connect(self._closed)
        dialog.present()

    def _closed(self) -> None:
        self._dialog = None


def _qt_message(kind: QtMsgType, context: QMessageLogContext, text: str) -> None:
    logging.getLogger("greenroom.qt").log(_LEVELS.get(kind, logging.WARNING), "%s", text)
    if kind == QtMsgType.QtFatalMsg:
        print(text, file=sys.stderr)
