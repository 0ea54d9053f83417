"""`evaluations.json`: all evaluations of a training. Early stopping and studies read it, here without TensorFlow."""

from __future__ import annotations

import json

from schemas import storage
from schemas.dataset import layout

EVALUATIONS = "evaluations.json"

Metrics = dict[str, float]


def read_evaluations(model_dir: str) -> list[Metrics]:
    """The metrics of each evaluation, including `global_step`, in the order of steps; empty before the first one."""
    path = layout.join(model_dir, EVALUATIONS)
    return list(json.loads(storage.read_bytes(path))) if storage.exists(path) else []
