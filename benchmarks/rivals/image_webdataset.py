"""WebDataset: tar files of JPEGs, resized by Pillow on a thread for each core and read by a process for each core.

https://github.com/webdataset/webdataset: `ShardWriter`, `WebDataset`, `shuffle`, `decode`, `to_tuple`, `batched`.
"""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import webdataset as wds

from benchmarks.rivals.image_pillow import files, jpeg
from benchmarks.rivals.image_tf_data import augmented_array
from benchmarks.rivals.tar_workers import batches
from benchmarks.task import Task


def write(task: Task) -> None:
    """Writes the images of a folder of class folders, in random order."""
    _write(task, downscale=1)


def write_twice(task: Task) -> None:
    """The same, its large JPEGs decoded at twice the new size or more, as this project does by default."""
    _write(task, downscale=2)


def _write(task: Task, downscale: int) -> None:
    paths, labels = files(task.source)
    order = random.sample(range(len(paths)), len(paths))
    pattern, resize = os.path.join(task.output, "train-%06d.tar"), functools.partial(jpeg, downscale=downscale)
    with wds.ShardWriter(pattern, maxcount=100, verbose=0) as sink, ThreadPoolExecutor(os.cpu_count()) as threads:
        for i, encoded in zip(order, threads.map(resize, [paths[i] for i in order]), strict=True):
            sink.write({"__key__": f"{i:06d}", "jpg": encoded, "cls": labels[i]})


def read(task: Task) -> Iterator[np.ndarray]:
    """Reads what `write` has written."""

    def images(shards: list[str], shuffle: int) -> wds.WebDataset:
        rng = np.random.default_rng()
        return (
            wds.WebDataset(shards, shardshuffle=len(shards))
            .shuffle(shuffle)
            .decode("rgb8")
            .to_tuple("jpg", "cls")
            .map_tuple(lambda image: augmented_array(image, rng))
            .batched(task.batch_size)
        )

    for _, labels in batches(task, images):
        yield labels
