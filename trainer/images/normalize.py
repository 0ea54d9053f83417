"""uint8 images -> what a network reads: each channel normalised by the transform of the train split."""

from __future__ import annotations

import tensorflow as tf
import tensorflow_transform as tft

from schemas.errors import MillraceError
from trainer.spec.transform_graph import transformed

PIXELS = "pixels"  # the transform graph's one feature: float32 [3], a pixel
_DONE = "millrace/normalized_images"  # a collection of a model's graph


def normalized(images: tf.Tensor, transform_output: tft.TFTransformOutput) -> tf.Tensor:
    """Normalises a batch's pixels by the dataset's own tf.Transform graph. To be called inside a `model_fn`.

    Args:
      images: uint8 or float32 `[batch, height, width, 3]`, values from 0 to 255, as the model gets them.
      transform_output: of the run that the model is trained on: `tft.TFTransformOutput(problem.run_dir)`.

    Returns:
      float32 `[batch, height, width, 3]`, of the images' static shape: the images themselves, if the input pipeline has
      normalized them, as it does for a TPU.

    Raises:
      MillraceError: the input pipeline has normalized the images of this model, and these are others.
    """
    done = tf.compat.v1.get_collection(_DONE)
    if any(images is given for given in done):
        return images
    if done:
        raise MillraceError(
            f"with --tpu, images are normalized before the model gets them, but {images.name} is not one of those; "
            "call trainer.images.normalize.normalized on the features as they are"
        )
    flat = tf.reshape(tf.cast(images, tf.float32), [-1, 3])
    pixels = transformed(transform_output, {PIXELS: flat})[PIXELS]
    return tf.ensure_shape(tf.reshape(pixels, tf.shape(images)), images.shape)


def note_normalized(images: tf.Tensor) -> None:
    """Notes in a model's graph that these images are normalized already, for `normalized`."""
    tf.compat.v1.add_to_collection(_DONE, images)
