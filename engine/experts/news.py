"""What the user should know of memory and devices: said when it happens, in the background too, and told once."""

from __future__ import annotations


class News:
    """Sentences from several sources, lists that others add to from any thread."""

    def __init__(self, *sources: list[str]) -> None:
        self._sources = list(sources)
        self._told = [0] * len(sources)  # sentences of each that were given out

    def hear(self, source: list[str]) -> None:
        """One source more."""
        self._sources.append(source)
        self._told.append(0)

    def fresh(self) -> list[str]:
        """What was not told yet, each sentence once."""
        fresh: list[str] = []
        for number, source in enumerate(self._sources):
            more = source[self._told[number] :]
            self._told[number] += len(more)
            fresh += more
        return list(dict.fromkeys(fresh))
