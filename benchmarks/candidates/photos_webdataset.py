"""WebDataset: tar files of JPEGs, resized by Pillow on a thread for each core.

https://github.com/webdataset/webdataset: `ShardWriter`.
"""

from __future__ import annotations

import functools
import os
import random
from concurrent.futures import ThreadPoolExecutor

import webdataset as wds

from benchmarks.candidates.photos_pillow import files, jpeg
from benchmarks.measure import BenchmarkTask


def write(task: BenchmarkTask, *, downscale: int = 1) -> None:
    """Writes the photos of a folder of class folders, in random order.

    Args:
      task: the work.
      downscale: large JPEGs are decoded at so many times the new size or more.
    """
    paths, labels = files(task.source)
    order = random.sample(range(len(paths)), len(paths))
    resize = functools.partial(jpeg, downscale=downscale)
    pattern = os.path.join(task.output, "train-%06d.tar")
    with wds.ShardWriter(pattern, maxcount=100, verbose=0) as sink, ThreadPoolExecutor(os.cpu_count()) as threads:
        for i, encoded in zip(order, threads.map(resize, [paths[i] for i in order]), strict=True):
            sink.write({"__key__": f"{i:06d}", "jpg": encoded, "cls": labels[i]})
