"""The Qt style sheet, written once for every theme. See ``app.theme`` for the roles that widgets can take."""

from __future__ import annotations

import re
from string import Template
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.colors import Colors

_TEMPLATE = Template("""
QWidget { color: $text; }
QMainWindow, QDialog { background: $window; }
QDialog { background: $surface_raised; }
QToolTip { background: $surface_raised; color: $text; border: 1px solid $border; padding: 4px 6px; font-size: 12px; }

QLabel { background: transparent; }
QLabel[role="title"] { font-weight: 600; }
QLabel[role="heading"] { font-size: 18px; font-weight: 600; }
QLabel[role="muted"] { color: $text_muted; }
QLabel[role="faint"] { color: $text_faint; font-size: 12px; }
QLabel[role="small"] { color: $text_muted; font-size: 12px; }
QLabel[measured="false"] { color: $text_faint; }
QLabel[role="good"] { color: $accent; }
QLabel[role="warn"] { color: $warn; }
QLabel[role="danger"] { color: $danger; }

QPushButton {
    background: transparent; border: 1px solid $border; border-radius: 8px; padding: 7px 16px; min-height: 18px;
}
QPushButton:hover { background: $surface; }
QPushButton:pressed { background: $border; }
QPushButton:focus { border: 1px solid $accent; }
QPushButton:disabled { color: $text_faint; }
QPushButton[kind="primary"] {
    background: $accent; color: $on_accent; border: 1px solid $accent; font-weight: 600;
}
QPushButton[kind="primary"]:hover { background: $accent; border: 1px solid $text; }
QPushButton[kind="primary"]:focus { border: 2px solid $text; padding: 6px 15px; }
QPushButton[kind="primary"]:disabled { background: $surface; color: $text_faint; border: 1px solid $border; }
QPushButton[kind="strong"] {
    background: $text; color: $window; border: 1px solid $text; font-weight: 600; padding: 5px 14px;
}
QPushButton[kind="strong"]:hover { background: $text_muted; border: 1px solid $text_muted; }
QPushButton[kind="strong"]:focus { border: 2px solid $accent; padding: 4px 13px; }
QPushButton[kind="strong"]:disabled { background: $surface; color: $text_faint; border: 1px solid $border; }
QPushButton[kind="quiet"] {
    border: 1px solid transparent; color: $text_muted; font-size: 12px; padding: 3px 8px; min-height: 16px;
    border-radius: 6px;
}
QPushButton[kind="quiet"]:hover { background: $surface; color: $text; }
QPushButton[kind="quiet"]:checked { background: $surface; color: $text; }
QPushButton[kind="quiet"]:focus { border: 1px solid $accent; }
QPushButton[kind="quiet"]::menu-indicator { image: none; width: 0; }
QPushButton[kind="link"] {
    border: 1px solid transparent; color: $accent; font-weight: 600; padding: 3px 8px; min-height: 16px;
    border-radius: 6px;
}
QPushButton[kind="link"]:hover { background: $surface; }
QPushButton[kind="link"]:focus { border: 1px solid $accent; }
QPushButton[kind="pill"] { border-radius: 14px; padding: 4px 14px; min-height: 18px; }
QPushButton[kind="flush"] {
    border: 1px solid transparent; color: $text_muted; font-size: 12px; padding: 2px 0; min-height: 14px;
    border-radius: 4px;
}
QPushButton[kind="flush"]:hover { color: $text; }
QPushButton[kind="flush"]:focus { color: $accent; text-decoration: underline; }
QPushButton[kind="fold"] {
    border: 1px solid transparent; color: $text_muted; font-size: 13px; padding: 2px 4px; text-align: left;
    border-radius: 4px;
}
QPushButton[kind="fold"]:hover { color: $text; }
QPushButton[kind="fold"]:focus { border: 1px solid $accent; }
QPushButton[kind="float"] {
    background: $surface_raised; border: 1px solid $border; border-radius: 15px; padding: 5px 14px; font-size: 12px;
}
QPushButton[kind="float"]:hover { background: $surface; }
QPushButton[kind="float"]:focus { border: 1px solid $accent; }
QPushButton[kind="chip"] {
    background: $surface; border: 1px solid $border; border-radius: 6px; padding: 2px 8px; font-size: 12px;
    color: $text_muted; min-height: 16px;
}
QPushButton[kind="chip"]:hover { color: $text; border: 1px solid $text_faint; }
QPushButton[kind="chip"]:focus { border: 1px solid $accent; }
QPushButton[kind="wide"] { text-align: left; padding: 9px 12px; background: $surface_raised; }
QPushButton[kind="wide"]:hover { background: $surface; }

QToolButton { border: 1px solid transparent; border-radius: 6px; padding: 4px; background: transparent; }
QToolButton:hover { background: $surface; }
QToolButton:focus { border: 1px solid $accent; }
QToolButton::menu-indicator { image: none; }

QLineEdit, QSpinBox, QDoubleSpinBox, QComboBox {
    background: $surface; border: 1px solid $border; border-radius: 8px; padding: 7px 10px; min-height: 18px;
    selection-background-color: $accent; selection-color: $on_accent; placeholder-text-color: $text_faint;
}
QLineEdit:focus, QSpinBox:focus, QDoubleSpinBox:focus, QComboBox:focus { border: 1px solid $accent; }
QSpinBox:disabled, QDoubleSpinBox:disabled { color: $text_faint; }
QAbstractSpinBox { padding: 6px 10px 5px 10px; }  /* as high as the boxes to choose from */
QFrame#sideSheet QAbstractSpinBox { padding: 4px 8px; }
QAbstractSpinBox::up-button { subcontrol-position: top right; width: 22px; border: none; }
QAbstractSpinBox::down-button { subcontrol-position: bottom right; width: 22px; border: none; }
QAbstractSpinBox::up-arrow, QAbstractSpinBox::down-arrow { image: none; width: 0; height: 0; }
QAbstractSpinBox QLineEdit { background: transparent; border: none; border-radius: 0; padding: 0; min-height: 0; }
QComboBox::drop-down { border: none; width: 20px; }
QComboBox QAbstractItemView {
    background: $surface_raised; border: 1px solid $border; selection-background-color: $accent_soft;
    selection-color: $text; outline: none;
}
QPlainTextEdit, QTextEdit, QTextBrowser {
    background: transparent; border: none; selection-background-color: $accent; selection-color: $on_accent;
    placeholder-text-color: $text_faint;
}

QListView, QTreeView, QListWidget { background: transparent; border: none; outline: none; }
QListView::item, QListWidget::item { border-radius: 8px; padding: 8px 12px; border: 1px solid transparent; }
QListView::item:hover, QListWidget::item:hover { background: $surface; }
QListView::item:selected, QListWidget::item:selected { background: $accent_soft; color: $text; }
QListView::item:focus, QListWidget::item:focus { border: 1px solid $accent; }
QListWidget::item:disabled { color: $text_faint; background: transparent; padding: 8px 12px 4px 12px; }

QMenuBar { background: $sidebar; color: $text_muted; spacing: 2px; }
QMenuBar::item { background: transparent; padding: 5px 8px; border-radius: 6px; color: $text_muted; }
QMenuBar::item:selected, QMenuBar::item:pressed { background: $surface; color: $text; }
QMenu { background: $surface_raised; border: 1px solid $border; padding: 6px; border-radius: 8px; }
QMenu::item { padding: 6px 28px 6px 12px; border-radius: 6px; background: transparent; }
QMenu::item:selected { background: $accent_soft; color: $text; }
QMenu::item:disabled { color: $text_faint; }
QMenu::separator { height: 1px; background: $border; margin: 5px 8px; }
QMenu::indicator { width: 14px; height: 14px; left: 6px; }
QMenu::item:checked { font-weight: 600; }

QDialogButtonBox { button-layout: 3; }  /* what goes on stands on the right, on every system */
QScrollArea { background: transparent; border: none; }
QScrollArea[ring="bare"] { border: 1px solid transparent; border-radius: 8px; }
QScrollArea[ring="boxed"] { border: 1px solid $border; border-radius: 8px; padding: 3px; }
QScrollArea[ring="bare"]:focus, QScrollArea[ring="boxed"]:focus { border: 1px solid $accent; }
QScrollBar:vertical { background: transparent; width: 10px; margin: 2px; }
QScrollBar::handle:vertical { background: $other; border-radius: 3px; min-height: 32px; }
QScrollBar::handle:vertical:hover { background: $text_faint; }
QScrollBar:horizontal { background: transparent; height: 10px; margin: 2px; }
QScrollBar::handle:horizontal { background: $other; border-radius: 3px; min-width: 32px; }
QScrollBar::handle:horizontal:hover { background: $text_faint; }
QScrollBar::add-line, QScrollBar::sub-line { width: 0; height: 0; }
QScrollBar::add-page, QScrollBar::sub-page { background: transparent; }

QSlider { min-height: 24px; }
QSlider::groove:horizontal { height: 4px; background: $border; border-radius: 2px; }
QSlider::sub-page:horizontal { background: $accent; border-radius: 2px; }
QSlider::handle:horizontal {
    background: $text; width: 14px; height: 14px; margin: -5px 0; border-radius: 7px; border: none;
}
QSlider::sub-page:horizontal:disabled { background: $other; }
QSlider::handle:horizontal:disabled { background: $text_faint; }
QSlider::handle:horizontal:focus { border: 2px solid $accent; }

QProgressBar {
    background: $border; border: none; border-radius: 2px; max-height: 4px; min-height: 4px; color: transparent;
}
QProgressBar::chunk { background: $accent; border-radius: 2px; }

QFrame[card="raised"] { background: $surface_raised; border: 1px solid $border; border-radius: 8px; }
QFrame[card="note"] { background: $surface; border: 1px solid $border; border-radius: 8px; }
QFrame[card="error"] { background: $surface; border: 1px solid $danger; border-radius: 8px; }
QLabel[card="drop"] {
    background: $surface_raised; border: 1px solid $accent; border-radius: 8px; color: $text; padding: 8px 16px;
}
QFrame[line="true"] { background: $border; border: none; max-height: 1px; min-height: 1px; }

QWidget#sidebar { background: $sidebar; border-right: 1px solid $border; }
QFrame#sideSheet { background: $surface_raised; border-left: 1px solid $border; }
QWidget#sideSheetInside { background: $surface_raised; }
QPlainTextEdit#systemPrompt { background: $surface; border: 1px solid $border; border-radius: 8px; padding: 6px 8px; }
QPlainTextEdit#systemPrompt:focus { border: 1px solid $accent; }
QFrame#focusRing { background: transparent; border: 1px solid $accent; }
QWidget#panelWindow { background: $sidebar; }
QWidget#panels { background: $sidebar; border-left: 1px solid $border; }
QWidget#topBar { background: $sidebar; border-bottom: 1px solid $border; }
QSplitter::handle { background: transparent; }
""")


def stylesheet(colors: Colors, scale: float = 1.0) -> str:
    """The application's style sheet in these colours. scale: of every font size."""
    sheet = _TEMPLATE.substitute({name: value for name, value in vars(colors).items() if isinstance(value, str)})
    return re.sub(r"font-size: (\d+)px", lambda found: f"font-size: {round(int(found[1]) * scale)}px", sheet)
