"""Metrics of two models on the same rows: as in the reports, and standard errors as a bootstrap finds them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trainer.evaluation.metrics import (
    CLASS_METRICS,
    METRICS,
    VALUE_METRICS,
    Answers,
    class_metrics,
    difference,
    own_error,
    value_metrics,
)
from trainer.evaluation.predictions import ClassCollector, ValueCollector


def classes(rng: np.random.Generator, rows: int, *, skill: float, labels: np.ndarray | None = None) -> tuple:
    """Labels and probabilities of two classes; the better the model, the higher its `skill`."""
    labels = rng.integers(0, 2, rows) if labels is None else labels
    odds = skill * (2 * labels - 1) + rng.normal(size=rows)
    second = 1 / (1 + np.exp(-odds))
    return labels, np.stack([1 - second, second], axis=1)


def answers(labels: np.ndarray, probabilities: np.ndarray, weights: np.ndarray | None = None) -> Answers:
    own = probabilities[np.arange(len(labels)), labels]
    weights = np.ones(len(labels)) if weights is None else weights
    return Answers(labels, weights, probabilities.argmax(axis=1), probabilities[:, 1], -np.log(own))


def test_metrics_of_classes_are_those_of_the_report():
    rng = np.random.default_rng(1)
    labels, probabilities = classes(rng, 500, skill=1.0)
    weights = rng.random(500)
    collector = ClassCollector(("a", "b"))
    collector.add(labels, probabilities, weights)
    report = class_metrics(collector, {1: collector.scores.ranking(1)}).values
    found = answers(labels, probabilities, weights)
    for name, metric in CLASS_METRICS.items():
        assert metric(found) == pytest.approx(report[name], rel=1e-6), name


def test_metrics_of_numbers_are_those_of_the_report():
    rng = np.random.default_rng(2)
    labels = rng.normal(100, 5, 300)
    values, weights = labels + rng.normal(1, 2, 300), rng.random(300)
    collector = ValueCollector()
    collector.add(labels, values, weights)
    report = value_metrics(collector).values
    found = Answers(labels, weights, values, values, (values - labels) ** 2)
    for name, metric in VALUE_METRICS.items():
        assert metric(found) == pytest.approx(report[name], rel=1e-6), name


@pytest.mark.parametrize("name", CLASS_METRICS)
def test_the_standard_error_is_what_a_bootstrap_of_the_rows_finds(name):
    rng = np.random.default_rng(3)
    labels, one = classes(rng, 800, skill=0.7)
    _, other = classes(rng, 800, skill=0.5, labels=labels)
    candidate, serving = answers(labels, one), answers(labels, other)
    drawn = []
    for _ in range(300):
        rows = rng.integers(0, 800, 800)
        drawn.append(METRICS[name](candidate.take(rows)) - METRICS[name](serving.take(rows)))
    found = difference(name, candidate, serving)
    assert found.error == pytest.approx(np.std(drawn), rel=0.3)
    assert found.gain == pytest.approx(abs(np.mean(drawn)), abs=3 * found.error)


def test_a_gain_points_upwards_for_losses_too():
    rng = np.random.default_rng(4)
    labels, good = classes(rng, 300, skill=2.0)
    _, bad = classes(rng, 300, skill=0.0, labels=labels)
    for name in CLASS_METRICS:
        assert difference(name, answers(labels, good), answers(labels, bad)).gain > 0, name


def test_twenty_rows_on_which_both_agree_are_no_certainty():
    labels, probabilities = classes(np.random.default_rng(5), 20, skill=1.0)
    same = answers(labels, probabilities)
    assert difference("accuracy", same, same).gain == 0
    assert difference("accuracy", same, same).error > 0.05


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("rows", [0, 1])
def test_too_few_rows_have_no_standard_error(name, rows):
    labels = np.zeros(rows, np.int64)
    few = Answers(labels, np.ones(rows), labels, np.full(rows, 0.5), np.full(rows, 0.7))
    assert not math.isfinite(own_error(name, few))
