"""Before a model runs: TensorFlow is started, data copied to local disk. Importing this imports no TensorFlow."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from schemas.errors import counted
from schemas.exports.session import set_log_level
from schemas.libraries import quick_import, starting_tensorflow

if TYPE_CHECKING:
    from schemas.dataset import OpenDataset


def start_tensorflow(
    *, verbose: bool, logical_cpus: int | None = None, inter_op: int | None = None, intra_op: int | None = None
) -> None:
    """Imports TensorFlow, and finds its devices. Its logs, and Estimator's, are of errors only, unless `verbose`.

    Args:
      verbose: whether TensorFlow logs more than errors.
      logical_cpus: how many devices the CPU is divided into.
      inter_op, intra_op: threads; see `trainer.strategies.run_config`.
    """
    os.environ.setdefault("GCS_READ_CACHE_BLOCK_SIZE_MB", "16")  # of each open shard; TensorFlow's default is 64
    with starting_tensorflow(verbose=verbose):
        quick_import("tensorflow", "trainer.estimator")  # the latter settles which Keras tf.keras is, before it is used
        import tensorflow as tf

        from trainer.strategies.run_config import set_threads, split_cpu

        set_threads(inter_op=inter_op, intra_op=intra_op)
        split_cpu(logical_cpus)
        tf.config.list_logical_devices()
    set_log_level(logging.INFO if verbose else logging.ERROR)


_LOG_SECONDS = 10.0


@contextlib.contextmanager
def local_data(
    dataset: OpenDataset, splits: Sequence[str], cache_dir: str | None, cache_gb: float, *, quiet: bool
) -> Iterator[OpenDataset]:
    """Opens the dataset from a cache in `cache_dir`; without one, as it is.

    Args:
      dataset: an opened dataset.
      splits: those that are read; other names than the dataset's are left out.
      cache_dir: the cache's folder.
      cache_gb: the most that all files in it may take.
      quiet: whether to say nothing of what is copied.

    Raises:
      UsageError: the cache is too small for the dataset.
      MillraceError: a file cannot be copied.
    """
    if cache_dir is None:
        yield dataset
        return
    from schemas.dataset.local_cache import LocalCache

    shown = time.monotonic()

    def say(text: str) -> None:
        if not quiet:
            print(f"cache    {text}", file=sys.stderr, flush=True)

    def copied(name: str, size: int) -> None:
        nonlocal shown
        if time.monotonic() - shown > _LOG_SECONDS:
            shown = time.monotonic()
            say(f"copied {name}, {size / 1e6:,.1f} MB")

    with contextlib.closing(LocalCache(cache_dir, int(cache_gb * 1e9))) as cache:
        copies = cache.hold(dataset, [split for split in splits if split in dataset.splits], copied=copied)
        say(
            f"{counted(copies.files - copies.copied, 'files')} found in {cache_dir}, {copies.copied:,} of "
            f"{copies.copied_bytes / 1e6:,.1f} MB copied"
        )
        yield copies.dataset
