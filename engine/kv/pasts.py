"""Which past serves the next prompt: the running one, or one of an earlier chat; the running one is put away then."""

from __future__ import annotations

import logging
from typing import Protocol

import torch

from engine.errors import memory_ran_out
from engine.kv.past import Past
from engine.kv.store import LEAST, Entry, PastStore

log = logging.getLogger("greenroom.kv")


class RunningPast(Protocol):
    """What an answer needs of its past."""

    tokens: list[int]
    logits: torch.Tensor | None

    @property
    def checkpoint_due(self) -> bool: ...
    @property
    def nbytes(self) -> int: ...
    def run(self, tokens: list[int], device: torch.device) -> torch.Tensor: ...
    def reuse(self, prompt: list[int]) -> int: ...
    def checkpoint(self) -> None: ...
    def clear(self) -> None: ...


class Pasts:
    """The running past and those that were put away.

    Chats are told apart by their tokens, not by name: a prompt that would throw away more than half of the running past
    is another chat's. An answer that is repeated, or a message edited, goes back within the running one.
    """

    def __init__(self, past: RunningPast, store: PastStore | None = None) -> None:
        self.past = past
        self._store = store
        self._chat = ""
        self._origin: Entry | None = None  # what the running past was taken from, whose place it takes

    def turn_to(self, prompt: list[int], chat: str = "") -> int:
        """Have the past that saves most of reading ``prompt``, cut to what both have in common: how many tokens.

        chat: the log it belongs to. Never raises: a past that cannot be kept or taken back is forgotten.
        """
        past, store = self.past, self._store
        if store is None or not isinstance(past, Past):
            return past.reuse(prompt)
        here = len(past.tokens) if past.tokens == prompt else past.reachable(past.common(prompt))
        there, entry = store.best(prompt)
        if len(past.tokens) >= LEAST and here < len(past.tokens) / 2:
            self._put_away(past, store)
        if entry is not None and there > here:
            self._take_back(past, store, entry, there)
        reused = past.reuse(prompt)
        if not reused:
            self._origin = None
        self._chat = chat
        return reused

    def close(self) -> None:
        """Put the running past away, too, and write what is not written yet."""
        if self._store is not None:
            if isinstance(self.past, Past) and len(self.past.tokens) >= LEAST:
                self._put_away(self.past, self._store)
            self._store.close()
        self.past.clear()

    @property
    def nbytes(self) -> int:
        """Bytes of the running past, on the model's device."""
        return self.past.nbytes

    @property
    def kept_bytes(self) -> int:
        """Bytes in RAM of those put away."""
        return self._store.nbytes if self._store is not None else 0

    def _put_away(self, past: Past, store: PastStore) -> None:
        try:
            kept = past.put_away()
        except Exception as error:
            if not memory_ran_out(error):
                raise
            log.warning("there is no memory to keep a past: %s", error)
            return
        if kept is not None:
            store.put(kept, self._chat, self._origin)
        self._origin = None

    def _take_back(self, past: Past, store: PastStore, entry: Entry, length: int) -> None:
        kept = store.get(entry)
        if kept is None:
            return
        try:
            past.take_back(kept, length)
        except Exception as error:
            past.clear()
            if not memory_ran_out(error):
                raise
            log.warning("there is no memory to take a past back: %s", error)
            return
        if length >= len(kept.tokens) / 2:  # the same chat goes on; else only a beginning that several chats share
            self._origin = entry
            store.release(entry)
