"""Colours, type and spacing of the window, in one place.

Widgets receive the one ``Theme`` by their constructor and read ``theme.colors`` when they paint; what the style sheet
can say, the style sheet says. Roles for the style sheet are dynamic properties:

    QLabel       role = "title" | "heading" | "muted" | "faint" | "small" | "good" | "warn" | "danger"
    QPushButton  kind = "primary" | "strong" | "quiet" | "pill" | "wide"   (none: an ordinary outlined button)
    QFrame       card = "raised" | "note" | "error"           (a rounded box)

Sizes are device independent pixels: a 4 px grid, 14 px body text, 8 px radii.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from PySide6.QtCore import QObject, Qt, Signal, Slot
from PySide6.QtGui import QColor, QFont, QFontDatabase, QFontMetricsF, QGuiApplication, QPalette
from PySide6.QtWidgets import QApplication, QStyleFactory

from app.stylesheet import stylesheet as _stylesheet
from engine.paths import resources_dir

Mode = Literal["system", "light", "dark"]
FontRole = Literal["body", "small", "title", "figure", "mono"]

RADIUS = 8  # px, of cards, buttons and bubbles


@dataclass(frozen=True)
class Colors:
    """One palette, as '#rrggbb'. Text colours keep 4.5:1 on window, sidebar, surface and surface_raised."""

    window: str  # behind the transcript
    sidebar: str  # both side columns and the top bar
    surface: str  # fields, bubbles, code
    surface_raised: str  # popovers, dialogs
    border: str
    text: str
    text_muted: str
    text_faint: str
    accent: str  # green: what is good, chosen, resident
    accent_soft: str  # behind chosen things
    on_accent: str  # text on accent
    warm: str  # second accent: KV, keywords' counterpart, attention without alarm
    warn: str
    danger: str
    user_bubble: str
    code_background: str
    heat: tuple[str, ...]  # six steps, from an expert used least to one used most
    kv: str
    dense: str
    experts: str
    other: str


LIGHT = Colors(
    window="#f6f8f7",
    sidebar="#fbfcfb",
    surface="#ebf0ee",
    surface_raised="#ffffff",
    border="#d9e0dd",
    text="#161b1a",
    text_muted="#525d59",
    text_faint="#5f6a66",
    accent="#13714f",
    accent_soft="#dcece5",
    on_accent="#ffffff",
    warm="#855c00",
    warn="#8a5a00",
    danger="#b3261e",
    user_bubble="#e6edea",
    code_background="#eef2f0",
    heat=("#e3eae7", "#c0dacf", "#8fc1b0", "#4f9f89", "#1f7a6e", "#0c464c"),
    kv="#b98410",
    dense="#65716d",
    experts="#17805f",
    other="#a3aca9",
)

DARK = Colors(
    window="#14181a",
    sidebar="#191e21",
    surface="#20272a",
    surface_raised="#1e2427",
    border="#2c3437",
    text="#e6eae9",
    text_muted="#a3acaa",
    text_faint="#8f9896",
    accent="#48c299",
    accent_soft="#20322d",
    on_accent="#0d1513",
    warm="#fdd577",
    warn="#f2b84b",
    danger="#ff8071",
    user_bubble="#222a2d",
    code_background="#1b2124",
    heat=("#1b2b2e", "#1d4a4a", "#257a66", "#55a66a", "#b0bf55", "#f6e06c"),
    kv="#fdd577",
    dense="#939f9d",
    experts="#48c299",
    other="#5b6668",
)


def space(n: float) -> int:
    """``n`` steps of the 4 px grid, in pixels."""
    return round(4 * n)


def contrast(first: str, second: str) -> float:
    """WCAG 2 contrast ratio of two colours, 1..21."""

    def luminance(name: str) -> float:
        color = QColor(name)
        channels = (color.redF(), color.greenF(), color.blueF())
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


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
    result.setPixelSize(size or role_size)
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
    return _stylesheet(colors)


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

    def __init__(self, mode: Mode = "system", parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._mode: Mode = mode
        self._dark = self._wants_dark()
        QGuiApplication.styleHints().colorSchemeChanged.connect(self._refresh)
        app = QApplication.instance()
        if isinstance(app, QApplication):
            app.setStyle(QStyleFactory.create("Fusion"))
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

    def _apply(self) -> None:
        """Dress the whole application."""
        app = QApplication.instance()
        if isinstance(app, QApplication):
            app.setPalette(palette(self.colors))
            app.setStyleSheet(stylesheet(self.colors))
