"""Moving the data: copied, verified, switched; and whatever breaks off, the old folder is whole and in use."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from app import data_folder
from app.data_folder import Move, MoveRefused, check, copy, delete_old_copy, finish, give_up, old_copy
from engine.paths import Moved, data_dir, default_dir, moved


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's usual data folder, with data in it."""
    monkeypatch.delenv("GREENROOM_DATA")
    usual = tmp_path / "usual"
    monkeypatch.setattr("engine.paths.user_data_path", lambda *names, **options: usual)
    (usual / "conversations").mkdir(parents=True)
    for number in range(5):
        (usual / "conversations" / f"Gespräch {number}.jsonl").write_text(f"line {number}\n" * 1000, encoding="utf-8")
    (usual / "settings.json").write_text("{}")
    return usual


@pytest.fixture
def move(home: Path, tmp_path: Path) -> Move:
    return Move(home, tmp_path / "other disk" / "greenroom")


def contents(folder: Path) -> dict[str, bytes]:
    names = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {
        name: path.read_bytes() for name, path in names.items() if path.name not in ("moved.json", data_folder.MARK)
    }


def run(move: Move) -> None:
    check(move)
    copy(move, lambda: False)
    finish(move)


def test_everything_arrives_and_the_next_start_finds_it(home: Path, move: Move) -> None:
    before = contents(home)
    told: list[tuple[int, int]] = []
    size = check(move)
    copy(move, lambda: False, lambda done, total: told.append((done, total)))
    assert data_dir() == home  # nothing is switched before the program has closed its files
    assert told[-1] == (size, size)
    assert told == sorted(told)
    finish(move)
    assert data_dir() == move.new.resolve()
    assert contents(move.new) == before == contents(home)
    assert not (move.new / data_folder.MARK).exists()
    assert moved() == Moved(str(move.new), str(home))


def test_what_changes_while_it_copies_goes_with_it(home: Path, move: Move) -> None:
    check(move)
    copy(move, lambda: False)
    with (home / "conversations" / "Gespräch 1.jsonl").open("a") as file:
        file.write("one more line\n")
    (home / "conversations" / "new.jsonl").write_text("a new one")
    (home / "conversations" / "Gespräch 2.jsonl").unlink()
    finish(move)
    assert contents(move.new) == contents(home)


def test_a_move_that_is_stopped_or_breaks_off_loses_nothing_and_can_go_on(home: Path, move: Move) -> None:
    before = contents(home)
    seen: list[int] = []
    check(move)
    copy(move, lambda: len(seen) >= 2, lambda done, total: seen.append(done))
    (move.new / "conversations" / f"x{data_folder.MARK}").write_text("half a file")  # as a crash leaves it
    assert data_dir() == home
    assert contents(home) == before
    first = {path: path.stat().st_ino for path in move.new.rglob("*.jsonl")}
    assert len(first) == 2
    run(move)  # the folder is not empty, but it is ours
    assert contents(move.new) == before
    assert {path: path.stat().st_ino for path in first} == first  # what was there was not copied again


def test_giving_up_removes_the_copy_and_never_the_data(home: Path, move: Move) -> None:
    before = contents(home)
    check(move)
    copy(move, lambda: False)
    give_up(move)
    assert not move.new.exists()
    assert contents(home) == before
    run(move)
    give_up(move)  # too late: it is in use
    assert contents(move.new) == before


