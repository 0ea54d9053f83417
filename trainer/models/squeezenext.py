"""`squeezenext`: classifies images by SqueezeNext (Gholami et al., arXiv 1803.10615).

The default network is the paper's 1.0-SqNxt-23; a `width` of 2 makes it 2.0-SqNxt-23. The names of all variables begin
with `squeezenext/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from trainer.images.inputs import normalized
from trainer.models.hyperparameters import SqueezenextHparams
from trainer.models.image_spec import ModeKeys, classes_spec, train_spec
from trainer.models.layers import LayerOptions, conv, kernel
from trainer.models.optimizers import learning_rate
from trainer.spec.task_spec import ImageTaskSpec

SCOPE = "squeezenext"
CLASSIFIER = f"{SCOPE}/classifier"
SMALLEST = 16
STEM_CHANNELS, STAGE_CHANNELS, EMBEDDING_CHANNELS = 64, (32, 64, 128, 256), 128  # of the stages at width 1


def unit(
    x: tf.Tensor,
    channels: int,
    *,
    options: LayerOptions,
    stride: int = 1,
    tall_first: bool = True,
) -> tf.Tensor:
    """Adds a SqueezeNext unit (figure 1 of the paper): a branch of five convolutions, plus a shortcut.

    The branch consists of 1x1 and 1x1 to squeeze, 3x1, 1x3, and 1x1 to expand. Their channels are 1/2, 1/4, 1/2, 1/2
    and 1 times `channels`. The shortcut is the input itself, or a 1x1 projection of the input if the shape changes. The
    output is the sum of branch and shortcut.

    Args:
      x: float32 `[batch, height, width, inputs]`.
      channels: channels of the output; a multiple of 4.
      options: the settings of the layers.
      stride: the stride of the projection and of the branch's first convolution.
      tall_first: whether 3x1 comes before 1x3; the paper alternates.
    """
    shortcut = x
    if stride != 1 or x.shape[-1] != channels:
        shortcut = conv(x, "project", channels, options=options, stride=stride)
    sizes = {"tall": (3, 1), "wide": (1, 3)} if tall_first else {"wide": (1, 3), "tall": (3, 1)}
    y = conv(x, "squeeze_1", channels // 2, options=options, stride=stride)
    y = conv(y, "squeeze_2", channels // 4, options=options)
    for name, size in sizes.items():
        y = conv(y, name, channels // 2, size, options=options)
    y = conv(y, "expand", channels, options=options)
    return tf.nn.relu(y + shortcut)


def squeezenext(
    images: tf.Tensor, *, width: float, units: tuple[int, ...], classes: int, options: LayerOptions
) -> tf.Tensor:
    """Builds the network from images to logits.

    The stages have sides of 55, 28, 14 and 7 for images of 227x227, and of 14, 7, 4 and 2 for images of 64x64. If a
    side of the image is below 64, the first convolution does not halve the image. Otherwise the last stage would have a
    single position, and the 3x1 and 1x3 convolutions of the last stages would see mostly padding. Digits of 28x28 still
    have 2x2 positions in the last stage.

    Args:
      images: float32 `[batch, height, width, channels]`, normalised; height, width and channels are known when the
        graph is built.
      width: factor on the channels of the stages; the first and the last convolution do not change.
      units: number of units in each of the four stages.
      classes: the number of classes.
      options: the settings of the layers.

    Returns:
      logits, float32 `[batch, classes]`.

    Raises:
      ValueError: a side is unknown or below 16.
    """
    sides = images.shape[1:3]
    if None in list(sides) or min(sides) < SMALLEST:
        raise ValueError(f"images of {sides[0]}x{sides[1]}: SqueezeNext needs known sides of {SMALLEST} or more")
    stride = 1 if min(sides) < 64 else 2
    with tf.compat.v1.variable_scope(SCOPE):
        x = conv(images, "stem", STEM_CHANNELS, (7, 7), options=options, stride=stride, padding="VALID")
        x = _pool(x)
        for stage, (channels, count) in enumerate(zip(STAGE_CHANNELS, units, strict=True), 1):
            for index in range(count):
                with tf.compat.v1.variable_scope(f"stage_{stage}/unit_{index + 1}"):
                    halves = stage > 1 and index == 0
                    x = unit(
                        x,
                        int(channels * width),
                        options=options,
                        stride=2 if halves else 1,
                        tall_first=index % 2 == 0,
                    )
        x = tf.reduce_mean(conv(x, "embedding", EMBEDDING_CHANNELS, options=options), axis=[1, 2])
        with tf.compat.v1.variable_scope("classifier"):
            return tf.matmul(x, kernel((EMBEDDING_CHANNELS, classes), options))


def _pool(x: tf.Tensor) -> tf.Tensor:
    """Max pooling of 3x3 with stride 2. Like Caffe's, it keeps the last row and column if a side is even."""
    bottom, right = (1 - int(side) % 2 for side in x.shape[1:3])
    if bottom or right:
        x = tf.pad(x, [[0, 0], [0, bottom], [0, right], [0, 0]])  # zeros never win: x comes out of a ReLU
    return tf.nn.max_pool2d(x, 3, 2, "VALID")


def model_fn(features: Mapping[str, Any], labels: Any, mode: str, params: Mapping[str, Any], config: Any) -> Any:
    """Builds the graph of the network for TRAIN, EVAL or PREDICT.

    Args:
      features: `image`, uint8 `[batch, height, width, 3]`.
      labels: class ids, int64 `[batch]`; None in PREDICT.
      mode: TRAIN, EVAL or PREDICT.
      params: `hparams`, a `SqueezenextHparams`, and `task_spec`, an `ImageTaskSpec`.
      config: the Estimator's `RunConfig`.

    Returns:
      The EstimatorSpec of `classes_spec`.
    """
    task_spec: ImageTaskSpec = params["task_spec"]
    hparams: SqueezenextHparams = params["hparams"]
    logits = squeezenext(
        normalized(features["image"], tft.TFTransformOutput(task_spec.run_dir)),
        width=hparams.width,
        units=hparams.units,
        classes=len(task_spec.classes),
        options=LayerOptions(training=mode == ModeKeys.TRAIN, l2=hparams.l2),
    )

    def train(loss: tf.Tensor) -> Any:
        rate = learning_rate("warmup", hparams, tf.compat.v1.train.get_global_step(), task_spec.max_steps)
        tf.compat.v1.summary.scalar("learning_rate", rate)
        optimizer = tf.compat.v1.train.MomentumOptimizer(rate, hparams.momentum)
        return train_spec(loss, optimizer, features["image"], task_spec, config)

    return classes_spec(logits, labels, mode, train)
