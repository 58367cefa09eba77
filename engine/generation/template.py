"""A model's chat template: which one, in which form it takes texts, and the switch for thinking that it may have.

Templates are programs of the model's makers, so what one does is found by asking it: it is given short texts that stand
for the real ones, and what it makes of them is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from jinja2 import TemplateError, meta, nodes
from transformers import PreTrainedTokenizerBase
from transformers.utils.chat_template_utils import _compile_jinja_template

from engine.errors import ModelError
from engine.messages import ChatMessage, Thinking

FAULTS = (TemplateError, TypeError, ValueError, KeyError, AttributeError, IndexError)
NOT_FOR_CHATS = ("tool_use", "rag")  # names of templates that transformers gives a meaning of their own

_SWITCHES = ("enable_thinking", "thinking")  # variables that are true or false
_EFFORT = "reasoning_effort"
_LEAST = ("none", "no_think", "minimal", "low")  # the first of these that a template knows is its least effort

Parts = frozenset[str]  # roles whose text goes in as a list of parts; the others' as a string


class TextLostError(Exception):
    """The template left a message's text out of what it rendered."""


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """One template, and what it can be asked for. ``name``: among several, or ""."""

    text: str
    name: str = ""

    def render(
        self, tokenizer: PreTrainedTokenizerBase, messages: Sequence[ChatMessage], thinking: bool | None = None
    ) -> str:
        """The prompt, up to where the answer begins, with the text of every message in it.

        Texts go in as strings; where one gets lost that way, as lists of parts, which templates of models that see
        pictures want. thinking: for the template's switch, if it has one; None: as the template does it.
        Raises TextLostError when no form keeps all texts, or what the template raises for strings.
        """
        fault: Exception | None = None  # of the first form
        for parts in _FORMS:
            try:
                if self._keeps_texts(tokenizer, messages, parts):
                    return _rendered(self.text, tokenizer, messages, parts, switched(self.text, thinking))
                fault = fault or TextLostError()
            except FAULTS as error:
                fault = fault or error
        assert fault is not None
        raise fault

    def thinking(self, tokenizer: PreTrainedTokenizerBase) -> Thinking:
        """Whether thinking can be switched, and what holds unasked."""
        variables = variables_of(self.text)
        if not variables.intersection((*_SWITCHES, _EFFORT)):
            return "fixed"
        asked = [ChatMessage("user", _stand_in(0))]
        try:
            plain, on, off = (self.render(tokenizer, asked, thinking) for thinking in (None, True, False))
        except (TextLostError, *FAULTS):
            return "fixed"
        if on == off:
            return "fixed"
        if not variables.intersection(_SWITCHES):
            return "effort"
        return "off" if plain == off else "on"

    def after_answer(self, tokenizer: PreTrainedTokenizerBase) -> str:
        """What the template writes behind a finished answer; "" when that cannot be told."""
        talk = [ChatMessage("user", _stand_in(0)), ChatMessage("assistant", _stand_in(1))]
        for parts in _FORMS:
            try:
                text = _rendered(self.text, tokenizer, talk, parts, {}, add_generation_prompt=False)
            except FAULTS:
                continue
            if _holds(text, talk, parts):
                return text.rpartition(talk[1].text)[2]
        return ""

    def _keeps_texts(self, tokenizer: PreTrainedTokenizerBase, messages: Sequence[ChatMessage], parts: Parts) -> bool:
        """Whether stand-ins in place of the texts come through. The texts themselves would not tell: a short one may be
        found in what the template writes, and a template may strip or rewrite one without losing it."""
        stand_ins = [ChatMessage(m.role, _stand_in(n) if m.text else "") for n, m in enumerate(messages)]
        return _holds(_rendered(self.text, tokenizer, stand_ins, parts, {}), stand_ins, parts)


