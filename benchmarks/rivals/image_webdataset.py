"""WebDataset: tar files of JPEGs, which Pillow resizes on a thread for each core.

https://github.com/webdataset/webdataset: `ShardWriter`, `WebDataset`, `shuffle`, `decode`, `to_tuple`, `batched`.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import webdataset as wds

from benchmarks.rivals.image_pillow import files, jpeg
from benchmarks.rivals.image_training import augmented_array
from benchmarks.task import Task


def write(task: Task) -> None:
    """Writes the images of a folder of class folders, in random order."""
    paths, labels = files(task.source)
    order = random.sample(range(len(paths)), len(paths))
    pattern = os.path.join(task.output, "train-%06d.tar")
    with wds.ShardWriter(pattern, maxsize=64 << 20, verbose=0) as sink, ThreadPoolExecutor(os.cpu_count()) as threads:
        for i, encoded in zip(order, threads.map(jpeg, [paths[i] for i in order]), strict=True):
            sink.write({"__key__": f"{i:06d}", "jpg": encoded, "cls": labels[i]})


def read(task: Task) -> Iterator[np.ndarray]:
    """Reads what `write` has written."""
    rng = np.random.default_rng()
    shards = sorted(str(path) for path in Path(task.source).glob("*.tar"))
    images = (
        wds.WebDataset(shards, shardshuffle=len(shards))
        .shuffle(task.shuffle_buffer)
        .decode("rgb8")
        .to_tuple("jpg", "cls")
        .map_tuple(lambda image: augmented_array(image, rng))
        .batched(task.batch_size)
    )
    for _ in range(task.epochs) if task.epochs else itertools.count():
        for _, labels in images:
            yield np.asarray(labels)
