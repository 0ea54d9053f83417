"""A compiled Keras model (Keras 2) as an Estimator, through `model_to_estimator`."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from schemas.errors import MillraceError, UsageError
from trainer.estimator import tf_estimator
from trainer.images.inputs import normalized
from trainer.models.feature_columns import prepare
from trainer.spec.task_spec import AnyTaskSpec, ImageTaskSpec
from trainer.strategies.tpu import compiles_step


def is_compiled(model: Any) -> bool:
    """Whether this is a Keras 2 model that `compile` was called on."""
    return isinstance(model, tf.keras.Model) and bool(getattr(model, "optimizer", None))


def describe(model: Any) -> str:
    """What it is, for a message."""
    if isinstance(model, tf.keras.Model):
        return "a tf.keras model that is not compiled"
    return f"a {type(model).__module__}.{type(model).__name__}"


def build(model: Any, task_spec: AnyTaskSpec, config: Any) -> Any:
    """Converts a model whose inputs are called like the features that it reads; images are normalised for it.

    Its one output is what `trainer.export.outputs` takes a single output for: class probabilities `[batch, classes]`
    (end the model in a softmax), or for a numeric label the value `[batch, 1]`. Examples are weighed where the dataset
    has a weight.

    Raises:
      MillraceError: the model reads a feature that the dataset does not have.
      UsageError: a TPU trains, whose cores Keras's optimizers do not know of.
    """
    if compiles_step(tf_estimator.ModeKeys.TRAIN, config):
        raise UsageError(
            "--tpu: a Keras model's optimizer would train each core of a TPU apart, since model_to_estimator averages "
            "no gradients over cores; use a model_fn, or train without --tpu"
        )
    known = _names(task_spec)
    missing = [name for name in model.input_names if name not in known]
    if missing:
        raise MillraceError(
            f"the Keras model reads {missing}, which the dataset does not have; its features are {sorted(known)}. "
            "Name each Input after a feature."
        )
    with _without_warnings():
        converted = tf.keras.estimator.model_to_estimator(
            keras_model=model,
            config=config,
            checkpoint_format="saver",  # variables by name, `global_step` among them, as all Estimators save them
        )

    ranks = {name: len(x.shape) for name, x in zip(model.input_names, model.inputs, strict=True)}

    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
        prepared = _prepared(features, task_spec)
        if labels is not None and task_spec.classes is None:
            labels = tf.reshape(labels, [-1, 1])  # as the model's output is, or Keras cannot weigh the losses
        inputs: Any = {name: _of_rank(ranks[name], prepared[name]) for name in model.input_names}
        if not isinstance(task_spec, ImageTaskSpec) and task_spec.weight and mode != tf_estimator.ModeKeys.PREDICT:
            inputs = {"features": inputs, "sample_weights": tf.reshape(features[task_spec.weight], [-1])}
        with _without_warnings():
            return converted.model_fn(inputs, labels, mode, config)

    weights = converted._warm_start_settings  # private: model_to_estimator hands a model's weights on only so
    return tf_estimator.Estimator(model_fn, config=config, warm_start_from=weights)


def _names(task_spec: AnyTaskSpec) -> set[str]:
    if not isinstance(task_spec, ImageTaskSpec):
        return {entry.name for entry in task_spec.inputs}
    return set(task_spec.images)


def _prepared(features: Any, task_spec: AnyTaskSpec) -> Any:
    if not isinstance(task_spec, ImageTaskSpec):
        return prepare(features, task_spec.inputs)
    transform_output = tft.TFTransformOutput(task_spec.run_dir)
    return {name: normalized(features[name], transform_output) for name in _names(task_spec)}


def _of_rank(rank: int, x: Any) -> Any:
    """A feature `[batch]` as `[batch, 1]`, which is what `Input((1,))` takes."""
    dense = not isinstance(x, tf.SparseTensor)
    return tf.expand_dims(x, -1) if dense and x.shape.rank == 1 and rank == 2 else x


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """The way that Estimator takes into Keras is one that Keras warns of: nothing that a user could change."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*(set_learning_phase|state_updates)", UserWarning)
        yield
