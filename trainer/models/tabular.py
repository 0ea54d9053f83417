"""`tabular`: an ensemble of small networks that share their weights, for tables.

It puts together published parts:

* the members of the ensemble share each layer's kernel, and scale its inputs and outputs by factors of their own: TabM
  (Gorishniy et al., "TabM: Advancing tabular deep learning with parameter-efficient ensembling", ICLR 2025,
  arXiv 2410.24210), after BatchEnsemble (Wen et al., ICLR 2020). The loss is the mean of the members' losses, and what
  is predicted the mean of their probabilities or values;
* numbers are embedded by cosines of learned frequencies, beside the number itself: the "PBLD" embeddings of RealMLP
  (Holzmüller et al., "Better by default", NeurIPS 2024, arXiv 2407.04491), after Gorishniy et al., "On embeddings for
  numerical features" (NeurIPS 2022);
* the n-grams of a text have a weight each, as in a linear model: a network learns rare ones by heart;
* z-scores are squashed: see `trainer.models.canned.squashed`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from trainer.estimator import tf_estimator
from trainer.models.canned import NUMBERS, deep_columns, head, prepare
from trainer.models.hyperparameters import TabularHparams
from trainer.models.optimizers import adam
from trainer.spec.task_spec import Dense, Ids, TaskSpec

ModeKeys = tf_estimator.ModeKeys
INDICATORS = 16  # a feature with more ids is embedded
MOST_EMBEDDED = 100  # numbers; more stay as they are
TEXT_RATE = 4.0  # how much farther than a kernel's a weight of an n-gram moves in a step


def model_fn(
    features: Mapping[str, Any], labels: tf.Tensor | None, mode: str, params: Mapping[str, Any], config: Any
) -> Any:
    """Builds the network and its head.

    Args:
      features: transformed features by name; see `trainer.spec.task_spec`.
      labels: class ids, int64 `[batch]`, or numbers, float32 `[batch]`; None in PREDICT.
      mode: TRAIN, EVAL or PREDICT.
      params: `hparams`, and `task_spec`.
      config: the Estimator's `RunConfig`.
    """
    task_spec: TaskSpec = params["task_spec"]
    hparams = _for_label(params["hparams"], task_spec)
    training = mode == ModeKeys.TRAIN
    task_head = head(task_spec, mode)
    dropout = hparams.dropout if training else 0.0
    dimension = task_head.logits_dimension
    prepared = prepare(features, task_spec.inputs, squash=hparams.squash)
    logits = tf.zeros([1, hparams.members, dimension])
    inputs = list(_inputs(prepared, task_spec, hparams))
    if inputs:
        logits += members(tf.concat(inputs, axis=1), dimension, hparams, dropout=dropout)
    for entry in task_spec.inputs:
        if isinstance(entry, Ids) and entry.weights:
            logits += _linear(prepared[entry.name], prepared[entry.weights], entry, dimension)[:, None, :]
    optimizer = None
    if training:
        # Each member's prediction of an example counts as an example, so the loss is the mean of theirs.
        count = hparams.members
        logits = tf.reshape(logits, [-1, logits.shape[-1]])
        labels = tf.repeat(labels, count)
        weight = task_spec.weight
        features = {weight: tf.repeat(tf.reshape(features[weight], [-1]), count)} if weight else {}
        optimizer = adam(hparams, task_spec.max_steps)()
        optimizer.iterations = tf.compat.v1.train.get_or_create_global_step()
    else:
        logits = task_head.mean_of(logits)
    return task_head.create_estimator_spec(
        features,
        mode,
        logits,
        labels=labels,
        optimizer=optimizer,
        trainable_variables=tf.compat.v1.trainable_variables(),
    )


def _inputs(prepared: Mapping[str, Any], task_spec: TaskSpec, hparams: TabularHparams) -> Any:
    """The inputs of the first layer, in parts, float32 `[batch, width]`."""
    # A network finds combinations of ids by itself, and learns those that are rare by heart.
    ids = [entry for entry in task_spec.inputs if not (isinstance(entry, Dense) or entry.crossed or entry.weights)]
    if NUMBERS in prepared:
        numbers = prepared[NUMBERS]
        if hparams.frequencies and numbers.shape[1] <= MOST_EMBEDDED:
            numbers = embedded(numbers, hparams)
        yield numbers
    if ids:
        columns = deep_columns(ids, indicator_limit=INDICATORS, embedding_size=0)
        yield tf.keras.layers.DenseFeatures(columns)(prepared)


def embedded(numbers: tf.Tensor, hparams: TabularHparams) -> tf.Tensor:
    """Puts beside each number a linear map of cosines of it: `[batch, width]` -> `[batch, width * embedding_size]`."""
    width, count, size = numbers.shape[1], hparams.frequencies, hparams.embedding_size - 1
    with tf.compat.v1.variable_scope("embedding"):
        frequency = _variable("frequency", [width, count], tf.random_normal_initializer(stddev=hparams.frequency_scale))
        phase = _variable("phase", [width, count], tf.random_uniform_initializer(-math.pi, math.pi))
        bound = 1 / math.sqrt(count)
        kernel = _variable("kernel", [width, count, size], tf.random_uniform_initializer(-bound, bound))
        bias = _variable("bias", [width, 1, size], tf.random_uniform_initializer(-bound, bound))
    waves = tf.cos(2 * math.pi * numbers[:, :, None] * frequency + phase)  # [batch, width, count]
    mapped = tf.matmul(tf.transpose(waves, [1, 0, 2]), kernel) + bias  # [width, batch, size]
    both = tf.concat([numbers[:, :, None], tf.transpose(mapped, [1, 0, 2])], axis=2)
    return tf.reshape(both, [-1, width * (size + 1)])


def members(inputs: tf.Tensor, dimension: int, hparams: TabularHparams, *, dropout: float | None) -> tf.Tensor:
    """Returns the members' logits, float32 `[batch, members, dimension]`, of inputs `[batch, width]`."""
    count = hparams.members
    hidden = inputs[:, None, :]  # the same for all
    for layer in range(hparams.depth):
        with tf.compat.v1.variable_scope(f"layer_{layer}"):
            width = hidden.shape[-1]
            # The members differ by the signs with which they read the inputs; all other factors begin at 1.
            signs = _signs if layer == 0 else tf.ones_initializer()
            bound = 1 / math.sqrt(width)
            uniform = tf.random_uniform_initializer(-bound, bound)
            reads = _variable("reads", [count, width], signs)
            kernel = _variable("kernel", [width, hparams.width], uniform)
            gives = _variable("gives", [count, hparams.width], tf.ones_initializer())
            bias = _variable("bias", [count, hparams.width], uniform)
            flat = tf.reshape(hidden * reads, [-1, width])  # one product for all members
            hidden = tf.reshape(tf.matmul(flat, kernel), [-1, count, hparams.width])
            hidden = tf.nn.relu(hidden * gives + bias)
            if dropout:
                hidden = tf.nn.dropout(hidden, rate=dropout)
    with tf.compat.v1.variable_scope("logits"):
        bound = 1 / math.sqrt(hparams.width)
        uniform = tf.random_uniform_initializer(-bound, bound)
        kernel = _variable("kernel", [count, hparams.width, dimension], uniform)
        bias = _variable("bias", [count, 1, dimension], tf.zeros_initializer())
        logits = tf.matmul(tf.transpose(hidden, [1, 0, 2]), kernel) + bias
        return tf.transpose(logits, [1, 0, 2])


