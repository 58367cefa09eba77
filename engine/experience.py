"""What answers teach about one model, and the use it is put to: the prompter at work, its learning, and the profile.

The profile keeps past requests' activation matrices and what the learnt predictors know; it fills the slots at the next
load before the first word.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import numpy as np

from engine.experts.foresight import Foresight
from engine.experts.routers import RouterTaps
from engine.experts.trial import Trial
from engine.loading import LoadedModel
from engine.messages import LoadModel
from engine.prediction.predictors import Wants
from engine.prediction.predictors.eam import likely_first
from engine.prediction.profile import Profile, load_profile
from engine.prediction.profile_writer import ProfileWriter
from engine.prediction.prompter import Prompter
from engine.prediction.shape import Shape, State

log = logging.getLogger("greenroom.experience")

STUDIED = 128  # tokens of a prompt that are learnt from, at most
SLICE = 0.003  # seconds of learning at a time
PAUSE = 0.02  # seconds between, while an answer is computed


class Experience:
    """Foresight for one loaded model, wired to its runtime. ``notes``: sentences for the user."""

    def __init__(
        self,
        loaded: LoadedModel,
        command: LoadModel,
        writer: ProfileWriter | None = None,
        tables: State | None = None,
        complain: Callable[[str], None] = lambda text: None,
    ) -> None:
        """writer: use the model's profile and let this save what is learnt; without it begin with ``tables``, if any.
        complain: called from the writer's thread when nothing can be saved. Raises OptionError for an unknown
        predictor."""
        info = loaded.info
        config = loaded.model.config.get_text_config()
        self.notes: list[str] = []
        self._writer, self._complain = writer, complain
        self._answered = False
        self._signature = info.signature
        hidden = int(getattr(config, "hidden_size", 0) or 0)
        self._shape = Shape(info.layers, info.experts, info.top_k, hidden)
        profile = Profile(info.signature, self._shape, tables or {})
        if writer is not None:
            writer.settle(info.signature)
            profile, note = load_profile(info.signature, self._shape)
            self.notes += [note] if note else []
        predictor = "none" if info.one_text else command.predictor  # its passes go through half of the layers each
        prompter = Prompter(predictor, self._shape, profile.tables)
        self.foresight = Foresight(prompter, Trial(command.prefetch if predictor != "none" else "off"))
        if prompter.wants != Wants.NOTHING:
            taps = RouterTaps(loaded.model, loaded.expert_modules, prompter.wants, self.foresight, STUDIED)
            self.foresight.listen(taps)
        loaded.runtime.foresee(self.foresight)
        self._learner = _Learner(prompter)

    def likely_first(self) -> np.ndarray:
        """Keys ``layer * experts + expert`` worth having before the first word, most used first; empty when new."""
        return likely_first(self._shape, self.foresight.prompter.state())

    def begin_request(self) -> None:
        """An answer begins."""
        self.foresight.begin_request()
        self._learner.pause = PAUSE

    def passed(self) -> None:
        """A forward pass is over: there may be something to learn from."""
        self._learner.nudge()

    def end_request(self) -> None:
        """The request's activation matrices enter the collection, and all that was learnt is to be saved."""
        self.foresight.end_request()
        self._learner.pause = 0.0
        self._learner.nudge()
        self._answered = True
        self._save()

    def settle(self) -> State:
        """Work off here and now what was observed and not learnt yet, so that nobody learns while others are timed.
        What is known then, as ``tables`` for another."""
        with self._learner.quiet:
            while self.foresight.prompter.learn(SLICE):
                pass
            return self.foresight.prompter.state()

    def _save(self, unless_replaced: bool = False) -> None:
        if self._writer is None:
            return
        accuracy = {}
        prompter = self.foresight.prompter
        shares = [one.share for one in prompter.accuracy()]
        if any(share is not None for share in shares):
            accuracy[prompter.predictor.name] = shares
        with self._learner.quiet:
            profile = Profile(self._signature, self._shape, prompter.state(), accuracy=accuracy)
        self._writer.save(profile, self._complain, unless_replaced)

    def close(self) -> None:
        """Stop learning; what was learnt since the last answer is saved, unless the profile was cleared, imported or
        saved by another program meanwhile."""
        self._learner.close()
        if self._answered:
            self._save(unless_replaced=True)


class _Learner:
    """A thread that works off what the predictors observed, a slice at a time."""

    def __init__(self, prompter: Prompter) -> None:
        self.pause = 0.0
        self.quiet = threading.Lock()  # held while it learns
        self._prompter = prompter
        self._work = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="greenroom-learner", daemon=True)
        self._thread.start()

    def nudge(self) -> None:
        self._work.set()

    def close(self) -> None:
        self._over.set()
        self._work.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self._work.wait()
            self._work.clear()
            more = True
            while more and not self._over.is_set():
                with self.quiet:
                    try:
                        more = self._prompter.learn(SLICE)
                    except Exception:
                        log.exception("learning broke off; it goes on with what comes next")
                        more = False
                self._over.wait(self.pause)
            if self._over.is_set():
                return
