"""What the files of a room are: a new policy or predictor is a file of its own, and nobody has to import it by name."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from types import ModuleType
from typing import TypeVar

T = TypeVar("T")


def kinds_in(room: ModuleType, base: type[T], sentences: Mapping[str, str], listed: str) -> dict[str, type[T]]:
    """The subclasses of ``base`` that the modules of the package ``room`` define with a ``name`` of their own, by name.

    sentences: the registry, name -> what the user is told; the order is its order. listed: where it stands, for the
    errors. Raises LookupError when registry and files do not agree, saying which line or file is missing.
    """
    found: dict[str, type[T]] = {}
    for module in pkgutil.iter_modules(room.__path__, f"{room.__name__}."):
        for kind in vars(importlib.import_module(module.name)).values():
            if not (isinstance(kind, type) and issubclass(kind, base) and kind.__module__ == module.name):
                continue
            name = vars(kind).get("name")
            if not isinstance(name, str):  # a ground that others stand on
                continue
            if name not in sentences:
                raise LookupError(f'{module.name} calls itself "{name}": give it a line with a sentence in {listed}.')
            if found.setdefault(name, kind) is not kind:
                raise LookupError(f'{module.name} and {found[name].__module__} are both called "{name}"; rename one.')
    missing = [name for name in sentences if name not in found]
    if missing:
        raise LookupError(f'{listed} has a line for "{missing[0]}", but no file of {room.__name__} has that name.')
    return {name: found[name] for name in sentences}
