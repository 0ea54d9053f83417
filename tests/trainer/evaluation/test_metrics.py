"""Metrics are scikit-learn's on the same predictions, in a report, in its slices and in the gate.

The standard errors of two models' difference are those that a bootstrap finds.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf
from sklearn import metrics as sk
from sklearn.calibration import calibration_curve
from sklearn.metrics import roc_auc_score

from schemas.spec.forms import Dense, Ids, Input
from tests.support.prediction_tables import of_values
from trainer.evaluation.content import content_of
from trainer.evaluation.importance import groups_of, importance, rows_for
from trainer.evaluation.metrics import CLASS_METRICS, VALUE_METRICS, evaluation_metrics, measure, standard_error
from trainer.evaluation.predictions import Collector, Predictions, PredictionTarget
from trainer.evaluation.ranking import POINTS, rank
from trainer.evaluation.slices import Part, by_id, by_number, slice_rows, slice_table, worst_slices
from trainer.spec.metrics import BestMetric, best_metric

ROWS = 3000


def predictions(classes: int, *, weighted: bool = False):
    """Labels, probabilities float32 `[rows, classes]` that know something of them, and weights."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, classes, ROWS)
    logits = rng.normal(size=(ROWS, classes)).round(1)  # rounded: some scores are equal
    logits[np.arange(ROWS), labels] += 1
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return labels, probabilities.astype(np.float32), rng.uniform(0.1, 3, ROWS) if weighted else None


def collected(labels, probabilities, weights=None, *, probability_bytes=1 << 30, **settings) -> Predictions:
    """The same, in batches of unequal size."""
    names = tuple(f"class {i}" for i in range(probabilities.shape[1]))
    collector = Collector(PredictionTarget(names, **settings), probability_bytes=probability_bytes)
    batch = {"labels": labels, "probabilities": probabilities, "class_id": probabilities.argmax(axis=1)}
    batch |= {} if weights is None else {"weights": weights}
    for part in np.split(np.arange(len(labels)), [1, 700, 701]):
        collector.add({name: values[part] for name, values in batch.items()})
    return collector.predictions


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("classes", [2, 5])
def test_classes(classes, weighted):
    labels, probabilities, weights = predictions(classes, weighted=weighted)
    content = content_of(collected(labels, probabilities, weights))
    metrics, predicted, w = content["metrics"], probabilities.argmax(axis=1), {"sample_weight": weights}
    expected = {
        "accuracy": sk.accuracy_score(labels, predicted, **w),
        "balanced_accuracy": sk.balanced_accuracy_score(labels, predicted, **w),
        "macro_f1": sk.f1_score(labels, predicted, average="macro", **w),
        "weighted_f1": sk.f1_score(labels, predicted, average="weighted", **w),
        "log_loss": sk.log_loss(labels, probabilities, **w),
        "matthews_correlation": sk.matthews_corrcoef(labels, predicted, **w),
    }
    if classes == 2:
        expected["auc"] = sk.roc_auc_score(labels, probabilities[:, 1], **w)
        expected["average_precision"] = sk.average_precision_score(labels, probabilities[:, 1], **w)
        expected["brier_score"] = sk.brier_score_loss(labels, probabilities[:, 1], **w)
    elif not weighted:
        expected["mean_auc_of_each_class_against_the_rest"] = sk.roc_auc_score(labels, probabilities, multi_class="ovr")
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, rel=1e-6)
    rows = content["classes"]
    by_class = sk.precision_recall_fscore_support(labels, predicted, **w)
    for name, values in zip(("precision", "recall", "f1", "support"), by_class, strict=True):
        assert [row[name] for row in rows] == pytest.approx(values)
    np.testing.assert_allclose(content["confusion"]["matrix"], sk.confusion_matrix(labels, predicted, **w))


@pytest.mark.parametrize("classes", [2, 5, 7])
def test_an_evaluation_of_classes(classes):
    """By the names of Estimator's heads."""
    labels, probabilities, weights = predictions(classes, weighted=True)
    table = collected(labels, probabilities, weights)
    expected = {
        "accuracy": measure("accuracy", table),
        "accuracy_baseline": max(np.bincount(labels, weights)) / np.bincount(labels, weights).sum(),
        "average_loss": measure("log_loss", table),
    }
    if classes == 2:
        expected |= {
            "auc": measure("auc", table),
            "auc_precision_recall": measure("average_precision", table),
            "precision": sk.precision_score(labels, probabilities.argmax(axis=1), sample_weight=weights),
            "recall": sk.recall_score(labels, probabilities.argmax(axis=1), sample_weight=weights),
            "label/mean": np.average(labels, weights=weights),
            "prediction/mean": np.average(probabilities[:, 1], weights=weights),
        }
    elif classes == 7:
        first = np.argsort(-probabilities, axis=1, kind="stable")[:, :5]  # of equals, the lower ids
        expected["recall_at_5"] = np.average((first == labels[:, None]).any(axis=1), weights=weights)
    metrics = evaluation_metrics(table)
    assert metrics == pytest.approx(expected, rel=1e-6)
    empty = Predictions.joined(table.target, [])
    assert [*evaluation_metrics(empty)] == [*metrics]
    assert np.isnan([*evaluation_metrics(empty).values()]).all()


