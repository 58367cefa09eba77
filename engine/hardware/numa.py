"""Which processors are close to a graphics card: memory they touch first lies on its side of the machine.

Linux tells in /sys; elsewhere, and on machines with one memory node, nobody is closer than anybody else.
"""

from __future__ import annotations

import os
from pathlib import Path

SYS = Path("/sys")


def cpus_near(pci_address: str, sys: Path = SYS) -> frozenset[int]:
    """Processors of the card's memory node; empty where it makes no difference or nobody tells.

    pci_address: "0000:65:00.0". sys: where the kernel tells.
    """
    nodes = sys / "devices" / "system" / "node"
    try:
        if len(list(nodes.glob("node[0-9]*"))) < 2:
            return frozenset()
        node = int((sys / "bus" / "pci" / "devices" / pci_address.lower() / "numa_node").read_text("ascii"))
        return _cpu_list((nodes / f"node{node}" / "cpulist").read_text("ascii")) if node >= 0 else frozenset()
    except (OSError, ValueError):
        return frozenset()


def stay_near(cpus: frozenset[int]) -> bool:
    """Keep the calling thread on these processors, as far as it may use them; False when it stays where it was."""
    try:
        allowed = cpus & os.sched_getaffinity(0)
        if not allowed:
            return False
        os.sched_setaffinity(0, allowed)  # 0: this thread, not the whole program
    except (AttributeError, OSError):
        return False
    return True


def _cpu_list(text: str) -> frozenset[int]:
    """ "0-3,8" -> 0, 1, 2, 3, 8. ValueError for anything else."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)
