"""Colours, type and spacing of the window, in one place.

Widgets receive the one ``Theme`` by their constructor and read ``theme.colors`` when they paint; what the style sheet
can say, the style sheet says. Roles for the style sheet are dynamic properties:

    QLabel       role = "title" | "heading" | "muted" | "faint" | "small" | "good" | "warn" | "danger"
    QPushButton  kind = "primary" | "strong" | "quiet" | "pill" | "wide"   (none: an ordinary outlined button)
    QFrame       card = "raised" | "note" | "error"           (a rounded box)

Sizes are device independent pixels: a 4 px grid, 14 px body text, 8 px radii.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

from PySide6.QtCore import QObject, Qt, Signal, Slot
from PySide6.QtGui import QColor, QFont, QFontDatabase, QFontMetricsF, QGuiApplication, QPalette
from PySide6.QtWidgets import QApplication, QStyleFactory
from shiboken6 import isValid

from app.colors import DARK, LIGHT, Colors
from app.stylesheet import stylesheet as _stylesheet
from engine.paths import resources_dir

Mode = Literal["system", "light", "dark"]
FontRole = Literal["body", "small", "title", "figure", "mono"]

RADIUS = 8  # px, of cards, buttons and bubbles


def space(n: float) -> int:
    """``n`` steps of the 4 px grid, in pixels."""
    return round(4 * n)


@cache
def _families() -> tuple[str, str]:
    """Names of the text and the monospace family, after loading the bundled fonts; the system's where they are gone."""
    found: set[str] = set()
    for path in sorted((resources_dir() / "fonts").glob("*.[ot]tf")):
        number = QFontDatabase.addApplicationFont(str(path))
        found.update(QFontDatabase.applicationFontFamilies(number) if number >= 0 else ())
    general = QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont).family()
    fixed = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont).family()
    return (
        "Inter" if "Inter" in found else general,
        "JetBrains Mono" if "JetBrains Mono" in found else fixed,
    )


BODY = 14  # px, of running text as it is designed
_scale = 1.0  # what the user's font size makes of every size


_ROLES: dict[FontRole, tuple[int, QFont.Weight]] = {
    "body": (14, QFont.Weight.Normal),
    "small": (12, QFont.Weight.Normal),
    "title": (14, QFont.Weight.DemiBold),
    "figure": (22, QFont.Weight.DemiBold),
    "mono": (13, QFont.Weight.Normal),
}


def font(
    role: FontRole, *, size: int | None = None, weight: QFont.Weight | None = None, tabular: bool | None = None
) -> QFont:
    """The font of a role; ``size`` in px and ``weight`` override the role's. Figures have tabular digits by default."""
    role_size, role_weight = _ROLES[role]
    result = QFont(_families()[1 if role == "mono" else 0])
    result.setPixelSize(round((size or role_size) * _scale))
    result.setWeight(weight or role_weight)
    result.setHintingPreference(QFont.HintingPreference.PreferNoHinting)
    if role == "mono":
        result.setStyleHint(QFont.StyleHint.Monospace)
        result.setFeature(QFont.Tag("calt"), 0)  # "!=" stays two characters: code is shown as it was written
    if tabular if tabular is not None else role == "figure":
        result.setFeature(QFont.Tag("tnum"), 1)
    return result


def line_height(used: QFont, factor: float = 1.5) -> float:
    """A comfortable line height for running text, in px."""
    return max(QFontMetricsF(used).height(), used.pixelSize() * factor)


def stylesheet(colors: Colors) -> str:
    """The application's style sheet, for the Fusion style."""
    return _stylesheet(colors, _scale)


