"""What the running model tells the predictors: router inputs and scores, look-aheads, the state between two tokens.

No family needs code of its own. In all of them a sibling of the experts module (`gate`, `router`) returns a tuple that
holds the very index tensor which the experts then receive: so at the first pass every module's output is kept from one
experts call to the next, and the router is the module whose output has that tensor in it. The norm before it is the
module whose output has the router's input in its memory. From then on one hook per router, and one per norm when
somebody wants look-aheads, do the work.

Order within a pass: token (decode only, before the first layer), then per layer router, look by rising distance, and
after that the experts module is called. After a prefill that is studied: study.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from engine.experts.ranking import RankingSearch, capped
from engine.prediction.predictors import Sample, Wants
from engine.prediction.predictors.gate import HORIZON

log = logging.getLogger("greenroom.prediction")

STUDY_BYTES = 32 << 20  # of router inputs and scores kept of one prefill pass


class Sink(Protocol):
    """Who listens; see ``Predictor`` for what the calls mean. Arrays are only lent for the call."""

    def token(self, hidden: np.ndarray, embedding: np.ndarray) -> None: ...
    def router(self, layer: int, inputs: np.ndarray, scores: np.ndarray) -> None: ...
    def look(self, layer: int, distance: int, scores: np.ndarray) -> None: ...
    def study(self, sample: Sample) -> None: ...


@dataclass(frozen=True, slots=True)
class _Call:
    """One module's call, as the first pass saw it."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any

    @property
    def tensors(self) -> list[Tensor]:
        outputs = self.output if isinstance(self.output, tuple | list) else (self.output,)
        return [output for output in outputs if isinstance(output, Tensor)]


@dataclass(frozen=True, slots=True)
class _Router:
    """A layer's router and what is needed to read it and to ask it.

    scores_at, picks_at: places in its output tuple. norm: what made its input from the hidden state; None: nothing
    that could be found. others: its further arguments, when they are the same for every token; None: it cannot be
    asked about a state of another layer.
    """

    module: nn.Module
    scores_at: int
    picks_at: int
    ranking: RankingSearch
    norm: nn.Module | None
    dims: int
    others: tuple[tuple[Any, ...], dict[str, Any]] | None


