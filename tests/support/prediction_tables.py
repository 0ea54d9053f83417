"""Tables of predictions, as an evaluation gathers them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trainer.evaluation.predictions import Collector, Predictions, PredictionTarget


def of_classes(names: Sequence[str], labels, probabilities) -> Predictions:
    """Of classes, of which the most probable one is predicted."""
    collector = Collector(PredictionTarget(tuple(names)))
    if len(labels):
        scores = np.array(probabilities, np.float32)
        collector.add({"labels": np.array(labels), "probabilities": scores, "class_id": scores.argmax(axis=1)})
    return collector.predictions


def of_values(labels, values, weights=None) -> Predictions:
    """Of numbers."""
    labels, values = np.array(labels, np.float64), np.array(values, np.float64)
    return Predictions.of_values(labels, values, np.ones(len(labels)) if weights is None else weights)
