"""When pip fails, the user reads a cause and where the rest is."""

import os
import sys
from pathlib import Path

import pytest
from pip_runner import PipFailed, explain, run_pip
from progress import Progress

LOG = Path("install.log")


@pytest.mark.parametrize(
    ("output", "says"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "disk is full"),
        ("NewConnectionError('<...>: Failed to establish a new connection: [Errno -3]')", "go online"),
        ("socket.gaierror: Temporary failure in name resolution", "go online"),
        ("ReadTimeoutError: Read timed out.", "go online"),
        ("SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED]'))", "secure connection"),
        ("PermissionError: [Errno 13] Permission denied: '/x'", "may not be written"),
        ("ERROR: No matching distribution found for torch==2.13.0", "No build of torch==2.13.0"),
        ("something\nERROR: the wheel is cursed\n\n", "ERROR: the wheel is cursed"),
        ("", "it said nothing"),
    ],
)
def test_the_cause_is_said_and_the_log_named(output, says):
    text = explain(output, LOG)
    assert says in text
    assert "install.log" in text


def test_no_network_wins_over_what_follows_from_it():
    output = "WARNING: Retrying after NewConnectionError\nERROR: No matching distribution found for torch"
    assert "go online" in explain(output, LOG)


def test_a_real_failure_of_a_real_pip_reads_well(tmp_path):
    with pytest.raises(PipFailed, match="No build of no-such-thing-here"):
        run_pip(Path(sys.executable), ["--no-index", "no-such-thing-here"], tmp_path / "install.log", Progress())
    assert "$ pip install --no-index no-such-thing-here" in (tmp_path / "install.log").read_text()


def test_a_success_is_quiet(tmp_path, capfd):
    run_pip(Path(sys.executable), ["--no-index", "pip"], tmp_path / "install.log", Progress())
    assert capfd.readouterr().out == ""


class Shares(Progress):
    """Keeps what the user would be shown."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def doing(self, text, share=None):
        self.seen.append((text, share))


@pytest.fixture
def stand_in(tmp_path):
    """A pip of some version that says what it was asked and where it may unpack, then downloads something."""

    if os.name == "nt":
        pytest.skip("a shell script stands in for pip")

    def make(version):
        notes = tmp_path / "lib" / "python3.11" / "site-packages" / f"pip-{version}.dist-info"
        notes.mkdir(parents=True)
        python = tmp_path / "bin" / "python"
        python.parent.mkdir()
        python.write_text(
            '#!/bin/sh\necho "asked: $@"\necho "drafts: $TMPDIR"\n[ -d "$TMPDIR" ] || exit 1\n'
            "echo '  Downloading torch-2.13.0-py3-none-any.whl (189.3 MB)'\n"
            "echo 'Progress 50 of 200'\necho 'Progress 200 of 200'\necho 'Installing collected packages: torch'\n"
        )
        python.chmod(0o755)
        return python

    return make


def test_a_download_is_followed_in_figures_that_the_log_is_spared(stand_in, tmp_path):
    shown = Shares()
    run_pip(stand_in("24.1"), ["torch"], tmp_path / "install.log", shown)
    told = [each for each in shown.seen if each[0] != "Asking what there is"]
    assert told[:3] == [("Downloading torch (189.3 MB)", share) for share in (None, 0.25, 1.0)]
    assert told[-1] == ("Installing", None)
    log = (tmp_path / "install.log").read_text()
    assert "--progress-bar raw torch" in log
    assert "Progress" not in log


def test_an_old_pip_is_not_asked_for_figures(stand_in, tmp_path):
    run_pip(stand_in("23.0.1"), ["torch"], tmp_path / "install.log", Shares())
    assert "--progress-bar off torch" in (tmp_path / "install.log").read_text()


def test_pip_unpacks_beside_the_libraries_and_leaves_nothing_there(stand_in, tmp_path):
    """A /tmp that lives in memory is too small for torch with CUDA."""
    run_pip(stand_in("24.1"), ["torch"], tmp_path / "install.log", Shares())
    drafts = tmp_path / "pip-drafts"
    assert f"drafts: {drafts}" in (tmp_path / "install.log").read_text()
    assert not drafts.exists()
