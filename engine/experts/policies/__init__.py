"""Who leaves when a slot is needed: one policy a file, found by its ``name``; see docs/extending.md."""

from __future__ import annotations

import sys

from engine import messages
from engine.errors import OptionError
from engine.experts.policies.base import Policy
from engine.kinds import kinds_in

__all__ = ["POLICIES", "Policy", "make_policy"]

POLICIES: dict[str, type[Policy]] = kinds_in(
    sys.modules[__name__],
    Policy,  # type: ignore[type-abstract]
    messages.POLICIES,
    "POLICIES in engine/messages/choices.py",
)
"""Every policy there is by name; ``engine.messages.POLICIES`` says in a sentence what each does."""


def make_policy(name: str, layers: int, experts: int) -> Policy:
    """The policy called ``name`` for a model of that shape. Raises OptionError listing the names there are."""
    if name not in POLICIES:
        raise OptionError(f"There is no policy {name!r}; choose one of {', '.join(POLICIES)}.")
    return POLICIES[name](layers, experts)
