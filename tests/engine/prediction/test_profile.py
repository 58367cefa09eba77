"""Profiles on disk: they come back as saved, and no file, however broken, stops a load."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.errors import OptionError
from engine.messages import UseProfile
from engine.prediction import profile as profiles
from engine.prediction.deeds import use_profile
from engine.prediction.predictors.eam import likely_first
from engine.prediction.profile import (
    Profile,
    ProfileError,
    clear_profile,
    export_profile,
    import_profile,
    load_profile,
    profile_path,
    read_profile,
    save_profile,
)
from engine.prediction.prompter import Prompter
from engine.prediction.shape import Shape
from tests.engine.prediction.traces import LinearModel, play

MODEL = LinearModel.random(layers=4, experts=12, top_k=3, hidden=16)
SHAPE = Shape(4, 12, 3, 16)


@pytest.fixture(autouse=True)
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GREENROOM_DATA", str(tmp_path / "data"))


@pytest.fixture(scope="module")
def learnt() -> Profile:
    prompter = Prompter("blend", SHAPE)
    play(MODEL, prompter, tokens=150)
    return Profile("a1b2", SHAPE, prompter.state(), accuracy={"blend": [0.9, None]})


def test_what_is_saved_comes_back(learnt: Profile) -> None:
    assert save_profile(learnt).notes == []
    back, note = load_profile("a1b2", SHAPE)
    assert note == ""
    assert back.tables.keys() == learnt.tables.keys()
    for name, table in learnt.tables.items():
        np.testing.assert_array_equal(back.tables[name], table, strict=True)
    assert back.shape == SHAPE
    assert back.requests == {"prefill": 0, "decode": 1}
    assert back.tokens_learnt == {"gate-fitted": 149, "call-sheet": 149}
    assert back.accuracy == {"blend": [0.9, None]}
    assert back.saved.endswith("Z")
    prompter = Prompter("blend", SHAPE, back.tables)
    assert len(prompter.history.collections["decode"]) == 1


def test_there_is_no_profile_before_the_first() -> None:
    profile, note = load_profile("none-yet", SHAPE)
    assert (profile.tables, note) == ({}, "")


def test_only_the_whole_file_is_ever_seen(learnt: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    save_profile(learnt)
    before = profile_path("a1b2").read_bytes()

    def full_disk(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(profiles.np, "savez", full_disk)
    with pytest.raises(OSError, match="No space"):
        save_profile(learnt)
    assert profile_path("a1b2").read_bytes() == before
    assert [path.name for path in profile_path("a1b2").parent.iterdir()] == ["a1b2.npz"]


def damaged(data: bytes, how: str) -> bytes:
    middle = len(data) // 2
    return {
        "empty": b"",
        "cut short": data[:middle],
        "one byte flipped": data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :],
        "text": b"{}" * 50,
        "head lost": data[100:],
        "zeros at the end": data[:-200] + bytes(200),
    }[how]


@pytest.mark.parametrize("how", ["empty", "cut short", "one byte flipped", "text", "head lost", "zeros at the end"])
def test_a_damaged_file_is_put_aside_in_a_sentence(learnt: Profile, how: str) -> None:
    save_profile(learnt)
    path = profile_path("a1b2")
    path.write_bytes(damaged(path.read_bytes(), how))
    profile, note = load_profile("a1b2", SHAPE)
    assert profile.tables == {}
    assert "is not used: a1b2.npz is damaged, or no profile at all." in note
    save_profile(learnt)
    assert load_profile("a1b2", SHAPE)[1] == ""


def test_any_flipped_byte_is_noticed_or_harmless(learnt: Profile) -> None:
    save_profile(learnt)
    path = profile_path("a1b2")
    data = path.read_bytes()
    for place in range(0, len(data), max(1, len(data) // 60)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :])
        profile, _ = load_profile("a1b2", SHAPE)
        Prompter("blend", SHAPE, profile.tables)


def written(path: Path, about: object, **tables: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, about=np.array(json.dumps(about)), **tables)  # type: ignore[arg-type]


ABOUT = {
    "kind": "greenroom-profile",
    "version": 1,
    "signature": "a1b2",
    "layers": 4,
    "experts": 12,
    "top_k": 3,
    "hidden": 16,
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 2}, "was written by a newer Greenroom"),
        ({"signature": "ffff"}, "belongs to another model"),
        ({"experts": 13}, "is of another shape than the model"),
        ({"kind": "something else"}, "damaged, or no profile at all"),
        ({"layers": -4}, "damaged, or no profile at all"),
        ({"version": "1"}, "damaged, or no profile at all"),
        ({"accuracy": 7}, ""),
    ],
)
def test_foreign_and_future_files_are_told_apart(change: dict[str, object], said: str) -> None:
    path = profile_path("a1b2")
    written(path, {**ABOUT, **change})
    _, note = load_profile("a1b2", SHAPE)
    assert said in note
    assert (note == "") == (said == "")


def test_a_description_that_is_none_is_damage() -> None:
    for about in ([], "x", None, {}):
        written(profile_path("a1b2"), about)
        assert "damaged" in load_profile("a1b2", SHAPE)[1]


def test_pickled_objects_are_never_opened() -> None:
    path = profile_path("a1b2")
    np.savez(path, about=np.array(json.dumps(ABOUT)), eam=np.array([{"a": 1}], object), allow_pickle=True)
    assert "damaged" in load_profile("a1b2", SHAPE)[1]


def test_a_profile_stays_within_its_bounds(learnt: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    save_profile(learnt)
    monkeypatch.setattr(profiles, "MAX_BYTES", 1000)
    with pytest.raises(ProfileError, match="larger than any profile"):
        read_profile(profile_path("a1b2"))
    monkeypatch.setattr(profiles, "MAX_BYTES", (1 << 20) + 8000)
    notes = save_profile(learnt).notes
    assert any(note.startswith("What call-sheet learnt takes") for note in notes)
    back, _ = load_profile("a1b2", SHAPE)
    assert back.requests["decode"] == 1
    assert not any(name.startswith("call-sheet") for name in back.tables)


def test_export_and_import_carry_it_to_another_place(learnt: Profile, tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="Nothing was learnt"):
        export_profile("a1b2", tmp_path / "out.npz")
    save_profile(learnt)
    export_profile("a1b2", tmp_path / "out.npz")
    assert clear_profile("a1b2")
    assert not clear_profile("a1b2")
    assert load_profile("a1b2", SHAPE)[0].tables == {}
    import_profile(tmp_path / "out.npz", "a1b2")
    assert load_profile("a1b2", SHAPE)[0].requests["decode"] == 1


def test_import_refuses_what_is_not_this_models(learnt: Profile, tmp_path: Path) -> None:
    save_profile(replace(learnt, signature="ffff"), tmp_path / "other.npz")
    with pytest.raises(ProfileError, match=r"learnt on another model \(signature ffff, not a1b2\)"):
        import_profile(tmp_path / "other.npz", "a1b2")
    with pytest.raises(ProfileError, match="There is no file"):
        import_profile(tmp_path / "absent.npz", "a1b2")
    with pytest.raises(ProfileError, match="cannot be read"):
        import_profile(tmp_path, "a1b2")
    with pytest.raises(ProfileError, match="cannot be written"):
        save_profile(learnt)
        export_profile("a1b2", tmp_path / "no such folder" / "out.npz")
    assert not (tmp_path / "data" / "profiles" / "ffff.npz").exists()


def test_a_face_can_look_at_it_move_it_and_forget_it(tmp_path: Path) -> None:
    shape = Shape(2, 4, 1, 8)
    nothing = use_profile(UseProfile("model"))
    assert (nothing.there, nothing.requests) == (False, 0)
    save_profile(Profile("model", shape, {"eam/decode": np.zeros((3, 2, 4))}, accuracy={"gate": [0.5, None]}))
    kept = tmp_path / "kept.npz"
    told = use_profile(UseProfile("model", "export", str(kept)))
    assert (told.there, told.requests, told.accuracy) == (True, 3, (("gate", (0.5, None)),))
    assert told.bytes == profile_path("model").stat().st_size
    assert not use_profile(UseProfile("model", "clear")).there
    assert use_profile(UseProfile("model", "import", str(kept))).requests == 3
    with pytest.raises(OptionError, match="Name the file"):
        use_profile(UseProfile("model", "export"))
    with pytest.raises(OptionError, match="another model"):
        use_profile(UseProfile("other", "import", str(kept)))


def test_a_folder_that_cannot_be_had_stops_no_load(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "profiles").write_text("in the way", encoding="utf-8")
    profile, note = load_profile("a1b2", SHAPE)
    assert profile.tables == {}
    assert note.startswith("What is learnt about this model cannot be kept:")


def test_what_a_killed_program_left_is_cleared_away(learnt: Profile) -> None:
    folder = profile_path("a1b2").parent
    dead, alive = (folder / f".a1b2.npz.{number}.part" for number in (999_999_999, os.getppid()))
    other = folder / ".c3d4.npz.999999999.part"
    for draft in (dead, alive, other):
        draft.write_bytes(b"half")
    save_profile(learnt)
    assert not dead.exists()
    assert alive.exists()  # of another window that is at it now
    assert other.exists()  # of a model that has not been saved since


SPOILT = (
    np.array(7.0), np.array("text"), np.array([True]), np.zeros(0), np.full(3, np.nan), np.full((2, 4, 12), -1),
    np.full((2, 4, 12), 1 << 62, np.uint64), np.array(1 << 63, np.uint64), np.zeros((3, 3), complex),
)  # fmt: skip


def test_tables_of_the_wrong_kind_are_put_aside_one_predictor_at_a_time(learnt: Profile) -> None:
    path, random = profile_path("a1b2"), np.random.default_rng(0)
    names = sorted(learnt.tables)
    for spoilt in SPOILT:
        for name in [*random.choice(names, 12, replace=False).tolist(), "eam/decode", "call-sheet/rows", "gate/curve"]:
            written(path, ABOUT, **{**learnt.tables, name: spoilt})
            profile, _ = load_profile("a1b2", SHAPE)
            assert set(profile.requests) <= {"prefill", "decode"}
            assert set(profile.tokens_learnt) <= {"gate-fitted", "call-sheet"}
            for predictor in ("blend", "apprentice"):
                prompter = Prompter(predictor, SHAPE, profile.tables)
                likely_first(SHAPE, prompter.state())


@pytest.mark.parametrize("accuracy", [{"gate": 5}, {"gate": ["much", None]}, {"gate": [True, 0.5]}, [0.5]])
def test_accuracy_that_is_none_is_left_out(accuracy: object) -> None:
    written(profile_path("a1b2"), {**ABOUT, "accuracy": accuracy})
    profile, note = load_profile("a1b2", SHAPE)
    assert (profile.accuracy, note) == ({}, "")
