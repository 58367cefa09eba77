"""Which past tokens routed as this one does, and whom the tokens after them called."""

from __future__ import annotations

import numpy as np

_WORD = 64


class TokenMemory:
    """The last CAPACITY decode tokens as bits ``[layers, experts]``, compared with the present one layer by layer.

    Similarity of two tokens is their *overlap*: in how many slots they chose the same expert. Routing tells what a
    token is and what it is about, so tokens that route alike are followed by tokens that route alike. The chances of
    the next token are the mean of what followed the NEIGHBOURS most similar ones, each weighing

        exp(overlap / width),   width = WIDTH * sqrt(slots (1 - top_k / experts)),

    the square root being about the spread of the overlap of tokens that have nothing to do with each other (it is
    that of drawing top_k of experts, layer by layer). This is kernel regression (Nadaraya 1964, Watson 1964) over the
    routing. While only some layers of a token are known, the rest is stood in for by how well the token before it
    matched the tokens before theirs.

    Overlaps are kept up by a population count over one word of bits per layer and 64 experts, for all past tokens at
    once.
    """

    CAPACITY = 1024
    NEIGHBOURS = 8
    WIDTH = 0.65
    CARRY = 0.5  # worth of the last token's overlap for a layer that is not known yet
    GROWTH = 0.3  # with a share s of the layers known, their overlap counts s^-GROWTH times

    def __init__(self, layers: int, experts: int) -> None:
        self._shape = layers, experts
        self._words = -(-experts // _WORD)
        size = self.CAPACITY
        self._rows = np.zeros((size, layers * experts), np.uint8)  # 0 or 1
        self._bits = np.zeros((layers, self._words, size), np.uint64)  # the same, for counting
        self._follows = np.zeros(size, bool)  # entry n is the token after entry n - 1
        self._overlap = np.zeros(size, np.float32)  # of the present token, layers told so far
        self._carried = np.zeros(size, np.float32)  # of the token before it, moved on by one
        self._now = 0  # the present token's entry
        self._open = False  # a token is being told
        self._told = 0  # layers of it
        self._whole = 0  # layers of a whole token
        self._slots = 0  # experts it called
        self._chain = False  # the present entry's predecessor is the token before
        self._leads = np.zeros(size, bool)  # who has a successor to learn from, and
        self._leads_on = np.zeros(size, bool)  # one after that
        self._barred = np.full(size, -np.inf, np.float32)  # 0 where there is one
        self._chosen = np.zeros(self._words * _WORD, np.uint8)
        self._and = np.zeros(size, np.uint64)
        self._ones = np.zeros(size, np.uint8)

    @property
    def complete(self) -> bool:
        """Every layer of the present token was told, as far as tokens before it show."""
        return self._open and self._told >= self._whole > 0

    def break_off(self) -> None:
        """What comes next does not follow from what was told last."""
        self._settle()
        self._chain = False
        self._overlap[:] = 0

    def begin_token(self) -> None:
        """A decode token begins."""
        self._settle()
        now, size = self._now, self.CAPACITY
        self._follows[now] = self._chain
        self._follows[(now + 1) % size] = False  # its predecessor gives way
        self._carried[0], self._carried[1:] = self._overlap[-1], self._overlap[:-1]
        self._carried *= self._follows
        self._overlap[:] = 0
        self._rows[now] = 0
        self._bits[:, :, now] = 0
        self._leads[:-1], self._leads[-1] = self._follows[1:], self._follows[0]
        self._leads[now - 1] = False  # it leads to the present token
        self._barred.fill(-np.inf)
        self._barred[self._leads] = 0
        self._leads_on[:-1], self._leads_on[-1] = self._leads[1:], self._leads[0]
        self._leads_on &= self._leads
        self._open, self._told, self._slots = True, 0, 0

    def tell(self, layer: int, experts: np.ndarray) -> None:
        """The present token called ``experts`` of ``layer``."""
        per_layer, chosen = self._shape[1], self._chosen
        chosen.fill(0)
        chosen[experts] = 1
        self._rows[self._now, layer * per_layer : (layer + 1) * per_layer] = chosen[:per_layer]
        words = np.packbits(chosen).view(np.uint64)
        for bits, word in zip(self._bits[layer], words, strict=True):
            np.bitwise_and(bits, word, out=self._and)
            np.bitwise_count(self._and, out=self._ones)
            self._overlap += self._ones
        self._bits[layer, :, self._now] = words
        self._told += 1
        self._slots += len(experts)

    def chances(self, layers: int, prior: np.ndarray, weight: float) -> np.ndarray | None:
        """Of the next token and the one after it: ``[2, layers, experts]``, for the first ``layers`` layers.

        prior: ``[>= layers, experts]``, as if it had been seen after ``weight`` tokens just like this one. None while
        nothing comparable is remembered.
        """
        known = max(1, self._told) / max(1, self._told, self._whole)
        score = self._overlap * known**-self.GROWTH
        if known < 1:
            score += self._carried * (self.CARRY * (1 - known))
        score += self._barred
        best = score.argpartition(-self.NEIGHBOURS)[-self.NEIGHBOURS :]
        score = score[best]
        highest = score.max()
        if highest == -np.inf:
            return None
        experts = self._shape[1]
        spread = self._slots * (1 - self._slots / (max(1, self._told) * experts)) / known
        weights = np.zeros((2, 2 * self.NEIGHBOURS), np.float32)  # the next token's mean, then that of the one after
        weights[0, : self.NEIGHBOURS] = np.exp((score - highest) / (self.WIDTH * max(1.0, spread) ** 0.5))
        np.multiply(weights[0, : self.NEIGHBOURS], self._leads_on[best], out=weights[1, self.NEIGHBOURS :])
        after = np.concatenate([best + 1, best + 2]) % self.CAPACITY
        seen = weights @ self._rows.take(after, axis=0)[:, : layers * experts].astype(np.float32)
        mean = seen.reshape(2, layers, experts) + weight * prior[:layers]
        mean /= (weights.sum(axis=1) + weight)[:, np.newaxis, np.newaxis]
        return mean

    def state(self) -> np.ndarray:
        """float64 ``[n]``: 32 bits of the rows to a number, then the rest."""
        packed = np.packbits(self._rows)
        words = np.concatenate([packed, np.zeros(-len(packed) % 4, np.uint8)]).view("<u4")
        flags = (self._now, self._open, self._told, self._whole, self._slots, self._chain)
        return np.concatenate([words, self._follows, self._overlap, self._carried, flags]).astype(np.float64)

    def restore(self, state: np.ndarray) -> None:
        size = self.CAPACITY
        words, rest = state[: -3 * size - 6], state[-3 * size - 6 :]
        packed = words.astype("<u4").view(np.uint8)
        self._rows[:] = np.unpackbits(packed, count=self._rows.size).reshape(self._rows.shape)
        layers, experts = self._shape
        for layer in range(layers):
            chosen = np.zeros((size, len(self._chosen)), np.uint8)
            chosen[:, :experts] = self._rows[:, layer * experts : (layer + 1) * experts]
            self._bits[layer] = np.packbits(chosen, axis=1).view(np.uint64).T
        self._follows[:], self._overlap[:], self._carried[:] = rest[:-6].reshape(3, size)
        now, opened, told, whole, slots, chain = rest[-6:].tolist()
        self._now, self._told, self._whole, self._slots = int(now), int(told), int(whole), int(slots)
        self._open, self._chain = bool(opened), bool(chain)

    def _settle(self) -> None:
        """The token that was being told is over: kept when all of it was told."""
        if not self._open:
            return
        self._open = False
        self._whole = max(self._whole, self._told)
        self._chain = self._told == self._whole
        if self._chain:
            self._now = (self._now + 1) % self.CAPACITY
