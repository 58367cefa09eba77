"""The tokens that end an answer."""

from __future__ import annotations

from transformers import PreTrainedTokenizerBase

from engine.errors import ModelError
from engine.generation.template import chat_template
from engine.generation.text import reasoning_marks
from engine.loading import LoadedModel


def end_tokens(loaded: LoadedModel) -> set[int]:
    """All end-of-turn tokens: those the model declares, in any of the three places where models do, and the one that
    its chat template writes behind an answer."""
    found: set[int] = set()
    text_config = loaded.model.config.get_text_config()
    for holder in (loaded.model.generation_config, loaded.model.config, text_config, loaded.tokenizer):
        value = getattr(holder, "eos_token_id", None)
        found.update(value if isinstance(value, list | tuple) else [] if value is None else [value])
    if loaded.tokenizer is not None:
        found.update(_written_end(loaded.tokenizer))
    return found


def _written_end(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """The token of its own that a finished answer is followed by in the template, white space aside; often declared
    nowhere else. Empty when there is none."""
    try:
        template, _ = chat_template(tokenizer)
    except ModelError:  # a chat's first prompt says so
        return set()
    tail = template.after_answer(tokenizer).lstrip() if template is not None else ""
    added = {str(token): number for number, token in tokenizer.added_tokens_decoder.items() if str(token)}
    marks = set(reasoning_marks(tokenizer).values())
    starts = [text for text in added if text not in marks and tail.startswith(text)]
    return {added[max(starts, key=len)]} if starts else set()
