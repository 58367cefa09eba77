"""Brings experts into their slots on threads of its own, while compute goes on with what is there."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from engine.experts.arena import Arena
from engine.experts.device import Arrival, Device
from engine.experts.store import Store

READERS = 2  # reads in flight; more gain nothing where cores are few and the disk is local


class Transfer:
    """Demand fetches, first come first served."""

    def __init__(self, store: Store, device: Device, readers: int = READERS) -> None:
        self._store = store
        self._device = device
        self._pool = ThreadPoolExecutor(readers, thread_name_prefix="greenroom-io")

    def demand(self, arena: Arena, layer: int, expert: int, slot: int) -> Future[tuple[int, Arrival | None]]:
        """Fetch one expert into ``slot`` of ``arena``; the result is the bytes read and, on CUDA, what to wait for."""
        return self._pool.submit(self._fetch, arena, layer, expert, slot)

    def close(self) -> None:
        """Wait for what is under way and close the store."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._store.close()

    def _fetch(self, arena: Arena, layer: int, expert: int, slot: int) -> tuple[int, Arrival | None]:
        blob = arena.blobs[slot]
        host = self._device.landing(blob)
        try:
            fetched = self._store.read(layer, expert, host)
        except BaseException:
            self._device.abandon(host)
            raise
        return fetched, self._device.deliver(host, blob)
