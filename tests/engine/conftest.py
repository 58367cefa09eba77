"""Engine tests run tiny models: one thread is fastest, and leaves the other cores to the rest."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
