"""A data folder that cannot be used is told in a sentence that says what to do, to whoever asks for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import DataFolderError
from engine.models.folder import resolve
from engine.paths import conversations_dir, models_dir


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
