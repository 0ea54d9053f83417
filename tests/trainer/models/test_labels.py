"""How models see the label: measured in the train split, learned at another scale, predicted in its own units."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from schemas.dataset import OpenDataset
from schemas.errors import MillraceError
from schemas.spec.loader import parse_schema
from tests.support.csv_datasets import LATE, NUMBERS
from tests.support.datasets import rejects_of, written_rows
from tests.support.training import run
from trainer.data.labels import measure_label
from trainer.estimator import tf_estimator
from trainer.model_dir.model_json import read_evaluations
from trainer.models.canned import head, in_own_units, learned, squashed
from trainer.models.hyperparameters import DnnHparams
from trainer.models.optimizers import adam
from trainer.spec.task_spec import Dense, LabelScale, TaskSpec

ModeKeys = tf_estimator.ModeKeys
X = Dense("x")


def with_label(label: str) -> str:
    """The schema of numbers, whose label is declared with this, too."""
    return NUMBERS.replace("name: y, kind: numeric", f"name: y, kind: numeric{label}")


def numbers_dataset(folder: Path, values: list[float], label: str = "") -> OpenDataset:
    """A dataset of numbers with these labels, of which nine tenths are in the train split."""
    return written_rows(folder, with_label(label), "x,y", (f"{i},{value:g}" for i, value in enumerate(values)))


def train_labels(dataset: OpenDataset) -> np.ndarray:
    """The labels of the train split."""
    values = []
    for record in tf.data.TFRecordDataset(list(dataset.shards("train")), dataset.compression).as_numpy_iterator():
        values.append(tf.train.Example.FromString(record).features.feature["y"].float_list.value[0])
    return np.array(values, np.float64)


class TestMeasured:
    @pytest.mark.parametrize(
        ("label", "of"), [("", np.asarray), (", transform: log", np.log), (", transform: log1p", np.log1p)]
    )
    def test_mean_and_deviation(self, tmp_path, label, of):
        dataset = numbers_dataset(tmp_path, [0.5 + (i * 37 % 101) ** 2 for i in range(200)], label)
        scale = measure_label(dataset, None)
        values = of(train_labels(dataset))
        assert scale.mean == pytest.approx(values.mean())
        assert scale.deviation == pytest.approx(values.std())

    def test_a_constant_is_refused(self, tmp_path):
        dataset = numbers_dataset(tmp_path, [7.5] * 200)
        with pytest.raises(
            MillraceError, match=r"'y' is 7\.5 in every record of the train split.*check the label's column"
        ):
            measure_label(dataset, None)

    def test_the_shares_of_classes(self, late):
        scale = measure_label(late, 2)
        assert sum(scale.priors) == pytest.approx(1)
        assert min(scale.priors) > 0
        assert scale.class_weights == ()

    def test_balanced_classes_count_alike(self, late):
        label = LATE.replace("kind: category, values", "kind: category, class_weights: balanced, values")
        scale = measure_label(dataclasses.replace(late, declared=parse_schema(label.encode(), "s")), 2)
        shares = np.array(measure_label(late, 2).priors)
        assert shares * scale.class_weights == pytest.approx([0.5, 0.5])
        assert scale.priors == pytest.approx([0.5, 0.5])  # where it begins


def test_a_label_whose_logarithm_is_learned_is_positive(tmp_path):
    dataset = numbers_dataset(tmp_path, [-1.0, 0.0, *(1.0 + i for i in range(60))], ", transform: log")
    assert {reject.reason for reject in rejects_of(dataset)} == {"label_not_positive"}
    assert sorted(reject.detail for reject in rejects_of(dataset)) == [
        f"found {value}; `transform: log` of a label is ln(x), for values above 0; `log1p`, ln(1 + x), is for values "
        "above -1"
        for value in ("-1", "0")
    ]
    assert train_labels(dataset).min() > 0


def test_labels_of_0_are_learned_by_log1p(tmp_path):
    dataset = numbers_dataset(tmp_path, [-1.0, -2.0, *(float(i % 9) for i in range(60))], ", transform: log1p")
    assert sorted((reject.reason, reject.detail) for reject in rejects_of(dataset)) == [
        ("label_too_small", f"found {value}; `transform: log1p` of a label is for values above -1")
        for value in (-1, -2)
    ]
    assert train_labels(dataset).min() == 0


class TestScale:
    @given(
        st.sampled_from(["none", "z_score", "log", "log1p"]),
        st.floats(-3, 3),
        st.floats(0.1, 3),
        st.lists(st.floats(2**-6, 1000, width=32), min_size=1, max_size=5),
    )
    def test_there_and_back(self, transform, mean, deviation, values):
        scale = LabelScale(transform=transform, mean=mean, deviation=deviation)
        back = in_own_units(learned(tf.constant(values), scale), scale)
        np.testing.assert_allclose(back, values, rtol=2e-4, atol=1e-3)

    @pytest.mark.parametrize("transform", ["log", "log1p"])
    def test_a_prediction_stays_finite(self, transform):
        scale = LabelScale(transform=transform, mean=80.0, deviation=10.0)
        assert np.isfinite(in_own_units(tf.constant([100.0]), scale)).all()


def spec_of(mode: str, logits: list[Any], labels: list[Any], task_spec: TaskSpec) -> dict[str, Any]:
    """What the head of a mode makes of logits: the loss, predictions and metrics."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.train.create_global_step()
        spec = head(task_spec, mode).create_estimator_spec(
            {},
            mode,
            tf.constant(logits, tf.float32),
            labels=tf.constant(labels),
            train_op_fn=lambda loss: tf.no_op(),
            trainable_variables=[],
        )
        session.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer()])
        if mode == ModeKeys.PREDICT:
            return session.run(dict(spec.predictions))
        return session.run({"loss": spec.loss})


