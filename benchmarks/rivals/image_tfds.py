"""TensorFlow Datasets: `ImageFolder` reads the files, and `store_as_tfds_dataset` keeps them resized.

https://www.tensorflow.org/datasets/api_docs/python/tfds/folder_dataset/ImageFolder and
https://www.tensorflow.org/datasets/format_specific_dataset_builders
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

from benchmarks.rivals.image_tf_data import antialiased, augmented, labels_of, resized_plain
from benchmarks.task import Task

NAME = "photos"


def _resized(example: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    return {"image": antialiased(example["image"]), "label": example["label"]}


def write(task: Task) -> None:
    """Writes the images of the one split of a folder of class folders."""
    folder, split = os.path.split(task.source)
    builder = tfds.folder_dataset.ImageFolder(folder)
    images = builder.as_dataset(split=split, shuffle_files=True).map(_resized, num_parallel_calls=tf.data.AUTOTUNE)
    features = tfds.features.FeaturesDict(
        {
            "image": tfds.features.Image(shape=(None, None, 3), encoding_format="jpeg"),
            "label": tfds.features.ClassLabel(names=builder.info.features["label"].names),
        }
    )
    tfds.dataset_builders.store_as_tfds_dataset(
        name=NAME,
        version="1.0.0",
        features=features,
        split_datasets={"train": images.prefetch(tf.data.AUTOTUNE)},
        data_dir=task.output,
    )


def _batches(images: tf.data.Dataset, task: Task) -> Iterator[np.ndarray]:
    images = images.shuffle(task.shuffle_buffer).repeat(task.epochs or None)
    images = images.map(
        lambda example: (augmented(example["image"]), example["label"]), num_parallel_calls=tf.data.AUTOTUNE
    )
    return labels_of(images, task)


def read(task: Task) -> Iterator[np.ndarray]:
    """Reads what `write` has written, from the files in every epoch."""
    config = tfds.ReadConfig(try_autocache=False)
    images = tfds.builder(NAME, data_dir=task.source).as_dataset(split="train", shuffle_files=True, read_config=config)
    return _batches(images, task)


def read_cached(task: Task) -> Iterator[np.ndarray]:
    """The same as TFDS does it by itself below 250 MB of files: decoded images are kept in memory."""
    return _batches(tfds.builder(NAME, data_dir=task.source).as_dataset(split="train", shuffle_files=True), task)


def read_folder(task: Task) -> Iterator[np.ndarray]:
    """Reads the original files with `ImageFolder` alone, resizing them in every epoch as most do it."""
    folder, split = os.path.split(task.source)
    images = tfds.folder_dataset.ImageFolder(folder).as_dataset(split=split, shuffle_files=True)
    images = images.map(
        lambda example: {"image": resized_plain(example["image"]), "label": example["label"]},
        num_parallel_calls=tf.data.AUTOTUNE,
    )
    return _batches(images, task)
