"""The GPU check: its parts one after the other, each into the report as soon as it is done.

    python -m tests.gpu.check --out FOLDER

Where there is no CUDA the report says so. With ``--device cpu`` every part runs in a small size with the processor
standing in for the card: that shows that the check itself works, and nothing about a card.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOM_FOR_ONE_MORE = 25.0  # seconds that must be left to begin another part


class Check:
    """What every part is given: where to run, how large, until when; and what it found."""

    def __init__(self, device: str, small: bool, folder: Path, seconds: float) -> None:
        self.device, self.small, self.folder = device, small, folder
        self._end = time.monotonic() + seconds
        self.failures: list[str] = []

    @property
    def seconds_left(self) -> float:
        return self._end - time.monotonic()

    def expect(self, holds: bool, sentence: str) -> None:
        """A promise; a broken one fails the whole check."""
        if not holds:
            self.failures.append(sentence)
            print(f"  FAILED: {sentence}", flush=True)


Part = Callable[[Check], dict[str, Any]]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.check")
    parser.add_argument("--out", type=Path, default=Path("gpu-report"), help="folder for report.json")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N, or cpu to try the check itself out, small")
    parser.add_argument("--seconds", type=float, default=330, help="begin no part that would end later")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    report = options.out / "report.json"

    reason = why_not(options.device)
    if reason:
        write(report, {"verdict": "skipped", "reason": reason})
        print(f"Skipped: {reason}")
        return 0
    began = time.monotonic()
    with TemporaryDirectory(prefix="greenroom-gpu-") as folder:
        check = Check(options.device, options.device == "cpu", Path(folder), options.seconds)
        found: dict[str, Any] = {
            "verdict": "running",
            "machine": machine(check.device),
            "parts": {},
            "skipped_parts": [],
        }
        for name, part in parts():
            if check.seconds_left < ROOM_FOR_ONE_MORE:
                found["skipped_parts"].append(name)
                print(f"{name}: no time left", flush=True)
                continue
            write(report, found | {"running": name})  # what is left to read when a part never ends
            found["parts"][name] = run(name, part, check)
    found |= {"verdict": "failed" if check.failures else "passed", "failures": check.failures}
    found["seconds"] = round(time.monotonic() - began, 1)
    write(report, found)
    print(f"{found['verdict']} in {found['seconds']:.0f} s; {report}")
    return 1 if check.failures else 0


def parts() -> list[tuple[str, Part]]:
    """In the order of what matters most. Imported here: a machine that cannot run them still gets its report."""
    from tests.gpu import copies, exactness, hazards, ratios, resident

    return [
        ("hazards", hazards.no_slot_is_overwritten_while_in_use),
        ("host_tier", hazards.lends_pinned_memory_bit_for_bit),
        ("exactness", exactness.greedy_tokens_are_the_stock_models),
        ("resident", resident.the_card_picks_by_itself),
        ("copy_rates", copies.copy_rates),
        ("compute_on_miss", copies.compute_on_miss),
        ("ratios", ratios.resident_and_offloaded),
    ]


def why_not(device: str) -> str:
    """Why this machine cannot run the check; empty when it can."""
    if device == "cpu":
        return ""
    try:
        import torch
    except ImportError as error:
        return f"torch cannot be imported ({error})."
    if torch.cuda.is_available():
        return ""
    if torch.version.cuda is None and torch.version.hip is None:
        return f"torch {torch.__version__} is a build without CUDA."
    return "No graphics card that torch could use was found."


def run(name: str, part: Part, check: Check) -> dict[str, Any]:
    print(f"{name} ...", flush=True)
    began = time.monotonic()
    try:
        found = part(check)
    except Exception as error:  # whatever it is, the other parts still run
        traceback.print_exc()
        check.expect(False, f"{name} broke: {type(error).__name__}: {error}")
        found = {"error": f"{type(error).__name__}: {error}"}
    seconds = round(time.monotonic() - began, 1)
    print(f"  {json.dumps(found)[:2000]}\n  {seconds} s", flush=True)
    return found | {"seconds": seconds}


def machine(device: str) -> dict[str, Any]:
    import psutil
    import torch
    import transformers

    from engine.hardware.probes import cores

    facts: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cores": cores(),
        "ram_bytes": psutil.virtual_memory().total,
    }
    if device != "cpu":
        card = torch.cuda.get_device_properties(device)
        facts |= {"card": card.name, "vram_bytes": card.total_memory}
    return facts


def write(report: Path, found: dict[str, Any]) -> None:
    report.write_text(json.dumps(found, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
