"""start.py: the environment is made once, noticed when broken, and every failure is a sentence."""

import ast
import json
import os
import shutil
import subprocess
import sys
import time
import venv
from dataclasses import replace
from pathlib import Path

import commands
import environment
import installed
import pytest
import torch_choice
from pip_runner import PipFailed
from progress import Progress
from stamp import Stamp, read_stamp, requirements, write_stamp
from start_error import StartError

ROOT = Path(__file__).parents[2]
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def checkout(tmp_path):
    """A copy of what start.py needs, in a folder with an awkward name."""
    root = tmp_path / "Größe 你好 & co"
    shutil.copytree(ROOT / "packaging", root / "packaging", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", root)
    return root


@pytest.fixture
def pip(monkeypatch):
    """pip's part is recorded instead of done; ``fail_on`` makes a call fail."""

    class Recorder(list):
        fail_on = "nothing"
        import_error = ""

        def __call__(self, python, arguments, log, progress):
            self.append(list(arguments))
            if any(self.fail_on in argument for argument in arguments):
                raise PipFailed("The network could not be reached.")

    recorder = Recorder()
    monkeypatch.setattr(environment, "run_pip", recorder)
    monkeypatch.setattr(environment, "import_error", lambda folder: recorder.append("imports") or recorder.import_error)
    monkeypatch.setattr(torch_choice, "has_local_wheel", lambda python: True)
    monkeypatch.setattr(torch_choice, "nvidia_card", lambda system: "")
    monkeypatch.setattr(torch_choice, "amd_target", lambda system: "")
    monkeypatch.setattr(environment, "require_system_libraries", lambda: None)
    monkeypatch.setattr(environment, "require_room", lambda folder, needed: None)
    # without pip inside: an environment in a second instead of ten
    create = venv.create
    monkeypatch.setattr(venv, "create", lambda folder, **options: create(folder, symlinks=os.name != "nt"))
    return recorder


def ready(root, dev=False, progress=None, **environ):
    return environment.ready(root, dev, progress or Progress(), environ)


def test_the_first_start_makes_the_environment_and_the_second_does_nothing(checkout, pip, capsys):
    python = ready(checkout)
    assert python.exists()
    assert [call[0] if isinstance(call, list) else call for call in pip] == ["torch==2.13.0", "--editable", "imports"]
    assert "Making an environment" in capsys.readouterr().out
    pip.clear()
    assert ready(checkout) == python
    assert pip == []
    assert capsys.readouterr().out == ""


def test_tests_add_their_tools_and_later_starts_keep_them(checkout, pip):
    ready(checkout)
    pip.clear()
    ready(checkout, dev=True)
    assert pip[1][1].endswith("[dev]")
    pip.clear()
    ready(checkout)
    assert pip == []


def test_a_changed_requirement_is_installed_in_place_and_a_changed_comment_is_not(checkout, pip, capsys):
    ready(checkout, dev=True)
    keepsake = checkout / ".venv" / "keepsake"
    keepsake.touch()
    project = checkout / "pyproject.toml"
    project.write_text(project.read_text() + "\n# a remark\n[tool.other]\nx = 1\n")
    pip.clear()
    ready(checkout)
    assert pip == []
    project.write_text(project.read_text().replace('"psutil>=5.9"', '"psutil>=6.0"'))
    ready(checkout)
    assert pip[1][1].endswith("[dev]")
    assert keepsake.exists()


def test_asking_for_another_torch_installs_it(checkout, pip):
    ready(checkout)
    pip.clear()
    ready(checkout, GREENROOM_TORCH="cuda")
    assert pip[0] == ["torch==2.13.0"]
    assert read_stamp(checkout / ".venv").torch == "cuda"
    pip.clear()
    ready(checkout)
    assert pip == []


@pytest.mark.parametrize(
    "broken_by",
    [
        "an interrupted install",
        "a Python that is gone",
        "a Python that is too old",
        "lost libraries",
        "a library without its record",
        "a library without its files",
    ],
)
@pytest.mark.skipif(os.name == "nt", reason="breaks what a POSIX environment is made of")
def test_a_broken_environment_is_noticed_and_made_again(checkout, pip, capsys, broken_by):
    python = ready(checkout)
    folder = checkout / ".venv"
    if broken_by == "an interrupted install":
        (folder / "greenroom-unfinished").touch()
    elif broken_by == "a Python that is gone":
        python.unlink()
        python.symlink_to("/nowhere/python3")
    elif broken_by == "lost libraries":
        shutil.rmtree(folder / "lib")
    elif broken_by == "a Python that is too old":
        python.unlink()
        python.write_text("#!/bin/sh\necho 3.9\n")
        python.chmod(0o755)
        (folder / "lib" / f"python{PYTHON}").rename(folder / "lib" / "python3.9")
    elif broken_by == "a library without its record":
        (installed.libraries(folder) / "torch-2.13.0.dist-info").mkdir()
    elif broken_by == "a library without its files":
        notes = installed.libraries(folder) / "torch-2.13.0.dist-info"
        notes.mkdir()
        (notes / "RECORD").write_text("torch/__init__.py,sha256=x,12\ntorch/nn.py,,\n")
    capsys.readouterr()
    pip.clear()
    ready(checkout)
    assert len(pip) == 3
    assert "it is made again" in capsys.readouterr().out
    assert read_stamp(folder).python == PYTHON


def test_an_environment_whose_python_changed_is_made_again(checkout, pip, capsys):
    ready(checkout)
    folder = checkout / ".venv"
    values = json.loads((folder / "greenroom.json").read_text())
    (folder / "greenroom.json").write_text(json.dumps(values | {"python": "3.10"}))
    ready(checkout)
    assert f"was made with Python 3.10, which is now {PYTHON}" in capsys.readouterr().out


def test_libraries_that_no_longer_load_are_installed_anew_and_those_that_load_are_not(checkout, pip, capsys):
    """Whoever watched the program die has the libraries looked at."""
    ready(checkout)
    stamp = read_stamp(checkout / ".venv")
    write_stamp(checkout / ".venv", replace(stamp, checked=False))
    pip.clear()
    ready(checkout)
    assert pip == ["imports"]
    assert read_stamp(checkout / ".venv").checked
    write_stamp(checkout / ".venv", replace(stamp, checked=False))
    pip.import_error = "ImportError: cannot import name 'nn'"
    with pytest.raises(StartError, match="does not load: ImportError"):
        ready(checkout)
    assert "has libraries that do not load; it is made again" in capsys.readouterr().out
    pip.import_error = ""
    ready(checkout)
    assert read_stamp(checkout / ".venv").checked


@pytest.mark.parametrize("content", ["", "{", "[]", '{"requirements": "x"}', '{"extras": 5}', "\x00"])
def test_a_damaged_stamp_means_installing_again(checkout, pip, content):
    ready(checkout)
    (checkout / ".venv" / "greenroom.json").write_text(content)
    pip.clear()
    ready(checkout)
    assert len(pip) == 3


def test_a_failed_first_install_is_begun_anew_and_a_failed_update_costs_nothing(checkout, pip):
    pip.fail_on = "torch"
    with pytest.raises(StartError, match="network"):
        ready(checkout)
    assert read_stamp(checkout / ".venv") is None
    pip.fail_on = "nothing"
    ready(checkout)
    before = read_stamp(checkout / ".venv")
    pip.fail_on = "dev"
    with pytest.raises(StartError, match="network"):
        ready(checkout, dev=True)
    assert read_stamp(checkout / ".venv") == before
    pip.clear()
    ready(checkout)
    assert pip == []


def test_a_developers_own_environment_is_used_not_removed(checkout, pip):
    venv.create(checkout / ".venv", symlinks=os.name != "nt")
    (checkout / ".venv" / "mine").touch()
    ready(checkout)
    assert (checkout / ".venv" / "mine").exists()
    assert len(pip) == 3


def test_a_second_start_waits_for_the_first(checkout, pip):
    code = """if True:
        import sys, pathlib
        from alone import alone
        with alone(pathlib.Path(sys.argv[1]), print):
            print("held", flush=True)
            input()"""
    first = subprocess.Popen(
        [sys.executable, "-c", code, checkout / "pyproject.toml"],
        cwd=ROOT / "packaging",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert first.stdout.readline() == "held\n"
    told = []

    class Impatient(Progress):
        def say(self, text):
            told.append(text)
            if first.poll() is None:
                first.communicate("done\n")

    ready(checkout, progress=Impatient())
    assert "waiting" in told[0]
    assert len(pip) == 3


def test_a_folder_that_is_no_environment_is_left_alone(checkout, pip):
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / "thesis.txt").write_text("precious")
    with pytest.raises(StartError, match="in the way"):
        ready(checkout)
    assert (checkout / ".venv" / "thesis.txt").exists()


def test_a_folder_that_may_not_be_written_is_said(checkout, pip, monkeypatch):
    def refuse(self, *arguments, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(StartError, match="may not be written to"):
        ready(checkout)


def test_a_python_without_ensurepip_names_the_package_to_install(checkout, pip, monkeypatch):
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    with pytest.raises(StartError, match=f"apt install python{PYTHON}-venv"):
        ready(checkout)
    assert not (checkout / ".venv").exists()


def test_an_incomplete_copy_is_said(checkout, pip):
    (checkout / "pyproject.toml").unlink()
    with pytest.raises(StartError, match="not complete"):
        ready(checkout)


def test_a_missing_system_library_names_the_packages(tmp_path, monkeypatch):
    answer = "Traceback ...\nImportError: libEGL.so.1: cannot open shared object file: No such file or directory\n"
    monkeypatch.setattr(
        installed.subprocess, "run", lambda *a, **k: subprocess.CompletedProcess([], 1, stdout="", stderr=answer)
    )
    monkeypatch.setattr(installed.sys, "platform", "linux")
    with pytest.raises(StartError) as refused:
        installed.import_error(tmp_path)
    assert "lacks libEGL.so.1" in str(refused.value)
    assert "apt install libegl1" in str(refused.value)
    assert "dnf install mesa-libEGL" in str(refused.value)


def test_a_system_library_is_missed_before_anything_is_made(checkout, monkeypatch):
    monkeypatch.setattr(installed, "_ESSENTIAL", ("libc.so.6", "libnowhere.so.9"))
    with pytest.raises(StartError, match=r"lacks libnowhere\.so\.9.*\n.*apt install libegl1"):
        ready(checkout)
    assert not (checkout / ".venv").exists()


def test_a_bundled_library_that_is_gone_is_no_fault_of_the_systems(tmp_path, monkeypatch):
    answer = "ImportError: libtorch_cpu.so: cannot open shared object file: No such file or directory\n"
    monkeypatch.setattr(
        installed.subprocess, "run", lambda *a, **k: subprocess.CompletedProcess([], 1, stdout="", stderr=answer)
    )
    assert installed.import_error(tmp_path) == answer.strip()


def test_ci_and_the_advice_name_the_same_packages():
    ci = (ROOT / ".ci" / "run").read_text()
    assert [name for name in installed._DEBIAN.split() if name not in ci] == []


# ------------------------------------------------------------------------------------------ as a user runs it


def run(*arguments, root=ROOT, python=sys.executable, **environ):
    return subprocess.run(
        [python, str(root / "packaging" / "start.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environ},
        cwd=root,
    )


def test_words_it_does_not_know_are_refused_and_help_is_there():
    refused = run("dance", "now")
    assert refused.returncode == 2
    assert "dance now" in refused.stderr
    assert "start.py setup" in run("--help").stdout


def test_a_bad_override_is_one_sentence_and_no_traceback(checkout):
    venv.create(checkout / ".venv", symlinks=os.name != "nt")
    refused = run("setup", root=checkout, GREENROOM_TORCH="metal")
    assert refused.returncode == 1
    assert "cpu, cuda, rocm" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_an_old_python_is_told_in_a_sentence(tmp_path):
    """The version is faked, for machines that have no old Python."""
    source = (ROOT / "packaging" / "start.py").read_text()
    script = tmp_path / "start.py"
    script.write_text("import sys\nsys.version_info = (3, 6, 9)\n" + source)
    answer = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env={"PATH": ""})
    assert answer.returncode == 1
    assert answer.stderr.startswith("Greenroom needs Python 3.11 or newer, and this is Python 3.6.9.")


def test_start_py_itself_has_no_syntax_that_old_pythons_lack():
    tree = ast.parse((ROOT / "packaging" / "start.py").read_text(), feature_version=(3, 4))
    kinds = {type(node).__name__ for node in ast.walk(tree)}
    assert not kinds & {"JoinedStr", "AnnAssign", "NamedExpr", "Match", "Starred"}


def test_a_finished_environment_costs_a_start_far_less_than_two_seconds(checkout):
    venv.create(checkout / ".venv", symlinks=os.name != "nt")
    (checkout / "app").mkdir()
    (checkout / "app" / "__main__.py").write_text("print('window')")
    stamp = Stamp(
        requirements(checkout),
        PYTHON,
        "cpu",
        checked=True,
        demo=str(checkout),
        demo_for=commands._demo_key(checkout, os.environ),
    )
    write_stamp(checkout / ".venv", stamp)
    begin = time.perf_counter()
    answer = run(root=checkout, GREENROOM_TORCH="")
    assert (answer.stdout, answer.returncode) == ("window\n", 0), answer.stderr
    assert time.perf_counter() - begin < 2
