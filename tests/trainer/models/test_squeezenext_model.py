"""The model `squeezenext`: its three paths, what it writes, fine-tuning; and `softmax` on small images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.support.training import Trained, brief_config, measured
from trainer.data.input_fn import input_fn
from trainer.data.input_options import InputOptions
from trainer.estimator import tf_estimator
from trainer.export.outputs import with_keys_and_classes
from trainer.images.summaries import thumbnails
from trainer.model_dir import checkpoints
from trainer.models import BUILT_IN
from trainer.models.squeezenext import SCOPE
from trainer.spec.hparams import Augmentation
from trainer.spec.task_spec import read_task_spec

pytestmark = pytest.mark.long

SMALL = (1, 1, 1, 1)  # units: most of what a test takes is a graph in proportion to them
LAST_BLOCK = f"{SCOPE}/stage_3/unit_8/tall/kernel"  # of the default variant's longest stage


def build(model: str, dataset, folder, *, max_steps=None, task_spec=None, save_checkpoints_secs=600, **hparams):
    config = brief_config(
        folder, save_checkpoints_secs=save_checkpoints_secs, save_summary_steps=100 if save_checkpoints_secs else None
    )
    task_spec = task_spec or read_task_spec(dataset, max_steps=max_steps)
    return BUILT_IN[model].build(task_spec, BUILT_IN[model].hparams(**hparams), config)


def train(estimator, dataset, *, steps: int, classes: int | None = None, flip: bool = True, hooks=()):
    """Trains to the given step; `classes` makes labels of the class ids modulo this."""
    options = InputOptions(batch_size=16, seed=1, deterministic=True, augmentation=Augmentation(flip=flip))

    def read():
        examples = input_fn(dataset, "train", mode="train", options=options)
        return examples if classes is None else examples.map(lambda features, label: (features, label % classes))

    return estimator.train(read, max_steps=steps, hooks=hooks)


def evaluate(estimator, dataset, split="eval"):
    return measured(estimator, dataset).evaluate(
        lambda: input_fn(dataset, split, mode="eval", options=InputOptions(batch_size=16)), name=split
    )


def predict(estimator, dataset):
    return list(estimator.predict(lambda: input_fn(dataset, "eval", mode="infer", options=InputOptions(batch_size=16))))


def read_summaries(folder: Path) -> dict:
    """The values of all event files of a folder, by tag."""
    values: dict = {}
    for path in sorted(folder.glob("events*")):
        for record in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            values |= {value.tag: value for value in event.summary.value}
    return values


@pytest.fixture(scope="module")
def trained(tmp_path_factory, colors) -> Trained:
    """Eighty steps, which are enough for sheets of seven colors."""
    estimator = build("squeezenext", colors, tmp_path_factory.mktemp("model"), max_steps=80, units=SMALL)
    return Trained(colors, train(estimator, colors, steps=80))


@pytest.fixture(scope="module")
def metrics(trained) -> dict:
    """Its evaluation, which wrote summaries to `eval`."""
    return evaluate(trained.estimator, trained.dataset)


@pytest.fixture(scope="module")
def predictions(trained) -> list[dict]:
    """With keys and classes, of the evaluation's images."""
    return predict(with_keys_and_classes(trained.estimator, trained.dataset), trained.dataset)


@pytest.mark.parametrize(("size", "shown"), [((32, 20), (32, 20)), ((512, 256), (128, 64)), ((4, 1000), (1, 128))])
def test_images_in_summaries_are_small(size, shown):
    images = tf.fill([2, *size, 3], tf.constant(200, tf.uint8))
    np.testing.assert_array_equal(thumbnails(images), np.full((2, *shown, 3), 200, np.uint8))


class TestEvaluation:
    def test_distinguishes_the_classes(self, metrics):
        assert metrics["accuracy"] >= 0.6  # of seven classes, after eighty steps
        assert metrics["recall_at_5"] >= metrics["accuracy"]
        assert {"average_loss", "loss", "global_step"} < set(metrics)


class TestPrediction:
    def test_gives_logits_probabilities_and_the_best_classes(self, predictions):
        for p in predictions:
            assert (p["logits"].dtype, p["logits"].shape) == (np.float32, (7,))
            np.testing.assert_allclose(p["probabilities"], np.exp(p["logits"]) / np.exp(p["logits"]).sum(), rtol=1e-4)
            assert (p["top_5"].dtype, p["top_5"].tolist()) == (np.int64, np.argsort(-p["logits"])[:5].tolist())
            assert p["top_1"] == p["class_id"] == p["top_5"][0]


class TestTraining:
    def test_writes_some_images(self, trained):
        assert "images/image/0" in read_summaries(trained.folder)

    def test_the_rate_warms_up_and_decays(self, trained):
        values = read_summaries(trained.folder)
        assert {"learning_rate", "batch_accuracy", "loss_without_l2"} <= set(values)
        assert values["learning_rate"].simple_value == pytest.approx(0.0)  # the first step's: the warm-up starts at 0

    def test_the_default_variant_trains(self, colors, tmp_path):
        """Without checkpoints and summaries: of so large a graph they take longer than the step."""
        measured: dict[str, Any] = {}

        class KeepKernel(tf_estimator.SessionRunHook):
            def end(self, session):
                graph = tf.compat.v1.get_default_graph()
                (kernel,) = (v for v in tf.compat.v1.trainable_variables() if v.op.name == LAST_BLOCK)
                measured.update(step=session.run(tf.compat.v1.train.get_global_step(graph)), kernel=session.run(kernel))
                measured.update(size=graph.as_graph_def(add_shapes=True).ByteSize())

        estimator = build("squeezenext", colors, tmp_path, max_steps=1, save_checkpoints_secs=None)
        train(estimator, colors, steps=1, hooks=[KeepKernel()])
        assert measured["step"] == 1
        assert np.isfinite(measured["kernel"]).all()
        assert measured["size"] < checkpoints.GRAPH_BYTES  # so it is in the events, for TensorBoard

    def test_every_variable_moves(self, trained):
        """Weights by gradients, batch norm's averages by updates."""
        start, end = (tf.train.load_checkpoint(f"{trained.folder}/model.ckpt-{step}") for step in (0, 80))
        names = trained.estimator.get_variable_names()
        assert [n for n in names if np.array_equal(start.get_tensor(n), end.get_tensor(n))] == []

    def test_l2_counts(self, trained):
        values = read_summaries(trained.folder)
        assert values["loss"].simple_value > values["loss_without_l2"].simple_value


def test_softmax_works_on_small_images(colors, tmp_path):
    estimator = build("softmax", colors, tmp_path, learning_rate=0.01)
    train(estimator, colors, steps=60)
    assert evaluate(estimator, colors)["accuracy"] >= 0.9
    predictions = predict(with_keys_and_classes(estimator, colors), colors)
    assert predictions[0]["probabilities"].shape == (7,)
