"""The words that start.py knows, each carried out to its end; failures are told where the user looks."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

import menu
from environment import ROOT, ready
from lines import lines_of
from progress import Progress, Stopped
from stamp import Stamp, read_stamp, write_stamp
from start_error import ProgramDied, StartError, from_os
from window import Window, can_show

_LAST_WORDS = 6  # lines of what a program said before it died
_INTERRUPTED = 130
_DOTS = re.compile(r"[.sxXFE]+ *(\[ *\d+%\])?")  # of tests that passed, were skipped, failed
REFUSED = 78  # exit status of the program when it did not start and has told why (app/program.py)


def main(arguments: Sequence[str]) -> int:
    """Carry out one of start.py's commands; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a folder's name must not end the program on an old console
    windowed = arguments[:1] == ["--window"]
    command, *rest = [*arguments[windowed:]] or ["open"]
    if command in ("-h", "--help", "help"):
        print((ROOT / "packaging" / "start.py").read_text(encoding="utf-8").split('"""')[1])
        return 0
    work = _work(command, rest)
    if work is None:
        wrong = " ".join([command, *rest])
        print(
            f"start.py knows “setup”, “test”, “install”, “uninstall” and no word at all, not “{wrong}”; --help says "
            "more.",
            file=sys.stderr,
        )
        return 2
    windowed = windowed or (command == "open" and not _terminal_there())
    anew = [sys.executable, str(ROOT / "packaging" / "start.py"), *([command] if command != "open" else []), *rest]
    if windowed and sys.platform == "win32" and sys.stdout is None:
        return _with_a_hidden_console([*anew[:2], "--window", *anew[2:]])
    progress = Window(ROOT / ".venv", anew) if windowed and can_show() else Progress()
    while True:
        try:
            return work(progress)
        except (StartError, OSError) as error:
            told = error if isinstance(error, StartError) else from_os(error, ROOT, "Starting")
            if not progress.failed(told.heading, str(told), told.log or ROOT / ".venv" / "install.log"):
                return 1
        except Stopped:
            return _INTERRUPTED
        except KeyboardInterrupt:
            print("\nStopped. Start again to go on.", file=sys.stderr)
            return _INTERRUPTED
        finally:
            progress.close()


def _work(command: str, rest: Sequence[str]) -> Callable[[Progress], int] | None:
    """What the command does; None when it is not known."""
    if command == "test":
        return lambda progress: _test(ready(ROOT, True, progress), rest)
    if command == "setup" and rest in ([], ["dev"]):
        return lambda progress: _set_up(progress, bool(rest))
    if command in ("open", "install", "uninstall") and not rest:
        return {"open": _open, "install": _install, "uninstall": _uninstall}[command]
    return None


def _set_up(progress: Progress, dev: bool) -> int:
    ready(ROOT, dev, progress)
    progress.say(f"Ready. Open the window with: {'py' if os.name == 'nt' else 'python3'} packaging/start.py")
    return 0


def _open(progress: Progress) -> int:
    python = ready(ROOT, False, progress)
    _make_demo(python, progress)
    progress.opening()
    if isinstance(progress, Window):
        return _watch(python, progress)
    return _hand_over(python, "-m", "app")


def _install(progress: Progress) -> int:
    python = ready(ROOT, False, progress)
    progress.done("Greenroom is in your menu", menu.install(ROOT, python, os.environ))
    return 0


def _uninstall(progress: Progress) -> int:
    progress.done("Greenroom left your menu", menu.uninstall(ROOT, os.environ))
    return 0


