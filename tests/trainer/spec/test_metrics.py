"""Which metric selects the best model, and what rows of one class leave undefined."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from trainer.loop.evaluations import evaluation_line, finite, plain_metrics
from trainer.spec.metrics import best_metric, defined

IMAGES: Any = SimpleNamespace(image_schema=object())  # a dataset with classes
MIXED = {"auc": 0.8, "auc_precision_recall": 0.7, "accuracy": 0.9, "loss": 0.3, "label/mean": 0.25, "global_step": 10}


@pytest.mark.parametrize("mean", [0.0, 1.0, np.float32(0), np.float32(1)])
def test_rows_of_one_class_leave_the_areas_undefined(mean: float) -> None:
    one_class = {**MIXED, "auc": 0.0, "auc_precision_recall": 0.0, "label/mean": mean}
    metrics = plain_metrics(one_class)

    assert math.isnan(metrics["auc"])
    assert finite(metrics)["auc_precision_recall"] is None
    assert metrics["accuracy"] == 0.9
    assert best_metric(IMAGES, defined(one_class)).name == "accuracy"
    assert best_metric(IMAGES, finite(metrics)).name == "accuracy"  # as read back from evaluations.json
    line = evaluation_line(metrics, "accuracy", "eval", 5)
    assert line == "step 10 (epoch 2.0): eval accuracy 0.9, loss 0.3; auc is undefined, since all rows are of one class"


def test_rows_of_both_classes_keep_their_metrics() -> None:
    assert defined(MIXED) == MIXED
    assert best_metric(IMAGES, MIXED).name == "auc"
    assert "undefined" not in evaluation_line(plain_metrics(MIXED), "auc", "eval", 5)


def test_by_its_name_an_undefined_metric_is_chosen() -> None:
    assert best_metric(IMAGES, {**MIXED, "label/mean": 1.0}, "auc").name == "auc"


def test_a_model_that_gives_nan_is_judged_by_it() -> None:
    assert best_metric(IMAGES, {**MIXED, "auc": math.nan}).name == "auc"
