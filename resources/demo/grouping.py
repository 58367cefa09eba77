"""Where the student starts: which neurons are always on, which form an expert, and what the routers ask for."""

from __future__ import annotations

import numpy as np
import torch
from student import Shape, Student
from torch import Tensor

RIDGE = 0.05
FEATURE_TOKENS = 4096
ROUNDS = 12


def group_neurons(dense: Student, ids: Tensor, documents: Tensor, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Order of neurons ``[layers, neurons]`` and first routers ``[layers, experts, hidden]`` from a few rows of text.

    A neuron's contribution to a token is |activation| * |its down-projection|. The neurons with the largest mean
    square contribution are shared; the others are grouped by the cosine of their contributions over tokens, into
    groups of equal size. A router is the ridge regression of its groups' contributions on the layer's input.
    """
    kept = documents.reshape(-1) >= 0
    orders, routers = [], []
    random = np.random.default_rng(0)

    def watch(layer: int, inputs: Tensor, activations: Tensor) -> None:
        lengths = dense.frozen[layer]["down"].float().norm(dim=0)
        contribution = (activations[kept].float().abs() * lengths).numpy()
        importance = np.square(contribution).mean(0)
        by_importance = np.argsort(-importance)
        shared, routed = np.sort(by_importance[: shape.shared]), np.sort(by_importance[shape.shared :])
        features = np.sqrt(contribution[:FEATURE_TOKENS, routed]).T
        features = features - features.mean(1, keepdims=True)
        features /= np.linalg.norm(features, axis=1, keepdims=True)
        groups = _equal_groups(features, shape.experts, random)
        orders.append(np.concatenate([shared, *[routed[groups == g] for g in range(shape.experts)]]))
        energy = np.stack(
            [np.sqrt(np.square(contribution[:, routed[groups == g]]).sum(1)) for g in range(shape.experts)], axis=1
        )
        routers.append(_ridge(inputs[kept].float().numpy(), energy))

    with torch.no_grad():
        dense(ids, documents, teacher=True, watch=watch)
    return np.stack(orders), np.stack(routers)


def _equal_groups(features: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
    """k-means by cosine with groups of equal size; ``features`` ``[n, tokens]``, unit rows -> group of each."""
    total = features.shape[0]
    size = total // count
    centres = features[random.choice(total, count, replace=False)]
    groups = np.zeros(total, np.int64)
    for _ in range(ROUNDS):
        likeness = features @ centres.T
        free = np.full(count, size)
        groups[:] = -1
        # best matches first; a full group sends the rest to their next choice
        for flat in np.argsort(-likeness, axis=None):
            row, group = divmod(int(flat), count)
            if groups[row] < 0 and free[group]:
                groups[row] = group
                free[group] -= 1
        centres = np.stack([features[groups == g].mean(0) for g in range(count)])
        centres /= np.linalg.norm(centres, axis=1, keepdims=True) + 1e-9
    return groups


def _ridge(inputs: np.ndarray, energy: np.ndarray) -> np.ndarray:
    """Routers ``[experts, hidden]``: scores spread about 0.5, so the chosen experts' weights start near even."""
    target = energy / energy.mean()
    target = target - target.mean(1, keepdims=True)
    target *= 0.5 / target.std()
    gram = inputs.T.astype(np.float64) @ inputs
    gram += RIDGE * np.trace(gram) / len(gram) * np.eye(len(gram))
    return np.linalg.solve(gram, inputs.T.astype(np.float64) @ target).T
