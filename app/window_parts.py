"""What menus and dialogs may ask of the window: its parts, and what it does when it is told."""

from __future__ import annotations

from PySide6.QtWidgets import QMainWindow

from app.background import Background
from app.chat.controller import ChatController
from app.columns import Columns
from app.conversations import Conversations
from app.engine_client import EngineClient
from app.model_state import ModelState
from app.panels_column import PanelsColumn
from app.settings import Settings
from app.theme import Theme
from app.top_bar import TopBar
from engine.messages import LoadModel


class WindowParts(QMainWindow):
    """The main window is one; so what it is made of need not know it."""

    client: EngineClient
    theme: Theme
    settings: Settings
    background: Background
    state: ModelState
    chat: ChatController
    conversations: Conversations
    top: TopBar
    columns: Columns
    panels: PanelsColumn

    def start_with(self, first: LoadModel | None) -> None:
        """Load this once the engine is there; start the engine, if it was not."""
        raise NotImplementedError

    def new_chat(self) -> None:
        raise NotImplementedError

    def search(self) -> None:
        """To the search field, unfolding its column."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop the answer, or the load when there is none."""
        raise NotImplementedError

    def export(self) -> None:
        raise NotImplementedError

    def load(self, command: LoadModel) -> None:
        """Load a model in place of the present one; an answer under way is stopped first."""
        raise NotImplementedError

    def set_theme(self, name: str) -> None:
        """ "system", "light" or "dark", and keep it so."""
        raise NotImplementedError

    def set_font_size(self, size: int) -> None:
        """Running text has this size, px, everything else its proportion to it; and keep it so."""
        raise NotImplementedError
