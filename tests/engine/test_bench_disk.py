"""The plain reader and the file cache: the yardstick must itself be right."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.bench import disk
from engine.bench.disk import cached_share, drop_pages, fill_pages, read_rate, whole_files
from engine.hardware.disk import PAGE, Span


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


def test_dropping_pages_empties_the_file_cache_and_filling_fills_it(file: Path) -> None:
    file.read_bytes()
    everything = whole_files([file])
    before = cached_share(everything)
    if before is None:
        pytest.skip("this system does not tell what is cached")
    assert before == 1.0
    drop_pages([file])
    after = cached_share(everything)
    if after == 1.0:
        pytest.skip("the temporary folder lives in memory: its files have no other place")
    assert after == 0.0
    assert fill_pages([file])
    assert cached_share(everything) == 1.0


def test_what_is_cached_is_told_of_a_part_alone(file: Path) -> None:
    drop_pages([file])
    if cached_share(whole_files([file])) != 0.0:
        pytest.skip("pages cannot be dropped here")
    with file.open("rb", buffering=0) as handle:
        os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # no reading ahead
        handle.seek(8 * PAGE)
        handle.read(4 * PAGE)
    assert cached_share([Span(file, 8 * PAGE, 4 * PAGE)]) == 1.0
    assert cached_share([Span(file, 100 * PAGE, 4 * PAGE)]) == 0.0


def test_files_larger_than_memory_are_not_read_into_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "CACHE_SHARE", 0.0)
    assert not fill_pages([file])


def test_where_pages_cannot_be_dropped_it_says_so(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "CAN_DROP", False)
    monkeypatch.setattr(disk, "refuses_direct", lambda files: True)
    assert not drop_pages([file])
    assert "may be the cache's" in read_rate([Span(file, 0, 4096)], 1).note
