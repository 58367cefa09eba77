"""How fast a disk gives a file is measured within bounds, by reads of the kind that will follow."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from engine.hardware import disk
from engine.hardware.disk import Span


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(64 * disk.PAGE + 5))
    return path


def spans(file: Path, count: int = 16) -> list[Span]:
    return [Span(file, 3 * disk.PAGE * number + 5, 2 * disk.PAGE) for number in range(count)]


def test_a_rate_for_every_way(file: Path) -> None:
    ways: list[disk.Way] = ["buffered"]
    ways += ["dropping"] if disk.CAN_DROP else []
    ways += [] if disk.refuses_direct([file]) else ["direct"]
    rates = disk.measure(spans(file), ways, seconds=10, most=1 << 30)
    assert rates.keys() == set(ways)
    assert all(1e5 < rate < 1e12 for rate in rates.values())


@pytest.mark.parametrize(
    ("seconds", "most", "expected"), [(60, 1 << 30, 16), (60, 3 * 2 * disk.PAGE, 4), (0, 1 << 30, 2)]
)
def test_it_stops_at_its_bounds(
    file: Path, seconds: float, most: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No further pair of reads once the time or the bytes are up; at least one pair."""
    seen = []
    real = os.preadv
    monkeypatch.setattr(os, "preadv", lambda *call: (seen.append(call), real(*call))[1])
    disk.measure(spans(file), ["buffered"], seconds, most)
    assert len(seen) == expected


@pytest.mark.skipif(not hasattr(os, "preadv"), reason="this system has no positional reads")
@pytest.mark.parametrize("copies", [True, False])
def test_every_way_really_reads_what_its_rate_counts(file: Path, copies: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where direct reads land in place and need no memory beside."""
    ways: list[disk.Way] = ["direct", "dropping", "buffered"] if disk.CAN_DROP else ["direct", "buffered"]
    monkeypatch.setattr(disk, "open_direct", lambda file: os.open(file, os.O_RDONLY))
    read: list[int] = []
    real = os.preadv

    def preadv(*call: object) -> int:
        read.append(real(*call))  # type: ignore[arg-type]
        return read[-1]

    monkeypatch.setattr(os, "preadv", preadv)
    disk.measure(spans(file), ways, seconds=60, most=1 << 30, copies=copies)
    assert len(read) == 16
    assert min(read) >= 2 * disk.PAGE


def test_a_file_cut_short_has_no_rate(file: Path) -> None:
    os.truncate(file, 20 * disk.PAGE)
    with pytest.raises(OSError, match="shorter"):
        disk.measure(spans(file), ["buffered"], 10, 1 << 30)


def test_with_nothing_to_read_there_is_no_rate() -> None:
    assert disk.measure([], ["buffered"], 1, 1000) == {"buffered": 0.0}


def test_without_positional_reads(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "preadv")
    assert disk.refuses_direct([file])
    assert disk.measure(spans(file), ["buffered"], 10, 1 << 30)["buffered"] > 0


def test_a_file_system_that_refuses(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some refuse when the file is opened, some when it is read."""

    def refused(*_: object) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    for name in ("open", "preadv"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, refused)
            assert disk.refuses_direct([file])


def test_a_missing_file_refuses(tmp_path: Path) -> None:
    assert disk.refuses_direct([tmp_path / "none"])


def test_a_spread_is_from_all_over() -> None:
    some = [Span(Path("x"), number, 1) for number in range(1000)]
    chosen = [span.offset for span in disk.spread(some, 10)]
    assert chosen == list(range(0, 1000, 100))
    assert list(disk.spread(some[:3], 10)) == some[:3]
