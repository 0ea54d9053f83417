"""`--cache_dir`: the files that a training reads, on local disk while it runs. Importing this imports no TensorFlow."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence

from schemas.dataset import Dataset
from schemas.dataset.local_cache import LocalCache
from trainer.spec.options import TrainOptions

_LOG_SECONDS = 10.0


@contextlib.contextmanager
def local_data(dataset: Dataset, options: TrainOptions, splits: Sequence[str]) -> Iterator[Dataset]:
    """The dataset, read from the cache that the options name; without one, as it is.

    Args:
      dataset: an opened dataset.
      options: those of the training.
      splits: those that are read; other names than the dataset's are left out.

    Raises:
      UsageError: the cache is too small for what TensorFlow cannot read where it is.
      MillraceError: a file cannot be copied.
    """
    if options.cache_dir is None:
        yield dataset
        return
    shown = time.monotonic()

    def say(text: str) -> None:
        if not options.quiet:
            print(f"cache    {text}", file=sys.stderr, flush=True)

    def copied(name: str, size: int) -> None:
        nonlocal shown
        if time.monotonic() - shown > _LOG_SECONDS:
            shown = time.monotonic()
            say(f"copied {name}, {size / 1e6:,.1f} MB")

    with contextlib.closing(LocalCache(options.cache_dir, int(options.cache_gb * 1e9))) as cache:
        held = cache.hold(dataset, [split for split in splits if split in dataset.splits], copied=copied)
        say(
            f"{held.files - held.copied:,} files were in {options.cache_dir}, {held.copied:,} of "
            f"{held.copied_bytes / 1e6:,.1f} MB were copied"
        )
        if held.left_out:
            say(
                f"{len(held.left_out):,} shards do not fit within --cache_gb {options.cache_gb:g}, and are read from "
                f"{dataset.path} in every epoch"
            )
        yield held.dataset


def read_splits(options: TrainOptions) -> tuple[str, ...]:
    """The splits that a training reads."""
    return "train", options.eval_split, *(("test",) if options.evaluate_test else ())
