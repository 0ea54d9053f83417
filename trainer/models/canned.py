"""`linear`, `dnn` and `wide_deep` by TensorFlow's canned Estimators: their feature columns and heads."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from schemas.errors import MillraceError
from trainer.estimator import tf_estimator
from trainer.models.hyperparameters import DnnHparams, LinearHparams, WideDeepHparams
from trainer.models.optimizers import adam
from trainer.spec.task_spec import Dense, Ids, Input, LabelScale, TaskSpec
from trainer.spec.transform_graph import side_by_side

NUMBERS = "numbers/together"  # the feature that `prepare` makes of all numbers; no feature of a schema has a slash


def multi_hot(ids: tf.Tensor, count: int, weights: tf.Tensor | None = None) -> tf.Tensor:
    """Counts each id in each row of `[batch, length]`, where -1 is no id: float32 `[batch, count]`.

    With `weights`, float32 `[batch, length]`, their sum.
    """
    if weights is None and ids.shape[1] == 1:
        return tf.one_hot(ids[:, 0], count)
    # One sum over all cells, as large as the result: one_hot would be `length` times as large.
    rows = tf.range(tf.shape(ids, tf.int64)[0])[:, None]
    cells = tf.where(ids < 0, tf.constant(-1, tf.int64), rows * count + ids)
    values = tf.ones_like(cells, tf.float32) if weights is None else weights
    return tf.reshape(tf.math.unsorted_segment_sum(values, cells, tf.shape(ids)[0] * count), [-1, count])


def prepare(features: Mapping[str, Any], inputs: Sequence[Input], *, squash: float = 0) -> dict[str, Any]:
    """Brings ids into the form that `linear_columns` and `deep_columns` read; the first op of a `model_fn`.

    A padded text `[batch, length]` loses its padding (becomes sparse). Ids `[batch, length]` that are of their own kind
    at each position get ranges of their own: position i counts from i * count. Numbers are also put side by side.

    Args:
      features: by name.
      inputs: those that the model reads.
      squash: how far z-scores reach in `NUMBERS`; see `squashed`. 0: as far as they do.
    """
    prepared = dict(features)
    numbers = sorted((entry for entry in inputs if isinstance(entry, Dense)), key=lambda entry: entry.name)
    if numbers:
        columns = side_by_side([features[entry.name] for entry in numbers])
        prepared[NUMBERS] = squashed(columns, numbers, squash)
    for entry in inputs:
        if not isinstance(entry, Ids) or entry.length in (None, 1):
            continue
        ids = tf.reshape(features[entry.name], [-1, entry.length])
        if entry.positional:
            prepared[entry.name] = ids + tf.range(entry.length, dtype=tf.int64) * entry.count
        else:
            prepared[entry.name] = tf.sparse.from_dense(ids)
    return prepared


def squashed(x: tf.Tensor, numbers: Sequence[Dense], limit: float) -> tf.Tensor:
    """Brings z-scores smoothly within a limit: `x / sqrt(1 + (x / limit)^2)`, so that no outlier decides a prediction.

    It is RealMLP's "smooth clipping", with its limit of 3 (Holzmüller et al., "Better by default", NeurIPS 2024).

    Args:
      x: all numbers side by side, float32 `[batch, width]`.
      numbers: what they are, in this order; others than z-scores stay as they are.
      limit: which no value reaches; 0: all stay.
    """
    scores = [entry.z_score for entry in numbers for _ in range(entry.width)]
    if not limit or not any(scores):
        return x
    far = 1e6  # where a score is its limit to all digits; its square is a float32
    within = tf.constant([far if score else math.inf for score in scores], tf.float32)
    x = tf.clip_by_value(x, -within, within)
    return x * tf.math.rsqrt(1 + tf.square(tf.where([scores], x / limit, 0.0)))


def linear_columns(inputs: Sequence[Input]) -> list[Any]:
    """Returns columns with one weight for each number and for each id."""
    return [
        tf.feature_column.numeric_column(entry.name, shape=(entry.width,))
        if isinstance(entry, Dense)
        else _categorical(entry)
        for entry in inputs
    ]


def deep_columns(inputs: Sequence[Input], *, indicator_limit: int, embedding_size: int) -> list[Any]:
    """Returns columns of dense values: numbers as they are, few ids as indicators (0 or 1), many as embeddings.

    Args:
      inputs: what they read.
      indicator_limit: up to how many ids are indicators.
      embedding_size: of each embedding; 0 chooses by the number of ids (`embedding_size_for`).
    """
    width = sum(entry.width for entry in inputs if isinstance(entry, Dense))
    # As one column, since `DenseFeatures` makes some ten ops of each.
    columns: list[Any] = [tf.feature_column.numeric_column(NUMBERS, shape=(width,))] if width else []
    for entry in inputs:
        if isinstance(entry, Dense):
            continue
        if entry.count <= indicator_limit and (entry.length == 1 or entry.positional):
            columns.append(tf.feature_column.indicator_column(_categorical(entry)))
        else:
            size = embedding_size or embedding_size_for(entry.count)
            columns.append(tf.feature_column.embedding_column(_categorical(entry), size))
    return columns


def embedding_size_for(count: int) -> int:
    """Returns the square root of the number of ids, within 4 and 64: a rule of thumb."""
    return min(64, max(4, math.ceil(math.sqrt(count))))


def _categorical(entry: Ids) -> Any:
    """The column of ids, each position of which may have ids of its own kind."""
    count = entry.count * (entry.length or 1) if entry.positional else entry.count
    ids = tf.feature_column.categorical_column_with_identity(entry.name, count)
    return ids if entry.weights is None else tf.feature_column.weighted_categorical_column(ids, entry.weights)


class _Unmeasured:
    """A head without metrics: `trainer.evaluation.watch` measures the evaluations of all models."""

    def metrics(self, regularization_losses: Any = None) -> dict[str, Any]:
        return {}

    def update_metrics(self, eval_metrics: dict[str, Any], *more: Any, **named: Any) -> dict[str, Any]:
        return eval_metrics


class _Classes(_Unmeasured):
    """Two classes, or more: to be mixed in before TensorFlow's head.

    `predictions` leaves out what names classes as strings, which no step on a TPU can hold: the class names of a
    prediction are the dataset's, which `trainer.export.outputs` adds.
    """

    def __init__(self, *classes: int, begin: Any, **settings: Any) -> None:
        super().__init__(*classes, **settings)
        self._begin = begin
        self._binary = not classes

    def create_estimator_spec(self, features: Any, mode: str, logits: tf.Tensor, *more: Any, **named: Any) -> Any:
        spec: Any = super()
        return spec.create_estimator_spec(features, mode, logits + self._begin, *more, **named)

    def mean_of(self, logits: tf.Tensor) -> tf.Tensor:
        """Returns logits of the mean of the members' probabilities, `[batch, members, logits]` -> `[batch, logits]`."""
        z = logits + self._begin
        probabilities = tf.sigmoid(tf.concat([-z, z], axis=-1)) if self._binary else tf.nn.softmax(z)
        logs = tf.math.log(tf.reduce_mean(probabilities, axis=1))
        return (logs[:, 1:] - logs[:, :1] if self._binary else logs) - self._begin

    def predictions(self, logits: tf.Tensor, keys: Sequence[str] | None = None) -> dict[str, tf.Tensor]:
        spec: Any = super()
        own = ("logistic",) if self._binary else ()
        return dict(spec.predictions(logits, keys or ["logits", "probabilities", "class_ids", *own]))