def test_binary_metrics_are_of_the_positive_class():
    labels, probabilities, _ = predictions(2)
    collector = collected(labels, probabilities, positive=0)
    content = content_of(collector)
    metrics, predicted = evaluation_metrics(collector), probabilities.argmax(axis=1)
    expected = {
        "auc": sk.roc_auc_score(labels, probabilities[:, 1]),
        "auc_precision_recall": sk.average_precision_score(labels == 0, probabilities[:, 0]),
        "precision": sk.precision_score(labels, predicted, pos_label=0),
        "recall": sk.recall_score(labels, predicted, pos_label=0),
        "label/mean": (labels == 0).mean(),
        "prediction/mean": probabilities[:, 0].mean(),
    }
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, rel=1e-6)
    assert content["positive_class"] == "class 0"
    assert [*content["curves"]] == ["class 0"]
    assert content["calibration"]["of"] == "the probability of class 0"


def test_where_classes_are_weighed_their_loss_is_told_beside_the_plain_one():
    labels, probabilities, weights = predictions(3, weighted=True)
    table = collected(labels, probabilities, weights, class_weights=(0.5, 2, 7))
    metrics = evaluation_metrics(table)
    plain = evaluation_metrics(collected(labels, probabilities, weights))
    expected = sk.log_loss(labels, probabilities, sample_weight=np.array([0.5, 2, 7])[labels] * weights)
    assert metrics == pytest.approx(plain | {"balanced_loss": expected}, rel=1e-6)
    assert best_metric(metrics).name == "balanced_loss"
    assert content_of(table)["metrics"]["balanced_log_loss"] == metrics["balanced_loss"]


def test_an_evaluation_of_numbers():
    rng = np.random.default_rng(1)
    labels, weights = rng.normal(1e7, 3, ROWS), rng.uniform(0.1, 3, ROWS)
    values = labels + rng.normal(0.5, 2, ROWS)
    table = of_values(labels, values, weights)
    expected = {
        "average_loss": sk.mean_squared_error(labels, values, sample_weight=weights),
        "rmse": sk.root_mean_squared_error(labels, values, sample_weight=weights),
        "mae": sk.mean_absolute_error(labels, values, sample_weight=weights),
        "r2": sk.r2_score(labels, values, sample_weight=weights),
        "rmse_baseline": np.sqrt(np.average((labels - np.average(labels, weights=weights)) ** 2, weights=weights)),
        "label/mean": np.average(labels, weights=weights),
        "prediction/mean": np.average(values, weights=weights),
    }
    assert evaluation_metrics(table) == pytest.approx(expected, rel=1e-6)
    nothing = of_values(labels[:0], values[:0])
    assert np.isnan([*evaluation_metrics(nothing).values()]).all()


def test_a_model_that_predicts_no_number_once_is_never_the_best():
    classes = collected(np.array([0, 1]), np.array([[0.9, 0.1], [np.nan, np.nan]], np.float32))
    for table in (classes, of_values(np.array([1.0, 2.0]), np.array([1.0, np.inf]))):
        metrics = evaluation_metrics(table)
        assert best_metric(metrics).name == "average_loss"
        assert not any(BestMetric(name, higher=True).improves(value, None) for name, value in metrics.items())


def test_calibration_and_thresholds():
    labels, probabilities, _ = predictions(2)
    content = content_of(collected(labels, probabilities))
    share, probability = calibration_curve(labels, probabilities[:, 1], n_bins=10)
    assert content["calibration"]["share"] == pytest.approx(share)
    assert content["calibration"]["mean_probability"] == pytest.approx(probability)
    thresholds = content["thresholds"]
    row = next(row for row in thresholds["table"] if row["threshold"] == 0.3)
    predicted = probabilities[:, 1] >= 0.3
    for name in ("precision", "recall", "f1", "accuracy"):
        assert row[name] == pytest.approx(getattr(sk, f"{name}_score")(labels, predicted))
    assert thresholds["best_f1"]["f1"] >= max(row["f1"] for row in thresholds["table"])


