"""In which passes a prompt is read: few and large, for each may stream every expert."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

CHUNK = 512  # tokens of one prefill pass
LAST = 64  # tokens: the last message ends within so many of the prompt's end, or its end is not known


def pass_ends(start: int, end: int, marks: Sequence[int], in_pieces: bool = True) -> list[int]:
    """Where the passes over tokens ``start`` to ``end`` end, the last at ``end``.

    marks: rising token counts at which a checkpoint is worth having. The last of them always ends a pass, the others
    where that costs no pass more. in_pieces: false where a pass of several tokens only works from nothing; the whole
    prompt is then one pass, and behind a past each token is one.
    """
    if not in_pieces:
        return [end] if not start else list(range(start + 1, end + 1))
    inside = [mark for mark in marks if start < mark < end]
    last = inside[-1] if inside else end
    ends: list[int] = []
    while start < end:
        stop = min(start + CHUNK, last if start < last else end)
        if stop not in (last, end):
            stop = max((mark for mark in inside if stop - CHUNK // 2 < mark <= stop), default=stop)
        ends.append(stop)
        start = stop
    return ends


def message_ends(prompt: Sequence[int], end_tokens: Collection[int]) -> list[int]:
    """Token counts of ``prompt`` at which a message ends: behind each end token, and for the last message where a
    regenerated answer begins anew at the latest, before the last token."""
    found = [place + 1 for place, token in enumerate(prompt) if token in end_tokens and place + 1 < len(prompt)]
    if not found or len(prompt) - found[-1] > LAST:
        found.append(len(prompt) - 1)
    return found


def pieces(start: int, ends: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(first token, end) of each pass."""
    for end in ends:
        yield start, end
        start = end
