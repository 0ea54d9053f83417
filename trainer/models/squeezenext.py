"""`squeezenext`: images to classes by SqueezeNext (Gholami et al., arXiv 1803.10615).

Its layers, its units of five convolutions with a shortcut, and the network, as parts of a TF1 graph, such as an
Estimator's `model_fn` builds: variables by `tf.compat.v1.get_variable` under the caller's variable scope, L2 terms in
REGULARIZATION_LOSSES, moving averages in UPDATE_OPS, NHWC throughout. `VARIANTS` of `trainer.models.hyperparameters`
names the published networks. Variables lie under `squeezenext/`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from trainer.estimator import tf_estimator
from trainer.images.hooks import HardestImagesHook, top
from trainer.images.inputs import normalized
from trainer.models.hyperparameters import EMBEDDING_CHANNELS, STEM_CHANNELS, VARIANTS, SqueezenextHparams, Variant
from trainer.models.optimizers import learning_rate, train_spec
from trainer.spec.task_spec import ImageTaskSpec

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
    """Convolution without bias, batch norm, ReLU: `[batch, h, w, inputs]` -> `[batch, h/stride, w/stride, channels]`.

    Args:
      x: float32, its channels known.
      name: of the variable scope: `name/kernel` and `name/batch_norm/...`.
      channels: of the output.
      size: height and width of the kernel.
      options: the network's.
      stride: in both directions.
      padding: VALID or SAME.
    """
    with tf.compat.v1.variable_scope(name):
        y = tf.nn.conv2d(x, kernel((*size, x.shape[-1], channels), options), stride, padding)
        return tf.nn.relu(batch_norm(y, options))


def unit(
    x: tf.Tensor,
    channels: int,
    *,
    options: LayerOptions,
    stride: int = 1,
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
      project_first: the branch starts from the projection, if there is one.
      tall_first: 3x1 before 1x3; the paper alternates.
    """
    shortcut = x
    if stride != 1 or x.shape[-1] != channels:
        shortcut = conv(x, "project", channels, options=options, stride=stride)
        if project_first:
            x, stride = shortcut, 1
    sizes = {"tall": (3, 1), "wide": (1, 3)} if tall_first else {"wide": (1, 3), "tall": (3, 1)}
    y = conv(x, "squeeze_1", channels // 2, options=options, stride=stride)
    y = conv(y, "squeeze_2", channels // 4, options=options)
    for name, size in sizes.items():
        y = conv(y, name, channels // 2, size, options=options)
    y = conv(y, "expand", channels, options=options)
    return tf.nn.relu(y + shortcut)


SCOPE = "squeezenext"
CLASSIFIER = f"{SCOPE}/classifier"
SMALLEST = 16


def embed(images: tf.Tensor, *, variant: Variant, options: LayerOptions, stem_stride: int | None = None) -> tf.Tensor:
    """The network up to the global average.

    The stages' sides are, at 227x227, 55, 28, 14 and 7; at 64x64, 14, 7, 4 and 2 with a stem stride of 2, and 29, 15,
    8 and 4 with 1. Call it again under the same variable scope with reuse to share the weights between two inputs.

    Args:
      images: float32 `[batch, height, width, channels]`, normalised; height, width and channels known.
      variant: the network's shape.
      options: the layers'.
      stem_stride: of the first convolution; None: `default_stem_stride` of the smaller side.

    Returns:
      float32 `[batch, 128]`.

    Raises:
      ValueError: a side is unknown or below 16.
    """
    height, width = images.shape[1:3]
    if height is None or width is None or min(height, width) < SMALLEST:
        raise ValueError(f"images of {height}x{width}: SqueezeNext needs known sides of {SMALLEST} or more")
    stride = stem_stride or default_stem_stride(min(height, width))
    with tf.compat.v1.variable_scope(SCOPE):
        x = conv(
            images, "stem", STEM_CHANNELS, (variant.stem_kernel,) * 2, options=options, stride=stride, padding="VALID"
        )
        x = _pool(x)
        for stage, (channels, units) in enumerate(zip(variant.channels, variant.units, strict=True), 1):
            for index in range(units):
                with tf.compat.v1.variable_scope(f"stage_{stage}/unit_{index + 1}"):
                    x = unit(
                        x,
                        channels,
                        options=options,
                        stride=2 if stage > 1 and index == 0 else 1,
                        project_first=variant.project_first,
                        tall_first=index % 2 == 0,
                    )
        x = conv(x, "embedding", EMBEDDING_CHANNELS, options=options)
        return tf.reduce_mean(x, axis=[1, 2])


def squeezenext(
    images: tf.Tensor, *, variant: Variant, classes: int, options: LayerOptions, stem_stride: int | None = None
) -> tf.Tensor:
    """The whole network; arguments and errors as `embed`'s.

    Returns:
      logits, float32 `[batch, classes]`.
    """
    x = embed(images, variant=variant, options=options, stem_stride=stem_stride)
    with tf.compat.v1.variable_scope(CLASSIFIER):
        return tf.matmul(x, kernel((EMBEDDING_CHANNELS, classes), options))


def default_stem_stride(side: int) -> int:
    """2, as in the paper, but 1 for images with a side below 64.

    The network halves its input five times. Below 64 the last stage would be left with a single position, and the 3x1
    and 1x3 convolutions of the last stages would see mostly padding; without the stem's halving, 28x28 digits still
    have 2x2 there. At 64x64 itself, 2 gives 2x2 and costs a quarter of what 1 does.
    """
    return 1 if side < 64 else 2


def _pool(x: tf.Tensor) -> tf.Tensor:
    """Max pooling, 3x3 by 2, that keeps the last row and column of an even side, as Caffe's does."""
    bottom, right = (1 - int(side) % 2 for side in x.shape[1:3])
    if bottom or right:
        x = tf.pad(x, [[0, 0], [0, bottom], [0, right], [0, 0]])  # zeros never win: x comes out of a ReLU
    return tf.nn.max_pool2d(x, 3, 2, "VALID")


ModeKeys = tf_estimator.ModeKeys


def model_fn(features: Mapping[str, Any], labels: Any, mode: str, params: Mapping[str, Any], config: Any) -> Any:
    """The three paths, as `classes_spec` has them.

    Args:
      features: `image`, uint8 `[batch, height, width, 3]`.
      labels: class ids, int64 `[batch]`; None in PREDICT.
      mode: TRAIN, EVAL or PREDICT.
      params: `hparams`, a `SqueezenextHparams`, and `task_spec`, an `ImageTaskSpec`.
      config: the Estimator's `RunConfig`.
    """
    task_spec: ImageTaskSpec = params["task_spec"]
    hparams: SqueezenextHparams = params["hparams"]
    images = features["image"]
    logits = squeezenext(
        normalized(images, tft.TFTransformOutput(task_spec.run_dir)),
        variant=VARIANTS[hparams.variant],
        classes=len(task_spec.classes),
        options=LayerOptions(training=mode == ModeKeys.TRAIN, l2=hparams.l2, momentum=hparams.batch_norm_momentum),
        stem_stride=hparams.stem_stride,
    )

    def train(loss: tf.Tensor) -> Any:
        rate = learning_rate("polynomial", hparams, tf.compat.v1.train.get_global_step(), task_spec.max_steps)
        tf.compat.v1.summary.scalar("learning_rate", rate)
        return train_spec(
            loss=loss,
            optimizer=tf.compat.v1.train.MomentumOptimizer(rate, hparams.momentum),
            images=images,
            image_summary_steps=hparams.image_summary_steps,
            max_steps=task_spec.max_steps,
            model_dir=config.model_dir,
        )

    return classes_spec(logits, images, labels, mode, config, class_names=task_spec.classes, train=train)


def classes_spec(
    logits: tf.Tensor,
    images: tf.Tensor,
    labels: Any,
    mode: str,
    config: Any,
    *,
    class_names: Sequence[str],
    train: Callable[[tf.Tensor], Any],
) -> Any:
    """The EstimatorSpec of a classification of images.

    PREDICT gives `logits` and `probabilities`, float32 `[batch, classes]`, `class_id` and `top_1`, int64 `[batch]`, and
    `top_5`, the ids of the most probable classes, most probable first, int64 `[batch, 5]` (fewer where there are fewer
    classes). EVAL gives these, too.

    Args:
      logits: float32 `[batch, classes]`.
      images: as the model gets them, uint8 `[batch, height, width, 3]`.
      labels: class ids, int64 `[batch]`; None in PREDICT.
      mode: TRAIN, EVAL or PREDICT.
      config: the Estimator's `RunConfig`.
      class_names: by id.
      train: gives the spec for TRAIN of the loss, float32 `[]`.
    """
    best = top(5, logits)
    class_ids = best[:, 0]

    predictions = {"class_id": class_ids, "top_1": class_ids, "top_5": best, "logits": logits}
    predictions["probabilities"] = tf.nn.softmax(logits)

    if mode == ModeKeys.PREDICT:
        return tf_estimator.EstimatorSpec(mode, predictions=predictions)

    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    loss = tf.reduce_mean(losses)

    if mode == ModeKeys.EVAL:
        hook = HardestImagesHook(
            config.model_dir, images=images, labels=labels, class_ids=class_ids, losses=losses, class_names=class_names
        )
        return tf_estimator.EstimatorSpec(mode, loss=loss, evaluation_hooks=[hook], predictions=predictions)

    batch_accuracy = tf.reduce_mean(tf.cast(tf.equal(labels, class_ids), tf.float32))
    tf.compat.v1.summary.scalar("batch_accuracy", batch_accuracy)
    return train(loss)


def build(task_spec: ImageTaskSpec, hparams: SqueezenextHparams, config: Any) -> Any:
    """An Estimator over `model_fn`."""
    return tf_estimator.Estimator(model_fn, config=config, params={"hparams": hparams, "task_spec": task_spec})
