"""Built-in and custom models on every kind of feature: what they read of it, and that each trains and predicts."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf

from schemas.errors import MillraceError, UsageError
from schemas.spec.features import Numeric
from tests.support.csv_datasets import WAGES
from tests.support.datasets import written_rows
from tests.support.training import brief_config, measured
from trainer.data.input_fn import input_fn
from trainer.data.input_options import InputOptions
from trainer.models import BUILT_IN, custom
from trainer.models.canned import deep_columns, multi_hot, prepare
from trainer.models.optimizers import learning_rate, warmed_up
from trainer.models.selection import check_reads
from trainer.spec.task_spec import Dense, Ids, TaskSpec, read_table_task_spec, read_task_spec

OWN = "tests.support.own_models"
QUICK: dict[str, dict] = {
    "linear": {"learning_rate": 0.05},
    "dnn": {"hidden_units": (16,)},
    "tabular": {"members": 4, "width": 16, "depth": 2, "learning_rate": 0.01},
    "wide_deep": {"hidden_units": (16,)},
    "softmax": {"learning_rate": 0.05},
}


def build(name: str, dataset, folder):
    model = BUILT_IN[name] if name in BUILT_IN else custom.load(name)
    hparams = model.hparams(**QUICK.get(name, {}))
    estimator = model.build(read_task_spec(dataset, max_steps=200), hparams, brief_config(folder))
    return measured(estimator, dataset)


def trained(estimator, dataset, steps: int = 200):
    options = InputOptions(batch_size=32, seed=1, deterministic=True)
    estimator.train(lambda: input_fn(dataset, "train", mode="train", options=options), max_steps=steps)
    return estimator


def evaluated(estimator, dataset, split="train"):
    return estimator.evaluate(lambda: input_fn(dataset, split, mode="eval", options=InputOptions()))


def predicted(estimator, dataset):
    return list(estimator.predict(lambda: input_fn(dataset, "eval", mode="infer", options=InputOptions())))


def loss_by(estimator, dataset, weigh):
    """The loss in the train split, with the weights that `weigh` makes of those in the records and of the labels."""

    def read():
        records = input_fn(dataset, "train", mode="eval", options=InputOptions(batch_size=1000))
        return records.map(lambda features, label: ({**features, "w": weigh(features["w"], label)}, label))

    return estimator.evaluate(read)["loss"]


@pytest.fixture(scope="module")
def people_model(people, tmp_path_factory):
    """A model by its name, after 100 steps; not to be trained on."""
    return functools.cache(lambda name: trained(build(name, people, tmp_path_factory.mktemp("model")), people, 100))


@pytest.mark.parametrize("name", ["linear", "wide_deep"])
def test_a_training_summarizes_its_loss_and_no_layer(people, tmp_path, name):
    estimator = build(name, people, tmp_path)
    with tf.Graph().as_default() as graph:
        tf.compat.v1.train.create_global_step()
        read = tf.compat.v1.data.make_one_shot_iterator(input_fn(people, "train", mode="train", options=InputOptions()))
        features, labels = read.get_next()
        estimator.model_fn(features, labels, "train", estimator.config)
        summaries = [tensor.op.name for tensor in graph.get_collection(tf.compat.v1.GraphKeys.SUMMARIES)]
    assert summaries == ["loss"]


NAMES = ["linear", "dnn", "tabular", "wide_deep", "softmax", f"{OWN}:model_fn", f"{OWN}:keras_model"]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_learns_and_predicts(people, people_model, name):
    estimator = people_model(name)
    metrics = evaluated(estimator, people)
    assert metrics.get("average_loss", metrics["loss"]) < np.log(2)  # what a model that has learned nothing has
    assert metrics["accuracy"] > 0.5
    assert metrics["global_step"] == 100
    predictions = predicted(estimator, people)
    assert len(predictions) == people.rows("eval")
    assert predictions[0]["probabilities"].shape == (2,)
    assert {p["class"] for p in predictions} <= {b"<=50K", b">50K"}
    assert all(p["key"].startswith(b"k") for p in predictions)


def test_softmax_is_for_classes(wages, tmp_path):
    with pytest.raises(MillraceError, match="model 'softmax' is for classification, but the label 'wage' is a number"):
        trained(build("softmax", wages, tmp_path), wages)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["linear", "tabular"])
def test_regression(wages, tmp_path, name):
    estimator = trained(build(name, wages, tmp_path), wages, steps=20)
    assert np.isfinite(evaluated(estimator, wages)["loss"])
    assert predicted(estimator, wages)[0]["value"].dtype == np.float32


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tabular", "softmax", f"{OWN}:keras_model"])
def test_examples_are_weighed(people, people_model, name):
    """With weights, the loss is a weighted mean: doubling all weights changes nothing, zeros drop their examples."""
    loss = functools.partial(loss_by, people_model(name), people)
    ones = loss(lambda w, label: tf.ones_like(w))
    of_each = [loss(lambda w, label, c=c: tf.cast(tf.equal(label, c), tf.float32)) for c in (0, 1)]
    assert of_each[0] != pytest.approx(of_each[1], rel=1e-6)
    assert min(of_each) < ones or name.endswith("keras_model")  # Keras divides by the number, not by the weights' sum


@pytest.mark.slow
def test_a_keras_regression_is_weighed(tmp_path):
    """An example of weight 2 counts as two."""
    schema = WAGES.replace("label:", "  - {name: w, kind: weight}\nlabel:")
    rows = [f"{20 + i % 40},{'abc'[i % 3]},{1 + i % 2},{100 + 10 * (i % 40)}" for i in range(300)]
    weighed = written_rows(tmp_path, schema, "age,work,w,wage", rows)
    estimator = trained(build(f"{OWN}:keras_model", weighed, tmp_path / "model"), weighed, steps=20)
    loss = functools.partial(loss_by, estimator, weighed)
    ones = loss(lambda w, label: tf.ones_like(w))
    assert loss(lambda w, label: 2 * tf.ones_like(w)) == pytest.approx(2 * ones, rel=1e-4)
    once, twice = (loss(lambda w, label, c=c: tf.cast(tf.equal(w, c), tf.float32)) for c in (1.0, 2.0))
    assert loss(lambda w, label: w) == pytest.approx(once + 2 * twice, rel=1e-4)
    assert predicted(estimator, weighed)[0]["value"].dtype == np.float32


class TestOwn:
    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("no.such.module:f", "no module 'no'"),
            ("tests.trainer.nowhere:f", "no module 'tests.trainer.nowhere'"),
            (f"{OWN}:nothing", "no function 'nothing' in "),
            (f"{OWN}:TaskSpec", "its parameters are (inputs, label, classes, weight, max_steps, scale)"),
            (f"{OWN}:neither", "its parameters are (x, y); expected a model_fn(features, labels, mode, params), or"),
        ],
    )
    def test_refuses(self, name, message):
        with pytest.raises(UsageError) as refused:
            custom.load(name)
        assert message in str(refused.value)

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("uncompiled", "returned a tf.keras model that is not compiled; expected a compiled tf.keras model"),
            ("of_another_feature", "reads ['height'], which the dataset does not have; its features are ['age', "),
        ],
    )
    def test_refuses_a_keras_model(self, people, tmp_path, name, message):
        with pytest.raises(MillraceError) as refused:
            build(f"{OWN}:{name}", people, tmp_path)
        assert message in str(refused.value)


@pytest.mark.parametrize(
    ("model", "examples", "message"),
    [
        ("squeezenext", "rows", "'squeezenext' reads images; for rows use: linear, dnn, tabular, wide_deep, softmax"),
        ("dnn", "images", "'dnn' reads rows; for images use: softmax, squeezenext"),
        ("face_pairs", "images", "'face_pairs' reads pairs; for images use: .*backbone; images are compared in pairs "),
        ("softmax", "pairs", "'softmax' reads rows or images; for pairs use: face_pairs"),
    ],
)
def test_a_model_refuses_other_examples(model, examples, message):
    with pytest.raises(UsageError, match=message):
        check_reads(model, examples)


@pytest.mark.parametrize(
    ("step", "options", "rate"),
    [
        (0, {}, 1.0),
        (50, {}, 0.25),
        (150, {}, 0.0),
        (5, {"warmup_steps": 20}, 0.25),
        (20, {"warmup_steps": 20}, 1.0),
        (10**9, {"max_steps": None}, 1.0),
        (5, {"max_steps": None, "warmup_steps": 20}, 0.25),
    ],
)
def test_warms_up_in_a_line_and_decays_with_the_square(step, options, rate):
    settings = {"base": 1.0, "max_steps": 100, "warmup_steps": 0, **options}
    assert float(warmed_up(step, **settings)) == pytest.approx(rate, abs=1e-6)


@pytest.mark.parametrize(
    ("model", "hparams", "step", "rate"),
    [
        ("softmax", {}, 50, 0.001),
        ("dnn", {}, 50, 0.001),
        ("linear", {"decay": False}, 50, 0.02),
        ("face_pairs", {}, 100, 0.0),
        ("squeezenext", {}, 0, 0.0),
        ("squeezenext", {}, 5, 0.04),
    ],
)
def test_the_rate_of_a_model_at_a_step_of_a_hundred(model, hparams, step, rate):
    built_in = BUILT_IN[model]
    step_rate = float(learning_rate(built_in.rate, built_in.hparams(**hparams), step, 100))
    assert step_rate == pytest.approx(rate, abs=1e-8)


def tabular_graph(folder, inputs, features, classes=2, **hparams) -> tf.Graph:
    """The graph in which `tabular` trains on these inputs."""
    task_spec = TaskSpec(tuple(inputs), label="y", classes=classes, weight=None, max_steps=10)
    estimator = BUILT_IN["tabular"].build(task_spec, BUILT_IN["tabular"].hparams(**hparams), brief_config(folder))
    with tf.Graph().as_default() as graph:
        tf.compat.v1.set_random_seed(1)
        tf.compat.v1.train.create_global_step()
        labels = tf.zeros([2], tf.float32 if classes is None else tf.int64)
        estimator.model_fn(features(), labels, "train", estimator.config)
    return graph


@pytest.mark.parametrize(("width", "embedded"), [(100, True), (101, False)])
def test_of_a_table_of_more_than_100_numbers_none_is_embedded(tmp_path, width, embedded):
    graph = tabular_graph(tmp_path, [Dense("x", width)], lambda: {"x": tf.zeros([2, width])})
    names = [variable.op.name for variable in graph.get_collection("trainable_variables")]
    assert any(name.startswith("embedding/") for name in names) == embedded


def test_tabular_reads_a_text_as_a_linear_model_does(tmp_path):
    def features() -> dict:
        ids = tf.sparse.from_dense(tf.constant([[1, 2], [3, 0]], tf.int64))
        return {"text": ids, "text_tfidf": ids.with_values(tf.constant([0.25, 0.5, 1.0]))}

    graph = tabular_graph(tmp_path, [Ids("text", 5, None, weights="text_tfidf")], features)
    assert [variable.op.name for variable in graph.get_collection("trainable_variables")] == ["linear/text/weights"]


@pytest.mark.parametrize(("classes", "deviation"), [(2, 0.1), (None, 1.0)])
def test_the_frequencies_of_tabular_follow_from_the_label(tmp_path, classes, deviation):
    graph = tabular_graph(tmp_path, [Dense("x", 100)], lambda: {"x": tf.zeros([2, 100])}, classes)
    (frequency,) = (v for v in graph.get_collection("variables") if v.op.name == "embedding/frequency")
    with tf.compat.v1.Session(graph=graph) as session:
        session.run(frequency.initializer)
        assert np.std(session.run(frequency)) == pytest.approx(deviation, rel=0.1)


BUCKETS = """\
name: buckets
format: csv
csv: {header: present}
features:
  - {name: size, kind: numeric, transform: {bucketize: 4}}
  - {name: steps, columns: [s0, s1], kind: numeric, transform: {bucketize: [1, 5]}}
  - {name: street, kind: category, hash_buckets: 50}
  - {name: grade, kind: category, top_k: 2, oov_buckets: 3}
  - {name: kept, column: extra, kind: numeric, transform: none}