def _linear(ids: Any, weights: Any, entry: Ids, dimension: int) -> tf.Tensor:
    """The part of a text's n-grams in all members' logits, float32 `[batch, dimension]`."""
    with tf.compat.v1.variable_scope(f"linear/{entry.name}"):
        table = _variable("weights", [entry.count, dimension], tf.zeros_initializer())
    table *= TEXT_RATE
    return tf.nn.safe_embedding_lookup_sparse(table, ids, sparse_weights=weights, combiner="sum")


def _for_label(hparams: TabularHparams, task_spec: TaskSpec) -> TabularHparams:
    """The hyper-parameters, with what they leave open for a label of this kind."""
    dropout, scale = (0.0, 1.0) if task_spec.classes is None else (0.2, 0.1)
    return dataclasses.replace(
        hparams,
        dropout=dropout if hparams.dropout is None else hparams.dropout,
        frequency_scale=scale if hparams.frequency_scale is None else hparams.frequency_scale,
    )


def _signs(shape: Any, dtype: Any = None, partition_info: Any = None, **_: Any) -> tf.Tensor:
    """-1 or 1, at random."""
    return tf.where(tf.random.uniform(shape) < 0.5, -1.0, 1.0)


def _variable(name: str, shape: list[int], initializer: Any) -> tf.Tensor:
    return tf.convert_to_tensor(tf.compat.v1.get_variable(name, shape, initializer=initializer))
