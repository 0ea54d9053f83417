"""`face_pairs`: a convolutional tower through which both images of a pair go, and how alike the outcomes are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from trainer.estimator import tf_estimator
from trainer.images.inputs import normalized
from trainer.models.hyperparameters import FacePairsHparams
from trainer.models.image_spec import ModeKeys, train_spec
from trainer.models.layers import LayerOptions, conv, dense, tower_channels
from trainer.models.optimizers import learning_rate
from trainer.spec.task_spec import ImageTaskSpec

MOST_CONTRASTED = 128  # pairs of a batch: their differences take pairs x pairs x embedding_size floats
_NEVER = -1e9  # log odds whose exponential is 0


def embed(
    images: tf.Tensor, *, width: int, embedding_size: int, dropout: float, grayscale: bool, options: LayerOptions
) -> tf.Tensor:
    """Builds the tower: convolutions that halve the image to about 4x4, then one dense layer over all positions.

    The positions stay apart up to the dense layer, since faces are aligned: what is at the eyes is compared with what
    is at the eyes. Each image is first brought to mean 0 and variance 1, whatever its light was.

    Args:
      images: float32 `[batch, height, width, 3]`, normalised; height and width known.
      width: channels of the first convolution.
      embedding_size: of the result.
      dropout: share of the last convolution's outputs left out, in training.
      grayscale: average the channels first.
      options: the layers'.

    Returns:
      float32 `[batch, embedding_size]`.
    """
    x = tf.reduce_mean(images, axis=-1, keepdims=True) if grayscale else images
    mean, variance = tf.nn.moments(x, [1, 2, 3], keepdims=True)
    x = (x - mean) * tf.math.rsqrt(variance + 1e-3)
    for i, channels in enumerate(tower_channels(min(images.shape[1:3]), width)):
        size = (5, 5) if i == 0 else (3, 3)
        x = conv(x, f"conv_{i + 1}", channels, size, options=options, stride=2)
    return dense(x, "embedding", embedding_size, dropout=dropout, options=options)


def likeness(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """Returns the log odds that two embeddings are of one identity: a weighted sum of their differences, and a bias.

    Args:
      left, right: float32 `[..., embedding_size]`, of shapes that broadcast.

    Returns:
      float32 `[...]`.
    """
    with tf.compat.v1.variable_scope("likeness", reuse=tf.compat.v1.AUTO_REUSE):
        # Far apart is different: it need not be learned that it is.
        start = tf.compat.v1.constant_initializer(-0.1)
        weights = tf.compat.v1.get_variable("weights", [left.shape[-1]], initializer=start)
        bias = tf.compat.v1.get_variable("bias", [], initializer=tf.compat.v1.ones_initializer())
    return tf.reduce_sum(tf.abs(left - right) * weights, axis=-1) + bias


def contrast_loss(left: tf.Tensor, right: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Returns the loss of picking each image's partner among all partners of the batch's same pairs, by `likeness`.

    A few thousand stored pairs are soon learned by heart; the images of one batch alone make thousands more, all
    different but for the few people who come up twice. This is the N-pair loss (Sohn, "Improved deep metric learning
    with multi-class N-pair loss objective", 2016), in both directions.

    Args:
      left, right: embeddings, float32 `[batch, embedding_size]`.
      labels: 1 for the same, int64 `[batch]`.

    Returns:
      float32 `[]`; 0 where no pair is the same.
    """
    same = tf.equal(labels, 1)
    # Different pairs are masked instead of left out, so that no shape depends on the labels: XLA compiles the step.
    first = tf.math.top_k(tf.cast(same, tf.int32), tf.minimum(MOST_CONTRASTED, tf.size(labels))).indices
    lefts, rights, same = (tf.gather(x, first) for x in (left, right, same))
    similarities = likeness(lefts[:, None], rights[None])  # [n, n]
    by_left, by_right = (tf.where(mask, similarities, _NEVER) for mask in (same[None], same[:, None]))
    nearest = tf.reduce_logsumexp(by_left, axis=1) + tf.reduce_logsumexp(by_right, axis=0)
    losses = tf.where(same, nearest / 2 - tf.linalg.diag_part(similarities), 0.0)  # cross-entropy
    return tf.math.divide_no_nan(tf.reduce_sum(losses), tf.reduce_sum(tf.cast(same, tf.float32)))


SIDES = ("left", "right")


def model_fn(features: Mapping[str, Any], labels: Any, mode: str, params: Mapping[str, Any], config: Any) -> Any:
    """Builds the graph of TRAIN, EVAL or PREDICT.

    PREDICT gives `logits`, the log odds that both are the same, float32 `[batch]`, `probabilities` of different and
    same, float32 `[batch, 2]`, and `class_id`, int64 `[batch]`. EVAL gives these, too.

    Args:
      features: `left` and `right`, uint8 `[batch, height, width, 3]`.
      labels: 1 for the same, else 0, int64 `[batch]`; None in PREDICT.
      mode: TRAIN, EVAL or PREDICT.
      params: `hparams`, a `FacePairsHparams`, and `task_spec`, an `ImageTaskSpec`.
      config: the Estimator's `RunConfig`.
    """
    task_spec: ImageTaskSpec = params["task_spec"]
    hparams: FacePairsHparams = params["hparams"]
    transform_output = tft.TFTransformOutput(task_spec.run_dir)
    options = LayerOptions(training=mode == ModeKeys.TRAIN, l2=hparams.l2)
    with tf.compat.v1.variable_scope("face_pairs"):
        embeddings = []
        for side in SIDES:
            with tf.compat.v1.variable_scope("tower", reuse=side != SIDES[0]):
                embedding = embed(
                    normalized(features[side], transform_output),
                    width=hparams.width,
                    embedding_size=hparams.embedding_size,
                    dropout=hparams.dropout,
                    grayscale=hparams.grayscale,
                    options=options,
                )
            embeddings.append(embedding)
        left, right = embeddings
        logits = likeness(left, right)
        contrast = contrast_loss(left, right, labels) if mode == ModeKeys.TRAIN and hparams.contrast else None
    probability = tf.sigmoid(logits)
    class_ids = tf.cast(logits > 0, tf.int64)

    probabilities = tf.stack([1 - probability, probability], axis=1)
    predictions = {"class_id": class_ids, "logits": logits, "probabilities": probabilities}

    if mode == ModeKeys.PREDICT:
        return tf_estimator.EstimatorSpec(mode, predictions=predictions)

    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(labels, tf.float32), logits))
    if mode == ModeKeys.EVAL:
        return tf_estimator.EstimatorSpec(mode, loss=loss, predictions=predictions)

    tf.compat.v1.summary.scalar("log_loss", loss)
    if contrast is not None:
        tf.compat.v1.summary.scalar("contrast_loss", contrast)
        loss += hparams.contrast * contrast
    rate = learning_rate("cosine", hparams, tf.compat.v1.train.get_global_step(), task_spec.max_steps)
    images = tf.concat([features[side] for side in SIDES], axis=2)
    return train_spec(loss, tf.compat.v1.train.AdamOptimizer(rate), images, task_spec, config)
