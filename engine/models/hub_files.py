"""A model's files from the hub into its cache: a cut download goes on where it ended, and only right hashes count.

Files go where every other program looks for them: huggingface_hub's own cache, ``blobs`` by content hash, linked from
``snapshots/<commit>``. The bytes are streamed here, because huggingface_hub begins each file anew after a cut.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from engine.durable import make_durable, write_whole
from engine.errors import Cancelled, DownloadError
from engine.models.folder import hub_cache_dir
from engine.models.hub import MARKER, HubFile, HubModel, repo_folder
from engine.models.hub_talk import (
    STOPPED,
    Cancel,
    CutShort,
    address,
    at_once,
    in_words,
    is_broken_connection,
    refuse_offline,
    stream,
)

TRIES = 5  # in a row without a byte, before a download gives up
WAIT_S = 1.0  # between two tries
_SPARE = 500_000_000  # bytes left free on the disk
_CHUNK = 4 << 20  # bytes read at a time

Report = Callable[[str, int], None]
"""Called with the file under way and the bytes of all files that are there, now and then also while nothing comes."""


def present_bytes(model: HubModel) -> int:
    """Bytes of the model's files that are here already, unfinished ones included."""
    return sum(_present(repo_folder(model.name) / "blobs" / file.key, file) for file in model.files)


def check_room(model: HubModel) -> None:
    """Raise DownloadError when the disk of the hub cache has no room for the rest."""
    free, missing = free_on_disk(), model.total_bytes - present_bytes(model)
    if missing and free < missing + _SPARE:
        raise DownloadError(
            f"Not enough room on the disk of {hub_cache_dir()}: {missing / 1e9:.2f} GB are to be fetched, and "
            f"{max(0, free - _SPARE) / 1e9:.2f} GB can be used. Free {(missing + _SPARE - free) / 1e9:.2f} GB, or set "
            "HF_HUB_CACHE to a folder on another disk."
        )


def free_on_disk() -> int:
    """Bytes free where the hub cache is, or will be."""
    folder = hub_cache_dir()
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


def fetch(model: HubModel, report: Report, cancelled: Cancel) -> Path:
    """Fetch what is missing and return the snapshot's folder.

    Raises Cancelled when asked to stop, DownloadError else; what was fetched stays, and the next call goes on there.
    """
    refuse_offline()
    check_room(model)
    repo = repo_folder(model.name)
    snapshot = repo / "snapshots" / model.commit
    with in_words(model.name), _alone(model.name):
        for folder in (repo / "blobs", repo / "refs", snapshot):
            folder.mkdir(parents=True, exist_ok=True)
        write_whole(repo / MARKER, json.dumps({"commit": model.commit, "bytes": model.total_bytes}))
        done = present_bytes(model)
        for file in model.files:
            blob = repo / "blobs" / file.key
            done -= _present(blob, file)
            before = done
            if not _is_whole(blob, file):

                def told(here: int, name: str = file.name, base: int = before) -> None:
                    report(name, base + here)

                _fetch_file(file, blob, address(model.name, model.commit, file.name), told, cancelled)
            _link(blob, snapshot / file.name, cancelled)
            done = before + file.size
            report(file.name, done)
        write_whole(repo / "refs" / "main", model.commit)
        (repo / MARKER).unlink()
    return snapshot


def _fetch_file(file: HubFile, blob: Path, url: str, report: Callable[[int], None], cancelled: Cancel) -> None:
    """One file into ``blob``, from where an earlier try ended; a few tries, as long as bytes come."""
    part = _part(blob)
    tries = 0
    while True:
        have = _present(blob, file)
        try:
            if have < file.size or not part.is_file():
                with part.open("r+b" if have else "wb") as out:
                    out.seek(have)
                    _fill(out, file, url, report, cancelled)
            break
        except Exception as error:
            tries = 1 if _present(blob, file) > have else tries + 1
            if tries >= TRIES or not is_broken_connection(error):
                raise
            _pause(cancelled)
    if _digest(part, file, cancelled) != file.key:
        part.unlink()
        raise DownloadError(f"{file.name} arrived damaged: its hash is not what the hub says. Download it again.")
    at_once(lambda: make_durable(part), cancelled)
    part.replace(blob)


def _fill(out: Any, file: HubFile, url: str, report: Callable[[int], None], cancelled: Cancel) -> None:
    """Append to ``out`` until the file is whole. Raises DownloadError when more comes than there should be."""
    for chunk in stream(url, out.tell(), lambda: (out.seek(0), out.truncate()), cancelled, lambda: report(out.tell())):
        if out.tell() + len(chunk) > file.size:
            out.seek(0)
            out.truncate()
            raise DownloadError(
                f"The hub sends more of {file.name} than the {file.size:,} bytes it names; look the model up again."
            )
        out.write(chunk)
        report(out.tell())
        if cancelled():
            raise Cancelled(STOPPED)
    if out.tell() < file.size:
        raise CutShort(f"{file.name} ended after {out.tell():,} of {file.size:,} bytes")


def _part(blob: Path) -> Path:
    return blob.with_name(blob.name + ".incomplete")


def _is_whole(blob: Path, file: HubFile) -> bool:
    return blob.is_file() and blob.stat().st_size == file.size


def _present(blob: Path, file: HubFile) -> int:
    """Bytes of a file that are here. An unfinished one with too many has none that count."""
    if _is_whole(blob, file):
        return file.size
    try:
        size = _part(blob).stat().st_size
    except OSError:
        return 0
    return size if size <= file.size else 0


def _digest(path: Path, file: HubFile, cancelled: Cancel) -> str:
    """The hash that the hub names a file of this kind by."""
    # git names a small file by "blob", its length and its bytes: git-scm.com, "Git Internals - Git Objects"
    digest = hashlib.sha256() if file.large else hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)
    with path.open("rb") as content:
        while chunk := content.read(_CHUNK):
            if cancelled():
                raise Cancelled(STOPPED)
            digest.update(chunk)
    return digest.hexdigest()


def _link(blob: Path, place: Path, cancelled: Cancel) -> None:
    """Show a blob under its name: a relative link, or the file itself where the system makes no links."""
    if place.is_file() and place.stat().st_size == blob.stat().st_size:
        return
    with suppress(FileNotFoundError):
        place.unlink()  # a link to what is gone, or what an end half way through a copy left
    try:
        place.symlink_to(Path("..", "..", "blobs", blob.name))
    except OSError:
        draft = place.with_name(place.name + ".incomplete")
        with blob.open("rb") as content, draft.open("wb") as out:
            while chunk := content.read(_CHUNK):
                if cancelled():
                    raise Cancelled(STOPPED) from None
                out.write(chunk)
        at_once(lambda: make_durable(draft), cancelled)
        draft.replace(place)


def _pause(cancelled: Cancel) -> None:
    """Wait before the next try; not when the user has had enough."""
    quiet = threading.Event()
    for _ in range(10):
        if cancelled():
            raise Cancelled(STOPPED)
        quiet.wait(WAIT_S / 10)


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """No other program of ours downloads this model meanwhile. Raises DownloadError."""
    from filelock import FileLock, Timeout

    locks = hub_cache_dir() / ".locks" / repo_folder(name).name
    locks.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(locks / "greenroom.lock", timeout=0):
            yield
    except Timeout:
        raise DownloadError(f"{name} is being downloaded by another window already.") from None
