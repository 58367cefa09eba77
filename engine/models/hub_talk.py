"""Talking to the Hugging Face hub: its address, a stream of bytes, and in words what may go wrong on the way.

A server that goes silent in the middle, or a name that nobody resolves, holds up whoever waits for it. So whatever may
hang has a thread of its own, which is left to its end when the user has had enough.
"""

from __future__ import annotations

import errno
import os
import queue
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from typing import TypeVar
from urllib.parse import urlsplit

from engine.errors import Cancelled, DownloadError, GreenroomError
from engine.models.folder import hub_cache_dir

TIMEOUT_S = 20.0  # without a byte
STOPPED = "The download was stopped. What is here stays, and the next one goes on from there."
_LOOK_S = 0.1  # between two looks at whether to stop
_AHEAD = 64  # pieces that may wait to be taken

_T = TypeVar("_T")
Cancel = Callable[[], bool]


class CutShort(OSError):
    """The connection ended before the file did."""


def endpoint() -> str:
    """The hub's address; HF_ENDPOINT means another one, as for huggingface_hub."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def stream(
    url: str,
    start: int,
    restart: Callable[[], object] = lambda: None,
    cancelled: Cancel = lambda: False,
    waiting: Callable[[], object] = lambda: None,
) -> Iterator[bytes]:
    """The bytes behind ``url`` from ``start`` on; ``restart`` is called first when the server begins at 0 instead.

    Raises Cancelled within a moment of being asked to stop, though the server be silent. ``waiting`` is called now and
    then while it is.
    """
    with closing(handed_over(lambda: _pieces(url, start), cancelled, waiting)) as pieces:
        for at, piece in pieces:
            if start and at == 0:
                restart()
            yield piece


def _pieces(url: str, start: int) -> Iterator[tuple[int, bytes]]:
    """Where each piece belongs, and its bytes."""
    from huggingface_hub import get_session
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

    headers = build_hf_headers() | {"Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    with get_session().stream("GET", url, headers=headers, timeout=TIMEOUT_S, follow_redirects=True) as response:
        hf_raise_for_status(response)
        at = start if response.status_code == 206 else 0
        for piece in response.iter_raw():  # as it comes: what waits for a whole chunk is lost by a cut
            if piece:
                yield at, piece
            at += len(piece)


def at_once(work: Callable[[], _T], cancelled: Cancel) -> _T:
    """What ``work`` returns or raises; Cancelled as soon as that is wanted, while ``work`` comes to its end alone."""
    with closing(handed_over(lambda: iter([work()]), cancelled)) as results:
        return next(results)


def handed_over(
    source: Callable[[], Iterator[_T]], cancelled: Cancel, waiting: Callable[[], object] = lambda: None
) -> Generator[_T, None, None]:
    """What ``source`` yields, made on a thread of its own, which nobody waits for any more once this is closed.

    ``waiting`` is called now and then while there is nothing."""
    ready: queue.Queue[tuple[_T] | Exception | None] = queue.Queue(_AHEAD)
    over = threading.Event()

    def put(item: tuple[_T] | Exception | None) -> None:
        while not over.is_set():
            try:
                return ready.put(item, timeout=_LOOK_S)
            except queue.Full:
                continue

    def make() -> None:
        try:
            for item in source():
                put((item,))
                if over.is_set():
                    return
            put(None)
        except Exception as error:
            put(error)

    threading.Thread(target=make, name="greenroom-hub", daemon=True).start()
    try:
        while True:
            try:
                item = ready.get(timeout=_LOOK_S)
            except queue.Empty:
                if cancelled():
                    raise Cancelled(STOPPED) from None
                waiting()
                continue
            if item is None:
                return
            if isinstance(item, Exception):
                raise item
            yield item[0]
    finally:
        over.set()


def address(name: str, commit: str, file: str) -> str:
    from huggingface_hub import hf_hub_url

    return hf_hub_url(name, file, revision=commit, endpoint=endpoint())


def refuse_offline() -> None:
    from huggingface_hub import constants

    if constants.is_offline_mode():
        raise DownloadError(
            "HF_HUB_OFFLINE is set, so the hub is not contacted. Start Greenroom without it to download."
        )


def is_broken_connection(error: Exception) -> bool:
    """Whether another try may help; not what the hub refuses in so many words."""
    from huggingface_hub import errors

    # HTTPError is the HTTP library's own, of which the hub's refusals are a kind
    return isinstance(error, CutShort | errors.HTTPError) and not isinstance(error, errors.HfHubHTTPError)


@contextmanager
def in_words(name: str) -> Iterator[None]:
    """Turn what huggingface_hub and the system raise into DownloadError."""
    try:
        yield
    except GreenroomError:
        raise
    except Exception as error:
        raise DownloadError(_sentence(name, error)) from error


def _sentence(name: str, error: Exception) -> str:
    from huggingface_hub import errors

    host = urlsplit(endpoint()).netloc
    if isinstance(error, errors.GatedRepoError):
        return (
            f"{name} is gated: accept its terms on {endpoint()}/{name}, log in here with `hf auth login`, then look it "
            "up again."
        )
    if isinstance(error, errors.EntryNotFoundError | errors.RevisionNotFoundError):
        return f"{name} has changed on the hub meanwhile; look it up again."
    if isinstance(error, errors.RepositoryNotFoundError):
        return (
            f"The hub has no model {name} that you may read. Check how it is written; for a private one log in with "
            "`hf auth login`."
        )
    if isinstance(error, errors.HfHubHTTPError):
        status = error.response.status_code
        if status in (401, 403):
            return (
                f"The hub does not let you read {name} ({status}). Log in with `hf auth login`, then look it up again."
            )
        again = "it asks for a pause" if status == 429 else f"it answers with error {status}"
        return f"{host} cannot serve {name} now: {again}. Try again later; what is here stays."
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"The disk of {hub_cache_dir()} is full. Free some room; the download then goes on from where it is."
    if isinstance(error, PermissionError):
        return f"{error.filename or hub_cache_dir()} cannot be written: {error.strerror}."
    said = str(error).splitlines()[0][:160] if str(error) else type(error).__name__
    return (
        f"{host} was not reached, or went silent ({said}). Check the connection, and HTTPS_PROXY behind a proxy; "
        "what is here stays, and the next download goes on from there."
    )
