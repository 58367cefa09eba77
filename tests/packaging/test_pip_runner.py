"""When pip fails, the user reads a cause and where the rest is."""

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
