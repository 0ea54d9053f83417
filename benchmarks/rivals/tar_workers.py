"""WebDataset's readers in a process for each core, as torch's `DataLoader(num_workers=...)` runs them.

https://github.com/webdataset/webdataset: each process reads its share of the shards, which `split_by_worker` knows by
the variables WORKER and NUM_WORKERS. Batches are in memory that the processes share, as in torch: sending them
through a pipe takes 50 % more CPU for images.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from multiprocessing.synchronize import Semaphore
from pathlib import Path

import numpy as np

from benchmarks.task import Task

AHEAD = 2  # batches that each process makes before they are taken, torch's `prefetch_factor`
PLACE = 128 << 20  # bytes that a batch may take, 512 images of 224 x 224 and more; unused memory is not allocated

Pipeline = Callable[[list[str], int], Iterable[tuple[np.ndarray, np.ndarray]]]
Batch = tuple[np.ndarray, np.ndarray]


def _work(batches: Iterable[Batch], memory: mmap.mmap, free: Semaphore, end: Connection) -> None:
    for i, (values, labels) in enumerate(batches):
        free.acquire()
        at = i % AHEAD * PLACE
        np.ndarray(values.shape, values.dtype, memory, at)[...] = values
        end.send((values.shape, values.dtype, at, np.asarray(labels)))


def batches(task: Task, pipeline: Pipeline) -> Iterator[Batch]:
    """What a pipeline gives in all processes: examples and their labels; the examples stay until the next is taken.

    Args:
      task: whose source is a folder of tar files.
      pipeline: given the shards and how many examples to shuffle among, one epoch's batches.

    Raises:
      RuntimeError: a process failed.
    """
    shards = sorted(str(path) for path in Path(task.source).glob("*.tar"))
    workers = min(len(shards), len(os.sched_getaffinity(0)))
    fork = multiprocessing.get_context("fork")  # the memory is shared by being inherited
    running: dict[Connection, tuple[ForkProcess, mmap.mmap, Semaphore]] = {}

    def epochs(worker: int) -> Iterator[Batch]:
        os.environ |= {"WORKER": str(worker), "NUM_WORKERS": str(workers)}
        for _ in task.passes:
            yield from pipeline(shards, task.shuffle_buffer // workers)

    for worker in range(workers):
        memory, free, (near, far) = mmap.mmap(-1, AHEAD * PLACE), fork.Semaphore(AHEAD), fork.Pipe(duplex=False)
        process = fork.Process(target=_work, args=(epochs(worker), memory, free, far), daemon=True)
        process.start()
        far.close()
        running[near] = process, memory, free
    try:
        while running:
            ready = wait(list(running))
            for near in [end for end in running if end in ready]:
                process, memory, free = running[near]
                try:
                    shape, dtype, at, labels = near.recv()
                except EOFError:
                    process.join()
                    if process.exitcode:
                        raise RuntimeError(
                            f"a process that reads {task.source} ended with {process.exitcode}"
                        ) from None
                    del running[near]
                    continue
                yield np.ndarray(shape, dtype, memory, at), labels
                free.release()
    finally:
        for process, *_ in running.values():
            process.terminate()
            process.join()
