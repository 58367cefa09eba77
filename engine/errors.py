"""The few errors Greenroom raises on purpose, worded once, for the person who will read them.

Each carries one sentence that says what is wrong and, where there is a way out, what to do. The faces (window,
terminal) show ``str(error)`` as it is and never a traceback.
"""

from __future__ import annotations


class GreenroomError(Exception):
    """Something the user can understand and act on."""


class ModelError(GreenroomError):
    """The model folder cannot be used: missing files, wrong kind, unknown weights."""


class MemoryPlanError(GreenroomError):
    """A memory budget cannot be met; the text says which memory is short, by how much, and what to change."""


class DownloadError(GreenroomError):
    """Something could not be fetched or does not match its checksum."""


class SessionError(GreenroomError):
    """A conversation's log cannot be read or written."""


class OptionError(GreenroomError):
    """An option has a value that means nothing; the text lists what would."""


class Cancelled(GreenroomError):
    """The user stopped the work; not a fault."""