class _BinaryHead(_Classes, tf_estimator.BinaryClassHead):
    """Two classes, of which one logit is."""


class _MultiClassHead(_Classes, tf_estimator.MultiClassHead):
    """Three classes or more, with a logit for each."""


class _RegressionHead(_Unmeasured, tf_estimator.RegressionHead):
    """A number. Predictions and metrics are in the label's own units, and training's loss as `scale` says."""

    def mean_of(self, logits: tf.Tensor) -> tf.Tensor:
        """Returns the mean of what the members have learned, `[batch, members, 1]` -> `[batch, 1]`."""
        return tf.reduce_mean(logits, axis=1)

    def predictions(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"predictions": super().predictions(logits)["predictions"]}


def head(task_spec: TaskSpec, mode: str) -> Any:
    """Returns the head of a canned Estimator in a mode: loss and predictions that follow from the label.

    A model's logits begin near 0: there they stand for the mean of a number, and for the shares of the classes.
    """
    scale, classes = task_spec.scale, task_spec.classes
    training = mode == tf_estimator.ModeKeys.TRAIN
    settings: dict[str, Any] = {"weight_column": task_spec.weight}
    if classes is None:
        loss = functools.partial(_squared_error, scale=scale, training=training)
        return _RegressionHead(loss_fn=loss, inverse_link_fn=lambda z: in_own_units(z, scale), **settings)
    if training and scale.class_weights:
        settings["loss_fn"] = functools.partial(_weighed, class_weights=scale.class_weights)
    logs = [math.log(share) for share in scale.priors] or [0.0] * classes
    if classes == 2:
        return _BinaryHead(begin=logs[1] - logs[0], **settings)
    mean = sum(logs) / len(logs)
    return _MultiClassHead(classes, begin=[log - mean for log in logs], **settings)


MOST_LOG = 88.0  # e to this power is a float32 still


def in_own_units(logits: tf.Tensor, scale: LabelScale) -> tf.Tensor:
    """Returns a regression's predictions, of what the model has learned."""
    if scale.transform == "none":
        return logits
    value = scale.mean + scale.deviation * logits
    match scale.transform:
        case "log":
            return tf.exp(tf.minimum(value, MOST_LOG))
        case "log1p":
            return tf.math.expm1(tf.minimum(value, MOST_LOG))
    return value


def learned(labels: tf.Tensor, scale: LabelScale) -> tf.Tensor:
    """Returns what a regression learns, of labels; the inverse of `in_own_units`."""
    if scale.transform == "none":
        return labels
    match scale.transform:
        case "log":
            labels = tf.math.log(labels)
        case "log1p":
            labels = tf.math.log1p(labels)
    return (labels - scale.mean) / scale.deviation