def _with_a_hidden_console(anew: Sequence[str]) -> int:
    """Start anew in a console that has no window, and leave.

    pythonw.exe has none, and each program that it runs (pip, and what pip runs) would open one of its own.
    """
    python = Path(sys.executable).with_name("python.exe")
    subprocess.Popen(
        [str(python), *anew[1:]],
        creationflags=getattr(subprocess, "CREATE_NO_WINDOW"),  # noqa: B009  # there on Windows only
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return 0


def _terminal_there() -> bool:
    return any(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def _make_demo(python: Path, progress: Progress) -> None:
    """Fetch and build the demo model unless that was done; without it the window opens all the same."""
    folder = ROOT / ".venv"
    stamp = read_stamp(folder)
    built_for = _demo_key(ROOT, os.environ)
    if stamp is None or (stamp.demo and stamp.demo_for == built_for and Path(stamp.demo).is_dir()):
        return
    progress.step("demo", "Preparing the demo model (once)")
    path = _built_demo(python, progress)
    if path is not None:
        _remember(folder, replace(stamp, demo=str(path), demo_for=built_for))
    else:
        progress.say("The window opens without the demo model; any other model works.")


def _built_demo(python: Path, progress: Progress) -> Path | None:
    """Let the engine build it, telling how far it is; None when it could not, and its reason was told."""
    windowed, last = isinstance(progress, Window), ""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as answer:
        building = subprocess.Popen(
            [str(python), "-m", "engine", "demo"],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=answer,
            stderr=subprocess.PIPE if windowed else None,  # on a terminal it tells by itself
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        try:
            for line in lines_of(building.stderr) if building.stderr else ():
                last = line.strip() or last
                progress.doing(last)
            code = building.wait()
        except BaseException:
            building.terminate()
            building.wait()
            raise
        answer.seek(0)
        path = Path((answer.read().strip().splitlines() or [""])[-1])
    if code == 0 and path.is_dir():
        return path
    if last:
        progress.say(last)
    return None


def _demo_key(root: Path, environ: Mapping[str, str]) -> str:
    recipe = sorted((root / "resources" / "demo").glob("recipe.*"))
    sizes = [f"{path.name}:{path.stat().st_size}" for path in recipe if path.is_file()]
    return "|".join([environ.get("GREENROOM_DATA", ""), *sizes])


def _test(python: Path, rest: Sequence[str]) -> int:
    """Run what ``rest`` tells pytest. Without it every test: the engine's beside all others, in two processes, for half
    the wait; the exit code of the first that failed."""
    environ = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    environ.setdefault("OMP_NUM_THREADS", "1")  # two processes that both want all cores wait for each other
    command = [str(python), "-m", "pytest"]
    if rest:
        return _hand_over(python, "-m", "pytest", *rest, QT_QPA_PLATFORM="offscreen")
    with tempfile.TemporaryFile() as shown:
        others = subprocess.Popen(
            [*command, "tests", "--ignore=tests/engine"], cwd=ROOT, env=environ, stdout=shown, stderr=shown
        )
        try:
            code = subprocess.call([*command, "tests/engine"], cwd=ROOT, env=environ)
            others_code = others.wait()
        finally:
            others.kill()
        shown.seek(0)
        said = shown.read().decode("utf-8", "replace").splitlines()
    print("\nThe tests of the window and all others:", *in_short(said, others_code), sep="\n", flush=True)
    return code or others_code


def in_short(said: Sequence[str], code: int) -> list[str]:
    """What to show of what pytest ``said`` before it ended with ``code``: that all is well, or first who failed."""
    lines = [line for line in said if line and not _DOTS.fullmatch(line)]
    if code == 0:
        return lines[-1:]
    failed = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    crashed = [] if code == 1 else [f"pytest ended with {code}."]
    return [*failed, *crashed, *lines]


def _watch(python: Path, progress: Window) -> int:
    """Run the program and stay beside it: without a terminal, nobody else would tell why it died. Its exit code.

    ProgramDied when it died: what it said last, and what can be done.
    """
    folder = ROOT / ".venv"
    with _record(folder) as said:
        program = subprocess.Popen(
            [str(python), "-m", "app"], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )
        signal.signal(signal.SIGTERM, lambda *_: program.terminate())
        while True:
            try:
                code = program.wait()
                break
            except KeyboardInterrupt:
                continue  # it has heard the same key and ends by itself
        if code in (0, REFUSED):  # what else there was to tell, it has told by itself
            return code
        said.seek(0)
        words = [line.rstrip() for line in said if line.strip()][-_LAST_WORDS:]
    stamp = read_stamp(folder)
    if stamp is not None:  # it may be the libraries: look at them before the next start
        _remember(folder, replace(stamp, checked=False))
    raise ProgramDied(_last_words(code, words), Path(said.name))


def _record(folder: Path) -> IO[str]:
    """Where the program's words go: beside its libraries, or among temporary files when that folder is not ours."""
    try:
        return (folder / "window.log").open("w+", encoding="utf-8", errors="replace")
    except OSError:
        return tempfile.NamedTemporaryFile(
            "w+", encoding="utf-8", errors="replace", prefix="greenroom-", suffix=".log", delete=False
        )


def _remember(folder: Path, stamp: Stamp) -> None:
    """Write the stamp, unless somebody else keeps the environment: what it would save costs a moment only."""
    with contextlib.suppress(OSError):
        write_stamp(folder, stamp)


def _last_words(code: int, words: Sequence[str]) -> str:
    """Why the program died, as far as that can be told."""
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        why = f"the system ended it ({name})."
        if name == "SIGKILL":
            why += " Often that means that memory ran out: close other programs, or give experts less of it."
    else:
        why = f"it ended with an error ({code})."
    said = "\nIt said last:\n" + "\n".join(words) if words else ""
    return f"{why} Your conversations are kept. Try again; its libraries are looked at first.{said}"


def _hand_over(python: Path, *arguments: str, **environ: str) -> int:
    """Become the program; its exit code is ours."""
    command, everything = [str(python), *arguments], {**os.environ, **environ}
    if os.name == "posix":
        os.chdir(ROOT)
        sys.stdout.flush()
        os.execve(python, command, everything)  # the same process, so that every signal reaches the program
    program = subprocess.Popen(command, cwd=ROOT, env=everything)
    while True:
        try:
            return program.wait()
        except KeyboardInterrupt:
            continue  # it has heard the same key and ends by itself
