"""Reads what a training or an evaluation wrote for TensorBoard."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorflow as tf


def read_summaries(folder: Path) -> dict:
    """The values of all event files of a folder, by tag."""
    values: dict = {}
    for path in sorted(folder.glob("events*")):
        for record in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            values |= {value.tag: value for value in event.summary.value}
    return values


def pixels(value) -> np.ndarray:
    return tf.io.decode_png(value.image.encoded_image_string).numpy()
