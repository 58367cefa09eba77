"""Who leaves when a slot is needed."""

from __future__ import annotations

from engine.errors import OptionError
from engine.experts.policies.activation import ActivationRatio
from engine.experts.policies.base import Policy
from engine.experts.policies.frequency import AgedFrequency, LeastFrequentlyUsed
from engine.experts.policies.next_use import NextUse
from engine.experts.policies.recency import LeastRecentlyUsed
from engine.experts.policies.staleness import LeastStale

__all__ = ["POLICIES", "Policy", "make_policy"]

_KINDS: tuple[type[Policy], ...] = (  # the simple ones first
    LeastRecentlyUsed,
    LeastFrequentlyUsed,
    AgedFrequency,
    LeastStale,
    ActivationRatio,
    NextUse,
)
POLICIES: dict[str, type[Policy]] = {kind.name: kind for kind in _KINDS}
"""Every policy there is by name; ``engine.messages.POLICIES`` says in a sentence what each does."""


def make_policy(name: str, layers: int, experts: int) -> Policy:
    """The policy called ``name`` for a model of that shape. Raises OptionError listing the names there are."""
    if name not in POLICIES:
        raise OptionError(f"There is no policy {name!r}; choose one of {', '.join(POLICIES)}.")
    return POLICIES[name](layers, experts)
