"""Chats with the real engine: what was read is kept from chat to chat and from start to start, unless that is off."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import paths
from engine.messages import LoadModel, MemorySnapshot, ModelLoaded, Started, UnloadModel
from tests.engine.listening import Engine, Talk
from tests.families import make_tiny

LONG = " ".join(["The green room is where actors wait until they are called."] * 12)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_tiny("qwen3_next", tmp_path / "m", tokenizer=True, changes={"max_position_embeddings": 2048})


def files() -> list[Path]:
    return sorted(paths.pasts_dir().glob("*.past.safetensors"))


def test_two_chats_in_turns_and_the_next_start_go_on_where_they_were(model: Path, tmp_path: Path) -> None:
    with Engine() as engine:
        engine.send(LoadModel(str(model), experts="50%"))
        engine.wait_for(ModelLoaded)
        one, two = (Talk(engine, tmp_path, name) for name in ("one", "two"))
        one.ask(LONG)
        two.ask(LONG[::-1])
        kept = engine.of(MemorySnapshot)[-1].bars[-1]
        one.ask("And then?")
        first, other, again = engine.of(Started)
        assert (first.reused_tokens, other.reused_tokens) == (0, other.reused_tokens)
        assert again.reused_tokens >= first.prompt_tokens - 20
        assert any(part.kind == "kv" and part.bytes for part in kept.parts)
    assert len(files()) == 2
    with Engine() as engine:
        engine.send(LoadModel(str(model), experts="50%"))
        engine.wait_for(ModelLoaded)
        for talk in (one, two):
            talk._engine = engine
            talk.ask("And after that?")
        started = engine.of(Started)
        assert all(start.reused_tokens >= first.prompt_tokens - 20 for start in started)


def test_off_keeps_nothing_and_deletes_what_was_kept(model: Path, tmp_path: Path) -> None:
    with Engine() as engine:
        for keep, kept in (("auto", 1), ("off", 0)):
            engine.send(LoadModel(str(model), experts="50%", keep_past=keep))
            engine.wait_for(ModelLoaded)
            Talk(engine, tmp_path, f"{keep}-one").ask(LONG)
            engine.send(UnloadModel())
            engine.send(LoadModel(str(model), experts="50%", keep_past=keep))
            engine.wait_for(ModelLoaded)
            assert len(files()) == kept


def test_a_size_that_is_none_is_refused_before_anything_is_loaded(model: Path) -> None:
    from engine.errors import OptionError
    from engine.loading import load

    with pytest.raises(OptionError, match=r"'lots' is no amount of disk for chats"):
        load(LoadModel(str(model), keep_past="lots"))