class TestHeads:
    SCALE = LabelScale(transform="z_score", mean=100.0, deviation=10.0)
    NUMBER = TaskSpec((X,), "y", None, scale=SCALE)

    def test_a_regression_speaks_the_labels_units(self):
        assert spec_of(ModeKeys.PREDICT, [[0.0], [1.0]], [0.0], self.NUMBER)["predictions"].tolist() == [
            [100.0],
            [110.0],
        ]
        evaluated = spec_of(ModeKeys.EVAL, [[0.0], [1.0]], [100.0, 130.0], self.NUMBER)
        assert evaluated["loss"] == pytest.approx(200.0)  # 0 and 20 squared

    def test_and_learns_in_deviations(self):
        trained = spec_of(ModeKeys.TRAIN, [[0.0], [1.0]], [100.0, 130.0], self.NUMBER)
        assert trained["loss"] == pytest.approx(2.0)  # 0 and 2 squared

    @pytest.mark.parametrize("priors", [(0.9, 0.1), (0.7, 0.2, 0.1)])
    def test_classes_begin_with_their_shares(self, priors):
        task_spec = TaskSpec((X,), "y", len(priors), scale=LabelScale(priors=priors))
        logits = [[0.0] * (1 if len(priors) == 2 else len(priors))]
        assert spec_of(ModeKeys.PREDICT, logits, [0], task_spec)["probabilities"][0] == pytest.approx(priors)

    @pytest.mark.parametrize("classes", [2, 3])
    def test_weights_of_classes_count_in_training_alone(self, classes):
        width = 1 if classes == 2 else classes
        logits, labels = [[0.5] * width, [-1.0] * width], [0, 1]
        losses = {}
        for weights in ((), (1.0,) * classes, (3.0,) * classes):
            task_spec = TaskSpec((X,), "y", classes, scale=LabelScale(class_weights=weights))
            losses[weights] = [spec_of(mode, logits, labels, task_spec)["loss"] for mode in ("train", "eval")]
        plain, ones, threes = losses.values()
        assert ones == pytest.approx(plain)
        assert threes == pytest.approx([3 * plain[0], plain[1]])

    @pytest.mark.parametrize("classes", [2, 3])
    def test_the_mean_of_members_is_that_of_their_probabilities(self, classes):
        rng = np.random.default_rng(0)
        width = 1 if classes == 2 else classes
        logits = rng.normal(size=(5, 4, width)).astype(np.float32)
        priors = tuple(np.arange(1, classes + 1) / np.arange(1, classes + 1).sum())
        task_spec = TaskSpec((X,), "y", classes, scale=LabelScale(priors=priors))
        of_members = [
            spec_of(ModeKeys.PREDICT, logits[:, i].tolist(), [0], task_spec)["probabilities"] for i in range(4)
        ]
        mean = head(task_spec, ModeKeys.PREDICT).mean_of(tf.constant(logits)).numpy()
        served = spec_of(ModeKeys.PREDICT, mean.tolist(), [0], task_spec)["probabilities"]
        np.testing.assert_allclose(served, np.mean(of_members, axis=0), rtol=1e-5)