def _squared_error(labels: tf.Tensor, logits: tf.Tensor, *, scale: LabelScale, training: bool) -> tf.Tensor:
    """The squared error: in training of the scaled label, else in the label's own units."""
    if training:
        return tf.square(learned(labels, scale) - logits)
    return tf.square(labels - in_own_units(logits, scale))


def _weighed(labels: tf.Tensor, logits: tf.Tensor, *, class_weights: Sequence[float]) -> tf.Tensor:
    """The cross-entropy of each example, float32 `[batch, 1]`, times the weight of its class."""
    weights = tf.gather(tf.constant(class_weights, tf.float32), tf.cast(labels, tf.int32))
    if len(class_weights) == 2:
        return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits) * weights
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.squeeze(labels, -1), logits=logits)
    return losses[:, None] * weights


def classes_of(task_spec: TaskSpec, model: str) -> int:
    """Returns the number of classes.

    Raises:
      MillraceError: the label is a number.
    """
    if task_spec.classes is None:
        raise MillraceError(
            f"model {model!r} is for classification, but the label {task_spec.label!r} is a number; use dnn or linear"
        )
    return task_spec.classes


def linear(features: Any, labels: Any, mode: str, params: Mapping[str, Any], config: Any) -> Any:
    """Returns the `model_fn` of a LinearEstimator."""
    task_spec: TaskSpec = params["task_spec"]
    estimator = tf_estimator.LinearEstimator(
        head(task_spec, mode),
        feature_columns=linear_columns(task_spec.inputs),
        optimizer=adam(params["hparams"], task_spec.max_steps),
        config=config,
    )
    return _spec(estimator, prepare(features, task_spec.inputs), labels, mode)


def dnn(features: Any, labels: Any, mode: str, params: Mapping[str, Any], config: Any) -> Any:
    """Returns the `model_fn` of a DNNEstimator."""
    task_spec: TaskSpec = params["task_spec"]
    hparams: DnnHparams = params["hparams"]
    estimator = tf_estimator.DNNEstimator(
        head(task_spec, mode),
        feature_columns=deep_columns(
            task_spec.inputs, indicator_limit=hparams.indicator_limit, embedding_size=hparams.embedding_size
        ),
        hidden_units=list(hparams.hidden_units),
        optimizer=adam(hparams, task_spec.max_steps),
        dropout=hparams.dropout or None,
        batch_norm=hparams.batch_norm,
        config=config,
    )
    return _spec(estimator, prepare(features, task_spec.inputs, squash=hparams.squash), labels, mode)


def wide_deep(features: Any, labels: Any, mode: str, params: Mapping[str, Any], config: Any) -> Any:
    """Returns the `model_fn` of a DNNLinearCombinedEstimator.

    The wide part reads ids and crosses (numbers, where a dataset has no ids); the deep part reads all but crosses and
    weighted n-grams, or these where a dataset has nothing else.
    """
    task_spec: TaskSpec = params["task_spec"]
    hparams: WideDeepHparams = params["hparams"]
    wide = [entry for entry in task_spec.inputs if isinstance(entry, Ids)] or task_spec.inputs
    deep = [entry for entry in task_spec.inputs if not (isinstance(entry, Ids) and entry.crossed)]
    deep = [entry for entry in deep if not (isinstance(entry, Ids) and entry.weights)] or deep
    estimator = tf_estimator.DNNLinearCombinedEstimator(
        head(task_spec, mode),
        linear_feature_columns=linear_columns(wide),
        linear_optimizer=adam(LinearHparams(wide_rate(hparams, wide), hparams.decay), task_spec.max_steps),
        dnn_feature_columns=deep_columns(
            deep, indicator_limit=hparams.indicator_limit, embedding_size=hparams.embedding_size
        ),
        dnn_optimizer=adam(hparams, task_spec.max_steps),
        dnn_hidden_units=list(hparams.hidden_units),
        dnn_dropout=hparams.dropout or None,
        batch_norm=hparams.batch_norm,
        config=config,
    )
    return _spec(estimator, prepare(features, task_spec.inputs, squash=hparams.squash), labels, mode)


def wide_rate(hparams: WideDeepHparams, wide: Sequence[Input]) -> float:
    """Returns the learning rate of a wide part; higher for n-grams by default, whose weights are fractions of 1."""
    if hparams.linear_learning_rate is not None:
        return hparams.linear_learning_rate
    return 0.01 if any(isinstance(entry, Ids) and entry.weights for entry in wide) else 0.001


def _spec(estimator: Any, prepared: Mapping[str, Any], labels: Any, mode: str) -> Any:
    """The EstimatorSpec of a canned Estimator for features that `prepare` has prepared."""
    build = tf.autograph.experimental.do_not_convert(estimator.model_fn)  # its layers are of graphs
    spec = build(prepared, labels, mode, estimator.config)
    # Histograms of the layers' activations, and the shares of zeros, cost more than the steps between them.
    summaries = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.SUMMARIES)
    summaries[:] = [summary for summary in summaries if "loss" in summary.op.name.rpartition("/")[2]]
    return spec
