"""A past outlives its chat: going back to one, in this start or the next, reads nothing twice, and is never wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from engine.generation.generate import TextGenerator
from engine.kv.store import PastStore
from engine.loading import LoadedModel, load
from engine.messages import LoadModel, Sampling
from tests.engine.chats import Chat, Turn
from tests.families import make_tiny

LONG = 1500  # tokens
SHORTER = {"jamba": 300, "deepseek_v4": 500}  # what takes long per token
CHATS = 5
MORE = [7, 8, 9]
PLENTY = 1 << 30
# appended rows, windows, recurrent layers, a pool beside windows, a cache class of its own, recurrent and stepped
KINDS = ["qwen2_moe", "gpt_oss", "qwen3_next", "deepseek_v4", "minimax", "jamba"]
NUMBERS = torch.randint(3, 120, (CHATS, LONG), generator=torch.Generator().manual_seed(6)).tolist()


@pytest.fixture(scope="module", params=KINDS)
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedModel]:
    folder = make_tiny(request.param, tmp_path_factory.mktemp("m"), changes={"max_position_embeddings": 2048})
    with opened(folder) as model:
        yield model


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedModel]:
    with opened(make_tiny("qwen3_next", tmp_path_factory.mktemp("m"))) as model:
        yield model


@contextmanager
def opened(folder: Path) -> Iterator[LoadedModel]:
    model = load(LoadModel(str(folder), experts="50%", dtype="float32", device="cpu"))
    yield model
    model.close()


class Start(Chat):
    """A start of the program: chats with pasts kept in ``folder``."""

    def __init__(
        self, loaded: LoadedModel, folder: Path | None, ram: int = PLENTY, disk: int = PLENTY, signature: str = "this"
    ) -> None:
        self.loaded = loaded
        self.store = PastStore(folder, signature, ram, disk)
        self.generator = TextGenerator(loaded, ends=set(), store=self.store)

    def end(self) -> None:
        self.generator.pasts.close()


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.past.safetensors"))


def test_five_chats_in_turns_and_a_restart_read_nothing_twice(loaded: LoadedModel, tmp_path: Path) -> None:
    start, length = Start(loaded, tmp_path), SHORTER.get(loaded.info.family, LONG)
    firsts = [start.say(prompt[:length]) for prompt in NUMBERS]
    assert [turn.reused for turn in firsts] == [0] * CHATS
    seconds = [start.say([*turn.conversation, *MORE]) for turn in firsts]
    check_only_new(seconds)
    start.end()
    assert len(files(tmp_path)) == CHATS

    again = Start(loaded, tmp_path)
    thirds = [again.say([*turn.conversation, *MORE]) for turn in seconds]
    check_only_new(thirds)
    again.end()

    fresh = Chat(loaded)
    for turn in (seconds[1], thirds[3]):
        expected = fresh.say(turn.prompt)
        fresh.generator.past.clear()
        assert turn.answer == expected.answer


def check_only_new(turns: list[Turn]) -> None:
    for turn in turns:
        assert sum(turn.prefilled) == len(MORE) + 1  # and the last token of the answer, which was never fed
        assert turn.reused == len(turn.prompt) - len(MORE) - 1


def test_what_is_taken_back_is_the_same_to_the_last_bit(loaded: LoadedModel, tmp_path: Path) -> None:
    stayed, left = Chat(loaded), Start(loaded, tmp_path)
    first = stayed.say(NUMBERS[0][:300])
    assert left.say(NUMBERS[0][:300]).answer == first.answer
    left.say(NUMBERS[1][:300])
    prompt = [*first.conversation, *MORE]
    here, there = stayed.say(prompt), left.say(prompt)
    assert all(torch.equal(one, other) for one, other in zip(here.logits, there.logits, strict=True))
    left.say(NUMBERS[2][:300])
    left.end()
    back = Start(loaded, tmp_path)
    longer = [*here.conversation, *MORE]
    here, there = stayed.say(longer), back.say(longer)
    assert there.reused > 300
    assert all(torch.equal(one, other) for one, other in zip(here.logits, there.logits, strict=True))
    back.end()


def test_a_repeated_or_edited_turn_fills_no_store(loaded: LoadedModel, tmp_path: Path) -> None:
    start = Start(loaded, tmp_path)
    first = start.say(NUMBERS[0][:300])
    start.say(NUMBERS[0][:300])
    start.say([*first.conversation[:-2], *MORE])
    start.end()
    assert len(files(tmp_path)) == 1


def test_a_beginning_that_chats_share_is_copied_and_the_other_chat_stays(plain: LoadedModel, tmp_path: Path) -> None:
    """As a system prompt is: the first part of both."""
    start, shared = Start(plain, tmp_path), NUMBERS[4][:40]
    first = start.say([*shared, *NUMBERS[0][:160]])
    second = start.say([*shared, *NUMBERS[1][:160]])
    back = start.say([*first.conversation, *MORE])
    assert back.reused == len(first.conversation) - 1
    again = start.say([*second.conversation, *MORE])
    assert again.reused == len(second.conversation) - 1
    start.end()


def test_memory_and_disk_keep_to_their_budgets(plain: LoadedModel, tmp_path: Path) -> None:
    start = Start(plain, tmp_path)
    start.say(NUMBERS[0][:200])
    start.say(NUMBERS[1][:200])
    start.end()
    one = max(file.stat().st_size for file in files(tmp_path))
    for file in files(tmp_path):
        file.unlink()
    start = Start(plain, tmp_path, ram=2 * one + one // 2, disk=3 * one + one // 2)
    for prompt in NUMBERS:
        start.say(prompt[:200])
    start.end()
    held = sum(file.stat().st_size for file in files(tmp_path))
    assert 2 * one < held <= 1.05 * (3 * one + one // 2)
    assert len(files(tmp_path)) == 3
    back = Start(plain, tmp_path, ram=0)
    assert back.say([*NUMBERS[4][:200], *MORE]).reused > 190  # the last ones stayed
    assert back.say([*NUMBERS[0][:200], *MORE]).reused == 0
    assert back.store.nbytes <= one  # what is being written
    back.end()


def test_in_memory_alone_the_least_recently_used_goes(plain: LoadedModel) -> None:
    start = Start(plain, None)
    start.say(NUMBERS[0][:200])
    start.say(NUMBERS[1][:200])
    one = start.store.nbytes
    start = Start(plain, None, ram=2 * one + one // 2)
    for prompt in NUMBERS[:4]:
        start.say(prompt[:200])
    assert start.store.nbytes <= 2 * one + one // 2
    assert start.say([*NUMBERS[2][:200], *MORE]).reused > 190
    assert start.say([*NUMBERS[0][:200], *MORE]).reused == 0


@pytest.mark.parametrize("damage", ["cut", "flipped", "no header", "newer", "other model", "empty"])
def test_a_damaged_or_foreign_file_is_forgotten_and_the_answer_right(
    damage: str, plain: LoadedModel, tmp_path: Path
) -> None:
    start = Start(plain, tmp_path, signature="other" if damage == "other model" else "this")
    start.say(NUMBERS[0][:200])
    start.end()
    (file,) = files(tmp_path)
    data = bytearray(file.read_bytes())
    if damage == "cut":
        del data[-500:]
    elif damage == "flipped":
        data[-300] ^= 0x40
    elif damage == "no header":
        data[8:40] = b"x" * 32
    elif damage == "newer":
        data[:] = bytes(data).replace(b"greenroom-past-1", b"greenroom-past-9")
    elif damage == "empty":
        data.clear()
    file.write_bytes(data)
    back = Start(plain, tmp_path)
    turn = back.say([*NUMBERS[0][:200], *MORE])
    assert turn.reused == 0
    assert file.exists() == (damage == "other model")
    assert turn.answer == Chat(plain).say(turn.prompt).answer
    back.end()


def test_a_chat_that_was_deleted_takes_its_past_with_it(plain: LoadedModel, tmp_path: Path) -> None:
    log = tmp_path / "chat.jsonl"
    log.touch()
    start = Start(plain, tmp_path / "pasts")
    list(start.generator.complete(NUMBERS[0][:100], Sampling(), chat=str(log)))
    start.end()
    assert len(files(tmp_path / "pasts")) == 1
    Start(plain, tmp_path / "pasts").end()
    assert len(files(tmp_path / "pasts")) == 1
    log.unlink()
    Start(plain, tmp_path / "pasts").end()
    assert files(tmp_path / "pasts") == []


def test_files_are_for_the_users_eyes_only(plain: LoadedModel, tmp_path: Path) -> None:
    start = Start(plain, tmp_path / "pasts")
    start.say(NUMBERS[0][:100])
    start.end()
    (file,) = files(tmp_path / "pasts")
    assert file.stat().st_mode & 0o077 == 0


def test_a_disk_that_takes_nothing_costs_no_answer(plain: LoadedModel, tmp_path: Path) -> None:
    (tmp_path / "pasts").write_text("a file where the folder should be", "utf-8")
    start = Start(plain, tmp_path / "pasts")
    first = start.say(NUMBERS[0][:200])
    start.say(NUMBERS[1][:200])
    assert start.say([*first.conversation, *MORE]).reused > 190  # from memory
    start.end()
