"""The two palettes, and the measure of what can be read on what."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtGui import QColor


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
    workspace: str


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
    workspace="#7d9bb0",
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
    workspace="#7896ad",
)


def contrast(first: str, second: str) -> float:
    """WCAG 2 contrast ratio of two colours, 1..21."""

    def luminance(name: str) -> float:
        color = QColor(name)
        channels = (color.redF(), color.greenF(), color.blueF())
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)
