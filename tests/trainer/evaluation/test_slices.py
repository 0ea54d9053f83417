"""Slices, the importance of features, raw units, and what a report may cost."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from sklearn.metrics import roc_auc_score

from trainer.evaluation.feature_text import way_back
from trainer.evaluation.importance import groups_of, importance, rows_for
from trainer.evaluation.predictions import ClassCollector, ValueCollector
from trainer.evaluation.slices import Part, Slices, crossed, of_ids, of_numbers
from trainer.evaluation.watch import Budget


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
    collector = ClassCollector(["no", "yes"])
    collector.add(labels, np.stack([1 - scores, scores], axis=1).astype(np.float32))
    features = {"work": work, "age": rng.normal(size=(1000, 2)), "flag": work == 2}
    batches = [{name: values[at] for name, values in features.items()} for at in (slice(0, 300), slice(300, None))]
    return collector, features, batches


def tables(slicings, collector, batches, **settings):
    slices = Slices(slicings, collector.kept, **{"classes": True, **settings})
    for batch in batches:
        slices.add(batch)
    return slices


def test_sums_of_each_slice_are_those_of_its_rows(evaluated):
    collector, features, batches = evaluated
    work = of_ids(Part("work", None, "work"), 4, lambda i: f"work {i}")
    (table,) = tables([work], collector, batches, keep_parts=True).tables()
    assert sum(entry["rows"] for entry in table["slices"]) == 1000
    for entry in table["slices"]:
        rows = features["work"] == int(entry["value"].split()[1])
        label, score = collector.kept.label[rows], collector.kept.score[rows]
        assert entry["rows"] == rows.sum()
        assert entry["accuracy"] == pytest.approx(np.mean((score > 0.5) == label))
        assert entry["loss"] == pytest.approx(np.mean(collector.kept.loss[rows]))
        assert entry["auc"] == pytest.approx(roc_auc_score(label, score))


def test_the_worst_slice_is_found(evaluated):
    collector, features, batches = evaluated
    parts = [
        of_numbers(Part("age", 1, "age[1]"), features["age"][:, 1]),
        of_ids(Part("work", None, "work"), 3, lambda i: f"work {i}"),
    ]
    worst = tables(parts, collector, batches).worst()
    assert [(entry["feature"], entry["value"]) for entry in worst] == [("work", "work 2")]
    assert worst[0]["times_the_loss"] > 1.5


def test_numbers_are_cut_by_their_quantiles_and_few_are_told_apart(evaluated):
    _, features, _ = evaluated
    ranges = of_numbers(Part("age", 0, "age[0]"), features["age"][:, 0])
    assert ranges.values == 5
    np.testing.assert_allclose(np.bincount(ranges.part(features)), 200, atol=1)
    assert (ranges.text(0).startswith("below "), ranges.text(4).startswith("from ")) == (True, True)
    flags = of_numbers(Part("flag", None, "flag"), features["flag"].astype(float), lambda x: "yes" if x else "no")
    assert [flags.text(i) for i in range(flags.values)] == ["no", "yes"]
    np.testing.assert_array_equal(flags.part({"flag": features["flag"].astype(float)}), features["flag"])


def test_crossed_slices_are_combinations(evaluated):
    _, features, _ = evaluated
    work = of_ids(Part("work", None, "work"), 3, lambda i: "abc"[i])
    flag = of_ids(Part("flag", None, "flag"), 2, lambda i: "ny"[i])
    both = crossed([work, flag])
    assert both.name == "work, flag"
    assert {both.text(int(part)) for part in both.part(features)} == {"a, n", "b, n", "c, y"}


def test_slices_of_a_regression():
    collector = ValueCollector()
    collector.add(np.zeros(4), np.array([1.0, 1.0, 3.0, np.nan]))
    part = of_ids(Part("a", None, "a"), 2, str)
    (table,) = tables([part], collector, [{"a": np.array([0, 0, 1, 1])}], classes=False).tables()
    assert [(e["value"], e["rows"], e["root_mean_squared_error"]) for e in table["slices"]] == [
        ("0", 2, 1),
        ("1", 1, 3),
    ]


def test_importance_is_that_of_the_features_that_are_used():
    """A model that adds a number and the tokens of a bag, and does not look at the rest."""
    rng = np.random.default_rng(1)
    features = {"a": rng.normal(size=64), "v": rng.normal(size=(64, 3)), "unused": rng.normal(size=64)}
    bag = tf.sparse.from_dense(rng.integers(0, 4, (64, 3)))
    labels = features["a"] + 3 * features["v"][:, 1] + tf.sparse.reduce_sum(bag, 1).numpy()

    def batch():
        return tf.data.Dataset.from_tensors(({**features, "bag": bag}, labels))

    def predict(read):
        for given in read():
            total = given["a"] + 3 * given["v"][:, 1] + tf.cast(tf.sparse.reduce_sum(given["bag"], 1), tf.float64)
            yield {"value": total.numpy()}

    parts = [Part("a", None, "a"), *(Part("v", i, f"v[{i}]") for i in range(3)), Part("unused", None, "unused")]
    groups = groups_of(parts, ["a", "v", "unused", "bag"])
    assert [group[0].name for group in groups] == ["a", "v[0]", "v[1]", "v[2]", "unused", "bag"]
    found = importance(predict, batch, groups, ValueCollector)
    assert found[0]["feature"] == "v[1]"
    assert {entry["feature"] for entry in found if entry["loss"] > 0.1} == {"v[1]", "a", "bag"}
    assert {entry["loss"] for entry in found if entry["feature"] in ("unused", "v[0]", "v[2]")} == {0.0}


def test_a_number_is_shuffled_with_its_indicator():
    parts = [Part(name, None, name) for name in ("age", "age_missing", "work")]
    names = [[part.name for part in group] for group in groups_of(parts, ["age", "age_missing", "work"])]
    assert names == [["age", "age_missing"], ["work"]]


@pytest.mark.parametrize(
    ("groups", "available", "rows"), [(10, 50_000, 2000), (10, 7, 7), (500, 50_000, 333), (2000, 50_000, 0)]
)
def test_how_many_rows_are_shuffled(groups, available, rows):
    assert rows_for(groups, available) == rows


def test_raw_units():
    raw = np.array([1.0, 5.0, np.nan, 9.0], np.float32)
    straight, log = way_back(raw, raw * 2 - 7), way_back(raw, np.log1p(raw) / 3, log=True)
    assert straight is not None
    assert log is not None
    assert straight(5 * 2 - 7) == pytest.approx(5)
    assert log(np.log1p(5) / 3) == pytest.approx(5)
    assert way_back(raw, raw**2) is None  # no line
    assert way_back(raw, np.zeros(4)) is None


def test_a_budget_is_a_share_of_the_time():
    now = [0.0]
    budget = Budget(0.05, lambda: now[0])
    assert budget.allows
    with budget.spend():
        now[0] += 1
    assert not budget.allows
    now[0] = 20.0
    assert budget.allows
