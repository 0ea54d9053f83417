"""The outputs of all models: key, class name and probabilities, or the value of a regression.

Canned Estimators drop keys and number the classes from 0. `with_keys_and_classes` wraps any Estimator so that its
predictions and exported signatures have the same fields for all models:

* classification: `class` string `[batch]`, `class_id` int64 `[batch]`, `probabilities` float32 `[batch, classes]`, and
  the model's `logits`, if it has any;
* regression: `value` float32 `[batch]`;
* both: `key` string `[batch]` if the schema has a key (whatever its column is called), all other predictions of a
  custom model, and `error` string `[batch]`.

A row that the preprocessing job would have rejected gets no prediction: `error` says why (`trainer.export.row_errors`),
and all other outputs of the row except its key are withheld. For all other rows, `error` is ''.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft

from schemas.dataset import OpenDataset, layout
from schemas.errors import MillraceError, UsageError
from schemas.exports.model import CLASS, CLASS_ID, ERROR, KEY, PROBABILITIES, VALUE, nothing
from schemas.spec.features import CategoryLabel
from schemas.spec.table import Schema
from trainer.estimator import tf_estimator
from trainer.export.image_receivers import at_least_one
from trainer.export.receivers import key_name
from trainer.export.row_errors import ROW_ERROR, in_rows
from trainer.images.summaries import summary_folder, summary_writer
from trainer.model_dir.checkpoints import with_safe_saving
from trainer.model_dir.model_json import MODEL_JSON, check_trusted, read_model_manifest
from trainer.models import BUILT_IN, custom
from trainer.models.warm_start import WarmStart, with_warm_start
from trainer.spec.task_spec import read_task_spec
from trainer.strategies.run_config import with_interrupts, with_whole_variables

LOGITS = "logits"

# What measures an evaluation: given features, labels and named predictions, the hooks of its graph and its metrics, as
# `eval_metric_ops`.
Measure = Callable[[Any, Any, Mapping[str, Any]], tuple[list[Any], dict[str, Any]]]

# Outputs of canned heads that the fields above replace.
_REPLACED = frozenset({"classes", "class_ids", "all_classes", "all_class_ids", "logistic", "predictions"})


def classes_of(dataset: OpenDataset) -> tuple[str, ...]:
    """Returns the class names by id; empty for a numeric label."""
    if dataset.image_schema is not None:
        return dataset.image_schema.model_classes(dataset.manifest.classes)
    return class_names(dataset.schema, tft.TFTransformOutput(dataset.graphs_dir))


def class_names(schema: Schema, transform_output: tft.TFTransformOutput) -> tuple[str, ...]:
    """Returns the class names of a table: the label's values in the schema, or the vocabulary of the train split."""
    if not isinstance(schema.label, CategoryLabel):
        return ()
    if schema.label.values is not None:
        return schema.label.values
    return tuple(v.decode() for v in transform_output.vocabulary_by_name(schema.label.name))


def with_keys_and_classes(
    estimator: Any, dataset: OpenDataset, *, warm_start: WarmStart | None = None, watch: Measure | None = None
) -> Any:
    """Wraps an Estimator: variables and training are unchanged, predictions are as above, and metrics are of these.

    The model does not see the key. It must predict `probabilities` or `logits` `[batch, classes]` (`[batch]` or
    `[batch, 1]` are allowed for two classes), or for a numeric label one of `value`, `predictions`, `logits`. A single
    output of any name is used as `probabilities` or `value`.

    Args:
      estimator: the Estimator.
      dataset: what it is trained on.
      warm_start: what a training begins with, unless there is a checkpoint to resume from.
      watch: measures evaluations; None: they have the model's own metrics alone.

    Returns:
      An Estimator with the same `model_dir`, config and warm start.
    """
    names, key_column = classes_of(dataset), key_name(dataset)

    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
        inputs, key, errors = _model_inputs(features, key_column)
        count = None
        if mode == tf_estimator.ModeKeys.PREDICT and dataset.image_schema is not None:
            inputs, count = at_least_one(inputs)
        spec = with_interrupts(estimator.model_fn(inputs, labels, mode, config))
        if mode == tf_estimator.ModeKeys.TRAIN:
            spec = with_safe_saving(with_warm_start(spec, warm_start, config), config)
            return with_whole_variables(spec)
        if mode != tf_estimator.ModeKeys.PREDICT:
            summary_writer(summary_folder(config.model_dir))  # before Estimator opens it, which would write the graph
            return spec if watch is None else _watched(spec, features, labels, names, watch)
        predictions = named_predictions(spec.predictions, names)
        if count is not None:
            places = tf.range(count) if errors is None else _places(errors)
            predictions = {name: tf.gather(value, places) for name, value in predictions.items()}
        predictions = withheld(predictions, errors)
        if key is not None:
            predictions = {KEY: key, **predictions}
        outputs = {"serving_default": tf_estimator.export.PredictOutput(predictions)}
        return spec._replace(predictions=predictions, export_outputs=outputs)

    return tf_estimator.Estimator(
        model_fn=model_fn,
        model_dir=estimator.model_dir,
        config=estimator.config,
        warm_start_from=estimator._warm_start_settings,  # private: there is no public accessor
    )


