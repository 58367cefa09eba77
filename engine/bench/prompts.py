"""What the contenders are asked: everybody the same, each round something else.

A model that learns while it answers would know the second round by heart if it were the first once more.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import AutoTokenizer

from engine.dense import TOKENIZER_FILES
from engine.errors import ModelError, OptionError
from engine.generation.prompt import prompt_tokens
from engine.loading import Inspection
from engine.messages import ChatMessage

RANDOM_TOKENS = 24  # of a prompt, where the model has no tokenizer

TEXTS = (
    "Explain to a child why the sky is blue, in a few sentences.",
    "Write a short letter to a neighbour whose dog barks at night.",
    "What should I think about before I buy a used bicycle?",
    "Describe how bread is made, step by step.",
    "Name three inventions that changed how people travel, and say why.",
    "Write a Python function that counts the words in a text, and explain it.",
    "Tell a short story about a lighthouse keeper and a lost ship.",
    "Compare tea and coffee: taste, history, and how they are made.",
)
WARM_UP_TEXTS = (
    "What makes a good teacher? Give reasons.",
    "How do I plan a week of simple meals for two people?",
    "Summarise what happens to water between the sea and the tap.",
    "Write a list of things to see in an old harbour town.",
    "Explain how a bicycle stays upright.",
    "Give me advice for the first day in a new job.",
    "What is the difference between weather and climate?",
    "Write a dialogue between a gardener and a snail.",
    "How does a library decide which books to buy?",
    "Write a Python class for a bank account with tests.",
    "Tell me how to learn to draw faces.",
    "Why do people keep diaries? Give three examples.",
)
WARM_UP_ANSWER = 128  # tokens of one answer of the warm-up


@dataclass(frozen=True, slots=True)
class Prompts:
    """Token ids. context: tokens of the longest prompt with its answer. note: what the reader should know, or empty."""

    rounds: list[list[int]]
    warm_up: list[list[int]]
    context: int
    note: str = ""


def choose_prompts(found: Inspection, text: str, rounds: int, tokens: int, warm_up: int) -> Prompts:
    """A prompt for each round, and those of the warm-up; ``text``: the user's own, for every round.

    tokens, warm_up: how long an answer is, and how many tokens the warm-up has in all. Raises OptionError when prompt
    and answer are longer than the model was made for, or there is no tokenizer for a text; ModelError for a tokenizer
    that cannot be read.
    """
    count = max(1, -(-warm_up // WARM_UP_ANSWER))
    if any((found.folder.path / name).is_file() for name in TOKENIZER_FILES):
        measured, warming, note = _of_texts(found, text, rounds)
    elif text:
        raise OptionError("The model has no tokenizer, so it cannot read a prompt; without one it gets random tokens.")
    else:
        measured, warming, note = _random(found, rounds, count)
    limit = int(getattr(found.skeleton.config.get_text_config(), "max_position_embeddings", 0) or 1 << 20)
    longest = max(len(prompt) for prompt in (*measured, *warming))
    if longest + tokens + 1 > limit:
        raise OptionError(
            f"The model was made for {limit:,} tokens of context, and the prompt has {longest:,}: measure at most "
            f"{max(0, limit - longest - 1):,} tokens."
        )
    context = min(limit, longest + max(tokens, min(warm_up, WARM_UP_ANSWER)) + 1)
    return Prompts(measured, warming, context, note)


def _of_texts(found: Inspection, text: str, rounds: int) -> tuple[list[list[int]], list[list[int]], str]:
    try:
        tokenizer = AutoTokenizer.from_pretrained(found.folder.path, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # any of a dozen kinds, from as many tokenizer classes
        raise ModelError(f"The tokenizer of {found.folder.name} cannot be read: {error}") from error

    def ids(one: str) -> list[int]:
        return prompt_tokens(tokenizer, [ChatMessage("user", one)])[0]

    texts = [text] * rounds if text else [TEXTS[number % len(TEXTS)] for number in range(rounds)]
    note = ""
    if len(set(texts)) < rounds:
        note = "Some rounds had the same prompt: what learns from answers may have known those by heart."
    return [ids(one) for one in texts], [ids(one) for one in WARM_UP_TEXTS], note


def _random(found: Inspection, rounds: int, warm_up: int) -> tuple[list[list[int]], list[list[int]], str]:
    vocabulary = int(found.skeleton.config.get_text_config().vocab_size)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(0, vocabulary, (rounds + warm_up, RANDOM_TOKENS), generator=generator).tolist()
    note = "The model has no tokenizer: prompts are random tokens, the same every time."
    return drawn[:rounds], drawn[rounds:], note
