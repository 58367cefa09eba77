"""``profile MODEL show|export|import|clear`` as typed."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest

from engine.errors import GreenroomError
from engine.models.folder import open_folder
from engine.prediction.profile import Profile, save_profile
from engine.prediction.prompter import Prompter
from engine.prediction.shape import Shape
from engine.profile_verb import add_profile_verb


@pytest.fixture(autouse=True)
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GREENROOM_DATA", str(tmp_path / "data"))


def typed(*words: str | Path) -> int:
    parser = argparse.ArgumentParser()
    add_profile_verb(parser.add_subparsers())
    options = parser.parse_args(["profile", *map(str, words)])
    return options.verb(options)


def learn_something(model: Path) -> None:
    shape = Shape(layers=3, experts=8, top_k=2, hidden=4)
    prompter = Prompter("gate-fitted", shape)
    prompter.begin_request()
    rng = np.random.default_rng(0)
    for _ in range(71):  # the last one waits for the next
        prompter.begin_pass("decode", 1)
        for layer in range(3):
            scores = rng.standard_normal(8).astype(np.float32)
            prompter.router(layer, scores[:4], scores)
            prompter.routed(layer, np.argsort(-scores)[:2].tolist())
        prompter.end_pass()
    prompter.end_request()
    while prompter.learn(1.0):
        pass
    share = [accuracy.share for accuracy in prompter.accuracy()]
    signature = open_folder(model).signature
    save_profile(Profile(signature, shape, prompter.state(), accuracy={"gate-fitted": [0.875, *share[1:]]}))


def test_show_says_what_is_known(tiny_chat_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed(tiny_chat_model, "show") == 0
    assert capsys.readouterr().out == "Nothing was learnt about this model yet.\n"
    learn_something(tiny_chat_model)
    typed(tiny_chat_model, "show")
    shown = capsys.readouterr().out
    assert "3 layers x 8, 2 per token" in shown
    assert "1 past request" in shown
    assert "fitted to 70 tokens" in shown
    assert "87.5%, -" in shown
    typed(tiny_chat_model, "show", "--json")
    facts = json.loads(capsys.readouterr().out)
    assert facts["profile"]["tokens_learnt"] == {"gate-fitted": 70}
    assert facts["signature"] == open_folder(tiny_chat_model).signature


def test_export_clear_import_goes_round(
    tiny_chat_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learn_something(tiny_chat_model)
    file = tmp_path / "profile.npz"
    assert typed(tiny_chat_model, "export", file) == 0
    assert typed(tiny_chat_model, "clear") == 0
    assert typed(tiny_chat_model, "clear") == 0
    said = capsys.readouterr().out.splitlines()
    assert said == [f"Written to {file}.", "Forgotten.", "Nothing was learnt about this model yet."]
    assert typed(tiny_chat_model, "import", file) == 0
    assert capsys.readouterr().out.startswith("Taken over: 1 past request")
    typed(tiny_chat_model, "show", "--json")
    assert json.loads(capsys.readouterr().out)["profile"]["requests"] == {"prefill": 0, "decode": 1}


def test_faults_are_sentences(tiny_chat_model: Path, tmp_path: Path) -> None:
    with pytest.raises(GreenroomError, match="Nothing was learnt about this model yet, so there is nothing to export"):
        typed(tiny_chat_model, "export", tmp_path / "x.npz")
    with pytest.raises(GreenroomError, match="is a folder; name the file"):
        typed(tiny_chat_model, "export", tmp_path)
    (tmp_path / "x.npz").write_text("nothing of the kind")
    with pytest.raises(GreenroomError, match=r"x\.npz is damaged, or no profile at all"):
        typed(tiny_chat_model, "import", tmp_path / "x.npz")
    with pytest.raises(GreenroomError, match="There is no folder"):
        typed(tmp_path / "absent", "show")
