"""Thoughts are found whatever marks a model uses and however its text is cut; marks elsewhere are text."""

from __future__ import annotations

import random

import pytest

from app.chat.reasoning import MARKS, ReasoningStream, for_the_next_turn, split

HARMONY = (
    "<|channel|>analysis<|message|>The user asks. Let me see.<|end|>"
    "<|start|>assistant<|channel|>commentary to=functions.x <|constrain|>json<|message|>{}<|end|>"
    "<|start|>assistant<|channel|>final<|message|>It is 4. <|x|> stays<|return|>"
)
CASES = [
    *((f"{mark}\nLet me see.\n{close}\n\nIt is 4.", "Let me see.", "It is 4.") for mark, close in MARKS.items()),
    ("\n <think>a</think>b", "a", "b"),
    ("<think></think>b", "", "b"),
    ("<think>never ends", "never ends", ""),
    ("First I think.\n</think>\nThe answer.", "First I think.", "The answer."),
    ("First I think.\n[/THINK]\nThe answer.", "First I think.", "The answer."),
    ("Write `<think>` and </think> so.", "", "Write `<think>` and </think> so."),
    ("```\n<think>\n```\n", "", "```\n<think>\n```\n"),
    ("<thin air", "", "<thin air"),
    ("</think>\n\nIt is 4.", "", "It is 4."),
    ("\n</think>\n\nIt is 4.", "", "It is 4."),
    ("</thing>", "", "</thing>"),
    ("First I think.<|END_THINKING|>It is 4.", "First I think.", "It is 4."),
    ("<think>\nHm.\n</think>\n<answer>\nIt is 4.\n\nReally.\n</answer>\n", "Hm.", "It is 4.\n\nReally."),
    ("Hm.\n</think>\n\n<response>\nIt is 4.\n</response>\n", "Hm.", "It is 4."),
    ("<think>Hm.</think><answer>cut < short </ans", "Hm.", "cut < short </ans"),
    ("<think>Hm.</think><answer>a </answer> b", "Hm.", "a </answer> b"),
    ("<think>Hm.</think><ans", "Hm.", "<ans"),
    ("<think>Hm.</think>\n\n", "Hm.", ""),
    ("<answer>without a thought</answer>", "", "<answer>without a thought</answer>"),
    ("<|chan", "", "<|chan"),
    ("", "", ""),
    (HARMONY, "The user asks. Let me see.\n\n{}", "It is 4. <|x|> stays"),
    ("<|channel|>final<|message|>Hello", "", "Hello"),
    ("<|start|>assistant<|channel|>analysis<|message|>Hm", "Hm", ""),
    ("<|channel|>ana", "", ""),
]


@pytest.mark.parametrize(("text", "thought", "answer"), CASES)
def test_thought_and_answer_are_told_apart_however_the_text_is_cut(text: str, thought: str, answer: str) -> None:
    assert tuple(part.strip() for part in split(text)) == (thought.strip(), answer.strip())
    for seed in range(20):
        rng = random.Random(seed)
        count = min(len(text), rng.randint(1, 30))
        cuts = sorted(rng.sample(range(len(text)), count)) if seed else list(range(1, len(text)))
        stream, shown = ReasoningStream(), ["", ""]
        for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
            piece = stream.feed(text[start:end])
            shown = ["", ""] if piece.restart else shown
            shown = [shown[0] + piece.thought, shown[1] + piece.answer]
        piece = stream.finish()
        shown = [shown[0] + piece.thought, shown[1] + piece.answer]
        assert [part.strip() for part in shown] == [thought.strip(), answer.strip()]


def test_the_next_turn_carries_the_answer_or_else_the_bare_thought() -> None:
    assert for_the_next_turn(HARMONY) == "It is 4. <|x|> stays"
    assert for_the_next_turn("<think>cut off in the mid") == "cut off in the mid"
    assert for_the_next_turn("<|channel|>analysis<|message|>cut off") == "cut off"
    assert for_the_next_turn("plain") == "plain"