class RouterTaps:
    """Hooks on a loaded model that deliver to ``sink`` what ``wants`` asks for.

    experts: paths of the experts modules in layer order. study_tokens: of a prefill pass, the last tokens (at most
    this many, and what STUDY_BYTES hold) are handed over as a Sample; 0: none. Wants may change between passes.
    ``close`` takes all hooks away. Meant for batches of one; runs on the engine thread, under inference_mode.
    """

    def __init__(
        self, model: PreTrainedModel, experts: Sequence[str], wants: Wants, sink: Sink, study_tokens: int = 0
    ) -> None:
        self._wants = wants
        self.study_tokens = study_tokens
        self._model = model
        self._sink = sink
        self._routers: list[_Router | None] = [None] * len(experts)
        self._unknown = set(range(len(experts)))
        self._parents = [model.get_submodule(path.rpartition(".")[0]) for path in experts]
        self._places = {id(model.get_submodule(path)): layer for layer, path in enumerate(experts)}
        self._constants = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
        self._calls: list[_Call] = []  # since the last experts module, at the first pass
        self._state: Tensor | None = None  # what the norm before the next router was given, last token
        self._hidden: np.ndarray | None = None  # final hidden state of the last pass's last token
        self._embedding: Tensor | None = None  # of this pass
        self._tokens = 0  # of this pass
        self._study: _Study | None = None
        self._searching: list[RemovableHandle] = []
        self._handles: list[RemovableHandle] = []  # at both ends of a pass
        self._listening: list[RemovableHandle] = []  # at routers
        self._watching: list[RemovableHandle] = []  # at what comes before them
        self._tap_ends()
        for module in model.modules():
            if id(module) in self._places:
                hook = partial(self._experts_called, self._places[id(module)])
                self._searching.append(module.register_forward_pre_hook(hook, with_kwargs=True))
            else:
                self._searching.append(module.register_forward_hook(self._note, with_kwargs=True))

    @property
    def wants(self) -> Wants:
        return self._wants

    @wants.setter
    def wants(self, wants: Wants) -> None:
        """A hook that does nothing still sends its module's call the long way round, so there is none then."""
        if wants == self._wants:
            return
        self._wants = wants
        if bool(wants & (Wants.ROUTER | Wants.LOOK)) != bool(self._listening):
            self._listen()
        if (Wants.LOOK in wants) != bool(self._watching):
            self._watch()

    @property
    def missing(self) -> list[int]:
        """Layers whose router was not found; before the first pass, all. Nothing is told about them."""
        return [layer for layer, router in enumerate(self._routers) if router is None]

    def close(self) -> None:
        """Take the hooks away. Harmless when repeated."""
        for handles in (self._searching, self._handles, self._listening, self._watching):
            for handle in handles:
                handle.remove()
            handles.clear()
        self._calls.clear()
        self._state = self._embedding = self._study = None

    # ------------------------------------------------------------------------------------------ the first pass

    def _note(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        self._calls.append(_Call(module, args, kwargs, output))

    def _experts_called(self, layer: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        calls, self._calls = self._calls, []
        self._unknown.discard(layer)
        if self._routers[layer] is None:
            index = args[1] if len(args) > 1 else kwargs.get("top_k_index")
            call = next((call for call in calls if any(one is index for one in call.tensors)), None)
            if call is not None and isinstance(index, Tensor):
                self._found(layer, call, index, _norm_before(call, calls), int(module.num_experts))  # type: ignore[arg-type]
        if not self._unknown:
            for handle in self._searching:
                handle.remove()
            self._searching.clear()
            if self.missing:
                log.warning("no router was found for the experts of layers %s; nobody is foreseen there", self.missing)

    def _found(self, layer: int, call: _Call, index: Tensor, norm: _Call | None, experts: int) -> None:
        """Remember the router of ``layer`` and deliver the call that gave it away."""
        outputs = call.output
        scores_at = next((place for place, one in enumerate(outputs) if _has_scores(one, index, experts)), None)
        if scores_at is None or not call.args or not isinstance(call.args[0], Tensor):
            return
        picks_at = next(place for place, one in enumerate(outputs) if one is index)
        others = (call.args[1:], call.kwargs)
        constant = all(self._constant(value) for value in (*others[0], *others[1].values()))
        self._routers[layer] = _Router(
            call.module,
            scores_at,
            picks_at,
            RankingSearch(experts, _vectors_near(call, self._parents[layer], experts, outputs[scores_at].shape[1])),
            norm.module if norm else None,
            call.args[0].dim(),
            others if constant else None,
        )
        self._listen()
        self._watch()
        if norm is not None:
            self._norm_called(norm.module, norm.args)
        self._router_called(layer, call.module, call.args, outputs)

    def _listen(self) -> None:
        """Hooks at the routers that are known, if anybody wants what they bring."""
        for handle in self._listening:
            handle.remove()
        self._listening.clear()
        if self._wants & (Wants.ROUTER | Wants.LOOK):
            for layer, router in enumerate(self._routers):
                if router is not None:
                    hook = partial(self._router_called, layer)
                    self._listening.append(router.module.register_forward_hook(hook))

    def _watch(self) -> None:
        """Likewise at their norms."""
        for handle in self._watching:
            handle.remove()
        self._watching.clear()
        if Wants.LOOK in self._wants:
            norms = [router.norm for router in self._routers if router is not None and router.norm is not None]
            self._watching += [norm.register_forward_pre_hook(self._norm_called) for norm in norms]

    def _constant(self, value: Any) -> bool:
        """The same for every token: a weight, a plain number, nothing."""
        if isinstance(value, Tensor):
            return id(value) in self._constants
        return value is None or isinstance(value, int | float)

    # ------------------------------------------------------------------------------------------ every layer

    def _norm_called(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if self._tokens == 1 and Wants.LOOK in self.wants:
            self._state = args[0]

    def _router_called(self, layer: int, module: nn.Module, args: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        router = self._routers[layer]
        assert router is not None
        if Wants.ROUTER in self.wants:
            width, choices = args[0].shape[-1], router.ranking.experts
            rows = max(1, self._study.affordable(width, choices)) if self._study is not None else 1
            inputs = _numpy(args[0].reshape(-1, width)[-rows:])  # the rest of the chunk stays where it is
            scores = self._scores(router, output, rows)
            self._sink.router(layer, inputs[-1], scores[-1])
            if self._study is not None:
                self._study.layer(layer, inputs, scores)
        if self._tokens == 1 and Wants.LOOK in self.wants:
            self._look(layer, args[0])

    def _scores(self, router: _Router, output: tuple[Any, ...], rows: int = 1) -> np.ndarray:
        """float32 ``[rows, experts]``, of the last tokens; larger is likelier picked."""
        logits, search = output[router.scores_at], router.ranking
        if not search.settled:
            search.learn(_numpy(logits), output[router.picks_at].cpu().numpy())
        scores = search.best.scores(_numpy(logits[-rows:]))
        if search.best.capped:
            scores = capped(scores, output[router.picks_at][-len(scores) :].cpu().numpy())
        return scores

    def _look(self, layer: int, inputs: Tensor) -> None:
        """Ask the next layers' routers about this layer's state; inputs: what its own router was given."""
        state, self._state = self._state, None
        for distance in range(1, min(HORIZON, len(self._routers) - 1 - layer) + 1):
            router = self._routers[layer + distance]
            if router is None or router.others is None:
                continue
            asked = inputs if state is None or router.norm is None else router.norm.forward(state)
            asked = asked.reshape(1, -1) if router.dims == 2 else asked.reshape(*(1,) * (router.dims - 1), -1)
            # forward, not a call: hooks, ours among them, are about the model's own pass
            output = router.module.forward(asked, *router.others[0], **router.others[1])
            self._sink.look(layer, distance, self._scores(router, output)[-1])

    # ------------------------------------------------------------------------------------------ both ends

    def _tap_ends(self) -> None:
        """The embeddings begin a pass; the language head's input is the final hidden state, that of the base model."""
        embeddings, head = self._model.get_input_embeddings(), self._model.get_output_embeddings()
        if embeddings is not None:
            self._handles.append(embeddings.register_forward_hook(self._embedded))
        if head is not None:
            self._handles.append(head.register_forward_pre_hook(self._head_called))
        if self._model.base_model is not self._model:
            self._handles.append(self._model.base_model.register_forward_hook(self._pass_ended))

    def _embedded(self, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        self._calls.clear()
        self._state = None
        self._tokens = output.shape[-2]
        kept = min(self.study_tokens, self._tokens)
        self._study = _Study(len(self._routers), kept, output) if kept > 1 and Wants.ROUTER in self.wants else None
        if Wants.TOKEN not in self.wants:
            self._hidden = None
        elif self._tokens == 1 and self._hidden is not None and self._hidden.size == output.shape[-1]:
            self._sink.token(self._hidden, _numpy(output).reshape(-1))

    def _head_called(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if Wants.TOKEN in self.wants and args:
            self._hidden = _numpy(args[0][..., -1, :]).reshape(-1).copy()

    def _pass_ended(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        study, self._study = self._study, None
        if study is not None:
            sample = study.sample(output[0])
            if sample is not None:
                self._sink.study(sample)


class _Study:
    """Router inputs and scores of a prefill pass's last tokens, put together layer by layer."""

    def __init__(self, layers: int, tokens: int, embeddings: Tensor) -> None:
        self._layers = layers
        self._tokens = tokens
        self._embeddings = embeddings
        self._inputs = self._scores = np.zeros((0, layers, 0), np.float32)
        self._told: set[int] = set()

    def affordable(self, width: int, experts: int) -> int:
        """Tokens that are kept where router inputs and scores are so wide; the first layer's widths say it for all."""
        if not self._told:
            self._tokens = min(self._tokens, STUDY_BYTES // (4 * self._layers * (width + experts)))
        return self._tokens

    def layer(self, layer: int, inputs: np.ndarray, scores: np.ndarray) -> None:
        """``inputs [tokens, hidden]`` and ``scores [tokens, experts]`` of the tokens that are kept, or of one."""
        if not self._told:
            self._inputs = np.empty((self._tokens, self._layers, inputs.shape[1]), np.float32)
            self._scores = np.empty((self._tokens, self._layers, scores.shape[1]), np.float32)
        if self._tokens and inputs.shape[1] == self._inputs.shape[2] and scores.shape[1] == self._scores.shape[2]:
            self._inputs[:, layer] = inputs[-self._tokens :]
            self._scores[:, layer] = scores[-self._tokens :]
            self._told.add(layer)

    def sample(self, hidden: Any) -> Sample | None:
        """None when a layer is missing (no router found, or sizes differ) or too few tokens could be kept."""
        if len(self._told) < self._layers or self._tokens < 2:
            return None
        embeddings = _last_rows(self._embeddings, self._tokens)
        if isinstance(hidden, Tensor) and hidden.shape == self._embeddings.shape:
            return Sample(self._inputs, self._scores, _last_rows(hidden, self._tokens), embeddings)
        return Sample(self._inputs, self._scores)


# ----------------------------------------------------------------------------------------------- finding out


def _norm_before(router: _Call, calls: Sequence[_Call]) -> _Call | None:
    """Whose output is the router's input: one state in, one of the same shape out, and cheaper than a projection."""
    if not router.args or not isinstance(router.args[0], Tensor):
        return None
    wanted = router.args[0]
    for call in calls:
        if len(call.args) != 1 or call.kwargs or not isinstance(call.args[0], Tensor):
            continue
        given, made = call.args[0], call.output
        if not isinstance(made, Tensor) or made.data_ptr() != wanted.data_ptr() or made.numel() != wanted.numel():
            continue
        weights = sum(parameter.numel() for parameter in call.module.parameters())
        width = wanted.shape[-1]
        if given.shape == made.shape and given.data_ptr() != made.data_ptr() and weights < width * width:
            return call
    return None


def _has_scores(output: Any, index: Tensor, experts: int) -> bool:
    """A number for every expert and token. More than experts: some routers may also choose nobody."""
    if not isinstance(output, Tensor) or not output.is_floating_point() or output.dim() != 2:
        return False
    return output.shape[0] == index.shape[0] and output.shape[1] >= experts


def _vectors_near(router: _Call, block: nn.Module, experts: int, width: int) -> list[np.ndarray]:
    """Vectors ``[experts]`` that may correct the scores: among the router's arguments and weights and its block's.
    width: of its scores; more than experts where it may also choose what is none."""
    candidates: list[Any] = [*router.args[1:], *router.kwargs.values()]
    for module in (router.module, *router.module.children(), block, *block.children()):
        candidates += [*module.parameters(recurse=False), *module.buffers(recurse=False)]
    vectors: dict[int, np.ndarray] = {}
    for value in candidates:
        if not isinstance(value, Tensor) or not value.is_floating_point():
            continue
        if experts <= value.numel() <= max(experts + 1, width) and value.numel() == max(value.shape):
            vectors[id(value)] = _numpy(value.detach()).reshape(-1)[:experts].copy()
    return list(vectors.values())


def _numpy(tensor: Tensor) -> np.ndarray:
    """float32 on the host; on a CPU that computes in float32, the same memory."""
    if tensor.dtype is not torch.float32 or tensor.device.type != "cpu":
        tensor = tensor.to("cpu", torch.float32)
    return tensor.numpy()


def _last_rows(tensor: Tensor, count: int) -> np.ndarray:
    return _numpy(tensor.reshape(-1, tensor.shape[-1])[-count:]).copy()
