"""Millrace's training with default settings: with its evaluations, exports and report."""

from __future__ import annotations

import tempfile
from typing import Any

import millrace
from benchmarks.measure import BenchmarkTask

SCORES = {"loss": "average_loss", "accuracy": "accuracy", "auc": "auc"}


def train(task: BenchmarkTask, *, model: str | None = None) -> dict[str, float]:
    """Trains a model, by default the one that Millrace chooses. Returns its scores on the test split."""
    options: dict[str, Any] = {}
    if task.max_steps and model != "boosted_trees":  # trees are grown as a whole
        options["max_steps"] = task.max_steps
    with tempfile.TemporaryDirectory() as folder:
        trained = millrace.train(
            data_dir=f"{task.source}/data",
            model_dir=f"{folder}/model",
            model=model,
            seed=task.seed,
            evaluate_test=True,
            quiet=True,
            **options,
        )
    metrics = trained.metrics["test"]
    return {score: float(metrics[name]) for score, name in SCORES.items() if name in metrics}
