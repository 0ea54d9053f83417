"""SqueezeNext's building blocks: convolution with batch norm and ReLU, and the unit of five of them with a shortcut.

Layers for a TF1 graph, such as an Estimator's `model_fn` builds: variables by `tf.compat.v1.get_variable` under the
caller's variable scope, L2 terms in REGULARIZATION_LOSSES, moving averages in UPDATE_OPS, NHWC throughout.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

EPSILON = 1e-5


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerOptions:
    """What every layer of a network shares.

    Attributes:
      training: normalise by the batch and update the moving averages (TRAIN), or normalise by these (EVAL, PREDICT).
      l2: the loss grows by `l2 * sum(kernel ** 2) / 2`; 0 leaves it out.
      momentum: of batch norm's moving averages, see `batch_norm`.
    """

    training: bool
    l2: float = 1e-4
    momentum: float = 0.99


def kernel(shape: tuple[int, ...], options: LayerOptions) -> tf.Tensor:
    """A weight variable named `kernel`, float32 `shape`, inputs before outputs; counted in the L2 term.

    Initial values are uniform with variance 1 / fan-in, as in the authors' network definitions ("xavier" in Caffe).
    """
    return tf.compat.v1.get_variable(
        "kernel",
        shape,
        initializer=tf.compat.v1.variance_scaling_initializer(1.0, "fan_in", "uniform"),
        regularizer=(lambda w: options.l2 * tf.nn.l2_loss(w)) if options.l2 else None,
    )


def batch_norm(x: tf.Tensor, options: LayerOptions) -> tf.Tensor:
    """Batch normalisation (Ioffe and Szegedy, arXiv 1502.03167) of float32 `[batch, height, width, channels]`.

    The moving averages' momentum is `min(options.momentum, (1 + step) / (10 + step))`: they look back on about the
    last ninth of a training however short it is, and on `1 / (1 - momentum)` steps in a long one. A fixed momentum that
    suits a long training leaves the averages of a short one near their initial values, and EVAL at chance.
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
            return tf.compat.v1.nn.fused_batch_norm(x, gamma, beta, mean, variance, epsilon=EPSILON, is_training=False)[
                0
            ]
        y, batch_mean, batch_variance = tf.compat.v1.nn.fused_batch_norm(x, gamma, beta, epsilon=EPSILON)
        step = tf.cast(tf.compat.v1.train.get_or_create_global_step(), tf.float32)
        rate = 1.0 - tf.minimum(options.momentum, (1.0 + step) / (10.0 + step))
        for moving, value in ((mean, batch_mean), (variance, batch_variance)):
            update = moving.assign_sub(rate * (moving - value), read_value=False)
            tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.UPDATE_OPS, update)
    return y


def grouped_conv(x: tf.Tensor, weights: tf.Tensor, *, stride: int, padding: str, groups: int) -> tf.Tensor:
    """Convolution in which each group of output channels sees one group of input channels.

    One convolution a group, on CPU and elsewhere alike: TensorFlow has no gradient of a grouped one on CPU (but by
    oneDNN). The values are those of `tf.nn.conv2d` with the same weights.

    Args:
      x: float32 `[batch, height, width, inputs]`.
      weights: float32 `[kernel_height, kernel_width, inputs / groups, outputs]`.
      stride: in both directions.
      padding: VALID or SAME.
      groups: divides inputs and outputs.
    """
    if groups == 1:
        return tf.nn.conv2d(x, weights, stride, padding)
    pairs = zip(tf.split(x, groups, axis=-1), tf.split(weights, groups, axis=-1), strict=True)
    return tf.concat([tf.nn.conv2d(part, w, stride, padding) for part, w in pairs], axis=-1)


def conv(
    x: tf.Tensor,
    name: str,
    channels: int,
    size: tuple[int, int] = (1, 1),
    *,
    options: LayerOptions,
    stride: int = 1,
    padding: str = "SAME",
    groups: int = 1,
) -> tf.Tensor:
    """Convolution without bias, batch norm, ReLU: `[batch, h, w, inputs]` -> `[batch, h/stride, w/stride, channels]`.

    Args:
      x: float32, its channels known.
      name: of the variable scope: `name/kernel` and `name/batch_norm/...`.
      channels: of the output.
      size: height and width of the kernel.
      options: the network's.
      stride: in both directions.
      padding: VALID or SAME.
      groups: see `grouped_conv`.
    """
    with tf.compat.v1.variable_scope(name):
        weights = kernel((*size, x.shape[-1] // groups, channels), options)
        y = grouped_conv(x, weights, stride=stride, padding=padding, groups=groups)
        return tf.nn.relu(batch_norm(y, options))


def unit(
    x: tf.Tensor,
    channels: int,
    *,
    options: LayerOptions,
    stride: int = 1,
    groups: int = 1,
    project_first: bool = False,
    tall_first: bool = True,
) -> tf.Tensor:
    """A SqueezeNext unit (figure 1 of the paper): two 1x1 that squeeze, 3x1 and 1x3, 1x1 that expands, plus a shortcut.

    The channels of the branch are 1/2, 1/4, 1/2, 1/2 and 1 of the unit's. The shortcut is the input itself, or a 1x1
    projection of it where the shape changes.

    Args:
      x: float32 `[batch, height, width, inputs]`.
      channels: of the output; a multiple of 4.
      options: the network's.
      stride: of the projection and of the branch's first convolution.
      groups: of the branch's first 1x1, the 3x1 and the 1x3.
      project_first: the branch starts from the projection, if there is one.
      tall_first: 3x1 before 1x3; the paper alternates.
    """
    shortcut = x
    if stride != 1 or x.shape[-1] != channels:
        shortcut = conv(x, "project", channels, options=options, stride=stride)
        if project_first:
            x, stride = shortcut, 1
    sizes = {"tall": (3, 1), "wide": (1, 3)} if tall_first else {"wide": (1, 3), "tall": (3, 1)}
    y = conv(x, "squeeze_1", channels // 2, options=options, stride=stride, groups=groups)
    y = conv(y, "squeeze_2", channels // 4, options=options)
    for name, size in sizes.items():
        y = conv(y, name, channels // 2, size, options=options, groups=groups)
    y = conv(y, "expand", channels, options=options)
    return tf.nn.relu(y + shortcut)
