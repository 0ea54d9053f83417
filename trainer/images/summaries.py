"""Writes summaries for TensorBoard: where an evaluation's go, and images that are small enough for them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

THUMBNAIL = 128  # pixels of the longer side
_SPLIT = "millrace/split"


def thumbnails(images: tf.Tensor) -> tf.Tensor:
    """Makes images smaller whose sides are longer than `THUMBNAIL`: uint8 `[batch, height, width, 3]`."""
    height, width = images.shape[1:3]
    longer = max(height, width)
    if longer <= THUMBNAIL:
        return images
    size = [max(1, side * THUMBNAIL // longer) for side in (height, width)]
    return tf.cast(tf.round(tf.image.resize(images, size, "area")), tf.uint8)


def name_split(split: str) -> None:
    """Notes which split an `input_fn` reads, in the graph that Estimator calls it in; nothing where there is none."""
    if not tf.executing_eagerly():
        tf.compat.v1.add_to_collection(_SPLIT, split)


def summary_folder(model_dir: str) -> str:
    """Returns where Estimator writes the evaluation that the default graph is for: `eval`, or `eval_<split>`."""
    split = next(iter(tf.compat.v1.get_collection(_SPLIT)), "eval")
    return f"{model_dir.rstrip('/')}/{'eval' if split == 'eval' else f'eval_{split}'}"


def summary_writer(folder: str) -> Any:
    """Returns the writer of a folder's events, without a graph: a new one would write the default graph twice."""
    with tf.Graph().as_default():
        return tf.compat.v1.summary.FileWriterCache.get(folder)