@pytest.fixture(scope="module")
def rare(share_dataset) -> OpenDataset:
    """One row in twenty is of the second class, those of the largest x."""
    label = "kind: category, class_weights: balanced, values: [no, yes]"
    schema = NUMBERS.replace("transform: none", "transform: z_score").replace("y, kind: numeric", f"y, {label}")
    rows = [f"{i * 37 % 100 + i % 3 * 5},{'yes' if i * 37 % 100 >= 95 else 'no'}" for i in range(1000)]
    return share_dataset("rare", lambda folder: written_rows(folder, schema, "x,y", rows))


@pytest.mark.slow
class TestBalanced:
    def test_the_export_is_chosen_by_the_loss_that_is_learned(self, rare, tmp_path, capsys):
        assert run(rare, tmp_path, "--hparams", "learning_rate=0.05", model="linear") == 0
        evaluations = read_evaluations(str(tmp_path))
        mark = json.loads((tmp_path / "export" / "best" / "best.json").read_text())
        assert mark["metric"] == "balanced_loss"
        assert mark["value"] == pytest.approx(min(e["balanced_loss"] for e in evaluations))
        assert mark["value"] < math.log(2)
        best = json.loads((tmp_path / "metrics-eval.json").read_text())["metrics"]
        assert best["recall"] > 0.8
        assert "note: class_weights" not in (err := capsys.readouterr().err)
        assert "): eval balanced_loss " in err

    def test_a_model_that_weighs_no_classes_says_so(self, rare, tmp_path, capsys):
        assert run(rare, tmp_path, steps=20) == 0
        note = "note: class_weights: balanced: softmax counts examples alike, and not classes\n"
        assert note in capsys.readouterr().err
        assert "balanced_loss" not in read_evaluations(str(tmp_path))[0]


class TestSquashed:
    @given(st.lists(st.floats(-(2.0**127), 2.0**127, width=32), min_size=1, max_size=20), st.floats(0.5, 10))
    def test_as_the_formula_says(self, values, limit):
        x = np.array(values, np.float64)
        outputs = squashed(tf.constant(values, tf.float32)[:, None], [Dense("x", z_score=True)], limit)
        np.testing.assert_allclose(outputs[:, 0], x / np.sqrt(1 + (x / limit) ** 2), rtol=1e-4, atol=1e-30)

    def test_others_than_z_scores_stay(self):
        values = tf.constant([[1e30, 1e30, -7.0]])
        numbers = [Dense("a"), Dense("b", z_score=True), Dense("c")]
        assert squashed(values, numbers, 3.0).numpy()[0] == pytest.approx([1e30, 3.0, -7.0])
        assert squashed(values, numbers, 0.0) is values


def test_weight_decay_takes_off_kernels_alone():
    start = np.array([[1.0, -2.0]], np.float32)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        named = {n: tf.compat.v1.get_variable(n, initializer=start) for n in ("kernel", "bias", "embedding_weights")}
        optimizer = adam(DnnHparams(learning_rate=0.1, decay=False, weight_decay=0.5), None)()
        optimizer.iterations = tf.compat.v1.train.create_global_step()
        loss = tf.add_n([0.0 * tf.reduce_sum(variable) for variable in named.values()])
        step = optimizer.get_updates(loss, list(named.values()))[0]
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(step)
        variables = session.run(named)
    assert variables["kernel"] == pytest.approx(start * (1 - 0.5 * 0.1))
    assert variables["bias"].tolist() == variables["embedding_weights"].tolist() == start.tolist()
