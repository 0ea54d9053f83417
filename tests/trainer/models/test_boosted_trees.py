"""Boosted trees as a TensorFlow graph: the same raw scores as LightGBM's own, whatever a row holds."""

from __future__ import annotations

import functools
from typing import Any

import lightgbm
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schemas.errors import MillraceError
from trainer.models import boosted_trees
from trainer.models.boosted_trees import Columns, Trees, restored, round_down, save, scores, trees_of
from trainer.spec.task_spec import Dense, Ids

NAN, INF = np.nan, np.inf
WIDTH, SETS = 5, (3, 4)  # columns of the tables, and which of them hold categories
PARAMS: dict[str, Any] = {"verbosity": -1, "num_threads": 1, "min_data_per_group": 5, "min_data_in_leaf": 5}


def rows(count: int, *, missing: bool) -> np.ndarray:
    """Numbers of which one is mostly 0, and categories of 3 and 70 ids; float32 `[count, WIDTH]`."""
    random = np.random.default_rng(1)
    table = random.normal(size=(count, WIDTH)).astype(np.float32)
    table[:, 2] = np.where(random.random(count) < 0.7, 0, table[:, 2])
    table[:, 3], table[:, 4] = random.integers(0, 3, count), random.integers(0, 70, count)
    if missing:
        table[random.random(count) < 0.1, 1] = NAN
        table[random.random(count) < 0.05, 4] = NAN
    return table


def target(table: np.ndarray) -> np.ndarray:
    x = np.nan_to_num(table)
    return x[:, 0] * (x[:, 3] == 1) + 2 * (table[:, 1] > 0.3) + (x[:, 2] > 0) + np.sin(x[:, 4]) + np.isnan(table[:, 1])


def grown(objective: str, *, rounds: int = 20, missing: bool = True, constant: bool = False, **params: Any) -> Any:
    table = rows(1500, missing=missing)
    y = np.zeros(len(table)) if constant else target(table)
    if objective == "binary":
        y = (y > 1).astype(float)
    elif objective == "multiclass":
        y, params = np.digitize(y, [0, 1, 2]).astype(float), {**params, "num_class": 4}
    data = lightgbm.Dataset(table, y, categorical_feature=list(SETS))
    return lightgbm.train({"objective": objective, **PARAMS, **params}, data, rounds)


MODELS = {
    "regression": functools.partial(grown, "regression"),
    "two classes": functools.partial(grown, "binary"),
    "four classes": functools.partial(grown, "multiclass", rounds=8),
    "no missing values in training": functools.partial(grown, "regression", missing=False),
    "missing values are not used": functools.partial(grown, "regression", use_missing=False),
    "one decision a tree": functools.partial(grown, "regression", num_leaves=2),
    "one-hot categories": functools.partial(grown, "regression", max_cat_to_onehot=100),
    "no split": functools.partial(grown, "regression", rounds=3, constant=True),
    "bagged, regularized": functools.partial(
        grown, "binary", bagging_fraction=0.5, bagging_freq=1, feature_fraction=0.5, lambda_l1=0.1, lambda_l2=1
    ),
}


@functools.cache
def model(name: str) -> tuple[Any, Trees]:
    booster = MODELS[name]()
    return booster, trees_of(booster.model_to_string())


@functools.cache
def thresholds() -> list[float]:
    """Those of all models, as float32 rounds them, and their neighbours."""
    numbers = [
        float(number)
        for name in MODELS
        for line in model(name)[0].model_to_string().splitlines()
        if line.startswith("threshold=")
        for number in line.partition("=")[2].split()
    ]
    near = np.unique(np.array(numbers, np.float64).astype(np.float32))
    return [float(x) for side in (-INF, INF) for x in (*near, *np.nextafter(near, np.float32(side)))]


def lightgbms(booster: Any, table: np.ndarray) -> np.ndarray:
    return booster.predict(table, raw_score=True).reshape(len(table), -1)


@functools.cache
def in_graph(name: str) -> Any:
    """A graph of the model, as TensorFlow's graph optimizer leaves it."""
    rows_of_any = tf.TensorSpec([None, WIDTH], tf.float32)
    return tf.function(functools.partial(scores, model(name)[1]), input_signature=[rows_of_any])


def assert_equal(name: str, table: np.ndarray) -> None:
    raw_scores = in_graph(name)(tf.constant(table)).numpy()
    assert raw_scores.dtype == np.float64
    np.testing.assert_allclose(raw_scores, lightgbms(model(name)[0], table), rtol=0, atol=1e-9)


def any_table() -> Any:
    """Rows of any float32 numbers, of thresholds, and of categories that were seen or not."""
    numbers = st.floats(width=32) | st.sampled_from([NAN, INF, -INF, 0.0, -0.0, 1e-36, 1e-35, -1e-35, 3e38])
    numbers |= st.deferred(lambda: st.sampled_from(thresholds()))
    ids = st.integers(-3, 120) | st.just(NAN) | st.sampled_from([31.0, 32.0, 63.0, 64.0, 1e6])
    row = st.tuples(numbers, numbers, numbers, ids, ids)
    return st.lists(row, min_size=1, max_size=20).map(lambda table: np.array(table, np.float32))


