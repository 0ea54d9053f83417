"""WebDataset with a numpy array and a class for each row, read by a process for each core.

It is made for larger samples: a tar member takes 1 KB.

https://github.com/webdataset/webdataset
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pandas as pd
import webdataset as wds

from benchmarks.rivals.tar_workers import batches
from benchmarks.task import Task


def write(task: Task) -> None:
    """Writes a CSV file of numbers, the label last, in random order."""
    values = pd.read_csv(task.source, header=None, dtype=np.float32).to_numpy()
    pattern = os.path.join(task.output, "train-%06d.tar")
    with wds.ShardWriter(pattern, maxcount=10_000, verbose=0) as sink:
        for i in np.random.default_rng().permutation(len(values)).tolist():
            sink.write({"__key__": f"{i:08d}", "x.npy": values[i, :-1], "y.cls": int(values[i, -1]) - 1})


def read(task: Task) -> Iterator[np.ndarray]:
    """Reads what `write` has written."""

    def rows(shards: list[str], shuffle: int) -> wds.WebDataset:
        return (
            wds.WebDataset(shards, shardshuffle=len(shards))
            .shuffle(shuffle)
            .decode()
            .to_tuple("x.npy", "y.cls")
            .batched(task.batch_size)
        )

    for _, labels in batches(task, rows):
        yield labels
