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

    def __init__(self, text: str, shortfall: int = 0) -> None:
        """shortfall: bytes that are missing, where that is known."""
        super().__init__(text)
        self.shortfall = shortfall


class DownloadError(GreenroomError):
    """Something could not be fetched or does not match its checksum."""


class SessionError(GreenroomError):
    """A conversation's log cannot be read or written."""


class DataFolderError(GreenroomError, OSError):
    """The folder with the user's data cannot be used. Made like an OSError: errno, why, folder."""

    def __str__(self) -> str:
        return (
            f"The data folder {self.filename} cannot be used: {self.strerror}. Connect its disk, check its rights, or "
            "set GREENROOM_DATA to another folder."
        )


class OptionError(GreenroomError):
    """An option has a value that means nothing; the text lists what would."""


class Cancelled(GreenroomError):
    """The user stopped the work; not a fault."""


LIBRARY_MEMORY = "alloc_failed"  # how CUBLAS and its kin say, in capitals, that the card gave them no memory


def memory_ran_out(error: Exception) -> bool:
    """Whether this is a system's, or a library's, way of saying that there is no memory left."""
    text = str(error).lower()
    signs = ("out of memory", "can't allocate memory", LIBRARY_MEMORY)
    return isinstance(error, MemoryError) or any(sign in text for sign in signs)


def explain(error: Exception, then: str = "Greenroom goes on; its log has more.") -> str:
    """One or two sentences for the user, for any error. then: what follows one that nobody foresaw."""
    if isinstance(error, GreenroomError):
        return str(error)
    text = str(error)
    if memory_ran_out(error):
        first = text.splitlines()[0][:160] if text else "no more to be had"
        return f"Memory ran out ({first}). Give experts less memory, choose a shorter context, or close other programs."
    if isinstance(error, ImportError):
        return f"The installation is incomplete ({text}). Run `python3 packaging/start.py setup` once more."
    return f"Something unexpected went wrong ({type(error).__name__}: {text[:200]}). {then}"
