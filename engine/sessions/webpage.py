"""A conversation as one web page: no script, nothing fetched, readable by day and by night, and printable.

What people and models wrote is shown and never obeyed: HTML in it is text, pictures become links, and links are only
those that markdown-it lets through (no ``javascript:``, no ``file:``). The page's own policy forbids the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from string import Template
from typing import Any, TypeAlias

from markdown_it import MarkdownIt

from engine.messages import Role
from engine.sessions.conversation import Conversation, Turn, title_of
from engine.sessions.outline import Section, outline

Split: TypeAlias = Callable[[str], tuple[str, str]]  # an answer's text -> its thought and the rest

SPEAKERS: dict[Role, str] = {"system": "System", "user": "You", "assistant": "Answer"}
_REASONS = {"length": "ended at the token limit", "stopped": "stopped", "error": "ended by an error"}

_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>$title</title>
<style>
:root {
  --page: #f6f8f7; --text: #161b1a; --muted: #525d59; --line: #d9e0dd; --user: #e6edea; --code: #ebf0ee;
  --accent: #13714f;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14181a; --text: #e6eae9; --muted: #a3acaa; --line: #2c3437; --user: #222a2d; --code: #1b2124;
    --accent: #48c299;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 15px/1.6 Inter, system-ui, sans-serif; }
main { max-width: 46rem; margin: 0 auto; padding: 3rem 1.5rem 5rem; }
h1 { font-size: 1.5rem; line-height: 1.3; margin: 0 0 .25rem; overflow-wrap: anywhere; }
.facts, .note { color: var(--muted); font-size: .8rem; }
article { margin-top: 1.75rem; overflow-wrap: anywhere; }
article.user { margin-left: auto; width: fit-content; max-width: 80%; }
article.user .said { background: var(--user); border-radius: 14px 14px 4px 14px; padding: .6rem 1rem; }
.plain { white-space: pre-wrap; }
article.system .plain { color: var(--muted); border-left: 2px solid var(--line); padding-left: .75rem; }
.speaker { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
section + section { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: 1rem; }
pre, code { font: .87em/1.5 "JetBrains Mono", ui-monospace, monospace; background: var(--code); border-radius: 4px; }
code { padding: .1em .3em; }
pre { padding: .75rem 1rem; overflow-x: auto; border: 1px solid var(--line); border-radius: 8px; }
pre code { padding: 0; background: none; font-size: 1em; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { border: 1px solid var(--line); padding: .3rem .7rem; text-align: left; }
blockquote { margin: 1em 0; padding-left: 1rem; border-left: 2px solid var(--line); color: var(--muted); }
details { color: var(--muted); border-left: 2px solid var(--line); padding-left: .75rem; margin-bottom: .75rem; }
a { color: var(--accent); }
</style>
</head>
<body>
<main>
<h1>$title</h1>
$facts
$body
</main>
</body>
</html>
""")


def no_thoughts(text: str) -> tuple[str, str]:
    """For models that say what they think without marking it."""
    return "", text


def as_html(
    conversation: Conversation, leaf: str | None = None, whole: bool = False, split: Split = no_thoughts
) -> str:
    """The branch that ends at ``leaf`` (None: the chosen one), with ``whole`` all others after it."""
    facts = [fact for fact in (conversation.created, ", ".join(conversation.models)) if fact]
    markdown = _renderer()
    return _PAGE.substitute(
        title=escape(conversation.title),
        facts=f'<p class="facts">{escape(" · ".join(facts))}</p>' if facts else "",
        body="\n".join(_section(section, markdown, split) for section in outline(conversation, leaf, whole)),
    )


def note_of(turn: Turn) -> str:
    """How a turn ended, when not by itself."""
    facts = [_REASONS.get(turn.last.reason or "", ""), turn.last.error]
    return ": ".join(fact for fact in facts if fact)


def _section(section: Section, markdown: MarkdownIt, split: Split) -> str:
    parts = ["<section>"]
    if section.instead_of is not None:
        parts.append(f'<p class="note">In place of “{escape(title_of(section.instead_of.text, "…"))}”:</p>')
    parts += [_turn(turn, markdown, split) for turn in section.turns]
    parts.append("</section>")
    return "\n".join(parts)


def _turn(turn: Turn, markdown: MarkdownIt, split: Split) -> str:
    speaker = f'<h2 class="speaker">{SPEAKERS[turn.role]}</h2>'
    if turn.role == "assistant":
        thought, text = split(turn.text)
        said = f"<details><summary>Thought</summary>{markdown.render(thought)}</details>" if thought else ""
        said += markdown.render(text)
    else:
        said = f'<div class="plain">{escape(turn.text)}</div>'
    note = f'<p class="note">{escape(note_of(turn))}</p>' if note_of(turn) else ""
    return f'<article class="{turn.role}">{speaker}<div class="said">{said}</div>{note}</article>'


def _renderer() -> MarkdownIt:
    """Markdown that shows HTML as text and fetches no picture."""
    markdown = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    markdown.add_render_rule("image", _link_in_place_of_picture)
    return markdown


def _link_in_place_of_picture(self: Any, tokens: Sequence[Any], index: int, options: Any, env: Any) -> str:
    token = tokens[index]
    address = str(token.attrGet("src") or "")
    words = token.content or address
    if address.startswith(("http://", "https://")):
        return f'<a href="{escape(address)}">{escape(words)}</a>'
    return escape(f"{words} ({address})")