class TestScores:
    @pytest.mark.parametrize("name", MODELS)
    @settings(max_examples=30)
    @given(table=any_table())
    @example(table=np.full((1, WIDTH), NAN, np.float32))
    @example(table=np.array([[0, 0, x, 0, 0] for x in (1e-35, -1e-35, 1e-36, -1e-36, 1e-45, -1e-45)], np.float32))
    def test_on_any_row(self, name, table):
        assert_equal(name, table)

    @pytest.mark.parametrize("name", ["regression", "four classes", "no split"])
    @pytest.mark.parametrize("chunk", [boosted_trees.CHUNK_BYTES, 1 << 16])
    def test_compiled_by_xla(self, monkeypatch, name, chunk):
        monkeypatch.setattr(boosted_trees, "CHUNK_BYTES", chunk)
        booster, trees = model(name)
        table = rows(200, missing=True)
        table[:50, :3] = np.random.default_rng(2).choice(thresholds(), (50, 3))
        table[50:60, :3], table[60:70, 3:] = INF, 119
        raw_scores = tf.function(functools.partial(scores, trees), jit_compile=True)(tf.constant(table))
        np.testing.assert_allclose(raw_scores.numpy(), lightgbms(booster, table), rtol=0, atol=1e-9)

    @pytest.mark.parametrize("count", [1, 10, 11, 500])
    def test_few_rows_at_once_where_they_take_much_memory_have_the_same_scores(self, monkeypatch, count):
        trees, table = model("four classes")[1], rows(count, missing=True)
        whole = scores(trees, table)
        cells = 1 + len(trees.numbers) + len(trees.sets) + trees.roots.size
        monkeypatch.setattr(boosted_trees, "CHUNK_BYTES", 10 * cells * boosted_trees.CELL_BYTES)
        assert np.array_equal(scores(trees, table), whole)

    def test_of_no_rows(self):
        _, trees = model("four classes")
        assert scores(trees, tf.zeros([0, WIDTH])).shape == (0, 4)

    @settings(max_examples=300)
    @given(t=st.floats(allow_nan=False, allow_infinity=False), x=st.floats(width=32, allow_nan=False))
    def test_a_threshold_is_rounded_down(self, t, x):
        rounded = round_down(np.array([t]))
        assert rounded.dtype == np.float32
        with np.errstate(over="ignore"):
            above = np.nextafter(rounded[0], np.float32(INF))
        for number in (x, float(rounded[0]), float(above)):
            assert (number <= t) == (number <= float(rounded[0]))

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            (lambda text: text.replace("decision_type=", "decision_type=4 "), "ValueError"),
            (lambda text: text.replace("leaf_value=", "leaves="), "KeyError: 'leaf_value'"),
            (lambda text: text.replace("num_tree_per_iteration", "trees"), "KeyError: 'num_tree_per_iteration'"),
        ],
    )
    def test_another_format_is_refused(self, change, reason):
        booster, _ = model("one decision a tree")
        with pytest.raises(MillraceError, match=f"LightGBM's model cannot be read .*{reason}"):
            trees_of(change(booster.model_to_string()))

    def test_zeros_for_missing_values_are_refused(self):
        booster = grown("regression", rounds=2, zero_as_missing=True)
        with pytest.raises(MillraceError, match="takes zeros for missing values"):
            trees_of(booster.model_to_string())


def test_a_checkpoint_gives_variables_their_shapes(tmp_path):
    """One graph restores trees of any size, and has no value of theirs in itself."""
    paths = {}
    for name in ("regression", "one decision a tree", "no split"):
        (tmp_path / name).mkdir()
        paths[name] = str(tmp_path / name / save(model(name)[1], str(tmp_path / name)))
    with tf.Graph().as_default():
        table = tf.compat.v1.placeholder(tf.float32, [None, WIDTH])
        raw_scores = scores(restored(), table)
        saver = tf.compat.v1.train.Saver()
        with tf.compat.v1.Session() as session:
            for name, path in paths.items():
                booster, trees = model(name)
                assert tf.train.load_variable(path, "global_step") == trees.rounds
                saver.restore(session, path)
                given_rows = rows(50, missing=True)
                np.testing.assert_allclose(
                    session.run(raw_scores, {table: given_rows}), lightgbms(booster, given_rows), rtol=0, atol=1e-9
                )


class TestColumns:
    INPUTS = (
        Ids("color", 3),
        Dense("age"),
        Ids("crossed", 20, crossed=True),
        Dense("scores", 2),
        Ids("decade", 9, ordered=True),
        Ids("places", 5, 2, positional=True),
        Ids("title", 9, 3),
        Ids("words", 4, None),
    )

    def test_numbers_come_first_then_categories_then_counts(self):
        columns = Columns.of(self.INPUTS, list_limit=6)
        assert (columns.numbers, columns.categories, columns.count) == (4, range(4, 7), 17)
        features = {
            "color": tf.constant([2, 0], tf.int64),
            "age": tf.constant([0.5, NAN]),
            "crossed": tf.constant([7, 7], tf.int64),
            "scores": tf.constant([[1.0, 2.0], [3.0, 4.0]]),
            "decade": tf.constant([7, 1], tf.int64),
            "places": tf.constant([[4, 1], [0, 0]], tf.int64),
            "title": tf.constant([[5, 5, 0], [8, 1, 0]], tf.int64),  # 0 is padding, and 8 beyond the limit
            "words": tf.SparseTensor([[0, 0], [0, 1], [1, 0]], tf.constant([3, 3, 0], tf.int64), [2, 2]),
        }
        expected = [
            [0.5, 1, 2, 7, 2, 4, 1, *(0, 0, 0, 0, 0, 2), *(0, 0, 0, 2)],
            [NAN, 3, 4, 1, 0, 0, 0, *(0, 1, 0, 0, 0, 0), *(1, 0, 0, 0)],
        ]
        np.testing.assert_array_equal(columns.table(features), np.array(expected, np.float32))

    def test_crosses_are_read_where_there_is_nothing_else(self):
        columns = Columns.of([Ids("crossed", 20, crossed=True)], list_limit=6)
        assert (columns.categories, columns.count) == (range(1), 1)
