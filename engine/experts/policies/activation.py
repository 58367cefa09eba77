"""Expert activation ratio: the priority of MoE-Infinity."""

from __future__ import annotations

import numpy as np

from engine.experts.policies.base import Policy
from engine.experts.records import Phase


class ActivationRatio(Policy):
    """Priority = (share of this request's tokens that chose the expert + EPSILON) * (1 - layer / layers).

    The cache priority of "MoE-Infinity: Efficient MoE Inference on Personal Machines with Sparsity-Aware Expert
    Cache" (Xue, Fu, Lu, Sun, Mai, Marina; arXiv 2401.14361), from the request's expert activation matrix: early
    layers weigh more because prefetching has no time to bring them. Counts begin anew with each request; prompt and
    answer are counted apart. While the prompt streams through, the priorities are still the last answer's; when decode
    begins they are the prompt's, and each token of the answer adds to a share in which the prompt counts as
    PROMPT_WORTH tokens, so that the first tokens do not decide alone.
    """

    name = "eam"
    STATE = ("priority", "_prompt", "_answer", "_prompt_tokens", "_answer_tokens")
    EPSILON = 1e-3
    PROMPT_WORTH = 4.0

    def __init__(self, layers: int, experts: int) -> None:
        super().__init__(layers, experts)
        self._weight = 1 - np.arange(layers)[:, np.newaxis] / layers
        self._prompt = np.zeros((layers, experts))  # tokens of this request that chose the expert; at the first
        self._answer = np.zeros((layers, experts))  # decode pass, _answer begins with the prompt's share of them
        self._prompt_tokens = 0.0
        self._answer_tokens = 0.0
        self._in_prompt = False
        self.priority[:] = self.EPSILON * self._weight

    def begin_request(self) -> None:
        self._prompt[:] = 0
        self._prompt_tokens = self._answer_tokens = 0.0

    def begin_pass(self, phase: Phase, tokens: int) -> None:
        self._in_prompt = phase == "prefill"
        if self._in_prompt:
            self._prompt_tokens += tokens
            return
        if not self._answer_tokens:
            self._begin_answer()
        self._answer_tokens += 1

    def used(self, layer: int, experts: np.ndarray, counts: np.ndarray) -> None:
        if self._in_prompt:
            self._prompt[layer, experts] += counts
            return
        answer = self._answer[layer]
        answer[experts] += counts
        priority = self.priority[layer]
        np.multiply(answer, 1 / max(1.0, self._answer_tokens), out=priority)
        priority += self.EPSILON
        priority *= self._weight[layer]

    def _begin_answer(self) -> None:
        """Predict the answer from the prompt."""
        self._answer_tokens = self.PROMPT_WORTH
        np.multiply(self._prompt, self.PROMPT_WORTH / max(1.0, self._prompt_tokens), out=self._answer)
        np.multiply(self._answer / self.PROMPT_WORTH + self.EPSILON, self._weight, out=self.priority)
