"""A data folder that cannot be used is told in a sentence that says what to do, to whoever asks for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import DataFolderError
from engine.models.folder import resolve
from engine.paths import conversations_dir, data_dir, keep_apart, models_dir


@pytest.mark.parametrize("place", ["taken", "taken/inside", "inside-taken"])
def test_a_data_folder_that_cannot_be_is_said_in_a_sentence(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken").write_text("mine")
    (tmp_path / "inside-taken").mkdir()
    (tmp_path / "inside-taken" / "models").write_text("mine")
    (tmp_path / "inside-taken" / "conversations").write_text("mine")
    monkeypatch.setenv("GREENROOM_DATA", str(tmp_path / place))
    with pytest.raises(DataFolderError, match=r"The data folder .*taken.* cannot be used: .* set GREENROOM_DATA"):
        resolve("demo")
    for folder in (models_dir, conversations_dir):
        with pytest.raises(OSError, match="cannot be used"):
            folder()
    assert (tmp_path / "taken").read_text() == "mine"


def test_what_is_kept_apart_leaves_the_users_data_alone_and_uses_their_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, apart = tmp_path / "theirs", tmp_path / "apart"
    monkeypatch.setenv("GREENROOM_DATA", str(theirs))
    monkeypatch.setenv("GREENROOM_MODELS", "")  # both come back after the test
    keep_apart(apart)
    assert not theirs.exists()
    assert data_dir() == apart
    assert conversations_dir().is_relative_to(apart)
    keep_apart(apart / "within")  # as a program does that this one starts
    assert models_dir() == theirs / "models"
