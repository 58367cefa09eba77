"""Every way to read a file gives the file's bytes, wherever they lie, or says that it cannot."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.errors import ModelError
from engine.experts.reading import SLACK, CheckpointFile, DirectFile, PositionalFile, SeekingFile
from engine.hardware import disk

SIZE = 5 * disk.PAGE + 777  # the last block is not whole


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    content = random.Random(0).randbytes(SIZE)
    (tmp_path / "file").write_bytes(content)
    return content


@pytest.fixture(params=["positional", "dropping", "direct", "seeking"])
def file(request: pytest.FixtureRequest, content: bytes, tmp_path: Path) -> Iterator[CheckpointFile]:
    path = tmp_path / "file"
    if request.param != "seeking" and not hasattr(os, "preadv"):
        pytest.skip("this system has no positional reads")
    if request.param == "direct" and disk.refuses_direct([path]):
        pytest.skip("this file system refuses direct reads")
    made: dict[str, CheckpointFile] = {
        "positional": PositionalFile(path),
        "dropping": PositionalFile(path, dropping=True),
        "direct": DirectFile(path),
        "seeking": SeekingFile(path),
    }
    yield made[request.param]
    made[request.param].close()


def staged(file: CheckpointFile, offset: int, nbytes: int) -> bytes:
    staging = disk.aligned_buffer(nbytes + SLACK)
    begins = file.stage(staging, offset, nbytes)
    return bytes(staging[begins : begins + nbytes])


@pytest.mark.parametrize("offset", [0, 1, 511, disk.PAGE - 1, disk.PAGE, 2 * disk.PAGE + 8])
@pytest.mark.parametrize("nbytes", [1, 8, disk.PAGE, 2 * disk.PAGE + 5])
def test_the_files_bytes_wherever_they_lie(file: CheckpointFile, content: bytes, offset: int, nbytes: int) -> None:
    assert staged(file, offset, nbytes) == content[offset : offset + nbytes]


@pytest.mark.parametrize("nbytes", [1, 776, 777, 778, disk.PAGE + 777, SIZE])
def test_up_to_the_files_last_byte(file: CheckpointFile, content: bytes, nbytes: int) -> None:
    assert staged(file, SIZE - nbytes, nbytes) == content[-nbytes:]


@pytest.mark.parametrize("beyond", [1, 700, 5000])
def test_bytes_that_are_not_there(file: CheckpointFile, beyond: int) -> None:
    with pytest.raises(ModelError, match=rf"cannot be read any more: it became shorter by {min(beyond, 5000):,} bytes"):
        staged(file, SIZE - 100, 100 + beyond)
    assert staged(file, SIZE - 100, 100)


@pytest.mark.parametrize("most", [disk.PAGE, 2 * disk.PAGE])
def test_reads_that_bring_less_than_asked_for_go_on(
    file: CheckpointFile, content: bytes, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not isinstance(file, SeekingFile):
        real = os.preadv
        monkeypatch.setattr(os, "preadv", lambda fd, buffers, offset: real(fd, [buffers[0][:most]], offset))
    assert staged(file, 9, SIZE - 9) == content[9:]


@pytest.mark.skipif(not hasattr(os, "preadv"), reason="this system has no positional reads")
@pytest.mark.parametrize("most", [100, disk.PAGE, 100 * disk.PAGE])
def test_landing_goes_on_after_a_short_read(
    content: bytes, tmp_path: Path, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "open_direct", lambda path: os.open(path, os.O_RDONLY))
    real = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, offset: real(fd, [b[:most] for b in buffers[:1]], offset))
    file = DirectFile(tmp_path / "file", lands=disk.PAGE)
    places = [bytearray(disk.PAGE), bytearray(3 * disk.PAGE), bytearray(disk.PAGE)]
    wanted = 5 * disk.PAGE - 9
    if most < disk.PAGE:  # not a block: only the file's end may do that
        with pytest.raises(ModelError, match="became shorter"):
            file.land([memoryview(place) for place in places], disk.PAGE, wanted)
    else:
        file.land([memoryview(place) for place in places], 0, wanted)
        assert b"".join(places)[:wanted] == content[:wanted]
    file.close()


def test_one_read_fills_several_places(file: CheckpointFile, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    if isinstance(file, DirectFile):
        pytest.skip("direct reads go through staging")
    real = getattr(os, "preadv", None)
    for most in (SIZE, 700):
        if real:
            monkeypatch.setattr(os, "preadv", lambda fd, buffers, offset, n=most: real(fd, [buffers[0][:n]], offset))
        places = [bytearray(count) for count in (300, 0, 5000, 1)]
        file.fill([memoryview(place) for place in places], 12)
        assert b"".join(places) == content[12 : 12 + 5301]


def test_several_threads_at_once(file: CheckpointFile, content: bytes) -> None:
    source = random.Random(1)
    spans = [(start, source.randint(1, SIZE - start)) for start in source.choices(range(SIZE), k=400)]
    with ThreadPoolExecutor(8) as pool:
        for (offset, nbytes), got in zip(spans, pool.map(lambda span: staged(file, *span), spans), strict=True):
            assert got == content[offset : offset + nbytes]


def test_a_file_that_is_gone_and_back(file: CheckpointFile, content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").rename(tmp_path / "elsewhere")
    with pytest.raises(ModelError, match="No such file"):
        staged(file, 0, 10)
    (tmp_path / "elsewhere").rename(tmp_path / "file")
    assert staged(file, 0, 10) == content[:10]
