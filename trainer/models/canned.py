"""`linear`, `dnn` and `wide_deep`, made of TensorFlow's canned Estimators: their feature columns and heads."""

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

NUMBERS = "numbers/together"  # the name of all numbers side by side, from `prepare`; a schema's names have no slash


def multi_hot(ids: tf.Tensor, count: int, weights: tf.Tensor | None = None) -> tf.Tensor:
    """Counts how often each id occurs in each row, or sums the ids' weights.

    Example: the rows `[[0, 2], [2, 2]]` with a count of 3 give `[[1, 0, 1], [0, 0, 2]]`.

    Args:
      ids: int64 `[batch, length]`; -1 stands for an absent id.
      count: the number of different ids.
      weights: float32 `[batch, length]`, which are summed; None: each id counts 1.

    Returns:
      float32 `[batch, count]`.
    """
    if weights is None and ids.shape[1] == 1:
        return tf.one_hot(ids[:, 0], count)
    # Each pair of row and id is a cell of the flattened result; -1 is ignored. The sum needs memory for the result
    # only; one_hot would take `length` times as much.
    rows = tf.range(tf.shape(ids, tf.int64)[0])[:, None]
    cells = tf.where(ids < 0, tf.constant(-1, tf.int64), rows * count + ids)
    values = tf.ones_like(cells, tf.float32) if weights is None else weights
    return tf.reshape(tf.math.unsorted_segment_sum(values, cells, tf.shape(ids)[0] * count), [-1, count])


