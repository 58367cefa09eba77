"""Conversations on disk: the session log, its reader, the message tree and the exporters. Plain files, no torch."""
