"""What can go wrong on somebody's machine, with the real start.py and real causes: a sentence that helps, no traceback.

About 25 seconds on two cores, most of it for the two that make a real environment.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
import venv
import zipfile
from dataclasses import replace
from pathlib import Path

import pip
import pytest
from stamp import Stamp, requirements, write_stamp

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals, mounts and symbolic links of POSIX")
NOWHERE = "http://127.0.0.1:9"  # a port that nobody answers
OFFLINE = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), NOWHERE),
    "PIP_CONFIG_FILE": os.devnull,
    "PIP_RETRIES": "1",
    "GREENROOM_TORCH": "cpu",
}


@pytest.fixture
def checkout(tmp_path):
    """A copy of what start.py needs, in a folder with an awkward name."""
    root = tmp_path / "Größe 你好 & co"
    shutil.copytree(ROOT / "packaging", root / "packaging", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", root)
    return root


def with_pip(root):
    """An environment of the user's own in that checkout, which costs less than one made there: it borrows our pip."""
    venv.create(root / ".venv", symlinks=True)
    [place] = (root / ".venv").glob("lib/python*/site-packages")
    (place / "pip").symlink_to(Path(pip.__file__).parent)


def environ(**more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "GREENROOM_"))}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1", **more}


def start(root, *words, within=None, **more):
    """Run start.py; ``within`` is a shell line that prepares the file system and is forgotten with the process."""
    command = [sys.executable, str(root / "packaging" / "start.py"), *words]
    if within:
        command = ["unshare", "-rm", "sh", "-c", f'{within} && exec "$@"', "sh", *command]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environ(**more), cwd="/")


def needs_mounts():
    """Small and read-only file systems, seen by one process and gone with it; no root is needed where Linux allows."""
    answer = subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True)
    return pytest.mark.skipif(answer.returncode != 0, reason="this system lets nobody mount anything")


mounts = needs_mounts() if shutil.which("unshare") else pytest.mark.skip(reason="Linux only")


def the_sentence(answer):
    """What the user reads of a failure, which is all that is said about it."""
    assert answer.returncode == 1, answer.stdout + answer.stderr
    assert "Traceback" not in answer.stdout + answer.stderr
    assert answer.stderr.startswith("\nGreenroom cannot start: ")
    return answer.stderr


def test_without_a_network(checkout):
    with_pip(checkout)
    sentence = the_sentence(start(checkout, "setup", **OFFLINE))
    assert "go online and start again" in sentence
    log = checkout / ".venv" / "install.log"
    assert str(log) in sentence
    assert "Retrying" in log.read_text()


def test_an_environment_that_was_left_half_made_is_made_again(checkout):
    command = [sys.executable, str(checkout / "packaging" / "start.py"), "setup"]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environ(**OFFLINE))
    half = checkout / ".venv" / "bin" / "python"
    until = time.monotonic() + 60
    while not os.path.lexists(half) and first.poll() is None and time.monotonic() < until:
        os.sched_yield()
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert os.path.lexists(half)
    said = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ(**OFFLINE)) as again:
        for line in again.stdout:
            said.append(line)
            if line.startswith("Installing the CPU build of torch"):  # so far it came this time
                again.kill()
    assert "was never finished; it is made again" in said[0]
    assert said[-1].startswith("Installing the CPU build of torch")


def on_a_disk_of(size, checkout):
    """The checkout, copied to a file system of that size which is mounted over its parent folder."""
    return (
        f'mount -t tmpfs tmpfs /mnt && cp -r "{checkout}" /mnt/copy && '
        f'mount -t tmpfs -o size={size} tmpfs "{checkout.parent}" && cp -r /mnt/copy "{checkout}"'
    )


@mounts
def test_a_disk_that_is_full_at_once(checkout):
    sentence = the_sentence(start(checkout, "setup", within=on_a_disk_of("1m", checkout), **OFFLINE))
    assert "is full" in sentence
    assert "free some space and start again" in sentence


@mounts
def test_a_disk_that_is_too_small_for_what_will_come_is_told_before_the_download(checkout):
    with_pip(checkout)
    sentence = the_sentence(start(checkout, "setup", within=on_a_disk_of("20m", checkout), **OFFLINE))
    assert "MB are free" in sentence
    assert "about 2.0 GB" in sentence
    assert "to a larger disk" in sentence


