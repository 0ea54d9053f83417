"""uint8 images -> what a network reads: each channel normalised by the transform of the train split."""

from __future__ import annotations

import tensorflow as tf
import tensorflow_transform as tft

from trainer.spec.transform_graph import transformed

PIXELS = "pixels"  # the transform graph's one feature: float32 [3], a pixel


def normalized(images: tf.Tensor, transform_output: tft.TFTransformOutput) -> tf.Tensor:
    """Normalises a batch's pixels by the dataset's own tf.Transform graph. To be called inside a `model_fn`.

    Args:
      images: uint8 or float32 `[batch, height, width, 3]`, values from 0 to 255.
      transform_output: of the run that the model is trained on: `tft.TFTransformOutput(problem.run_dir)`.

    Returns:
      float32 `[batch, height, width, 3]`, of the images' static shape.
    """
    flat = tf.reshape(tf.cast(images, tf.float32), [-1, 3])
    pixels = transformed(transform_output, {PIXELS: flat})[PIXELS]
    return tf.ensure_shape(tf.reshape(pixels, tf.shape(images)), images.shape)