def _watched(spec: Any, features: Any, labels: Any, names: tuple[str, ...], watch: Measure) -> Any:
    """The same with the metrics of `watch`, if the model gives predictions in EVAL. A loss of its own stays its own."""
    try:
        predictions = named_predictions(spec.predictions, names)
    except ValueError:  # it need not give in EVAL what it must give in PREDICT
        return spec
    hooks, metrics = watch(features, labels, predictions)
    own = spec.eval_metric_ops or {}
    losses = {name: own[name] for name in ("average_loss",) if name in own}
    return spec._replace(
        evaluation_hooks=[*spec.evaluation_hooks, *hooks], eval_metric_ops={**own, **metrics, **losses}
    )


def _model_inputs(features: Any, key_column: str | None) -> tuple[Any, tf.Tensor | None, tf.Tensor | None]:
    """The model's inputs, the keys, and the row errors; None for keys or errors that are not among the features."""
    if not isinstance(features, Mapping):
        return features, None, None
    not_inputs = (key_column, ROW_ERROR)
    rest = {name: value for name, value in features.items() if name not in not_inputs}
    return rest, features.get(key_column), features.get(ROW_ERROR)


def withheld(predictions: Mapping[str, tf.Tensor], errors: tf.Tensor | None) -> dict[str, tf.Tensor]:
    """Adds `error` to the predictions, and withholds the predictions of rows that have an error.

    Args:
      predictions: the result of `named_predictions`. A tensor with a fixed first dimension is not per row, and is not
        changed.
      errors: string `[batch]`, '' for a valid row; None: all rows are valid.

    Returns:
      The predictions and `error`. In a row with an error, floats are NaN, strings '', signed integers -1, and all else
      0 or false.

    Raises:
      ValueError: the model predicts something called `error`.
    """
    if ERROR in predictions:
        raise ValueError(
            f"the model predicts {ERROR!r}, a reserved name (why a row has no prediction); rename the prediction"
        )
    if errors is None:
        rows = tf.shape(predictions[CLASS] if CLASS in predictions else predictions[VALUE])
        return {**predictions, ERROR: tf.fill(rows, "")}
    good = tf.equal(errors, "")
    return {**{name: _withheld(x, good) for name, x in predictions.items()}, ERROR: errors}


def _withheld(x: tf.Tensor, good: tf.Tensor) -> tf.Tensor:
    if x.shape.rank == 0 or x.shape[0] is not None:
        return x
    return in_rows(good, x, tf.cast(nothing(np.dtype(x.dtype.as_numpy_dtype)), x.dtype))


def _places(errors: tf.Tensor) -> tf.Tensor:
    """Where each row's predictions are, int32 `[batch]`, if those of rows without an error alone were made.

    A row with an error is given any, to be withheld.
    """
    return tf.maximum(tf.cumsum(tf.cast(tf.equal(errors, ""), tf.int32)) - 1, 0)