def test_a_disk_that_gives_back_something_else_is_noticed(
    home: Path, move: Move, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Liar:
        def digest(self) -> bytes:
            return b"something else"

    monkeypatch.setattr("app.data_folder.hashlib.file_digest", lambda file, name: Liar())
    check(move)
    with pytest.raises(MoveRefused, match="The data stay where they are"):
        copy(move, lambda: False)
    assert data_dir() == home


def test_what_cannot_work_is_refused_before_a_byte_is_copied(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "holiday.jpg").write_bytes(b"x")
    file = tmp_path / "file"
    file.write_text("x")
    for new, words in (
        (home, "already"),
        (home / "inside", "lies in the other"),
        (tmp_path, "lies in the other"),
        (full, "not empty"),
        (file, "is a file"),
    ):
        with pytest.raises(MoveRefused, match=words):
            check(Move(home, new))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr("app.data_folder.shutil.disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(MoveRefused, match="missing on that disk"):
        check(Move(home, tmp_path / "small"))
    monkeypatch.undo()
    monkeypatch.setenv("GREENROOM_DATA", str(home))
    with pytest.raises(MoveRefused, match="GREENROOM_DATA"):
        check(Move(home, tmp_path / "elsewhere"))
    assert (full / "holiday.jpg").exists()


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_refused(home: Path, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    with pytest.raises(MoveRefused, match="Nothing can be written"):
        check(Move(home, closed / "greenroom"))


def test_the_old_copy_stays_until_it_is_deleted_and_data_can_move_on(home: Path, move: Move, tmp_path: Path) -> None:
    run(move)
    before = contents(move.new)
    assert old_copy() == home
    delete_old_copy()
    assert old_copy() is None
    assert [path.name for path in home.iterdir()] == ["moved.json"]
    third = Move(move.new, tmp_path / "third")
    run(third)
    assert data_dir() == third.new
    delete_old_copy()
    assert not move.new.exists()
    assert contents(third.new) == before
    back = Move(third.new, default_dir())
    check(back)
    copy(back, lambda: False)
    give_up(back)  # the note about where the data are lies in that folder, and stays
    assert data_dir() == third.new
    run(back)
    assert data_dir() == home


def test_a_disk_that_is_not_there_is_said_and_no_empty_folder_made(home: Path, move: Move) -> None:
    run(move)
    move.new.rename(move.new.with_name("unplugged"))
    with pytest.raises(OSError, match="the disk it was moved to is not there"):
        data_dir()
    assert not move.new.exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"folder": 5}', "null"])
def test_a_damaged_note_means_the_usual_folder(home: Path, text: str) -> None:
    (home / "moved.json").write_text(text)
    assert data_dir() == home


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="XDG_DATA_HOME moves the usual folder")
def test_the_program_takes_over_what_closing_writes_and_asks_to_start_again(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from app.data_folder import Move, check, copy
        from app.program import Program
        from engine.paths import conversations_dir, data_dir
        old, new = data_dir(), Path(sys.argv[1])
        program = Program(old / "settings.json", conversations_dir(), old / "logs")
        program.settings.startup = "none"
        window = program.window
        window.show()
        window.begin()
        window.surfaces.welcome.reject()
        move = Move(old, new)
        check(move)
        copy(move, lambda: False)
        window.composer.set_text("not sent yet")  # saved as a draft while the window closes
        window.surfaces.open_preferences()
        window.surfaces.preferences.data.moved.emit(move)
        program.run()
        assert program.restart
        print(data_dir(), *(path.read_text() for path in (data_dir() / "drafts").iterdir()), sep="\\n")
        """
    )
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen", "XDG_DATA_HOME": str(tmp_path / "share")}
    del environment["GREENROOM_DATA"]
    command = [sys.executable, "-c", script, str(tmp_path / "new")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == [str(tmp_path / "new"), "not sent yet"]


def test_this_program_can_be_started_again() -> None:
    from app.__main__ import this_program

    done = subprocess.run([*this_program(), "--version"], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.startswith("greenroom "), done.stderr


def test_nobody_elses_files_are_deleted_with_a_copy_that_is_given_up(home: Path, move: Move) -> None:
    """The program ended half way through a move; then the folder was used for something else."""
    check(move)
    copy(move, lambda: False)
    own = move.new / "conversations" / "diary.txt"
    own.write_text("mine")
    with pytest.raises(MoveRefused, match="not empty"):
        check(move)
    copy(move, lambda: False)
    assert own.read_text() == "mine"
    give_up(move)
    assert contents(move.new) == {"conversations/diary.txt": b"mine"}


def test_a_move_that_broke_off_goes_on(home: Path, move: Move) -> None:
    check(move)
    done: list[int] = []
    copy(move, lambda: len(done) > 2, lambda bytes, total: done.append(bytes))
    assert 0 < len(contents(move.new)) < len(contents(home))
    (home / "conversations" / "Gespräch 0.jsonl").unlink()
    run(move)
    assert contents(move.new) == contents(home)


def test_a_mark_that_somebody_else_wrote_deletes_nothing_outside_the_folder(home: Path, move: Move) -> None:
    """It is a file like any other in a folder that the user chose: torn, or told to name files that are elsewhere."""
    diary = move.new.parent / "diary.txt"
    move.new.mkdir(parents=True)
    diary.write_text("mine")
    mark = move.new / data_folder.MARK
    mark.write_text(f'"../diary.txt"\n"{diary}"\n"a\\"\n[1]\n"gone.jsonl"\n', encoding="utf-8")
    check(move)
    copy(move, lambda: False)
    give_up(move)
    assert diary.read_text() == "mine"
    assert not move.new.exists()


def test_what_cannot_be_looked_into_is_not_left_behind(home: Path, move: Move, monkeypatch) -> None:
    look = os.scandir

    def locked(path):
        if Path(path).name == "conversations":
            raise PermissionError(13, "Permission denied", str(path))
        return look(path)

    monkeypatch.setattr(os, "scandir", locked)
    with pytest.raises(MoveRefused, match="conversations cannot be read"):
        check(move)
    with pytest.raises(MoveRefused, match="could not be copied"):
        copy(move, lambda: False)
    assert data_dir() == home


def test_the_old_copy_stays_while_another_window_writes_to_it(home: Path, move: Move) -> None:
    run(move)
    late = home / "conversations" / "Gespräch 3.jsonl"
    with late.open("a", encoding="utf-8") as file:
        file.write("said in the other window\n")
    soon = time.time_ns() + 1_000_000_000  # file systems keep time by the tick
    os.utime(late, ns=(soon, soon))
    with pytest.raises(MoveRefused, match="changed after the move"):
        delete_old_copy()
    assert late.exists() and old_copy() == home.resolve()


def test_the_programs_own_last_words_do_not_keep_the_old_copy(home: Path, move: Move) -> None:
    run(move)
    (home / "logs").mkdir()
    (home / "logs" / "greenroom.log").write_text("closed")
    delete_old_copy()
    assert old_copy() is None


def test_a_disk_with_coarse_times_is_good_enough(home: Path, move: Move) -> None:
    """FAT keeps every other second."""
    check(move)
    copy(move, lambda: False)
    for path in move.new.rglob("*.jsonl"):
        seconds = path.stat().st_mtime_ns // 2_000_000_000 * 2
        os.utime(path, (seconds, seconds))
    before = {path: path.stat().st_ino for path in move.new.rglob("*.jsonl")}
    changed = home / "conversations" / "Gespräch 1.jsonl"
    times = changed.stat()
    changed.write_text(changed.read_text(encoding="utf-8").replace("line 1", "line X"), encoding="utf-8")
    os.utime(changed, ns=(times.st_atime_ns, times.st_mtime_ns + 1_000_000))
    finish(move)
    assert contents(move.new) == contents(home)
    again = [path.name for path, number in before.items() if path.stat().st_ino != number]
    assert again == ["Gespräch 1.jsonl"]