def prepare(features: Mapping[str, Any], inputs: Sequence[Input], *, squash: float = 0) -> dict[str, Any]:
    """Brings features into the form that `linear_columns` and `deep_columns` read. A `model_fn` calls this first.

    * A padded text `[batch, length]` becomes sparse, without its padding.
    * If ids `[batch, length]` have a vocabulary of their own at each position, position i gets the ids from i * count
      on.
    * All numbers are also put side by side, as the feature `NUMBERS`.

    Args:
      features: the features by name.
      inputs: the features that the model reads.
      squash: the limit of z-scores in `NUMBERS`, as `squashed` describes; 0: no limit.

    Returns:
      All features by name, with these changes.
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
    """Squeezes z-scores smoothly into (-limit, limit), so that an outlier cannot decide a prediction.

    A z-score x becomes `x / sqrt(1 + (x / limit)^2)`. This is the "smooth clipping" of RealMLP, with its limit of 3
    (Holzmüller et al., "Better by default", NeurIPS 2024).

    Args:
      x: all numbers side by side, float32 `[batch, width]`.
      numbers: the inputs that the columns of `x` come from, in this order; only z-scores are changed.
      limit: the limit; 0 leaves everything unchanged.
    """
    scores = [entry.z_score for entry in numbers for _ in range(entry.width)]
    if not limit or not any(scores):
        return x
    far = 1e6  # beyond this, the result is the limit to all digits; its square fits in a float32
    within = tf.constant([far if score else math.inf for score in scores], tf.float32)
    x = tf.clip_by_value(x, -within, within)
    return x * tf.math.rsqrt(1 + tf.square(tf.where([scores], x / limit, 0.0)))


def linear_columns(inputs: Sequence[Input]) -> list[Any]:
    """Returns feature columns for a linear model: one weight for each number and for each id."""
    return [
        tf.feature_column.numeric_column(entry.name, shape=(entry.width,))
        if isinstance(entry, Dense)
        else _categorical(entry)
        for entry in inputs
    ]


def deep_columns(inputs: Sequence[Input], *, indicator_limit: int, embedding_size: int) -> list[Any]:
    """Returns feature columns of dense values.

    Numbers stay as they are. Features with few ids become indicators (0 or 1), and features with many ids embeddings.

    Args:
      inputs: the features to read.
      indicator_limit: a feature with at most this many ids becomes indicators.
      embedding_size: the size of each embedding; 0: `embedding_size_for` chooses by the number of ids.
    """
    width = sum(entry.width for entry in inputs if isinstance(entry, Dense))
    # All numbers form one column, because `DenseFeatures` makes about ten ops for each column.
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
    """Returns the column of ids. If each position has a vocabulary of its own, the column covers all of them."""
    count = entry.count * (entry.length or 1) if entry.positional else entry.count
    ids = tf.feature_column.categorical_column_with_identity(entry.name, count)
    return ids if entry.weights is None else tf.feature_column.weighted_categorical_column(ids, entry.weights)


class _Unmeasured:
    """A head without metrics, because `trainer.evaluation.watch` computes the metrics of all models."""

    def metrics(self, regularization_losses: Any = None) -> dict[str, Any]:
        return {}

    def update_metrics(self, eval_metrics: dict[str, Any], *more: Any, **named: Any) -> dict[str, Any]:
        return eval_metrics


class _Classes(_Unmeasured):
    """A mixin for TensorFlow's heads of two or more classes.

    The logits begin at the log shares of the classes (`begin`). `predictions` leaves out the class names as strings,
    which a step on a TPU cannot hold; `trainer.export.outputs` adds the dataset's class names.

    Args:
      classes: the number of classes; absent for two.
      begin: what is added to the logits: a number, or a list with a number for each class.
      settings: the arguments of TensorFlow's head.
    """

    def __init__(self, *classes: int, begin: Any, **settings: Any) -> None:
        super().__init__(*classes, **settings)
        self._begin = begin
        self._binary = not classes

    def create_estimator_spec(self, features: Any, mode: str, logits: tf.Tensor, *more: Any, **named: Any) -> Any:
        spec: Any = super()
        return spec.create_estimator_spec(features, mode, logits + self._begin, *more, **named)

    def mean_of(self, logits: tf.Tensor) -> tf.Tensor:
        """Averages the probabilities of an ensemble's members and returns the mean as logits.

        Args:
          logits: float32 `[batch, members, logits]`.

        Returns:
          float32 `[batch, logits]`.
        """
        # `begin` is added here to get the true probabilities, and taken off at the end, since create_estimator_spec
        # adds it again.
        z = logits + self._begin
        probabilities = tf.sigmoid(tf.concat([-z, z], axis=-1)) if self._binary else tf.nn.softmax(z)
        logs = tf.math.log(tf.reduce_mean(probabilities, axis=1))
        return (logs[:, 1:] - logs[:, :1] if self._binary else logs) - self._begin

    def predictions(self, logits: tf.Tensor, keys: Sequence[str] | None = None) -> dict[str, tf.Tensor]:
        spec: Any = super()
        own = ("logistic",) if self._binary else ()
        return dict(spec.predictions(logits, keys or ["logits", "probabilities", "class_ids", *own]))


class _BinaryHead(_Classes, tf_estimator.BinaryClassHead):
    """The head for two classes. It has a single logit: the log odds of the second class."""


class _MultiClassHead(_Classes, tf_estimator.MultiClassHead):
    """The head for three or more classes, with one logit for each class."""


class _RegressionHead(_Unmeasured, tf_estimator.RegressionHead):
    """The head for a number.

    Predictions are in the label's own units. The loss of training is on the scale of `LabelScale`.
    """

    def mean_of(self, logits: tf.Tensor) -> tf.Tensor:
        """Averages the outputs of an ensemble's members, `[batch, members, 1]` -> `[batch, 1]`."""
        return tf.reduce_mean(logits, axis=1)

    def predictions(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"predictions": super().predictions(logits)["predictions"]}


