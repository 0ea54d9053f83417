"""TensorFlow Datasets: `ImageFolder` reads the files, and `store_as_tfds_dataset` stores them resized.

https://www.tensorflow.org/datasets/api_docs/python/tfds/folder_dataset/ImageFolder,
https://www.tensorflow.org/datasets/format_specific_dataset_builders and
https://www.tensorflow.org/datasets/performances: below 250 MB of files, decoded photos stay in memory (`cached`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

from benchmarks.candidates.photos_tensorflow import augmented, labels_of, resized_in_graph
from benchmarks.measure import BenchmarkTask

NAME = "photos"


def _resized_folder(task: BenchmarkTask, *, antialias: bool) -> tuple[Any, tf.data.Dataset]:
    """The builder of a folder of class folders, and its photos, resized."""
    folder, split = os.path.split(task.source)
    builder = tfds.folder_dataset.ImageFolder(folder)
    images = builder.as_dataset(split=split, shuffle_files=True).map(
        lambda example: {"image": resized_in_graph(example["image"], antialias=antialias), "label": example["label"]},
        num_parallel_calls=tf.data.AUTOTUNE,
    )
    return builder, images


def write(task: BenchmarkTask) -> None:
    """Writes the photos of a folder of class folders, resized."""
    builder, images = _resized_folder(task, antialias=True)
    features = {
        "image": tfds.features.Image(shape=(None, None, 3), encoding_format="jpeg"),
        "label": tfds.features.ClassLabel(names=builder.info.features["label"].names),
    }
    tfds.dataset_builders.store_as_tfds_dataset(
        name=NAME,
        version="1.0.0",
        features=tfds.features.FeaturesDict(features),
        split_datasets={"train": images.prefetch(tf.data.AUTOTUNE)},
        data_dir=task.output,
    )


def read(task: BenchmarkTask, *, cached: bool = False) -> Iterator[np.ndarray]:
    """Reads what `write` has written."""
    config = tfds.ReadConfig() if cached else tfds.ReadConfig(try_autocache=False)
    builder = tfds.builder(NAME, data_dir=task.source)
    return _batches(builder.as_dataset(split="train", shuffle_files=True, read_config=config), task)


def read_folder(task: BenchmarkTask) -> Iterator[np.ndarray]:
    """Reads the original files with `ImageFolder` alone, resizing them in every epoch as most do it."""
    return _batches(_resized_folder(task, antialias=False)[1], task)


def _batches(images: tf.data.Dataset, task: BenchmarkTask) -> Iterator[np.ndarray]:
    images = images.shuffle(task.shuffle_buffer).repeat(task.epochs or None)
    images = images.map(
        lambda example: (augmented(example["image"]), example["label"]), num_parallel_calls=tf.data.AUTOTUNE
    )
    return labels_of(images, task)