def test_curves_of_many_classes_are_of_the_first_rows_that_fit_in_memory():
    labels, probabilities, _ = predictions(5)
    table = collected(labels, probabilities, probability_bytes=100)
    assert table.probabilities is not None
    assert len(table.probabilities) == 700
    content, first = content_of(table), content_of(collected(labels[:700], probabilities[:700]))
    assert content["curves"] == first["curves"]
    assert content["metrics"]["accuracy"] == content_of(collected(labels, probabilities))["metrics"]["accuracy"]


def test_what_is_drawn_of_numbers():
    labels = np.random.default_rng(1).normal(1e6, 3, ROWS)
    content = content_of(of_values(labels, labels + 0.5))
    assert content["metrics"]["mean_residual"] == pytest.approx(0.5)
    assert sum(content["residuals"]["counts"]) == ROWS
    assert [group["rows"] for group in content["groups"]] == [300] * 10


def test_a_stored_curve_is_short_and_keeps_its_ends():
    labels, probabilities, _ = predictions(2)
    curve = rank(probabilities[:, 1], labels == 1, np.ones(ROWS)).curves()["roc"]
    x, y = curve["false_positive_rate"], curve["true_positive_rate"]
    assert len(x) == len(y) <= POINTS + 2
    assert (x[0], y[0], x[-1], y[-1]) == (0, 0, 1, 1)
    assert np.trapezoid(y, x) == pytest.approx(rank(probabilities[:, 1], labels == 1, np.ones(ROWS)).auc(), abs=0.01)


def classes(rng: np.random.Generator, rows: int, *, skill: float, labels: np.ndarray | None = None) -> tuple:
    """Labels and probabilities of two classes; the better the model, the higher its `skill`."""
    labels = rng.integers(0, 2, rows) if labels is None else labels
    odds = skill * (2 * labels - 1) + rng.normal(size=rows)
    second = 1 / (1 + np.exp(-odds))
    return labels, np.stack([1 - second, second], axis=1)


def answers(labels: np.ndarray, probabilities: np.ndarray) -> Predictions:
    target, weight = PredictionTarget(("no", "yes")), np.ones(len(labels))
    return Predictions.of_classes(target, labels, probabilities, probabilities.argmax(axis=1), weight)


@pytest.mark.parametrize("name", CLASS_METRICS)
def test_the_standard_error_is_what_a_bootstrap_of_the_rows_finds(name):
    rng = np.random.default_rng(3)
    labels, candidate_probabilities = classes(rng, 800, skill=0.7)
    _, serving_probabilities = classes(rng, 800, skill=0.5, labels=labels)
    candidate, serving = answers(labels, candidate_probabilities), answers(labels, serving_probabilities)
    drawn = []
    for _ in range(300):
        rows = rng.integers(0, 800, 800)
        drawn.append(measure(name, candidate.take(rows)) - measure(name, serving.take(rows)))
    assert standard_error(name, candidate, serving) == pytest.approx(np.std(drawn), rel=0.3)


def test_twenty_rows_on_which_both_agree_are_no_certainty():
    labels, probabilities = classes(np.random.default_rng(5), 20, skill=1.0)
    same = answers(labels, probabilities)
    assert standard_error("accuracy", same, same) > 0.05


@pytest.mark.parametrize("name", [*CLASS_METRICS, *VALUE_METRICS])
@pytest.mark.parametrize("rows", [0, 1])
def test_too_few_rows_have_no_standard_error(name, rows):
    labels = np.zeros(rows, np.int64)
    few = answers(labels, np.full((rows, 2), 0.5))
    assert not math.isfinite(standard_error(name, few))


