"""`evaluations.json`: all evaluations of a training. Early stopping and studies read it, here without TensorFlow."""

from __future__ import annotations

from schemas import storage
from schemas.dataset import layout
from schemas.storage.json_files import as_written, parse_json

EVALUATIONS = "evaluations.json"

Metrics = dict[str, float]


def read_evaluations(model_dir: str) -> list[Metrics]:
    """The metrics of each evaluation, including `global_step`, in the order of steps; empty before the first one."""
    path = layout.join(model_dir, EVALUATIONS)
    if not storage.exists(path):
        return []
    with as_written(path, "evaluations"):
        return [dict(metrics) for metrics in parse_json(storage.read_bytes(path))]
