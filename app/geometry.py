"""A window's size and place as text for the settings, and back."""

from __future__ import annotations

import base64

from PySide6.QtWidgets import QWidget


def packed(window: QWidget) -> str:
    """Size and place, for ``restore``."""
    return base64.b64encode(window.saveGeometry().data()).decode("ascii")


def restore(window: QWidget, text: str) -> bool:
    """Bring a window where ``packed`` found it; False when the text is empty or says nothing that can be done."""
    try:
        stored = base64.b64decode(text.encode("ascii", "ignore"))
    except ValueError:  # edited by hand, or cut off
        return False
    return bool(stored) and window.restoreGeometry(stored)
