"""SqueezeNext (Gholami et al., arXiv 1803.10615): images in, embeddings or logits out, in a TF1 graph.

`trainer.models.squeezenext_variants.VARIANTS` names the published ones. Variables lie under `squeezenext/`; those of
the last layer under `CLASSIFIER`, which a fine-tuning leaves out.
"""

from __future__ import annotations

import tensorflow as tf

from trainer.models.squeezenext_blocks import LayerOptions, conv, kernel, unit
from trainer.models.squeezenext_variants import EMBEDDING_CHANNELS, STEM_CHANNELS, Variant

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
                        groups=variant.groups,
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
