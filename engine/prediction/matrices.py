"""Expert Activation Matrices of the request under way: ``[layers, experts]`` counts of tokens per expert.

MoE-Infinity (arXiv 2401.14361, section 4) keeps two: the *iteration* matrix of the present forward pass, zero from the
current layer down, and the *request* matrix, the sum of a request's passes. Prefill and decode differ so much in what
they use that they are counted apart.
"""

from __future__ import annotations

import numpy as np

from engine.prediction.shape import PHASES, Phase, Shape


class RequestMatrices:
    """Counted as layers route. ``iteration`` and ``request[phase]``: uint32 ``[layers, experts]``."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.phase: Phase = "prefill"
        self.iteration = np.zeros((shape.layers, shape.experts), np.uint32)
        self.request: dict[Phase, np.ndarray] = {phase: np.zeros_like(self.iteration) for phase in PHASES}
        self.tokens: dict[Phase, int] = dict.fromkeys(PHASES, 0)
        self._pass_tokens = 0

    def begin_request(self) -> None:
        """Forget the last request."""
        self.iteration[:] = 0
        self._pass_tokens = 0
        for phase in PHASES:
            self.request[phase][:] = 0
            self.tokens[phase] = 0

    def begin_pass(self, phase: Phase, tokens: int) -> None:
        """A pass that was never ended (stopped half way) is left out of the request."""
        self.phase = phase
        self._pass_tokens = tokens
        self.iteration[:] = 0

    def routed(self, layer: int, ids: np.ndarray | list[int], counts: np.ndarray | None = None) -> None:
        """``ids`` (distinct) were chosen, by ``counts`` tokens each; None: by one."""
        self.iteration[layer, ids] += 1 if counts is None else counts.astype(np.uint32, copy=False)

    def end_pass(self) -> None:
        """Add the pass to its phase's request matrix."""
        self.request[self.phase] += self.iteration
        self.tokens[self.phase] += self._pass_tokens
        self._pass_tokens = 0
