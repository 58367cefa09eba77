"""Memory near the card, where the system tells which processors are."""

import os
import sys
import threading
from pathlib import Path

import pytest

from engine.hardware.numa import cpus_near, stay_near

CARD = "0000:65:00.0"


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """/sys of a machine with two memory nodes and a card on the second."""
    for node, cpus in enumerate(("0-3,8-11", "4-7,12")):
        folder = tmp_path / "devices" / "system" / "node" / f"node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(f"{cpus}\n")
    card = tmp_path / "bus" / "pci" / "devices" / CARD
    card.mkdir(parents=True)
    (card / "numa_node").write_text("1\n")
    return tmp_path


def test_the_processors_of_the_cards_node(kernel):
    assert cpus_near(CARD, kernel) == {4, 5, 6, 7, 12}
    assert cpus_near(CARD.upper(), kernel) == {4, 5, 6, 7, 12}


def test_a_card_that_belongs_nowhere_is_near_nobody(kernel):
    (kernel / "bus" / "pci" / "devices" / CARD / "numa_node").write_text("-1\n")
    assert cpus_near(CARD, kernel) == frozenset()


def test_with_one_node_everybody_is_equally_near(kernel):
    (kernel / "devices" / "system" / "node" / "node0" / "cpulist").unlink()
    (kernel / "devices" / "system" / "node" / "node0").rmdir()
    assert cpus_near(CARD, kernel) == frozenset()


def test_a_system_that_tells_nothing_or_nonsense_is_no_error(kernel):
    assert cpus_near(CARD, kernel / "nowhere") == frozenset()
    assert cpus_near("0000:66:00.0", kernel) == frozenset()
    (kernel / "devices" / "system" / "node" / "node1" / "cpulist").write_text("?\n")
    assert cpus_near(CARD, kernel) == frozenset()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux binds threads this way")
def test_a_thread_stays_near_and_the_others_stay_free():
    before = os.sched_getaffinity(0)
    one = frozenset({min(before)})
    seen = []

    def work():
        seen.append((stay_near(one | {100_000}), os.sched_getaffinity(0)))
        seen.append((stay_near(frozenset()), os.sched_getaffinity(0)))
        seen.append((stay_near(frozenset({100_000})), os.sched_getaffinity(0)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(True, one), (False, one), (False, one)]
    assert os.sched_getaffinity(0) == before


def test_where_threads_cannot_be_bound_nothing_happens(monkeypatch):
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    assert stay_near(frozenset({0})) is False
