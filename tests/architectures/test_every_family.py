"""Every family says what transformers says, on the program's own way: pieces, turns, going back, few slots.

Each is a tiny random model with a past of more than a thousand tokens, far beyond its windows. The suite takes a third
of them at each run, by turns; ``-m families`` takes all.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import torch

from tests.engine.chats import Stock, chat_with, chunks_of
from tests.families import ALL_FAMILIES, make_tiny, stock

LONG = 1100  # tokens of the first prompt
NUMBERS = torch.randint(3, 120, (LONG + 200,), generator=torch.Generator().manual_seed(1)).tolist()
PROMPT, SUFFIX, OTHER = NUMBERS[:LONG], NUMBERS[LONG : LONG + 20], NUMBERS[LONG + 20 : LONG + 30]
EDITED = [*PROMPT[:10], *OTHER, *PROMPT[20:]]  # another first message

# What these keep of the past is a sum over many decays or of convolutions, and float32 rounds it otherwise in pieces:
# the stock model fed in the same pieces differs from itself in one pass by 6e-6 to 1.3e-5 of the largest logit, too.
# Each test shows that it does, and allows no more than three times as much.
ROUNDED_OTHERWISE = ("bailing_hybrid", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_next", "zaya")

# In these one pass over a prompt and its answer is not what the stock model says token by token either. They read each
# prompt whole, from nothing, as it does; test_adapters.py and test_language_half.py compare them as it generates.
NOT_CAUSAL = {
    "doge": "its router's choice for a token depends on all others of the pass, later ones too",
    "unlimited_ocr": "tokens of the first pass are seen by all others, later ones only through a window",
}
COMPARED = tuple(family for family in ALL_FAMILIES if family not in NOT_CAUSAL)


def turn_of(number: int) -> int:
    return number % 3


def this_run() -> int:
    """Which third: by the day, unless told otherwise."""
    return int(os.environ.get("GREENROOM_FAMILIES", time.time() // 86400)) % 3


@pytest.mark.families
@pytest.mark.parametrize(("number", "family"), list(enumerate(COMPARED)), ids=COMPARED)
def test_a_chat_is_the_stock_models(
    number: int, family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    all_of_them = "families" in str(request.config.getoption("markexpr"))
    if not all_of_them and turn_of(number) != this_run():
        pytest.skip("another run's turn")
    folder = make_tiny(family, tmp_path, changes={"max_position_embeddings": 2048})
    theirs, close = Stock(stock(folder)), 1e-5
    if family in ROUNDED_OTHERWISE:
        itself = theirs.difference_from_itself(PROMPT, 7)
        assert itself > 5e-6, "it rounds alike now: no exception is needed"
        close = 3 * itself
    with chat_with(folder) as chat:
        assert chat.loaded.info.slots < chat.loaded.info.total_experts / 2
        chunks_of(7 if all_of_them else 64, monkeypatch)  # 158 passes take a while
        first = chat.say(PROMPT)
        theirs.check(first, close)
        assert first.reused == 0

        chunks_of(7, monkeypatch)
        second = chat.say([*first.conversation, *SUFFIX])
        theirs.check(second, close)
        assert sum(second.prefilled) == len(SUFFIX) + 1  # the answer's last token was never fed

        again = chat.say(second.prompt)
        assert again.answer == second.answer
        theirs.check(again, close)
        assert again.prefilled == [1]

        longer = chat.say(second.conversation)
        theirs.check(longer, close)
        assert longer.prefilled == [1]

        stopped = chat.stop_in_a_pass([*second.conversation, *SUFFIX])
        assert stopped.reason == "stopped"
        after = chat.say([*second.conversation, *SUFFIX])
        theirs.check(after, close)
        assert sum(after.prefilled) <= 7

        chunks_of(64, monkeypatch)
        edited = chat.say(EDITED)
        theirs.check(edited, close)
        assert sum(edited.prefilled) >= LONG - 20

        chunks_of(512, monkeypatch)
        chat.generator.past.clear()
        whole = chat.say(PROMPT)
        theirs.check(whole, close)
        assert whole.answer == first.answer
