"""What is asked of a card's driver, over a stand-in that notes on which card: nobody opens one that nobody uses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from engine.bench import machine
from engine.experts.card import CudaCard, CudaPinner

SECOND = torch.device("cuda", 1)


class Driver:
    """torch.cuda on a machine with two cards. Every thread begins with cuda:0, as CUDA has it."""

    def __init__(self) -> None:
        self.current = 0
        self.opened: list[int] = []  # the card of each call that needs one
        self.calls: list[str] = []

    @contextmanager
    def device(self, device: torch.device) -> Iterator[None]:
        before, self.current = self.current, device.index
        yield
        self.current = before

    def call(self, name: str) -> int:
        self.opened.append(self.current)
        self.calls.append(name)
        return 0

    def cudart(self) -> Driver:
        return self

    def cudaHostRegister(self, address: int, nbytes: int, flags: int) -> int:
        return self.call("pin")

    def cudaHostUnregister(self, address: int) -> int:
        return self.call("unpin")


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(torch.cuda, "device", made.device)
    monkeypatch.setattr(torch.cuda, "cudart", made.cudart)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: made.call("wait"))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: made.call("release"))
    return made


def test_memory_is_pinned_and_let_go_on_the_card_that_reads_it(driver: Driver) -> None:
    pinner, memory = CudaPinner(SECOND), torch.empty(4096, dtype=torch.uint8)
    assert pinner.pin(memory)
    pinner.unpin(memory)
    assert driver.calls == ["pin", "wait", "unpin"]
    assert driver.opened == [1, 1, 1]
    assert driver.current == 0


def test_a_card_pins_and_releases_for_itself(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: device)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: None)
    card = CudaCard(SECOND)
    card.pinner.pin(torch.empty(4096, dtype=torch.uint8))
    card.release_unused()
    assert driver.calls == ["pin", "release"]
    assert driver.opened == [1, 1]


def test_the_link_is_measured_from_memory_that_was_pinned_for_that_card(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = torch.empty

    def empty(nbytes: int, dtype: torch.dtype, pin_memory: bool = False, device: object = None) -> torch.Tensor:
        if pin_memory:
            driver.call("pin")
        return real(nbytes, dtype=dtype)

    monkeypatch.setattr(torch, "empty", empty)
    monkeypatch.setattr(machine, "COPY_BYTES", 4096)
    assert machine.link_rate(SECOND, rounds=1) is not None
    assert driver.opened[driver.calls.index("pin")] == 1


@pytest.mark.parametrize(
    ("share", "reserved", "free", "total"), [(1.0, 20, 70, 100), (0.5, 20, 30, 50), (0.5, 60, 0, 50)]
)
def test_what_is_free_is_what_torch_may_still_take(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, share: float, reserved: int, free: int, total: int
) -> None:
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: device)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (70, 100))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: reserved)
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: share)
    assert CudaCard(SECOND).memory() == (free, total)
