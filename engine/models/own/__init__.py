"""Model families that transformers has no class for, written here out of its parts.

One file for each, called as the ``model_type`` in config.json; its ``register`` makes config, model, tokenizer and the
checkpoint's names known to transformers' auto classes. Such checkpoints ask for their own code by ``auto_map``: with a
class of ours known, transformers takes that one and runs none of theirs.
"""

from __future__ import annotations

import importlib
import pkgutil

from transformers.models.auto.configuration_auto import CONFIG_MAPPING

_FILES = frozenset(file.name for file in pkgutil.iter_modules(__path__))


def offer(family: str) -> None:
    """Make ``family`` known to transformers, where it has none of that name and a file of ours does."""
    if family in _FILES and family not in CONFIG_MAPPING:
        importlib.import_module(f"{__name__}.{family}").register()
