"""WebDataset with a numpy array and a class for each row. It is made for larger samples: a tar member takes 1 KB.

https://github.com/webdataset/webdataset
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import webdataset as wds

from benchmarks.task import Task


def write(task: Task) -> None:
    """Writes a CSV file of numbers, the label last, in random order."""
    values = pd.read_csv(task.source, header=None, dtype=np.float32).to_numpy()
    pattern = os.path.join(task.output, "train-%06d.tar")
    with wds.ShardWriter(pattern, maxcount=20_000, verbose=0) as sink:
        for i in np.random.default_rng().permutation(len(values)).tolist():
            sink.write({"__key__": f"{i:08d}", "x.npy": values[i, :-1], "y.cls": int(values[i, -1]) - 1})


def read(task: Task) -> Iterator[np.ndarray]:
    """Reads what `write` has written."""
    shards = sorted(str(path) for path in Path(task.source).glob("*.tar"))
    rows = (
        wds.WebDataset(shards, shardshuffle=len(shards))
        .shuffle(task.shuffle_buffer)
        .decode()
        .to_tuple("x.npy", "y.cls")
        .batched(task.batch_size)
    )
    for _ in range(task.epochs) if task.epochs else itertools.count():
        for _, labels in rows:
            yield np.asarray(labels)
