"""The dense model and the student made of it, in one lean module for training on a CPU.

One set of frozen bf16 weights serves both: the *teacher* is the plain dense model; the *student* adds low-rank
corrections and multiplies every feed-forward neuron by its expert's weight, zero when the expert was not chosen. That
computes exactly what a Mixture-of-Experts layer computes, with the dense model's fast matrix products.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.models.gguf_weights import DenseModel

Tensors = dict[str, Tensor]
Watch = Callable[[int, Tensor, Tensor], None]

HEAD_SIZE, GROUP, EPS = 64, 3, 1e-5  # of this dense model: head size, query heads per key head, norm epsilon


@dataclass(frozen=True)
class Shape:
    """How a layer's neurons are divided, and how many routed experts a token gets."""

    shared: int = 512
    experts: int = 32
    chosen: int = 16
    rank: int = 16

    def block(self, neurons: int) -> int:
        """Neurons whose weight is always the same: the greatest common divisor of the experts' sizes."""
        return math.gcd(self.shared, (neurons - self.shared) // self.experts)


class Student(nn.Module):
    """Frozen dense weights plus the trainable parts: low-rank factors, norms, routers, shared-expert gates.

    ``order`` ``[layers, neurons]``: the dense neurons in the student's order, the shared ones first, then expert by
    expert. ``routers`` ``[layers, experts, hidden]``.
    """

    def __init__(self, dense: DenseModel, shape: Shape, order: np.ndarray, routers: np.ndarray) -> None:
        super().__init__()
        self.shape = shape
        self.layers, self.neurons = dense.layers, dense.neurons
        self.theta = float(dense.metadata["llama.rope.freq_base"])
        hidden, neurons, rank = dense.hidden, dense.neurons, shape.rank
        kv = dense.kv_heads * HEAD_SIZE

        def frozen(array: np.ndarray) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(array)).to(torch.bfloat16)

        def weight(layer: int, part: str) -> np.ndarray:
            return dense.tensors[f"model.layers.{layer}.{part}.weight"]

        self.embedding = frozen(dense.tensors["model.embed_tokens.weight"])
        self.frozen: list[dict[str, Tensor]] = []
        self.trained = nn.ModuleList()
        generator = torch.Generator().manual_seed(0)

        def down(inputs: int, copies: int = 1) -> nn.Parameter:
            return nn.Parameter(torch.randn(rank * copies, inputs, generator=generator) / inputs**0.5)

        def up(outputs: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(outputs, rank))

        for layer in range(self.layers):
            rows = order[layer]
            attention = [weight(layer, f"self_attn.{name}_proj") for name in "qkv"]
            gate, upward = (weight(layer, f"mlp.{name}_proj")[rows] for name in ("gate", "up"))
            self.frozen.append(
                {
                    "qkv": frozen(np.concatenate(attention)),
                    "o": frozen(weight(layer, "self_attn.o_proj")),
                    "gate_up": frozen(np.concatenate([gate, upward])),
                    "down": frozen(weight(layer, "mlp.down_proj")[:, rows]),
                }
            )
            norms = [weight(layer, name) for name in ("input_layernorm", "post_attention_layernorm")]
            self.trained.append(
                nn.ParameterDict(
                    {
                        "qkv_a": down(hidden, 3),
                        "q_b": up(hidden),
                        "k_b": up(kv),
                        "v_b": up(kv),
                        "o_a": down(hidden),
                        "o_b": up(hidden),
                        "gate_up_a": down(hidden, 2),
                        "gate_b": up(neurons),
                        "up_b": up(neurons),
                        "down_a": down(neurons),
                        "down_b": up(hidden),
                        "attention_norm": nn.Parameter(torch.from_numpy(norms[0].copy())),
                        "mlp_norm": nn.Parameter(torch.from_numpy(norms[1].copy())),
                        "router": nn.Parameter(torch.from_numpy(routers[layer].astype(np.float32))),
                        "shared_gate": nn.Parameter(torch.zeros(1, hidden)),
                    }
                )
            )
        self.final_norm = nn.Parameter(torch.from_numpy(dense.tensors["model.norm.weight"].copy()))
        self.dense_final_norm = self.final_norm.detach().clone()
        self.dense_norms: list[Tensors] = [
            {name: part[name].detach().clone() for name in ("attention_norm", "mlp_norm")} for part in self.trained
        ]
        self.layer = decoder_layer

    def forward(self, ids: Tensor, documents: Tensor, *, teacher: bool = False, watch: Watch | None = None) -> Tensor:
        """Final hidden states ``[rows * length, hidden]`` bf16 of ``ids`` ``[rows, length]``.

        A row holds several documents one after another; ``documents`` ``[rows, length]`` numbers them, and a token
        sees only its own. (Rotary positions are relative, so a document may start anywhere.)
        """
        rows, length = ids.shape
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        seen = (documents[:, :, None] == documents[:, None, :]) & causal
        mask = torch.zeros(rows, 1, length, length, dtype=torch.bfloat16)
        mask.masked_fill_(~seen[:, None], float("-inf"))
        rotary = self._rotary(length)
        x = F.embedding(ids, self.embedding).float().view(rows * length, -1)
        for layer, (fixed, part) in enumerate(zip(self.frozen, self.trained, strict=True)):
            parts = self.dense_norms[layer] if teacher else dict(part.items())
            x, h, seen_by_watch = self.layer(x, mask, rotary, fixed, parts, self.shape)
            if watch is not None:
                watch(layer, h, seen_by_watch)
        return _norm(x, self.dense_final_norm if teacher else self.final_norm)

    def _rotary(self, length: int) -> tuple[Tensor, Tensor]:
        frequency = self.theta ** -(torch.arange(0, HEAD_SIZE, 2) / HEAD_SIZE)
        angle = (torch.arange(length)[:, None] * frequency).repeat(1, 2)
        return angle.cos().bfloat16(), angle.sin().bfloat16()


