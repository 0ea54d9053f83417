"""Writes summaries for TensorBoard: chooses the folder of an evaluation's summaries, and shrinks images for them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

THUMBNAIL = 128  # pixels of the longer side
_SPLIT = "millrace/split"


def thumbnails(images: tf.Tensor) -> tf.Tensor:
    """Shrinks images, uint8 `[batch, height, width, 3]`, if their longer side is over `THUMBNAIL` pixels."""
    height, width = images.shape[1:3]
    longer = max(height, width)
    if longer <= THUMBNAIL:
        return images
    size = [max(1, side * THUMBNAIL // longer) for side in (height, width)]
    return tf.cast(tf.round(tf.image.resize(images, size, "area")), tf.uint8)


def name_split(split: str) -> None:
    """Notes in the graph which split an `input_fn` reads, for `summary_folder`. Does nothing outside a graph."""
    if not tf.executing_eagerly():
        tf.compat.v1.add_to_collection(_SPLIT, split)


def summary_folder(model_dir: str) -> str:
    """Returns the folder where Estimator writes the evaluation of the default graph: `eval`, or `eval_<split>`."""
    split = next(iter(tf.compat.v1.get_collection(_SPLIT)), "eval")
    return f"{model_dir.rstrip('/')}/{'eval' if split == 'eval' else f'eval_{split}'}"


def summary_writer(folder: str) -> Any:
    """Returns the writer of a folder's events.

    The writer is made in an empty graph, because a new writer would otherwise write the default graph a second time.
    """
    with tf.Graph().as_default():
        return tf.compat.v1.summary.FileWriterCache.get(folder)
