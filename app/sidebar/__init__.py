"""The left column: conversations by date, the search through all of them, and what can be done with each."""

from app.sidebar.column import Sidebar

__all__ = ["Sidebar"]
