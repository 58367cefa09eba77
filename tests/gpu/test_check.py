"""The GPU check works before there is a card: it skips with the reason, and every part runs on a stand-in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.experts.device import CpuDevice, Slots
from engine.experts.resident import Resident
from tests.gpu import check, hazards, resident

ROOT = Path(__file__).parents[2]


def report_in(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "report.json").read_text("utf-8"))
    return found


@pytest.mark.skipif(shutil.which("bash") is None or sys.platform == "win32", reason="needs bash")
@pytest.mark.skipif(torch.cuda.is_available(), reason="here it would run in full")
def test_without_cuda_it_skips_with_the_reason_and_ends_well(tmp_path: Path) -> None:
    environment = os.environ | {"OUT": str(tmp_path / "out"), "PYTHON": sys.executable}
    ran = subprocess.run(["bash", "tests/gpu/check.sh"], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    found = report_in(tmp_path / "out")
    assert found["verdict"] == "skipped"
    assert "CUDA" in found["reason"] or "card" in found["reason"]
    assert found["reason"] in ran.stdout


def test_every_part_runs_on_a_stand_in(tmp_path: Path) -> None:
    assert check.main(["--device", "cpu", "--out", str(tmp_path)]) == 0
    found = report_in(tmp_path)
    assert (found["verdict"], found["failures"], found["skipped_parts"]) == ("passed", [], [])
    assert list(found["parts"]) == [name for name, _ in check.parts()]
    assert set(found["parts"]["ratios"]["ratios"]) == {
        "resident_vs_best_stock", "half_vs_resident", "quarter_vs_resident", "eighth_vs_resident",
    }  # fmt: skip
    assert all(part["equal"] for part in found["parts"]["exactness"].values() if isinstance(part, dict))


def test_a_part_that_breaks_fails_the_check_and_not_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(check: check.Check) -> dict[str, Any]:
        raise RuntimeError("the driver went away")

    monkeypatch.setattr(check, "parts", lambda: [("first", broken), ("second", lambda check: {"fine": True})])
    assert check.main(["--device", "cpu", "--out", str(tmp_path)]) == 1
    found = report_in(tmp_path)
    assert found["verdict"] == "failed"
    assert "the driver went away" in found["failures"][0]
    assert found["parts"]["second"]["fine"] is True


def test_what_there_is_no_time_for_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "parts", lambda: [("long", lambda check: {})])
    assert check.main(["--device", "cpu", "--out", str(tmp_path), "--seconds", "1"]) == 0
    assert report_in(tmp_path)["skipped_parts"] == ["long"]


def test_a_device_that_mixes_experts_up_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Careless(CpuDevice):
        """One landing buffer for everybody, sent from when somebody waits: another's bytes may be in it by then."""

        def __init__(self) -> None:
            super().__init__()
            self._buffer = torch.zeros(1 << 20, dtype=torch.uint8)

        def landing(self, arena: Slots, slot: int) -> torch.Tensor:
            return self._buffer[: arena.blob(slot).nbytes]

        def deliver(self, source: torch.Tensor, arena: Slots, slot: int) -> Any:
            class Late:
                def wait(self) -> None:
                    arena.blob(slot).copy_(source)

            return Late()

    monkeypatch.setattr(hazards, "make_device", lambda name: Careless())
    looked = check.Check("cpu", True, tmp_path, 60)
    assert hazards.no_slot_is_overwritten_while_in_use(looked)["wrong_experts"] > 0
    assert any("came out wrong" in failure for failure in looked.failures)


def test_a_device_that_stops_when_nobody_waits_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stingy(CpuDevice):
        """Four landing buffers, each free again only when somebody waited for what was sent from it."""

        def __init__(self) -> None:
            super().__init__()
            self._free = threading.Semaphore(4)

        def landing(self, arena: Slots, slot: int) -> torch.Tensor:
            self._free.acquire()
            return arena.blob(slot)

        def deliver(self, source: torch.Tensor, arena: Slots, slot: int) -> Any:
            waited: list[bool] = []
            free = self._free

            class Sent:
                def wait(self) -> None:
                    if not waited:
                        waited.append(True)
                        free.release()

            return Sent()

    monkeypatch.setattr(hazards, "make_device", lambda name: Stingy())
    monkeypatch.setattr(hazards, "PATIENCE", 0.2)
    looked = check.Check("cpu", True, tmp_path, 60)
    assert hazards.no_slot_is_overwritten_while_in_use(looked)["held_up_after"] == 4
    assert any("nobody waited for" in failure for failure in looked.failures)


def test_a_refill_that_does_not_wait_for_the_reader_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hasty(CpuDevice):
        """Its reader is slow: what was cloned is filled in only when the refill has been sent."""

        def deliver(self, source: torch.Tensor, arena: Slots, slot: int) -> None:
            blob = arena.blob(slot)
            for clone in clones:
                if clone.shape == blob.shape:
                    clone.copy_(blob)

    clones: list[torch.Tensor] = []
    honest = torch.Tensor.clone

    def clone(self: torch.Tensor) -> torch.Tensor:
        clones.append(honest(self))
        return clones[-1]

    monkeypatch.setattr(torch.Tensor, "clone", clone)
    monkeypatch.setattr(hazards, "make_device", lambda name: Hasty())
    looked = check.Check("cpu", True, tmp_path, 60)
    assert hazards.no_slot_is_overwritten_while_in_use(looked)["overwritten_bytes"] > 0
    assert any("overwritten while a kernel" in failure for failure in looked.failures)


def test_a_card_that_picks_other_experts_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Resident.pick

    def pick(self: Resident, layer: int, ids: torch.Tensor, weights: torch.Tensor) -> Any:
        parameters, ascending = honest(self, layer, ids, weights)
        return [*parameters[1:], parameters[0]], ascending

    monkeypatch.setattr(Resident, "pick", pick)
    looked = check.Check("cpu", True, tmp_path, 60)
    assert resident.the_card_picks_by_itself(looked)["different_logits"] > 0
    assert any("logits differ" in failure for failure in looked.failures)