def decoder_layer(
    x: Tensor, mask: Tensor, rotary: tuple[Tensor, Tensor], fixed: Tensors, parts: Tensors, shape: Shape
) -> tuple[Tensor, Tensor, Tensor]:
    """One layer on the residual stream ``x`` ``[T, hidden]`` float32; ``parts`` with norms alone is the dense layer.

    Also returns the feed-forward input ``[T, hidden]`` and the neurons' activations (dense) or the weights of the
    blocks of neurons (student).
    """
    student = "router" in parts
    h = _norm(x, parts["attention_norm"])
    qkv = h @ fixed["qkv"].T
    if student:
        qkv = _low_rank(qkv, h, parts["qkv_a"], torch.block_diag(parts["q_b"], parts["k_b"], parts["v_b"]))
    mixed = _attention(qkv, mask, rotary)
    out = mixed @ fixed["o"].T
    if student:
        out = _low_rank(out, mixed, parts["o_a"], parts["o_b"])
    x = x + out
    h = _norm(x, parts["mlp_norm"])
    gate_up = h @ fixed["gate_up"].T
    if student:
        gate_up = _low_rank(gate_up, h, parts["gate_up_a"], torch.block_diag(parts["gate_b"], parts["up_b"]))
    gate, up = gate_up.chunk(2, dim=1)
    act = F.silu(gate) * up
    if not student:
        return x + act @ fixed["down"].T, h, act
    weight = _expert_weights(h, parts, shape, act.shape[1])
    act = (act.view(*weight.shape, -1) * weight.to(act.dtype)[:, :, None]).view(act.shape)
    return x + _low_rank(act @ fixed["down"].T, act, parts["down_a"], parts["down_b"]), h, weight


