"""`convnet`: a few convolutions and a dense layer, for a few hundred images, which are too few for a deep network.

A model soon learns so few images by heart; dropout and smoothed labels delay this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from trainer.images.inputs import normalized
from trainer.models.hyperparameters import ConvnetHparams
from trainer.models.image_spec import ModeKeys, classes_spec, train_spec
from trainer.models.layers import LayerOptions, conv, dense, tower_channels
from trainer.models.optimizers import learning_rate
from trainer.spec.task_spec import ImageTaskSpec


def model_fn(features: Mapping[str, Any], labels: Any, mode: str, params: Mapping[str, Any], config: Any) -> Any:
    """Builds the graph of the network for TRAIN, EVAL or PREDICT.

    Args:
      features: `image`, uint8 `[batch, height, width, 3]`.
      labels: class ids, int64 `[batch]`; None in PREDICT.
      mode: TRAIN, EVAL or PREDICT.
      params: `hparams`, a `ConvnetHparams`, and `task_spec`, an `ImageTaskSpec`.
      config: the Estimator's `RunConfig`.

    Returns:
      The EstimatorSpec of `classes_spec`.
    """
    task_spec: ImageTaskSpec = params["task_spec"]
    hparams: ConvnetHparams = params["hparams"]
    options = LayerOptions(training=mode == ModeKeys.TRAIN, l2=hparams.l2)
    with tf.compat.v1.variable_scope("convnet"):
        x = normalized(features["image"], tft.TFTransformOutput(task_spec.run_dir))
        for i, channels in enumerate(tower_channels(min(task_spec.size), hparams.width)):
            x = tf.nn.max_pool2d(conv(x, f"conv_{i + 1}", channels, (3, 3), options=options), 2, 2, "SAME")
        logits = dense(x, "classifier", len(task_spec.classes), dropout=hparams.dropout, options=options)

    def train(loss: tf.Tensor) -> Any:
        rate = learning_rate("cosine", hparams, tf.compat.v1.train.get_global_step(), task_spec.max_steps)
        loss = smoothed(loss, logits, hparams.label_smoothing)
        return train_spec(loss, tf.compat.v1.train.AdamOptimizer(rate), features["image"], task_spec, config)

    return classes_spec(logits, labels, mode, train)


def smoothed(loss: tf.Tensor, logits: tf.Tensor, share: float) -> tf.Tensor:
    """Returns the mean cross-entropy for smoothed labels: a share of each label is spread evenly over all classes.

    Args:
      loss: the mean cross-entropy for the original labels, float32 `[]`.
      logits: float32 `[batch, classes]`.
      share: the share that is spread, from 0, which changes nothing, to 1.
    """
    return (1 - share) * loss - share * tf.reduce_mean(tf.nn.log_softmax(logits))