@mounts
def test_a_disk_that_fills_up_while_pip_works(tmp_path):
    """The real pip unpacks a wheel into a file system that is smaller."""
    wheel, disk = tmp_path / "bulky-1-py3-none-any.whl", tmp_path / "disk"
    disk.mkdir()
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("bulky/data.bin", os.urandom(6_000_000))
        file.writestr("bulky-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("bulky-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: bulky\nVersion: 1\n")
        file.writestr("bulky-1.dist-info/RECORD", "")
    code = f"""if True:
        import sys
        from pathlib import Path
        sys.path.insert(0, {str(ROOT / "packaging")!r})
        from pip_runner import PipFailed, run_pip
        from progress import Progress
        disk = Path({str(disk)!r})
        try:
            run_pip(Path(sys.executable), ["--no-index", "--target", str(disk / "there"), {str(wheel)!r}],
                    disk / "install.log", Progress())
        except PipFailed as error:
            print(error)
    """
    within = f'mount -t tmpfs -o size=4m tmpfs "{disk}" && exec "$@"'
    command = ["unshare", "-rm", "sh", "-c", within, "sh", sys.executable, "-c", code]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environ())
    assert "disk is full" in answer.stdout, answer.stderr
    assert str(disk / "install.log") in answer.stdout


@mounts
def test_a_folder_that_may_only_be_read(checkout):
    locked = f'mount --bind "{checkout}" "{checkout}" && mount -o remount,ro,bind "{checkout}"'
    sentence = the_sentence(start(checkout, "setup", within=locked, **OFFLINE))
    assert f"{checkout} may not be written to" in sentence
    assert "your home folder" in sentence


@mounts
@pytest.mark.parametrize("words", [(), ("--window",)])
def test_a_finished_environment_in_a_folder_that_may_only_be_read_is_used(checkout, words):
    """As on a computer where somebody else set it up. No screen: a window would be an error here."""
    venv.create(checkout / ".venv", symlinks=True)
    (checkout / "app").mkdir()
    (checkout / "app" / "__main__.py").write_text("import sys; print('window'); sys.exit(7)")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    made = Stamp(requirements(checkout), python, "cpu", checked=True, demo=str(checkout))
    write_stamp(checkout / ".venv", replace(made, demo_for=str(checkout.parent)))
    locked = f'mount --bind "{checkout}" "{checkout}" && mount -o remount,ro,bind "{checkout}"'
    answer = start(checkout, *words, within=locked, GREENROOM_DATA=str(checkout.parent), DISPLAY="", WAYLAND_DISPLAY="")
    assert (answer.stdout, answer.returncode) == ("window\n", 7), answer.stderr


def old_pythons():
    """Real ones where there are any: on the path, or kept by pyenv."""
    kept = [str(path) for path in Path.home().glob(".pyenv/versions/*/bin/python")]
    found = set()
    for path in [*(f"python3.{minor}" for minor in range(4, 11)), *kept]:
        code = "import sys; print(sys.executable if (3, 4) <= sys.version_info < (3, 11) else '')"
        try:
            answer = subprocess.run([path, "-c", code], capture_output=True, text=True)
        except OSError:
            continue
        found.add(answer.stdout.strip())
    return sorted(found - {""})


@pytest.mark.skipif(not old_pythons(), reason="no old Python here")
def test_a_real_old_python_says_that_it_is_too_old():
    for python in old_pythons():
        command = [python, str(ROOT / "packaging" / "start.py"), "setup"]
        answer = subprocess.run(command, capture_output=True, text=True, env={"PATH": ""})
        assert answer.returncode == 1
        assert answer.stderr.startswith("Greenroom needs Python 3.11 or newer, and this is Python 3.")
        assert "Install a newer one beside it" in answer.stderr


def test_an_old_python_hands_over_to_a_newer_one_beside_it(tmp_path):
    """The version is faked, for machines that have no old Python; a broken newer one is passed over."""
    source = (ROOT / "packaging" / "start.py").read_text()
    script = tmp_path / "start.py"
    script.write_text("import sys\nsys.version_info = (3, 8, 0)\n" + source)
    for name, line in (("python3.13", "exit 127"), ("python3.12", 'echo "newer: $@"')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    command = [sys.executable, str(script), "setup", "dev"]
    answer = subprocess.run(command, capture_output=True, text=True, env={"PATH": str(tmp_path)})
    assert answer.stdout == f"newer: {script} setup dev\n", answer.stderr


def test_a_file_in_the_place_of_the_environment_is_left_alone(checkout):
    (checkout / ".venv").write_text("precious")
    assert "in the way" in the_sentence(start(checkout, "setup", **OFFLINE))
    assert (checkout / ".venv").read_text() == "precious"
