"""A conversation that outgrew the context: what stays, and how many tokens that is. Known before it is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from engine.generation.prompt import prompt_tokens, whole_characters
from engine.messages import ChatMessage

STEPS = 4  # a conversation is cut at every so many parts of the context


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the model is given. ``left_out``: the oldest messages that had to go, system messages never among them."""

    ids: list[int]
    notes: tuple[str, ...]
    left_out: int = 0


def fit_prompt(
    tokenizer: PreTrainedTokenizerBase | None,
    messages: Sequence[ChatMessage],
    context: int,
    answer: int,
    thinking: bool | None = None,
) -> Prompt:
    """The prompt of ``messages``, without its oldest turns where they leave too little room in ``context`` tokens.

    ``answer`` tokens stay free for the answer, but not more than a quarter of the context. What is left begins with
    one of the user's messages, and the last message always stays, even if it alone is too long. Cuts are made at fixed
    places, a quarter of the context apart: the turns that follow begin with the same tokens and find them in the KV
    cache, instead of losing one more message each time. Raises ModelError as ``prompt_tokens`` does.
    """
    room = context - min(answer, context // STEPS)
    ids, notes = prompt_tokens(tokenizer, messages, thinking)
    if len(ids) <= room or tokenizer is None:
        return Prompt(ids, tuple(notes))
    system = [message for message in messages if message.role == "system"]
    turns = [message for message in messages if message.role != "system"]
    best = Prompt(ids, tuple(notes))
    for start in _cuts(tokenizer, turns, context // STEPS):
        ids, notes = prompt_tokens(tokenizer, [*system, *turns[start:]], thinking)
        best = Prompt(ids, (*notes, _note(start)), start)
        if len(ids) <= room:
            break
    return best


def _cuts(tokenizer: PreTrainedTokenizerBase, turns: Sequence[ChatMessage], step: int) -> list[int]:
    """Where the conversation may begin: at the first message of the user after each ``step`` tokens, and the last."""
    users = [number for number, turn in enumerate(turns) if turn.role == "user" and number]
    if not users:
        return []
    texts = [whole_characters(turn.text) for turn in turns]
    lengths = [len(ids) for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]]
    cuts: list[int] = []
    before, number, due = 0, 0, step
    for user in users:
        before += sum(lengths[number:user])
        number = user
        if before >= due or user == users[-1]:
            cuts.append(user)
            due = before + step
    return cuts


def _note(count: int) -> str:
    if count == 1:
        return "The oldest message did not fit in the context and was left out."
    return f"The oldest {count:,} messages did not fit in the context and were left out."