def chat_template(tokenizer: PreTrainedTokenizerBase) -> tuple[ChatTemplate | None, list[str]]:
    """The tokenizer's template for chats, or None, and notes about the choice.

    Among several: the default, or else "chat", or else the first that takes a plain conversation. Raises ModelError
    when none is for that.
    """
    own = tokenizer.chat_template
    if not own:
        return None, []
    if isinstance(own, str):
        return ChatTemplate(own), []
    if "default" in own:
        return ChatTemplate(own["default"], "default"), []
    names = sorted((name for name in own if name not in NOT_FOR_CHATS), key=lambda name: name != "chat")
    for name in names:
        template = ChatTemplate(own[name], name)
        try:
            template.render(tokenizer, [ChatMessage("user", _stand_in(0))])
        except (TextLostError, *FAULTS):
            continue
        return template, [f"The model has {len(own)} chat templates and no default; its template “{name}” is used."]
    raise ModelError(
        f"The model has chat templates for {', '.join(own)}, and none that takes a plain conversation. Put one into "
        "its folder as chat_template.jinja."
    )


def template_facts(tokenizer: PreTrainedTokenizerBase | None) -> tuple[Thinking, list[str]]:
    """What to say of a model's template once it is loaded: its switch for thinking, and notes."""
    try:
        template, notes = chat_template(tokenizer) if tokenizer is not None else (None, [])
    except ModelError as error:
        return "fixed", [str(error)]
    return (template.thinking(tokenizer) if template is not None and tokenizer is not None else "fixed"), notes


@lru_cache(maxsize=16)
def variables_of(template: str) -> frozenset[str]:
    """Names that the template expects from outside; none when it cannot be read."""
    try:
        return frozenset(meta.find_undeclared_variables(_tree(template)))
    except TemplateError:
        return frozenset()


@lru_cache(maxsize=32)
def _switches(template: str, thinking: bool) -> tuple[tuple[str, bool | str], ...]:
    variables = variables_of(template)
    switches = tuple((name, thinking) for name in _SWITCHES if name in variables)
    if switches or thinking or _EFFORT not in variables:
        return switches
    known = {node.value for node in _tree(template).find_all(nodes.Const)}
    return ((_EFFORT, next((level for level in _LEAST if level in known), "low")),)


def switched(template: str, thinking: bool | None) -> dict[str, bool | str]:
    """The variables that tell this template to think or not; none unasked, or where it has none."""
    return {} if thinking is None else dict(_switches(template, thinking))


def _tree(template: str) -> nodes.Template:
    """By transformers' own environment: it knows tags that plain Jinja does not."""
    tree: nodes.Template = _compile_jinja_template(template).environment.parse(template)
    return tree


# Strings first; then parts for all, for the user alone, and for the user and one other role.
_FORMS = tuple(map(Parts, ((), ("user", "system", "assistant"), ("user",), ("user", "system"), ("user", "assistant"))))


def _rendered(
    template: str,
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[ChatMessage],
    parts: Parts,
    variables: Mapping[str, object],
    add_generation_prompt: bool = True,
) -> str:
    turns: list[dict[str, Any]] = [
        {"role": m.role, "content": [{"type": "text", "text": m.text}] if m.role in parts else m.text} for m in messages
    ]
    options: dict[str, Any] = {"add_generation_prompt": add_generation_prompt, **variables}
    return str(tokenizer.apply_chat_template(turns, tokenize=False, chat_template=template, **options))


_WRITTEN_OUT = ("'text': '", '"text": "', '"text":"')  # how a part looks that was taken for a string


def _stand_in(number: int) -> str:
    return f"greenroom{number}text"


def _holds(rendered: str, stand_ins: Sequence[ChatMessage], parts: Parts) -> bool:
    """Whether all of them came through, and none as a list written out."""
    for message in stand_ins:
        before, found, _ = rendered.partition(message.text)
        if message.text and (not found or (message.role in parts and before.endswith(_WRITTEN_OUT))):
            return False
    return True
