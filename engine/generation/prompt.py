"""Messages -> prompt tokens, by the model's own chat template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from transformers import PreTrainedTokenizerBase

from engine.errors import ModelError
from engine.generation.template import FAULTS, TextLostError, chat_template
from engine.messages import ChatMessage


def prompt_tokens(
    tokenizer: PreTrainedTokenizerBase | None, messages: Sequence[ChatMessage], thinking: bool | None = None
) -> tuple[list[int], list[str]]:
    """Token ids of the whole prompt, and notes on what the template would not take.

    An open turn at the end is what the model wrote so far, after the very prompt that it was answering: templates that
    take a final message to be continued rewrite it (drop thoughts, strip spaces), and then the model goes on from
    something it never said.

    A template that refuses a system role gets the system text at the head of the first user message; one that demands
    alternation gets neighbours of one role joined; without a template the texts follow each other as they are.
    thinking: for the template's switch, where it has one; None: as the template does it.
    Raises ModelError when there is no tokenizer, or the template fails in every form or would lose a message's text.
    """
    messages = [replace(message, text=whole_characters(message.text)) for message in messages]
    written = messages[-1].text if messages and messages[-1].open else ""
    if messages and messages[-1].open:
        messages = messages[:-1]
    if tokenizer is None:
        raise ModelError("This model has no tokenizer, so it cannot chat. Add the tokenizer files to its folder.")
    template, _ = chat_template(tokenizer)
    if template is None:
        text = "\n".join(message.text for message in messages) + written
        ids = tokenizer(text)["input_ids"]
        return list(ids), []
    first_error: Exception | None = None
    for messages_now, notes in _forms(messages):
        try:
            text = template.render(tokenizer, messages_now, thinking)
        except TextLostError:
            continue
        except FAULTS as error:
            first_error = first_error or error
            continue
        return list(tokenizer(text + written, add_special_tokens=False)["input_ids"]), notes
    if first_error is None:
        raise ModelError(
            "The model's chat template leaves out what you wrote, however it is given. Put another one into its folder "
            "as chat_template.jinja."
        )
    raise ModelError(f"The model's chat template refuses this conversation: {first_error}")


def whole_characters(text: str) -> str:
    """Without half characters (lone surrogates), which no tokenizer takes; each becomes U+FFFD."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _forms(messages: Sequence[ChatMessage]) -> list[tuple[list[ChatMessage], list[str]]]:
    """As given; then with the system text folded in; then with neighbours of one role joined as well."""
    forms = [(list(messages), list[str]())]
    notes: list[str] = []
    folded = _fold_system(list(messages))
    if folded != list(messages):
        notes = ["The model's template has no system role; the system text was put before your first message."]
        forms.append((folded, notes))
    joined = _join_neighbours(folded)
    if joined != folded:
        forms.append(
            (joined, [*notes, "The model's template wants turns to alternate; neighbouring turns were joined."])
        )
    return forms


def _fold_system(messages: list[ChatMessage]) -> list[ChatMessage]:
    system = [message.text for message in messages if message.role == "system"]
    rest = [message for message in messages if message.role != "system"]
    if not system:
        return messages
    if not rest or rest[0].role != "user":
        rest.insert(0, ChatMessage("user", ""))
    rest[0] = ChatMessage("user", "\n\n".join([*system, rest[0].text]).strip())
    return rest


def _join_neighbours(messages: list[ChatMessage]) -> list[ChatMessage]:
    joined: list[ChatMessage] = []
    for message in messages:
        if joined and joined[-1].role == message.role:
            joined[-1] = ChatMessage(message.role, f"{joined[-1].text}\n\n{message.text}")
        else:
            joined.append(message)
    return joined
