"""`tabular`: an ensemble of small networks that share their weights, for tables.

It combines published parts:

* The members of the ensemble share the kernel of each layer. Each member scales the layer's inputs and outputs by
  factors of its own. This is TabM (Gorishniy et al., "TabM: Advancing tabular deep learning with parameter-efficient
  ensembling", ICLR 2025, arXiv 2410.24210), after BatchEnsemble (Wen et al., ICLR 2020). The loss is the mean of the
  members' losses. The prediction is the mean of the members' probabilities or values.
* A number is embedded by cosines with learned frequencies, next to the number itself. These are the "PBLD" embeddings
  of RealMLP (Holzmüller et al., "Better by default", NeurIPS 2024, arXiv 2407.04491), after Gorishniy et al., "On
  embeddings for numerical features" (NeurIPS 2022).
* Each n-gram of a text has one weight, as in a linear model, because a network would learn rare n-grams by heart.
* Z-scores are squashed, as `trainer.models.canned.squashed` describes.
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
TEXT_RATE = 4.0  # in a step, the weight of an n-gram moves this many times as far as a kernel


def model_fn(
    features: Mapping[str, Any], labels: tf.Tensor | None, mode: str, params: Mapping[str, Any], config: Any
) -> Any:
    """Builds the graph of the network and its head, for TRAIN, EVAL or PREDICT.

    Args:
      features: transformed features by name; `trainer.spec.task_spec` describes them.
      labels: class ids, int64 `[batch]`, or numbers, float32 `[batch]`; None in PREDICT.
      mode: TRAIN, EVAL or PREDICT.
      params: `hparams`, a `TabularHparams`, and `task_spec`, a `TaskSpec`.
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
        # In training, each member's prediction of an example counts as an example of its own. The loss, a mean over
        # examples, is then the mean of the members' losses.
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
    """Returns the inputs of the first layer, in parts, float32 `[batch, width]` each."""
    # Crosses are left out: a network combines ids by itself, and would learn rare combinations by heart. Weighted
    # n-grams are left out too, since `_linear` reads them.
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
    """Embeds each number by cosines, and puts a linear map of the cosines next to the number.

    A number x has `frequencies` cosines `cos(2 * pi * frequency * x + phase)`, with learned frequencies and phases.
    Each column of numbers has a linear map of its own from its cosines to `embedding_size - 1` values.

    Args:
      numbers: float32 `[batch, width]`.
      hparams: the number of cosines, the scale of their frequencies, and the size of an embedding.

    Returns:
      float32 `[batch, width * embedding_size]`.
    """
    width, count, size = numbers.shape[1], hparams.frequencies, hparams.embedding_size - 1
    with tf.compat.v1.variable_scope("embedding"):
        frequency = _variable("frequency", [width, count], tf.random_normal_initializer(stddev=hparams.frequency_scale))
        phase = _variable("phase", [width, count], tf.random_uniform_initializer(-math.pi, math.pi))
        bound = 1 / math.sqrt(count)
        kernel = _variable("kernel", [width, count, size], tf.random_uniform_initializer(-bound, bound))
        bias = _variable("bias", [width, 1, size], tf.random_uniform_initializer(-bound, bound))
    waves = tf.cos(2 * math.pi * numbers[:, :, None] * frequency + phase)  # [batch, width, count]
    # The columns of numbers come first, so that one batched product applies each column's own kernel.
    mapped = tf.matmul(tf.transpose(waves, [1, 0, 2]), kernel) + bias  # [width, batch, size]
    both = tf.concat([numbers[:, :, None], tf.transpose(mapped, [1, 0, 2])], axis=2)
    return tf.reshape(both, [-1, width * (size + 1)])


def members(inputs: tf.Tensor, dimension: int, hparams: TabularHparams, *, dropout: float | None) -> tf.Tensor:
    """Computes the logits of the ensemble's members.

    Args:
      inputs: float32 `[batch, width]`.
      dimension: the number of logits of a member.
      hparams: the number of members, and the width and number of layers.
      dropout: the share of activations to drop; 0 or None drops nothing.

    Returns:
      float32 `[batch, members, dimension]`.
    """
    count = hparams.members
    hidden = inputs[:, None, :]  # the same for all
    for layer in range(hparams.depth):
        with tf.compat.v1.variable_scope(f"layer_{layer}"):
            width = hidden.shape[-1]
            # At first the members differ only by the signs with which they read the inputs; other factors begin at 1.
            signs = _signs if layer == 0 else tf.ones_initializer()
            bound = 1 / math.sqrt(width)
            uniform = tf.random_uniform_initializer(-bound, bound)
            reads = _variable("reads", [count, width], signs)
            kernel = _variable("kernel", [width, hparams.width], uniform)
            gives = _variable("gives", [count, hparams.width], tf.ones_initializer())
            bias = _variable("bias", [count, hparams.width], uniform)
            # All members share the kernel: their scaled inputs are rows of a single matrix `[batch * members, width]`.
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
    """Returns what the weighted n-grams of a text add to the logits of all members, float32 `[batch, dimension]`."""
    with tf.compat.v1.variable_scope(f"linear/{entry.name}"):
        table = _variable("weights", [entry.count, dimension], tf.zeros_initializer())
    table *= TEXT_RATE
    return tf.nn.safe_embedding_lookup_sparse(table, ids, sparse_weights=weights, combiner="sum")


def _for_label(hparams: TabularHparams, task_spec: TaskSpec) -> TabularHparams:
    """Fills in the hyper-parameters that are None, by the kind of the label."""
    dropout, scale = (0.0, 1.0) if task_spec.classes is None else (0.2, 0.1)
    return dataclasses.replace(
        hparams,
        dropout=dropout if hparams.dropout is None else hparams.dropout,
        frequency_scale=scale if hparams.frequency_scale is None else hparams.frequency_scale,
    )


def _signs(shape: Any, dtype: Any = None, partition_info: Any = None, **_: Any) -> tf.Tensor:
    """An initializer: -1 or 1 at random."""
    return tf.where(tf.random.uniform(shape) < 0.5, -1.0, 1.0)


def _variable(name: str, shape: list[int], initializer: Any) -> tf.Tensor:
    """Makes a variable of the graph, and returns it as a tensor."""
    return tf.convert_to_tensor(tf.compat.v1.get_variable(name, shape, initializer=initializer))
