"""Layers of image networks, as parts of the TF1 graph that an Estimator's `model_fn` builds.

Variables are made by `tf.compat.v1.get_variable` under the caller's variable scope. L2 terms are added to the
collection REGULARIZATION_LOSSES, and updates of moving averages to UPDATE_OPS. Images are NHWC throughout.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

EPSILON = 1e-5
MOMENTUM = 0.99  # the momentum of batch norm's moving averages in a long training
LAST_SIDE = 4  # pixels: the approximate smaller side after the convolutions of `tower_channels`


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerOptions:
    """Settings that all layers of a network share.

    Attributes:
      training: True (TRAIN): batch norm uses the batch's statistics and updates the moving averages. False (EVAL,
        PREDICT): batch norm uses the moving averages.
      l2: the loss grows by `l2 * sum(kernel ** 2) / 2`; 0 adds nothing.
    """

    training: bool
    l2: float = 1e-4


def kernel(shape: tuple[int, ...], options: LayerOptions) -> tf.Tensor:
    """Makes a weight variable named `kernel`, and adds its L2 term.

    Initial values are uniform with variance 1 / fan-in, as in SqueezeNext's published network definitions ("xavier" in
    Caffe).

    Args:
      shape: the shape of the variable, with inputs before outputs.
      options: the settings of the layers.
    """
    return tf.compat.v1.get_variable(
        "kernel",
        shape,
        initializer=tf.compat.v1.variance_scaling_initializer(1.0, "fan_in", "uniform"),
        regularizer=(lambda w: options.l2 * tf.nn.l2_loss(w)) if options.l2 else None,
    )


def batch_norm(x: tf.Tensor, options: LayerOptions) -> tf.Tensor:
    """Adds batch normalisation (Ioffe and Szegedy, arXiv 1502.03167) of float32 `[batch, height, width, channels]`.

    The moving averages have a momentum of `min(MOMENTUM, (1 + step) / (10 + step))`. In a short training, the averages
    then cover about the last ninth of its steps; in a long one, `1 / (1 - MOMENTUM)` steps. With a fixed momentum that
    suits a long training, the averages of a short training would stay near their initial values, and EVAL would be no
    better than chance.

    Args:
      x: the input.
      options: the settings of the layers.
    """
    channels = [x.shape[-1]]
    with tf.compat.v1.variable_scope("batch_norm"):
        gamma = tf.compat.v1.get_variable("gamma", channels, initializer=tf.compat.v1.ones_initializer())
        beta = tf.compat.v1.get_variable("beta", channels, initializer=tf.compat.v1.zeros_initializer())
        mean, variance = (
            tf.compat.v1.get_variable(
                name,
                channels,
                initializer=initializer,
                trainable=False,
                # Each replica keeps averages of its own; a checkpoint holds their mean.
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.MEAN,
            )
            for name, initializer in (
                ("moving_mean", tf.compat.v1.zeros_initializer()),
                ("moving_variance", tf.compat.v1.ones_initializer()),
            )
        )
        if not options.training:
            settings = {"epsilon": EPSILON, "is_training": False}
            return tf.compat.v1.nn.fused_batch_norm(x, gamma, beta, mean, variance, **settings)[0]
        y, batch_mean, batch_variance = tf.compat.v1.nn.fused_batch_norm(x, gamma, beta, epsilon=EPSILON)
        step = tf.cast(tf.compat.v1.train.get_or_create_global_step(), tf.float32)
        rate = 1.0 - tf.minimum(MOMENTUM, (1.0 + step) / (10.0 + step))
        for moving, value in ((mean, batch_mean), (variance, batch_variance)):
            update = moving.assign_sub(rate * (moving - value), read_value=False)
            tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.UPDATE_OPS, update)
    return y


def conv(
    x: tf.Tensor,
    name: str,
    channels: int,
    size: tuple[int, int] = (1, 1),
    *,
    options: LayerOptions,
    stride: int = 1,
    padding: str = "SAME",
) -> tf.Tensor:
    """Adds a convolution, batch norm and ReLU: `[batch, h, w, inputs]` -> `[batch, h/stride, w/stride, channels]`.

    Args:
      x: float32; the number of channels is known when the graph is built.
      name: the variable scope; the variables are `name/kernel` and `name/batch_norm/...`.
      channels: channels of the output.
      size: height and width of the kernel.
      options: the settings of the layers.
      stride: the stride in both directions.
      padding: VALID or SAME.
    """
    with tf.compat.v1.variable_scope(name):
        y = tf.nn.conv2d(x, kernel((*size, x.shape[-1], channels), options), stride, padding)
        return tf.nn.relu(batch_norm(y, options))


def dense(x: tf.Tensor, name: str, units: int, *, dropout: float, options: LayerOptions) -> tf.Tensor:
    """Adds a dense layer over all positions: float32 `[batch, height, width, channels]` -> `[batch, units]`.

    Args:
      x: the input; height, width and channels are known when the graph is built.
      name: the variable scope.
      units: the number of outputs.
      dropout: the share of `x` that training drops.
      options: the settings of the layers.
    """
    x = tf.reshape(x, [-1, x.shape[1] * x.shape[2] * x.shape[3]])
    if options.training and dropout:
        x = tf.nn.dropout(x, dropout)
    with tf.compat.v1.variable_scope(name):
        bias = tf.compat.v1.get_variable("bias", [units], initializer=tf.compat.v1.zeros_initializer())
        return tf.matmul(x, kernel((x.shape[1], units), options)) + bias


def tower_channels(side: int, width: int) -> list[int]:
    """Returns the number of channels of each convolution in a network that halves an image until it is small.

    There are as many convolutions as bring the image's smaller side down to about `LAST_SIDE` pixels, and at least two.

    Args:
      side: the smaller side of the image, in pixels.
      width: channels of the first convolution; they double with each convolution, up to 8 * width.
    """
    # (side - 1).bit_length() is the base-2 logarithm of the side, rounded up.
    halvings = max(2, (side - 1).bit_length() - LAST_SIDE.bit_length() + 1)
    return [width * min(8, 2**i) for i in range(halvings)]
