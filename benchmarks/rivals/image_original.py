"""`tf.data` over the original files, which are decoded at full size and resized in every epoch, as in tutorials.

https://www.tensorflow.org/tutorials/load_data/images. `read_plain` resizes as most write it, by
`tf.image.resize(image, size)`; `read` with antialiasing, which gives the pixels that this project stores, and takes
longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from benchmarks.rivals.image_pillow import files
from benchmarks.rivals.image_tf_data import labels_of, resized
from benchmarks.rivals.image_training import augmented, loaded_plain
from benchmarks.task import Task


def _batches(task: Task, load: Callable[[tf.Tensor], tf.Tensor]) -> Iterator[np.ndarray]:
    paths, labels = files(task.source)
    images = (
        tf.data.Dataset.from_tensor_slices(([str(path) for path in paths], labels))
        .shuffle(len(paths))
        .repeat(task.epochs or None)
        .map(
            lambda path, label: (augmented(load(path)), label), num_parallel_calls=tf.data.AUTOTUNE, deterministic=False
        )
    )
    return labels_of(images, task)


def read(task: Task) -> Iterator[np.ndarray]:
    """Batches of the original files, resized with antialiasing."""
    return _batches(task, resized)


def read_plain(task: Task) -> Iterator[np.ndarray]:
    """The same, resized as most do it."""
    return _batches(task, loaded_plain)
