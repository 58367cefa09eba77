"""The plain reader and the file cache: the yardstick must itself be right."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.bench import disk
from engine.bench.disk import cached_share, drop_pages, read_rate
from engine.hardware.disk import Span


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "numbers"
    path.write_bytes(os.urandom(1 << 20))
    with path.open("rb+") as opened:
        os.fsync(opened.fileno())
    return path


@pytest.mark.parametrize("readers", [1, 3])
@pytest.mark.parametrize("direct", [True, False])
def test_it_reads_every_block_whatever_its_place(
    file: Path, readers: int, direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not direct:
        monkeypatch.setattr(disk, "refuses_direct", lambda files: True)
    read: list[int] = []
    plain = disk._read_at

    def counts(handle: int, target: memoryview, offset: int) -> int:
        got = plain(handle, target, offset)
        wanted = file.read_bytes()[offset : offset + got]
        assert bytes(target[:got]) == wanted
        read.append(got)
        return got

    monkeypatch.setattr(disk, "_read_at", counts)
    blocks = [Span(file, 0, 4096), Span(file, 5000, 100_000), Span(file, (1 << 20) - 777, 777)]
    rate = read_rate(blocks, readers)
    assert rate.bytes_per_second > 0
    assert sum(read) >= 4096 + 100_000 + 777
    if not direct:
        assert not rate.direct
        assert "through it" in rate.note


def test_dropping_pages_empties_the_file_cache(file: Path) -> None:
    file.read_bytes()
    before = cached_share([file])
    if before is None:
        pytest.skip("this system does not tell what is cached")
    assert before == 1.0
    drop_pages([file])
    after = cached_share([file])
    if after == 1.0:
        pytest.skip("the temporary folder lives in memory: its files have no other place")
    assert after == 0.0


def test_where_pages_cannot_be_dropped_it_says_so(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "CAN_DROP", False)
    monkeypatch.setattr(disk, "refuses_direct", lambda files: True)
    assert not drop_pages([file])
    assert "may be the cache's" in read_rate([Span(file, 0, 4096)], 1).note
