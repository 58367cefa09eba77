"""Who is expected next: one predictor a file, found by its ``name``; see docs/extending.md."""

from __future__ import annotations

from engine.prediction.predictors.base import Predictor, Sample, Silent, Wants, checked, following

__all__ = ["Predictor", "Sample", "Silent", "Wants", "checked", "following"]
