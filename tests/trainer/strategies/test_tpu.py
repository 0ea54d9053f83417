"""TPUEstimator's way on the CPU, and which models' training steps a TPU could compile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tests.support.training import brief_config, run
from trainer import task
from trainer.data.input_fn import input_fn
from trainer.data.input_options import InputOptions
from trainer.models import BUILT_IN
from trainer.spec.task_spec import read_task_spec

pytestmark = pytest.mark.slow


def losses_on_tpu(model_dir: Path) -> dict[int, float]:
    """What the host call wrote, by step."""
    return {
        event.step: float(tf.make_ndarray(value.tensor))
        for path in model_dir.glob("events.*.v2")
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
        if value.tag == "loss_on_tpu"
    }


def test_trains_evaluates_exports_and_resumes(late, tmp_path):
    assert run(late, tmp_path, "--tpu", "cpu") == 0
    assert run(late, tmp_path, "--tpu", "cpu", steps=60) == 0
    assert [e["global_step"] for e in json.loads((tmp_path / "evaluations.json").read_text())] == [20, 40, 60]
    assert [path.name for path in sorted((tmp_path / "export").iterdir())] == ["best", "final"]
    written = losses_on_tpu(tmp_path)
    assert max(written) >= 59
    assert all(0 < loss < 2 for loss in written.values())  # each of one batch, so they go up and down


@pytest.mark.parametrize(
    ("dataset", "flags", "told"),
    [
        ("late", ["--tpu", "lab"], "--tpu lab: the TPU runtime (libtpu) is not installed"),
        ("late", ["--tpu", "cpu", "--strategy", "mirrored"], "a TPU replicates by itself; leave out --strategy"),
        ("people", ["--tpu", "cpu"], "the feature 'words' is sparse or a string, which a TPU does not compute with"),
    ],
)
def test_refuses(request, dataset, flags, told, tmp_path, capsys):
    data = request.getfixturevalue(dataset)
    assert task.main(["--data_dir", data.path, "--model_dir", str(tmp_path / "model"), *flags]) == 2
    assert told in capsys.readouterr().err


def compiled_step(model: str, dataset: Any, folder: Path) -> float:
    """The loss of one training step that XLA has compiled as a whole, on a batch of fixed shape."""
    estimator = BUILT_IN[model].build(read_task_spec(dataset), BUILT_IN[model].hparams(), brief_config(folder))
    options = InputOptions(batch_size=8, seed=1, drop_remainder=True)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        batches = input_fn(dataset, "train", mode="train", options=options)
        iterator = tf.compat.v1.data.make_initializable_iterator(batches)
        features, label = iterator.get_next()
        assert all(x.shape.is_fully_defined() for x in (*features.values(), label))
        tf.compat.v1.train.get_or_create_global_step()
        names = sorted(features)

        def step(label: tf.Tensor, *values: tf.Tensor) -> tf.Tensor:
            spec = estimator.model_fn(dict(zip(names, values, strict=True)), label, "train", estimator.config)
            with tf.control_dependencies([spec.train_op]):
                return tf.identity(spec.loss)

        (loss,) = tf.xla.experimental.compile(step, [label, *(features[name] for name in names)])
        session.run([tf.compat.v1.global_variables_initializer(), iterator.initializer])
        return float(session.run(loss))


@pytest.mark.parametrize(("model", "dataset"), [("softmax", "late"), ("dnn", "wages")])
def test_a_step_is_compiled(request, tmp_path, model, dataset):
    assert compiled_step(model, request.getfixturevalue(dataset), tmp_path) > 0


@pytest.mark.parametrize(
    ("model", "dataset", "operation"),
    [
        ("dnn", "late", "str_classes"),  # of the canned head: the names of the classes
        ("linear", "late", "SparseReshape"),  # of the feature columns: ids
        ("softmax", "colors", "PlaceholderWithDefault"),  # of the transform graph, which normalizes the pixels
    ],
)
def test_what_docs_name_is_not_compiled(request, tmp_path, model, dataset, operation):
    with pytest.raises(tf.errors.InvalidArgumentError, match=operation):
        compiled_step(model, request.getfixturevalue(dataset), tmp_path)
