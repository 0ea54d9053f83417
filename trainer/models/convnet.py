"""`convnet`: a few convolutions and a dense layer, for some hundred images, of which a deep network learns nothing.

So few images are soon learned by heart; dropout and smoothed labels hold that off.
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
    """Builds the graph of TRAIN, EVAL or PREDICT by `classes_spec`; see `trainer.models.squeezenext.model_fn`."""
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
    """Returns the mean cross-entropy of labels of which a share is spread evenly over all classes.

    Args:
      loss: that of the labels as they are, float32 `[]`.
      logits: float32 `[batch, classes]`.
      share: from 0, which changes nothing, to 1.
    """
    return (1 - share) * loss - share * tf.reduce_mean(tf.nn.log_softmax(logits))