label: {name: y, kind: category}
"""


@pytest.fixture(scope="module")
def buckets(tmp_path_factory):
    """Ids by bucket, by hash and by a vocabulary that is cut; a label by vocabulary."""
    folder = tmp_path_factory.mktemp("buckets")
    lines = (f"{i % 100},{i % 8},{(i + 3) % 8},street {i % 20},{'abcde'[i % 5]},{i},{'xyz'[i % 3]}" for i in range(300))
    return written_rows(folder, BUCKETS, "size,s0,s1,street,grade,extra,y", lines)


class TestProblem:
    def test_every_kind(self, people):
        task_spec = read_table_task_spec(people, max_steps=7)
        assert task_spec == TaskSpec(task_spec.inputs, label="income", classes=2, weight="w", max_steps=7)
        assert {entry.name: entry for entry in task_spec.inputs} == {
            "age": Dense("age", z_score=True),
            "age_missing": Dense("age_missing"),
            "scores": Dense("scores", 3),
            "hours": Dense("hours"),
            "work": Ids("work", 4 + 1),  # Private, State-gov, Self, <unknown>, and one for all others
            "city": Ids("city", 2 + 1),
            "pet": Ids("pet", 3),
            "member": Dense("member"),
            "title": Ids("title", 1 + 3 + 1, length=3),  # padding; the, big, cat; all others
            "words": Ids("words", 1 + 5 + 1, length=None),
            "work_x_city": Ids("work_x_city", 20, crossed=True),
        }

    def test_buckets_hashes_and_cut_vocabularies(self, buckets):
        task_spec = read_table_task_spec(buckets)
        assert task_spec.classes == 3
        assert task_spec.inputs == (
            Ids("size", 4, ordered=True),
            Ids("steps", 3, length=2, positional=True, ordered=True),
            Ids("street", 50),
            Ids("grade", 2 + 3),
            Dense("kept"),
        )

    def test_a_preprocessing_fn_of_ones_own(self, buckets):
        """The records' form counts where it is not what the schema's kind leads to."""
        features = tuple(
            Numeric(name="size", kind="numeric") if f.name == "size" else f for f in buckets.schema.features
        )
        changed = dataclasses.replace(buckets, declared=buckets.schema.model_copy(update={"features": features[:-1]}))
        inputs = {entry.name: entry for entry in read_table_task_spec(changed).inputs}
        assert inputs["size"] == Ids("size", 4)  # declared as a number, found as ids with a range
        assert inputs["kept"] == Dense("kept")  # not declared


def dense_layer(columns, features) -> np.ndarray:
    return np.asarray(tf.keras.layers.DenseFeatures(columns)(features))


@pytest.mark.parametrize(
    ("entry", "value", "expected"),
    [
        (Dense("x"), [1.5, 2.0], [[1.5], [2.0]]),
        (Dense("x", 2), [[1.0, 2.0]], [[1.0, 2.0]]),
        (Ids("x", 3), [2, 0], [[0, 0, 1], [1, 0, 0]]),
        (Ids("x", 2, length=2, positional=True), [[1, 0]], [[0, 1, 1, 0]]),
        (Ids("x", 8), [2], 8),
        (Ids("x", 9), [2], 4),  # many ids and texts are embedded
        (Ids("x", 900), [2], 30),
        (Ids("x", 10_000), [2], 64),
        (Ids("x", 3, length=None), [[2]], 4),
    ],
)
def test_what_the_deep_part_reads_of_a_feature(entry, value, expected):
    """Its values, or the width of its embedding."""
    x = tf.constant(value, tf.float32 if isinstance(entry, Dense) else tf.int64)
    features = {"x": tf.sparse.from_dense(x)} if getattr(entry, "length", 0) is None else prepare({"x": x}, [entry])
    layer = dense_layer(deep_columns([entry], indicator_limit=8, embedding_size=0), features)
    assert layer.shape == (1, expected) if isinstance(expected, int) else layer.tolist() == expected


def test_a_text_of_padding_alone_is_zero_whatever_the_size_of_its_embedding():
    entry = Ids("t", 9, length=2)
    features = prepare({"t": tf.constant([[0, 0], [1, 0]], tf.int64)}, [entry])
    empty, word = dense_layer(deep_columns([entry], indicator_limit=0, embedding_size=3), features)
    assert empty.tolist() == [0, 0, 0]
    assert word.tolist() != [0, 0, 0]


BAGS = tf.constant([[0, 2, -1], [2, 2, -1], [-1, -1, -1]], tf.int64)


def test_occurrences_are_counted():
    np.testing.assert_array_equal(multi_hot(BAGS, 4), [[1, 0, 1, 0], [0, 0, 2, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(multi_hot(BAGS[:, 1:2], 4), [[0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0]])
