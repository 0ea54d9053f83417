"""From schema and transform to model inputs, from these to feature columns, and to those of a compiled step."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from schemas.spec.features import Numeric
from tests.support.csv_datasets import write_dataset
from trainer.data.input_fn import input_fn
from trainer.data.input_options import InputOptions
from trainer.models.canned import deep_columns, embedding_size_for, linear_columns, mean_of_rows, multi_hot, prepare
from trainer.spec.task_spec import Dense, Ids, Input, TaskSpec, read_table_task_spec

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
    (folder / "raw.csv").write_text("\n".join(["size,s0,s1,street,grade,extra,y", *lines]) + "\n")
    return write_dataset(folder, schema=BUCKETS, csv=folder / "raw.csv")


class TestProblem:
    def test_every_kind(self, people):
        task_spec = read_table_task_spec(people, max_steps=7)
        assert task_spec == TaskSpec(task_spec.inputs, label="income", classes=2, weight="w", max_steps=7)
        assert {entry.name: entry for entry in task_spec.inputs} == {
            "age": Dense("age"),
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
            Ids("size", 4),
            Ids("steps", 3, length=2, positional=True),
            Ids("street", 50),
            Ids("grade", 2 + 3),
            Dense("kept"),
        )

    def test_regression(self, wages):
        assert (read_table_task_spec(wages).classes, read_table_task_spec(wages).weight) == (None, None)

    def test_a_preprocessing_fn_of_ones_own(self, buckets):
        """The records' form counts where it is not what the schema's kind leads to."""
        features = tuple(
            Numeric(name="size", kind="numeric") if f.name == "size" else f for f in buckets.schema.features
        )
        changed = dataclasses.replace(buckets, declared=buckets.schema.model_copy(update={"features": features[:-1]}))
        inputs = {entry.name: entry for entry in read_table_task_spec(changed).inputs}
        assert inputs["size"] == Ids("size", 4)  # declared as a number, found as ids with a range
        assert inputs["kept"] == Dense("kept")  # not declared

    @pytest.mark.parametrize("name", ["people", "buckets"])
    def test_ids_are_within_their_count(self, request, name):
        dataset = request.getfixturevalue(name)
        for features, _ in input_fn(dataset, "train", mode="eval", options=InputOptions()):
            for entry in read_table_task_spec(dataset).inputs:
                if isinstance(entry, Ids):
                    x = features[entry.name]
                    ids = np.asarray(x.values if isinstance(x, tf.SparseTensor) else x)
                    assert ids.min() >= 0
                    assert ids.max() < entry.count


class TestPrepare:
    def test_padding_goes(self):
        prepared = prepare({"t": tf.constant([[2, 1, 0], [0, 0, 0]], tf.int64)}, [Ids("t", 3, length=3)])["t"]
        assert prepared.values.numpy().tolist() == [2, 1]
        assert prepared.dense_shape.numpy().tolist() == [2, 3]

    def test_positions_get_ranges_of_their_own(self):
        entry = Ids("b", 4, length=2, positional=True)
        prepared = prepare({"b": tf.constant([[0, 0], [3, 3]], tf.int64)}, [entry])
        assert prepared["b"].numpy().tolist() == [[0, 4], [3, 7]]

    def test_others_stay(self):
        features = {"x": tf.constant([1.0]), "i": tf.constant([1], tf.int64), "key": tf.constant(["k"])}
        prepared = prepare(features, [Dense("x"), Ids("i", 2)])
        assert all(prepared[name] is features[name] for name in features)


def dense_layer(columns, features) -> np.ndarray:
    return np.asarray(tf.keras.layers.DenseFeatures(columns)(features))


class TestDeepColumns:
    @pytest.mark.parametrize(
        ("entry", "value", "expected"),
        [
            (Dense("x"), [1.5, 2.0], [[1.5], [2.0]]),
            (Dense("x", 2), [[1.0, 2.0]], [[1.0, 2.0]]),
            (Ids("x", 3), [2, 0], [[0, 0, 1], [1, 0, 0]]),
            (Ids("x", 2, length=2, positional=True), [[1, 0]], [[0, 1, 1, 0]]),
        ],
    )
    def test_values(self, entry, value, expected):
        x = tf.constant(value, tf.float32 if isinstance(entry, Dense) else tf.int64)
        columns = deep_columns([entry], indicator_limit=8, embedding_size=0)
        assert dense_layer(columns, prepare({"x": x}, [entry])).tolist() == expected

    @pytest.mark.parametrize(
        ("entry", "width"),
        [(Ids("x", 8), 8), (Ids("x", 9), 4), (Ids("x", 900), 30), (Ids("x", 3, length=None), 4)],
    )
    def test_many_ids_and_texts_are_embedded(self, entry, width):
        x = tf.sparse.from_dense(tf.constant([[2]], tf.int64)) if entry.length is None else tf.constant([2], tf.int64)
        columns = deep_columns([entry], indicator_limit=8, embedding_size=0)
        assert dense_layer(columns, {"x": x}).shape == (1, width)

    def test_embedding_size_may_be_given(self):
        columns = deep_columns([Ids("x", 900)], indicator_limit=8, embedding_size=5)
        assert dense_layer(columns, {"x": tf.constant([2], tf.int64)}).shape == (1, 5)

    def test_a_text_of_padding_alone_is_zero(self):
        entry = Ids("t", 9, length=2)
        columns = deep_columns([entry], indicator_limit=0, embedding_size=3)
        features = prepare({"t": tf.constant([[0, 0], [1, 0]], tf.int64)}, [entry])
        empty, one = dense_layer(columns, features)
        assert empty.tolist() == [0, 0, 0]
        assert one.tolist() != [0, 0, 0]


@pytest.mark.parametrize(("count", "size"), [(2, 4), (16, 4), (100, 10), (10_000, 64), (1_000_000, 64)])
def test_embedding_size(count, size):
    assert embedding_size_for(count) == size


def test_linear_columns_have_one_weight_for_each_number_and_id():
    inputs: list[Input] = [Dense("x", 3), Ids("i", 4), Ids("b", 4, length=2, positional=True)]
    numeric, ids, positional = linear_columns(inputs)
    assert numeric.shape == (3,)
    assert (ids.number_buckets, positional.number_buckets) == (4, 8)


BAGS = tf.constant([[0, 2, -1], [2, 2, -1], [-1, -1, -1]], tf.int64)


def test_occurrences_are_counted():
    np.testing.assert_array_equal(multi_hot(BAGS, 4), [[1, 0, 1, 0], [0, 0, 2, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(multi_hot(BAGS[:, 1:2], 4), [[0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0]])


def test_embeddings_are_averaged_and_their_gradient_is_dense():
    weights = tf.constant([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0]])
    with tf.GradientTape() as tape:
        tape.watch(weights)
        means = mean_of_rows(weights, BAGS)
        total = tf.reduce_sum(means * [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    np.testing.assert_allclose(means, [[2.5, 25.0], [4.0, 40.0], [0.0, 0.0]])
    gradient = tape.gradient(total, weights)
    assert isinstance(gradient, tf.Tensor)
    np.testing.assert_allclose(gradient, [[0.5, 0.0], [0.0, 0.0], [0.5, 1.0]])