def head(task_spec: TaskSpec, mode: str) -> Any:
    """Returns the head of a canned Estimator, which computes the loss and the predictions for the task's label.

    A model's logits are near 0 when training begins. The head is made so that a logit of 0 then stands for the mean of
    a numeric label, or for the shares of the classes.

    Args:
      task_spec: the label and its scale.
      mode: in TRAIN, the loss is on the learned scale, and weighs classes if the task has class weights.
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


MOST_LOG = 88.0  # the exponential of a larger number overflows a float32


def in_own_units(logits: tf.Tensor, scale: LabelScale) -> tf.Tensor:
    """Converts a regression's outputs from the learned scale to the label's own units; the inverse of `learned`."""
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
    """Converts labels to the scale on which a regression learns them; the inverse of `in_own_units`."""
    if scale.transform == "none":
        return labels
    match scale.transform:
        case "log":
            labels = tf.math.log(labels)
        case "log1p":
            labels = tf.math.log1p(labels)
    return (labels - scale.mean) / scale.deviation


def _squared_error(labels: tf.Tensor, logits: tf.Tensor, *, scale: LabelScale, training: bool) -> tf.Tensor:
    """Returns the squared error: in training on the learned scale, else in the label's own units."""
    if training:
        return tf.square(learned(labels, scale) - logits)
    return tf.square(labels - in_own_units(logits, scale))


def _weighed(labels: tf.Tensor, logits: tf.Tensor, *, class_weights: Sequence[float]) -> tf.Tensor:
    """Returns each example's cross-entropy, multiplied by the weight of its class, float32 `[batch, 1]`."""
    weights = tf.gather(tf.constant(class_weights, tf.float32), tf.cast(labels, tf.int32))
    if len(class_weights) == 2:
        return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits) * weights
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.squeeze(labels, -1), logits=logits)
    return losses[:, None] * weights


def classes_of(task_spec: TaskSpec, model: str) -> int:
    """Returns the number of classes of a task.

    Args:
      task_spec: the task.
      model: the model's name, for the message.

    Raises:
      MillraceError: the label is a number.
    """
    if task_spec.classes is None:
        raise MillraceError(
            f"model {model!r} is for classification, but the label {task_spec.label!r} is a number; use dnn or linear"
        )
    return task_spec.classes


def linear(features: Any, labels: Any, mode: str, params: Mapping[str, Any], config: Any) -> Any:
    """The `model_fn` of `linear`: builds the graph of a LinearEstimator and returns its EstimatorSpec."""
    task_spec: TaskSpec = params["task_spec"]
    estimator = tf_estimator.LinearEstimator(
        head(task_spec, mode),
        feature_columns=linear_columns(task_spec.inputs),
        optimizer=adam(params["hparams"], task_spec.max_steps),
        config=config,
    )
    return _spec(estimator, prepare(features, task_spec.inputs), labels, mode)


def dnn(features: Any, labels: Any, mode: str, params: Mapping[str, Any], config: Any) -> Any:
    """The `model_fn` of `dnn`: builds the graph of a DNNEstimator and returns its EstimatorSpec."""
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
    """The `model_fn` of `wide_deep`: builds the graph of a DNNLinearCombinedEstimator and returns its EstimatorSpec.

    The wide part reads all ids and crosses, or the numbers if the dataset has no ids. The deep part reads everything
    except crosses and weighted n-grams, or these too if the dataset has nothing else.
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
    """Returns the learning rate of the wide part.

    The default is higher if the wide part reads n-grams, because their weights are fractions of 1.
    """
    if hparams.linear_learning_rate is not None:
        return hparams.linear_learning_rate
    return 0.01 if any(isinstance(entry, Ids) and entry.weights for entry in wide) else 0.001


def _spec(estimator: Any, prepared: Mapping[str, Any], labels: Any, mode: str) -> Any:
    """Builds a canned Estimator's graph on features from `prepare`, and returns its EstimatorSpec."""
    build = tf.autograph.experimental.do_not_convert(estimator.model_fn)  # its layers already build graphs
    spec = build(prepared, labels, mode, estimator.config)
    # Histograms of the layers' activations, and the shares of zeros, cost more than the steps between them.
    summaries = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.SUMMARIES)
    summaries[:] = [summary for summary in summaries if "loss" in summary.op.name.rpartition("/")[2]]
    return spec
