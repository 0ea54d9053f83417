"""`face_pairs`: tells whether two images show one identity.

Both images pass through the same convolutional network, and the model compares the two embeddings.
"""

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

MOST_CONTRASTED = 128  # pairs per batch: the loss takes pairs x pairs x embedding_size floats
_NEVER = -1e9  # log odds whose exponential is 0


def embed(
    images: tf.Tensor, *, width: int, embedding_size: int, dropout: float, grayscale: bool, options: LayerOptions
) -> tf.Tensor:
    """Builds the network that turns an image into an embedding: convolutions down to about 4x4, then one dense layer.

    The dense layer has a weight for each position, because faces are aligned: the eyes of one face are compared with
    the eyes of the other. Each image is first brought to mean 0 and variance 1, so that the lighting does not matter.

    Args:
      images: float32 `[batch, height, width, 3]`, normalised; height and width are known when the graph is built.
      width: channels of the first convolution.
      embedding_size: the size of the embedding.
      dropout: the share of the last convolution's outputs that training drops.
      grayscale: average the channels first.
      options: the settings of the layers.

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
    """Returns the log odds that two embeddings are of one identity.

    They are a weighted sum of the absolute differences between the embeddings, plus a bias.

    Args:
      left: float32 `[..., embedding_size]`.
      right: float32 `[..., embedding_size]`, of a shape that broadcasts with `left`.

    Returns:
      float32 `[...]`.
    """
    with tf.compat.v1.variable_scope("likeness", reuse=tf.compat.v1.AUTO_REUSE):
        # Negative weights: far apart means different identities, without having to learn this first.
        start = tf.compat.v1.constant_initializer(-0.1)
        weights = tf.compat.v1.get_variable("weights", [left.shape[-1]], initializer=start)
        bias = tf.compat.v1.get_variable("bias", [], initializer=tf.compat.v1.ones_initializer())
    return tf.reduce_sum(tf.abs(left - right) * weights, axis=-1) + bias


def contrast_loss(left: tf.Tensor, right: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Returns a contrastive loss: each image must find its partner among the images of the batch, by `likeness`.

    Only pairs of one identity take part. A model soon learns a few thousand stored pairs by heart. The combinations of
    the images in one batch make thousands of further pairs, nearly all of different identities. This is the N-pair loss
    (Sohn, "Improved deep metric learning with multi-class N-pair loss objective", 2016), in both directions: left to
    right and right to left.

    Args:
      left: embeddings of the left images, float32 `[batch, embedding_size]`.
      right: embeddings of the right images, of the same shape.
      labels: 1 where both images are of one identity, else 0, int64 `[batch]`.

    Returns:
      float32 `[]`; 0 if the batch has no pair of one identity.
    """
    same = tf.equal(labels, 1)
    # Pairs of two identities are masked instead of left out, so that no shape depends on the labels: XLA requires this.
    # top_k on 0 and 1 moves the pairs of one identity to the front.
    first = tf.math.top_k(tf.cast(same, tf.int32), tf.minimum(MOST_CONTRASTED, tf.size(labels))).indices
    lefts, rights, same = (tf.gather(x, first) for x in (left, right, same))
    similarities = likeness(lefts[:, None], rights[None])  # [n, n]
    # `similarities[i, j]` compares the left image of pair i with the right image of pair j. Each left image must find
    # its partner among all right images (`by_left`), and each right image among all left images (`by_right`).
    by_left, by_right = (tf.where(mask, similarities, _NEVER) for mask in (same[None], same[:, None]))
    nearest = tf.reduce_logsumexp(by_left, axis=1) + tf.reduce_logsumexp(by_right, axis=0)
    losses = tf.where(same, nearest / 2 - tf.linalg.diag_part(similarities), 0.0)  # cross-entropy
    return tf.math.divide_no_nan(tf.reduce_sum(losses), tf.reduce_sum(tf.cast(same, tf.float32)))


SIDES = ("left", "right")


def model_fn(features: Mapping[str, Any], labels: Any, mode: str, params: Mapping[str, Any], config: Any) -> Any:
    """Builds the graph of the network for TRAIN, EVAL or PREDICT.

    PREDICT and EVAL give three predictions: `logits`, the log odds that both images are of one identity, float32
    `[batch]`; `probabilities` of "different" and "same", float32 `[batch, 2]`; and `class_id`, 1 for "same", int64
    `[batch]`.

    Args:
      features: `left` and `right`, uint8 `[batch, height, width, 3]`.
      labels: 1 where both images are of one identity, else 0, int64 `[batch]`; None in PREDICT.
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
