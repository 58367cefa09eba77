"""What answers taught about one model: which experts past requests used. Kept in the model's profile between loads, and
used to fill the slots before the first word.
"""

from __future__ import annotations

import logging

import numpy as np

from engine.errors import OptionError
from engine.experts.observer import PassRecord
from engine.messages import ModelLoaded
from engine.prediction.eam import likely_first
from engine.prediction.profile import Profile, load_profile, save_profile
from engine.prediction.prompter import Prompter
from engine.prediction.shape import PHASES, Shape

log = logging.getLogger("greenroom.experience")


class Experience:
    """The history of requests of one model. ``note``: a sentence for the user when a saved one had to be put aside."""

    def __init__(self, info: ModelLoaded) -> None:
        self._shape = Shape(info.layers, info.experts, info.top_k)
        self._signature = info.signature
        profile, self.note = load_profile(info.signature, self._shape)
        self._prompter = Prompter("none", self._shape, profile.tables)
        self.begin_request()

    def likely_first(self) -> np.ndarray:
        """Keys ``layer * experts + expert`` worth having before the first word, most used first; empty when new."""
        return likely_first(self._shape, self._prompter.state())

    def begin_request(self) -> None:
        """An answer begins; of one that broke off, nothing is kept."""
        self._counts = {phase: np.zeros((self._shape.layers, self._shape.experts), np.uint32) for phase in PHASES}
        self._tokens = dict.fromkeys(PHASES, 0)

    def add(self, record: PassRecord) -> None:
        """A forward pass of this request is done."""
        self._counts[record.phase] += record.counts
        self._tokens[record.phase] += record.tokens

    def end_request(self) -> None:
        """The request's expert activation matrices enter the collection, and that is saved."""
        self._prompter.begin_request()
        for phase in PHASES:
            counts = self._counts[phase]
            if not self._tokens[phase]:
                continue
            self._prompter.begin_pass(phase, self._tokens[phase])
            for layer in np.flatnonzero(counts.any(axis=1)).tolist():
                ids = np.flatnonzero(counts[layer])
                self._prompter.routed(layer, ids.tolist(), counts[layer, ids])
            self._prompter.end_pass()
        self._prompter.end_request()
        try:
            save_profile(Profile(self._signature, self._shape, self._prompter.state()))
        except (OSError, OptionError) as error:
            log.warning("what this answer taught could not be saved: %s", error)