def _expert_weights(h: Tensor, parts: Tensors, shape: Shape, neurons: int) -> Tensor:
    """The weight of every block of neurons, ``[T, blocks]`` float32: the shared expert's, then the experts'."""
    scores = (h @ torch.cat([parts["router"], parts["shared_gate"]]).to(h.dtype).T).float()
    shared = 2 * torch.sigmoid(scores[:, -1:])
    top, chosen = scores[:, :-1].topk(shape.chosen, dim=1)
    # softmax over all, kept for the top k and made to sum to one, is the softmax over the top k
    routed = torch.zeros_like(scores[:, :-1]).scatter(1, chosen, top.softmax(1) * shape.chosen)
    size, block = (neurons - shape.shared) // shape.experts, shape.block(neurons)
    if size > block:
        routed = routed.repeat_interleave(size // block, dim=1)
    return torch.cat([shared.expand(-1, shape.shared // block), routed], dim=1)


def _attention(qkv: Tensor, mask: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    """Grouped-query attention, written out: for short rows it beats the fused kernel's backward pass on a CPU."""
    rows, _, length, _ = mask.shape
    cos, sin = rotary
    heads = qkv.view(rows, length, -1, HEAD_SIZE).transpose(1, 2)
    kv_heads = heads.shape[1] // (GROUP + 2)
    half = HEAD_SIZE // 2

    def rotated(t: Tensor) -> Tensor:
        return t * cos + torch.cat([-t[..., half:], t[..., :half]], -1) * sin

    query = rotated(heads[:, : GROUP * kv_heads])
    key = rotated(heads[:, GROUP * kv_heads : -kv_heads]).repeat_interleave(GROUP, dim=1)
    value = heads[:, -kv_heads:].repeat_interleave(GROUP, dim=1)
    scores = query @ key.transpose(2, 3) * HEAD_SIZE**-0.5 + mask
    mixed = scores.softmax(-1) @ value
    return mixed.transpose(1, 2).reshape(rows * length, -1)


def _norm(x: Tensor, weight: Tensor) -> Tensor:
    return (x * (x.square().mean(-1, keepdim=True) + EPS).rsqrt() * weight).to(torch.bfloat16)


def _low_rank(out: Tensor, x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """``out`` + x A^T B^T."""
    return torch.addmm(out, x @ a.to(x.dtype).T, b.to(x.dtype).T)


class _DistilledLoss(torch.autograd.Function):
    """Sum over tokens of KL(teacher || student), the teacher known by its top logits and the mass of the rest.

    The vocabulary is large and the cores are few, so logits live only a chunk of tokens at a time and the gradient is
    made in the forward pass. The teacher's tail counts as one bucket.
    """

    CHUNK = 112

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, embedding: Tensor, top_ids: Tensor, top_probs: Tensor, weights: Tensor
    ) -> Tensor:
        total = hidden.new_zeros((), dtype=torch.float32)
        grads = torch.empty_like(hidden)
        for start in range(0, hidden.shape[0], _DistilledLoss.CHUNK):
            part = slice(start, start + _DistilledLoss.CHUNK)
            logits = hidden[part] @ embedding.T
            loss, grad = _divergence(logits, top_ids[part].long(), top_probs[part].float(), weights[part])
            total += loss
            grads[part] = grad @ embedding
        ctx.save_for_backward(grads)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        (grads,) = ctx.saved_tensors
        return grads * grad.to(grads.dtype), None, None, None, None


def _divergence(logits: Tensor, ids: Tensor, p: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted sum of the KL of bf16 ``logits`` ``[T, vocabulary]`` and its gradient, bf16."""
    q = logits.float().softmax(1)
    q_top = q.gather(1, ids)
    p_tail = (1 - p.sum(1)).clamp_min(1e-6)
    q_tail = (1 - q_top.sum(1)).clamp_min(1e-6)
    loss = (p * (p.clamp_min(1e-9) / q_top.clamp_min(1e-9)).log()).sum(1) + p_tail * (p_tail / q_tail).log()
    grad = (q * (1 - p_tail / q_tail)[:, None]).scatter(1, ids, q_top - p) * weights[:, None]
    return (loss * weights).sum(), grad.to(logits.dtype)


def distilled_loss(hidden: Tensor, embedding: Tensor, top_ids: Tensor, top_probs: Tensor, weights: Tensor) -> Tensor:
    """Sum of the KL of ``hidden`` ``[T, hidden]`` against the teacher's ``[T, k]`` top k, times ``weights`` ``[T]``."""
    return _DistilledLoss.apply(hidden, embedding, top_ids, top_probs, weights)