@pytest.fixture
def evaluated():
    """1,000 rows whose last fifth, of work 2, is predicted at random; and their features, in two batches."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, 1000)
    work = np.arange(1000) // 200 % 3
    work[800:] = 2
    work[400:600] = 1
    right = np.where(np.arange(1000) < 800, labels, rng.integers(0, 2, 1000))
    scores = np.clip(right * 0.7 + 0.1 + rng.uniform(0, 0.2, 1000), 0, 1)
    table = collected(labels, np.stack([1 - scores, scores], axis=1).astype(np.float32))
    features = {"work": work, "age": rng.normal(size=(1000, 2)), "flag": work == 2}
    batches = [{name: values[at] for name, values in features.items()} for at in (slice(0, 300), slice(300, None))]
    return table, features, batches


def test_sums_of_each_slice_are_those_of_its_rows(evaluated):
    table, features, batches = evaluated
    work = by_id(Part("work", None, "work"), [f"work {i}" for i in range(4)])
    (sliced,) = slice_rows([work], table, batches, with_codes=[work])
    slices = slice_table(sliced, table)["slices"]
    assert sum(entry["rows"] for entry in slices) == 1000
    for entry in slices:
        rows = features["work"] == int(entry["value"].split()[1])
        label, score = table.label[rows], table.score[rows]
        assert entry["rows"] == rows.sum()
        assert entry["accuracy"] == pytest.approx(np.mean((score > 0.5) == label))
        assert entry["loss"] == pytest.approx(np.mean(table.loss[rows]))
        assert entry["auc"] == pytest.approx(roc_auc_score(label, score))


def test_the_slice_with_the_most_mistakes_is_the_worst(evaluated):
    table, features, batches = evaluated
    age = by_number(Part("age", 1, "age[1]"), features["age"][:, 1])
    work = by_id(Part("work", None, "work"), [f"work {i}" for i in range(3)])
    worst = worst_slices(slice_rows([age, work], table, batches), table.target)
    assert [(entry["feature"], entry["value"]) for entry in worst] == [("work", "work 2")]


def test_numbers_are_cut_by_their_quantiles_and_a_few_have_slices_of_their_own(evaluated):
    _, features, _ = evaluated
    ranges = by_number(Part("age", 0, "age[0]"), features["age"][:, 0])
    np.testing.assert_allclose(np.bincount(ranges.codes(features)), 200, atol=1)
    assert (ranges.text(0).startswith("below "), ranges.text(4).startswith("from ")) == (True, True)
    flags = by_number(Part("flag", None, "flag"), features["flag"].astype(float), lambda x: "yes" if x else "no")
    assert [flags.text(i) for i in range(flags.count)] == ["no", "yes", "(missing)"]
    np.testing.assert_array_equal(flags.codes({"flag": features["flag"].astype(float)}), features["flag"])


def test_slices_of_a_regression():
    table = of_values(np.zeros(4), np.array([1.0, 1.0, 3.0, np.nan]))
    (sliced,) = slice_rows([by_id(Part("a", None, "a"), ["0", "1"])], table, [{"a": np.array([0, 0, 1, 1])}])
    assert slice_table(sliced, table)["slices"] == [  # in the label's units: no squares
        {"value": "0", "rows": 2, "root_mean_squared_error": 1},
        {"value": "1", "rows": 1, "root_mean_squared_error": 3},
    ]


def test_importance_is_that_of_the_features_that_are_used():
    """A model that adds a number, the tokens of a bag and those of another by weight, and does not look at the rest."""
    rng = np.random.default_rng(1)
    ngrams = tf.sparse.from_dense(rng.integers(0, 4, (64, 5)))
    features = {
        "a": rng.normal(size=64),
        "v": rng.normal(size=(64, 3)),
        "unused": rng.normal(size=64),
        "bag": tf.sparse.from_dense(rng.integers(0, 4, (64, 3))),
        "ngrams": ngrams,
        "ngrams_tfidf": ngrams.with_values(1.0 / tf.cast(ngrams.values, tf.float32)),
    }

    def total(batch):
        weights = batch["ngrams_tfidf"]
        np.testing.assert_array_equal(batch["ngrams"].indices, weights.indices)
        products = tf.cast(batch["ngrams"].values, tf.float32) * weights.values
        np.testing.assert_allclose(products, 1.0, rtol=1e-6)  # if they belong together
        in_bags = tf.sparse.reduce_sum(batch["bag"], 1).numpy() + np.bincount(weights.indices[:, 0], minlength=64)
        return np.asarray(batch["a"] + 3 * batch["v"][:, 1] + in_bags)

    def predict(read):
        for batch in read():
            yield {"value": total(batch)}

    parts = [Part("a", None, "a"), *(Part("v", i, f"v[{i}]") for i in range(3)), Part("unused", None, "unused")]
    inputs: list[Input] = [Dense("a"), Dense("v", 3), Dense("unused"), Ids("bag", 4, None)]
    groups = groups_of(parts, [*inputs, Ids("ngrams", 4, None, weights="ngrams_tfidf")])
    assert [group[0].name for group in groups] == ["a", "v[0]", "v[1]", "v[2]", "unused", "bag", "ngrams"]
    batch = tf.data.Dataset.from_tensors((features, total(features)))
    measured = {
        e["feature"]: e["root_mean_squared_error"] for e in importance(predict, batch, groups, PredictionTarget())
    }
    assert next(iter(measured)) == "v[1]"
    assert {name for name, rise in measured.items() if rise > 0.1} == {"v[1]", "a", "bag", "ngrams"}
    assert {measured[name] for name in ("unused", "v[0]", "v[2]")} == {0.0}


@pytest.mark.parametrize(("groups", "available", "rows"), [(10, 7, 7), (500, 50_000, 333), (2000, 50_000, 0)])
def test_how_many_rows_are_shuffled(groups, available, rows):
    assert rows_for(groups, available) == rows
