"""Chat templates as programs of their own: what they do with a text, how an answer ends in them, and thinking."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from engine.errors import ModelError
from engine.generation.ends import end_tokens
from engine.generation.generate import TextGenerator
from engine.generation.prompt import prompt_tokens
from engine.generation.template import template_facts
from engine.loading import load
from engine.messages import ChatMessage, LoadModel
from tests.families import copy_model

LOOP = "{% for m in messages %}"
PARTS = LOOP + "[{{ m.role }}]{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}[assistant]"
USER_IN_PARTS = (
    LOOP + "[{{ m.role }}]{% if m.role == 'user' %}{% for part in m.content %}{{ part.text }}{% endfor %}"
    "{% else %}{{ m.content }}{% endif %}{% endfor %}"
)
FIRST_PART = LOOP + "[{{ m.role }}]{{ m.content[0]['text'] }}{% endfor %}"
EITHER = LOOP + "[{{ m.role }}]{% if m.content is string %}{{ m.content }}{% else %}parts{% endif %}{% endfor %}"
DEAF_AND_STRICT = LOOP + "{% if m.content is not string %}{{ raise_exception('no parts') }}{% endif %}x{% endfor %}"
DEAF = LOOP + "[{{ m.role }}]{% endfor %}"
NO_SYSTEM = LOOP + "{% if m.role != 'system' %}[{{ m.role }}]{{ m.content }}{% endif %}{% endfor %}"
REWRITING = LOOP + "[{{ m.role }}]{{ m.content | trim | replace('  ', ' ') }}{% endfor %}"

TALK = [
    ChatMessage("system", "Be a"),  # short enough to be part of what a template writes itself
    ChatMessage("user", "s"),
    ChatMessage("assistant", "us"),
    ChatMessage("user", 'What\'s "this"?'),
]

QWEN = (
    LOOP + "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"
)
OPENED = (
    LOOP + "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
    "{% if not thinking is defined %}{% set thinking = false %}{% endif %}{{ '<think>\n' if thinking else '' }}"
)
EFFORT = (
    "{%- if reasoning_effort is not defined %}{% set reasoning_effort = 'medium' %}{% endif %}"
    "Reasoning: {{ reasoning_effort }}\n" + LOOP + "[{{ m.role }}]{{ m.content }}{% endfor %}"
)


@pytest.fixture
def tokenizer(tiny_chat_model: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(tiny_chat_model)


def text_of(
    tokenizer: PreTrainedTokenizerBase, messages: list[ChatMessage], thinking: bool | None = None
) -> tuple[str, list[str]]:
    ids, notes = prompt_tokens(tokenizer, messages, thinking)
    return str(tokenizer.decode(ids)), notes


# ------------------------------------------------------------------------------------------------- no text is lost


@pytest.mark.parametrize("template", [PARTS, USER_IN_PARTS, FIRST_PART, EITHER])
def test_templates_get_texts_in_the_form_in_which_they_keep_them(
    tokenizer: PreTrainedTokenizerBase, template: str
) -> None:
    tokenizer.chat_template = template
    text, notes = text_of(tokenizer, TALK)
    assert text.removesuffix("[assistant]") == '[system]Be a[user]s[assistant]us[user]What\'s "this"?'
    assert notes == []


def test_a_system_text_that_the_template_drops_goes_to_the_user(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.chat_template = NO_SYSTEM
    text, notes = text_of(tokenizer, TALK)
    assert text.startswith("[user]Be a\n\ns[assistant]us")
    assert "no system role" in notes[0]


@pytest.mark.parametrize("template", [DEAF, DEAF_AND_STRICT])
def test_a_template_that_loses_the_users_text_in_every_form_is_refused(
    tokenizer: PreTrainedTokenizerBase, template: str
) -> None:
    tokenizer.chat_template = template
    with pytest.raises(ModelError, match="leaves out what you wrote"):
        text_of(tokenizer, [ChatMessage("user", "s")])


def test_a_template_may_rewrite_a_text(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.chat_template = REWRITING
    assert text_of(tokenizer, [ChatMessage("user", " two  words ")])[0] == "[user]two words"


# ------------------------------------------------------------------------------------------------ several templates


def test_among_named_templates_the_default_or_one_for_chats_is_used(tokenizer: PreTrainedTokenizerBase) -> None:
    asked = [ChatMessage("user", "Hello")]
    tokenizer.chat_template = {"tool_use": "tools", "default": REWRITING}
    assert (text_of(tokenizer, asked)[0], template_facts(tokenizer)[1]) == ("[user]Hello", [])
    tokenizer.chat_template = {"rag": "rag", "plain": PARTS, "chat": REWRITING}
    assert text_of(tokenizer, asked)[0] == "[user]Hello"
    assert "its template “chat” is used" in template_facts(tokenizer)[1][0]
    tokenizer.chat_template = {"tool_use": REWRITING, "broken": "{{ raise_exception('no') }}", "plain": PARTS}
    assert text_of(tokenizer, asked)[0] == "[user]Hello[assistant]"


def test_templates_for_tools_and_documents_alone_are_a_sentence_for_the_user(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    tokenizer.chat_template = {"tool_use": REWRITING, "rag": REWRITING}
    with pytest.raises(ModelError, match="templates for tool_use, rag, and none that takes a plain conversation"):
        text_of(tokenizer, [ChatMessage("user", "Hello")])
    assert template_facts(tokenizer)[0] == "fixed"


def test_a_list_of_templates_in_the_folder_chats(tiny_chat_model: Path, tmp_path: Path) -> None:
    folder = copy_model(tiny_chat_model, tmp_path / "model")
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    path = folder / "tokenizer_config.json"
    named = [{"name": "rag", "template": DEAF}, {"name": "talk", "template": QWEN}]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": named}))
    loaded = load(LoadModel(str(folder)))
    try:
        prompt = TextGenerator(loaded).prompt([ChatMessage("user", "Hello")], 8)
        assert loaded.tokenizer is not None and "Hello<|im_end|>" in loaded.tokenizer.decode(prompt.ids)
    finally:
        loaded.close()


# ------------------------------------------------------------------------------------------- the end of an answer


def test_the_end_that_only_the_template_writes_ends_an_answer(tiny_chat_model: Path, tmp_path: Path) -> None:
    folder = copy_model(tiny_chat_model, tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|turn|>", "<|turn|>over"]})
    tokenizer.chat_template = LOOP + "{{ m.role }}: {{ m.content }} <|turn|>\n{% endfor %}"
    tokenizer.save_pretrained(folder)
    loaded = load(LoadModel(str(folder)))
    try:
        assert loaded.tokenizer is not None
        end = loaded.tokenizer.convert_tokens_to_ids("<|turn|>")
        assert end in end_tokens(loaded)
        loaded.tokenizer.chat_template = LOOP + "{{ m.content }}{% endfor %}"
        assert end not in end_tokens(loaded)
        loaded.tokenizer.chat_template = None
        assert end not in end_tokens(loaded)
    finally:
        loaded.close()


# ------------------------------------------------------------------------------------------------------- thinking


@pytest.mark.parametrize(
    ("template", "switch"),
    [(QWEN, "on"), (OPENED, "off"), (EFFORT, "effort"), (REWRITING, "fixed"), (LOOP + "{{ m.thinking }}", "fixed")],
)
def test_a_switch_for_thinking_is_found_in_the_template(
    tokenizer: PreTrainedTokenizerBase, template: str, switch: str
) -> None:
    tokenizer.chat_template = template
    assert template_facts(tokenizer)[0] == switch


def test_a_variable_that_changes_nothing_is_no_switch(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.chat_template = REWRITING + "{% if enable_thinking %}{% endif %}"
    assert template_facts(tokenizer)[0] == "fixed"


def test_thinking_is_switched_by_the_variable_that_the_template_knows(tokenizer: PreTrainedTokenizerBase) -> None:
    asked = [ChatMessage("user", "Hello")]
    ends = {}
    for template in (QWEN, OPENED, EFFORT):
        tokenizer.chat_template = template
        ends[template] = [text_of(tokenizer, asked, thinking)[0] for thinking in (None, True, False)]
    unasked, on, off = ends[QWEN]
    assert unasked == on and off == on + "<think>\n\n</think>\n\n"
    unasked, on, off = ends[OPENED]
    assert unasked == off and on == off + "<think>\n"
    assert [text.partition("\n")[0] for text in ends[EFFORT]] == [
        "Reasoning: medium",
        "Reasoning: medium",
        "Reasoning: low",
    ]
    tokenizer.chat_template = EFFORT + "{% if reasoning_effort == 'none' %}{% endif %}"
    assert text_of(tokenizer, asked, False)[0].startswith("Reasoning: none")
