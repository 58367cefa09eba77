"""Who would have been foreseen: the predictors, told what the log says was routed, and scored by what came next.

Predictors that look into hidden states cannot be asked again, for no log holds those; for them, the log may say how
well they did while it was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from engine.errors import OptionError
from engine.prediction.predictors.gate import HORIZON
from engine.prediction.prompter import NEED_HIDDEN, PREDICTORS, Prompter
from engine.prediction.shape import Shape
from engine.replay.trace import Gap, Loaded, Measured, Request, Step, Trace

Source = Literal["replayed", "as it ran", "not in the log"]


@dataclass(frozen=True, slots=True)
class Foreseen:
    """One predictor at one layer distance. Shares of decode's slots, 0..1; None where nothing is known or was said."""

    predictor: str
    distance: int
    source: Source
    precision: float | None  # of the experts named, those that were then chosen
    recall: float | None  # of the experts chosen, those that had been named; silence counts as missed


def parse_predictors(text: str) -> list[str]:
    """ "all", or names with commas between. Raises OptionError."""
    names = list(PREDICTORS) if text.strip() == "all" else [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in PREDICTORS:
            raise OptionError(f"There is no predictor {name!r}; choose all, or some of {', '.join(PREDICTORS)}.")
    if not names:
        raise OptionError(f"Name predictors to replay: all, or some of {', '.join(PREDICTORS)}.")
    return list(dict.fromkeys(names))


def foresee(trace: Trace, predictors: Sequence[str]) -> list[Foreseen]:
    """Every predictor at every distance. Each begins knowing nothing and lives on through all the logs.

    ``blend`` is made of those that need no hidden states.
    """
    found: list[Foreseen] = []
    for name in predictors:
        found += _as_it_ran(trace, name) if name in NEED_HIDDEN else _replayed(trace, name)
    return found


def _replayed(trace: Trace, name: str) -> list[Foreseen]:
    model = trace.model
    prompter = Prompter(name, Shape(model.layers, model.experts, model.top_k))
    for one in trace.happenings:
        if isinstance(one, Request):
            prompter.begin_request()
        elif isinstance(one, Gap):
            prompter.end_request()
        elif isinstance(one, Step):
            _tell(prompter, one)
    prompter.end_request()
    return [
        Foreseen(name, distance, "replayed", accuracy.precision, accuracy.recall)
        for distance, accuracy in enumerate(prompter.accuracy(), 1)
    ]


def _tell(prompter: Prompter, step: Step) -> None:
    """One pass, as a model in use tells it: guesses are asked for and scored in decode only."""
    decoding = step.phase == "decode" and step.tokens == 1
    prompter.begin_pass(step.phase, step.tokens)
    if decoding:
        prompter.ahead(-1)
    for layer, experts, counts in step.wanted:
        prompter.routed(layer, experts.tolist(), None if decoding else counts)
        if decoding:
            prompter.ahead(layer)
    prompter.end_pass()


def _as_it_ran(trace: Trace, name: str) -> list[Foreseen]:
    """What the log says of ``name``: the mean over its answers, each weighed by its tokens."""
    distances = max(1, min(HORIZON, trace.model.layers - 1))
    sums = [[0.0, 0] for _ in range(distances)]  # share * tokens, tokens
    at_work, tokens = "", 0
    for one in trace.happenings:
        if isinstance(one, Loaded):
            at_work = one.predictor
        elif isinstance(one, Request):
            tokens = 0
        elif isinstance(one, Step):
            tokens += one.tokens if one.phase == "decode" else 0
        elif isinstance(one, Measured) and (one.predictor or at_work) == name:
            for both, share in zip(sums, one.shares, strict=False):
                if share is not None:
                    both[0] += share * tokens
                    both[1] += tokens
    shares = [total / weight if weight else None for total, weight in sums]
    return [
        Foreseen(name, distance, "not in the log" if share is None else "as it ran", None, share)
        for distance, share in enumerate(shares, 1)
    ]
