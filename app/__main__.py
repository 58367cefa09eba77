"""``python -m app``: open the window."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

from engine.version import __version__


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="greenroom", description="Chat with Mixture-of-Experts models that are bigger than the graphics card."
    )
    parser.add_argument("--version", action="store_true", help="print the version and end")
    parser.add_argument("--model", metavar="SOURCE", help="load this: demo, a folder, or a name in the hub cache")
    parser.add_argument("--data", metavar="DIR", help="keep conversations, settings and built models in this folder")
    parser.add_argument(
        "--self-test",
        metavar="DIR",
        help="run through the real window, write pictures and report.json into DIR; exit 0 if every step held",
    )
    parser.add_argument(
        "--families",
        metavar="FOLDER",
        nargs="+",
        default=[],
        help="with --self-test: load and ask these models instead",
    )
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    """Open the window and stay until it is closed; the program's exit status."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # without a console, on Windows; libraries write there all the same
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
    options = arguments(words)
    if options.version:
        print(f"greenroom {__version__}")
        return 0
    if options.data:
        os.environ["GREENROOM_DATA"] = str(Path(options.data).resolve())
    if sys.platform == "win32":
        # WORKAROUND: with Qt's libraries loaded first, torch's fail to load on Windows (WinError 1114 from c10.dll).
        # https://github.com/pytorch/pytorch/issues/166628
        import torch  # noqa: F401
    if options.self_test:
        from app.selftest import self_test

        return self_test(Path(options.self_test), options.model, [Path(name).resolve() for name in options.families])
    return open_window(options.model)


def this_program() -> list[str]:
    """The command that starts Greenroom once more, as it is running now."""
    return [sys.executable] if getattr(sys, "frozen", False) else [sys.executable, "-m", "app"]


def open_window(model: str | None) -> int:
    from app.program import Program, refuse_to_start
    from engine.paths import conversations_dir, data_dir

    try:
        program = Program(data_dir() / "settings.json", conversations_dir(), data_dir() / "logs")
    except OSError as error:
        return refuse_to_start(
            f"Greenroom cannot use its data folder: {error.strerror} ({error.filename}). "
            "Start it with --data and another folder."
        )
    for number in (signal.SIGINT, signal.SIGTERM):  # Python sees them at the next tick of a timer
        signal.signal(number, lambda *_: program.window.close())
    program.window.show()
    program.window.begin(model)
    status = program.run()
    if program.restart:
        subprocess.Popen([*this_program(), *(("--model", model) if model else ())])
    if not program.client.join(0.5):
        os._exit(status)  # the engine is stuck in foreign code; its files were closed or can be repaired
    return status


if __name__ == "__main__":
    multiprocessing.freeze_support()  # a frozen build starts itself again for a replay, which has its own process
    sys.exit(main())
