"""What the user chose, kept between starts.

Every option is declared once in ``Settings``, with its default and what values mean something. A stored value that
does not (edited by hand, from another version, of the wrong type) falls back to the default. One small JSON file,
replaced atomically. A save writes what was set here over what the file says by then: what another window set meanwhile,
and what only a newer version knows, stays. A file that cannot be read is put aside before it is replaced.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

from engine.messages import DEFAULT_POLICY, DEFAULT_PREDICTOR, KEEP_PAST, POLICIES, PREDICTORS, PREFETCH, READ_MODES

log = logging.getLogger("greenroom.settings")

T = TypeVar("T")


class Option(Generic[T]):
    """One setting: a typed attribute of ``Settings`` that saves itself when it is assigned."""

    def __init__(self, default: T, check: Callable[[T], bool] = lambda value: True) -> None:
        self.default = default
        self._check = check
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, settings: None, owner: type) -> Option[T]: ...
    @overload
    def __get__(self, settings: Settings, owner: type) -> T: ...
    def __get__(self, settings: Settings | None, owner: type) -> Option[T] | T:
        if settings is None:
            return self
        value: T = settings._values.get(self.name, self.default)
        return value

    def __set__(self, settings: Settings, value: T) -> None:
        parsed = self.parse(value)
        if _differs(settings._values.get(self.name, self.default), parsed):
            settings._values[self.name] = parsed
            settings._changed.add(self.name)
            settings.save()

    def parse(self, value: Any) -> T:
        """``value`` as this option's type, or the default when it means nothing here."""
        wanted = type(self.default)
        if isinstance(value, list) and wanted is tuple:
            value = tuple(value)
        if wanted is float and type(value) is int:
            value = float(value)
        good = type(value) is wanted and not (isinstance(value, float) and not math.isfinite(value))
        if isinstance(value, tuple):
            good = good and all(isinstance(item, str) for item in value)
        return value if good and self._check(value) else self.default


def one_of(*choices: str) -> Callable[[str], bool]:
    return lambda value: value in choices


def between(low: float, high: float) -> Callable[[float], bool]:
    return lambda value: low <= value <= high


def of_dicts(value: dict[str, dict[str, Any]]) -> bool:
    return all(isinstance(name, str) and isinstance(inner, dict) for name, inner in value.items())


class Settings:
    """All options, loaded from ``path`` (``None``: kept in memory only)."""

    # the window
    theme = Option("system", one_of("system", "light", "dark"))
    font_size = Option(14, between(11, 22))  # px of running text; everything else keeps its proportion
    note = Option("")  # a sentence that the next start has to tell
    welcomed = Option(False)  # the first start's welcome was seen
    geometry = Option("")  # QWidget.saveGeometry, base64
    sidebar_open = Option(True)
    panels_open = Option(True)
    sidebar_width = Option(248, between(160, 600))
    panels_width = Option(368, between(280, 900))
    panels: Option[dict[str, dict[str, Any]]] = Option({}, of_dicts)  # name -> what panels_column remembers, in order
    export_folder = Option("")

    # the answer
    preset = Option("advised", one_of("advised", "precise", "balanced", "creative"))
    max_tokens = Option(1024, between(1, 1_000_000))
    presets: Option[dict[str, dict[str, Any]]] = Option({}, of_dicts)  # the user's: name -> values, see answer_style
    model_styles: Option[dict[str, dict[str, Any]]] = Option({}, of_dicts)  # model's source -> what was changed for it

    # the model
    last_source = Option("")  # what LoadModel took; empty: none yet
    last_experts = Option("auto")
    last_policy = Option(DEFAULT_POLICY, one_of(*POLICIES))
    last_context = Option(0, between(0, 100_000_000))
    last_device = Option("auto")
    last_dtype = Option("auto")
    model_loads: Option[dict[str, dict[str, Any]]] = Option({}, of_dicts)  # model's source -> options of its last load
    startup = Option("last", one_of("last", "none", "chosen"))  # which model the next start loads
    startup_source = Option("")  # the chosen one
    # set before a load, gone once the model has answered or the program closed well: still set means a crash
    loading_source = Option("")
    threads = Option(0, between(0, 1024))  # 0: all but one
    predictor = Option(DEFAULT_PREDICTOR, one_of(*PREDICTORS))
    prefetch = Option("auto", one_of(*PREFETCH))
    reads = Option("auto", one_of(*READ_MODES))
    keep_past = Option("auto", one_of(*KEEP_PAST))
    model_folders: Option[tuple[str, ...]] = Option(())  # where the picker looks besides the demo and the hub cache

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._values: dict[str, Any] = {}
        self._changed: set[str] = set()  # set here, and not in the file yet
        self.damaged = False  # the file could not be read: defaults hold
        try:
            self._seen = self._read()  # of each option what the file said when this window last knew
        except _Damaged as damage:
            log.warning("Settings in %s cannot be read, defaults are used: %s", self._path, damage)
            self.damaged, self._seen = True, {}
        for name, option in vars(type(self)).items():
            if isinstance(option, Option) and name in self._seen:
                self._values[name] = option.parse(self._seen[name])

    @property
    def put_aside(self) -> Path | None:
        """Where a file that could not be read is kept, from the next save on."""
        return self._path.with_name(f"{self._path.name}.damaged") if self._path is not None else None

    def _read(self) -> dict[str, Any]:
        if self._path is None:
            return {}
        try:
            stored = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            raise _Damaged(str(error)) from error
        if not isinstance(stored, dict):
            raise _Damaged("it holds no settings")
        return stored

    def save(self) -> None:
        """Write what was set since the last save. A full or read-only disk costs the setting, not the program."""
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            stored = self._read_or_put_aside()
            for name in self._changed:
                value, before, now = self._values[name], self._seen.get(name), stored.get(name)
                if isinstance(value, dict) and isinstance(now, dict) and now != before:
                    value = _merged(before if isinstance(before, dict) else {}, value, now)
                    self._values[name] = value
                stored[name] = value
            self._write(stored)
        except OSError as error:
            log.warning("Settings cannot be saved in %s: %s", self._path, error)
            return
        self._seen |= {name: stored[name] for name in self._changed}
        self._changed.clear()

    def _read_or_put_aside(self) -> dict[str, Any]:
        assert self._path is not None and self.put_aside is not None
        try:
            return self._read()
        except _Damaged:
            self._path.replace(self.put_aside)
            return {}

    def _write(self, stored: dict[str, Any]) -> None:
        assert self._path is not None
        handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=".settings-")
        try:
            # half a character, as a file's name may have one, is written as JSON's own escape
            with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
                json.dump(stored, file, indent=2, ensure_ascii=False)
            Path(name).replace(self._path)
        except OSError:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise


class _Damaged(Exception):
    """The file is there and cannot be read."""


def _differs(before: object, now: object) -> bool:
    """Whether there is something to save; the order of entries counts, for panels have one."""
    return before != now or (isinstance(before, dict) and isinstance(now, dict) and list(before) != list(now))


def _merged(before: dict[str, Any], ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """What another window wrote, with what was changed here since ``before`` changed in it too."""
    kept = {name: value for name, value in theirs.items() if name in ours or name not in before}
    return kept | {name: value for name, value in ours.items() if name not in before or before[name] != value}