def named_predictions(predictions: Any, names: tuple[str, ...]) -> dict[str, tf.Tensor]:
    """Returns a model's predictions as the fields in the module's docstring. `names` is empty for a regression.

    Raises:
      ValueError: the predictions have none of the required fields, or another number of classes.
    """
    tensors = dict(predictions) if isinstance(predictions, Mapping) else {"output": predictions}
    accepted_names = (PROBABILITIES, LOGITS) if names else (VALUE, "predictions", LOGITS)
    if len(tensors) == 1 and not set(tensors) & set(accepted_names):
        tensors = {accepted_names[0]: next(iter(tensors.values()))}
    if not set(tensors) & set(accepted_names):
        raise ValueError(f"the model predicts {sorted(tensors)}; it must predict {' or '.join(accepted_names)}")
    extras = {name: value for name, value in tensors.items() if name not in _REPLACED}
    if names:
        return {**extras, **_classified(tensors, names)}
    value = next(tensors[name] for name in accepted_names if name in tensors)
    return {**extras, VALUE: tf.cast(tf.reshape(value, [-1]), tf.float32)}


def _classified(tensors: dict[str, tf.Tensor], names: tuple[str, ...]) -> dict[str, tf.Tensor]:
    probabilities = _probabilities(tensors, len(names))
    width = probabilities.shape[-1]
    if width is not None and width != len(names):
        raise ValueError(f"the model predicts {width} classes, but the label has {len(names)}")
    model_ids = next((tensors[name] for name in (CLASS_ID, "class_ids") if name in tensors), None)
    ids = tf.argmax(probabilities, axis=-1) if model_ids is None else tf.reshape(model_ids, [-1])
    ids = tf.cast(ids, tf.int64)
    classes = tf.gather(tf.constant(list(names), tf.string, name="class_names"), ids)
    return {CLASS: classes, CLASS_ID: ids, PROBABILITIES: probabilities}


def _probabilities(tensors: dict[str, tf.Tensor], classes: int) -> tf.Tensor:
    """`[batch, classes]`, from probabilities or logits of all classes, or of only the second of two classes."""
    values = tf.convert_to_tensor(tensors[PROBABILITIES] if PROBABILITIES in tensors else tensors[LOGITS])
    second_alone = classes == 2 and (values.shape.rank == 1 or values.shape[-1] == 1)
    if PROBABILITIES not in tensors:
        values = tf.sigmoid(values) if second_alone else tf.nn.softmax(values)
    if not second_alone:
        return values
    second = tf.reshape(values, [-1, 1])
    return tf.concat([1 - second, second], axis=1)


def restore_estimator(model_dir: str, dataset: OpenDataset, *, scratch: str, watch: Measure | None = None) -> Any:
    """Builds the Estimator of the model in `model_dir`, to predict from checkpoints that the caller passes to it.

    Its own model directory is `scratch`, an empty folder, so that nothing in `model_dir` changes.
    `watch` measures evaluations.

    Raises:
      UsageError: `model_dir` contains no model, or one whose function cannot be imported, or what it names is not
        trusted: the dataset was opened without `trust`.
      MillraceError: its `model.json` cannot be read.
    """
    manifest = read_model_manifest(model_dir)
    if manifest is None:
        raise UsageError(
            f"{model_dir}: no {MODEL_JSON}, so this is not a model directory of millrace train; set --model_dir"
        )
    training, path = manifest.current, layout.join(model_dir, MODEL_JSON)
    check_trusted(training, model_dir, trust=dataset.trust)
    model = BUILT_IN.get(training.model) or custom.load(training.model, source=f"{path}: model")
    hparams = {name: tuple(v) if isinstance(v, list) else v for name, v in training.hparams.items()}
    try:
        values = model.hparams(**hparams)
    except (TypeError, ValueError) as error:
        raise MillraceError(f"{path}: its hparams are not those of the model {training.model!r}: {error}") from error
    task_spec = read_task_spec(dataset, label=training.plan.label)
    estimator = model.build(task_spec, values, tf_estimator.RunConfig(model_dir=scratch))
    return with_keys_and_classes(estimator, dataset, watch=watch)