def palette(colors: Colors) -> QPalette:
    """The application's palette: what Fusion paints by itself follows the theme too."""
    result = QPalette()
    role = QPalette.ColorRole
    for key, value in {
        role.Window: colors.window,
        role.Base: colors.surface,
        role.AlternateBase: colors.sidebar,
        role.Button: colors.surface,
        role.ToolTipBase: colors.surface_raised,
        role.WindowText: colors.text,
        role.Text: colors.text,
        role.ButtonText: colors.text,
        role.ToolTipText: colors.text,
        role.BrightText: colors.danger,
        role.PlaceholderText: colors.text_faint,
        role.Highlight: colors.accent,
        role.HighlightedText: colors.on_accent,
        role.Link: colors.accent,
        role.LinkVisited: colors.accent,
        role.Light: colors.surface_raised,
        role.Mid: colors.border,
        role.Dark: colors.border,
    }.items():
        result.setColor(key, QColor(value))
    for key in (role.WindowText, role.Text, role.ButtonText):
        result.setColor(QPalette.ColorGroup.Disabled, key, QColor(colors.text_faint))
    return result


class Theme(QObject):
    """Which palette is in use. Follows the system live unless told otherwise; made once, handed down to widgets."""

    changed = Signal()

    def __init__(self, mode: Mode = "system", parent: QObject | None = None, font_size: int = BODY) -> None:
        super().__init__(parent)
        global _scale
        _scale = font_size / BODY
        self._mode: Mode = mode
        self._dark = self._wants_dark()
        QGuiApplication.styleHints().colorSchemeChanged.connect(self._refresh)
        app = QApplication.instance()
        if isinstance(app, QApplication):
            if not app.property("fusion"):  # below a style sheet, a style does not tell its name
                app.setStyle(QStyleFactory.create("Fusion"))
                app.setProperty("fusion", True)
            app.setFont(font("body"))
        if mode != "system":
            self._tell_system()
        self._apply()

    @property
    def mode(self) -> Mode:
        return self._mode

    @property
    def is_dark(self) -> bool:
        return self._dark

    @property
    def colors(self) -> Colors:
        return DARK if self._dark else LIGHT

    def set_mode(self, mode: Mode) -> None:
        """Follow the system, or stay light or dark whatever it says."""
        self._mode = mode
        self._tell_system()
        self._refresh()

    @property
    def font_size(self) -> int:
        """Of running text, px."""
        return round(BODY * _scale)

    def set_font_size(self, size: int) -> None:
        """Give running text this size, px, and everything else its proportion to it; at once."""
        global _scale
        before, _scale = _scale, size / BODY
        app = QApplication.instance()
        if before == _scale or not isinstance(app, QApplication):
            return
        app.setFont(font("body"))
        self._apply(before)
        self.changed.emit()

    def _tell_system(self) -> None:
        """Title bars and the system's own dialogs follow too, where the system can do that."""
        schemes = {"light": Qt.ColorScheme.Light, "dark": Qt.ColorScheme.Dark}
        QGuiApplication.styleHints().setColorScheme(schemes.get(self._mode, Qt.ColorScheme.Unknown))

    def _wants_dark(self) -> bool:
        if self._mode != "system":
            return self._mode == "dark"
        return QGuiApplication.styleHints().colorScheme() == Qt.ColorScheme.Dark

    @Slot()
    def _refresh(self) -> None:
        wanted = self._wants_dark()
        if wanted != self._dark:
            self._dark = wanted
            self._apply()
            self.changed.emit()

    def _apply(self, before: float | None = None) -> None:
        """Dress the whole application. before: the scale that widgets' own fonts still have; None: the present one."""
        app = QApplication.instance()
        if isinstance(app, QApplication):
            # a new style sheet gives widgets back the fonts they were made with
            own = [w for w in app.allWidgets() if w.testAttribute(Qt.WidgetAttribute.WA_SetFont)]
            fonts = [(widget, widget.font()) for widget in own if widget.font().pixelSize() > 0]
            focused = app.focusWidget()
            app.setPalette(palette(self.colors))
            sheet = stylesheet(self.colors)
            if app.styleSheet() != sheet:  # the same again would dress every widget anew
                app.setStyleSheet(sheet)
            for widget, look in fonts:
                if before is not None:
                    look.setPixelSize(round(round(look.pixelSize() / before) * _scale))
                if widget.font() != look:
                    widget.setFont(look)
            if focused is not None and isValid(focused) and focused.isVisible() and not focused.hasFocus():
                focused.setFocus()  # a box of buttons is laid out anew with a style sheet, and the keyboard had left it
