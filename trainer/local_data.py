"""`--cache_dir`: the files that a training reads, on local disk while it runs. Importing this imports no TensorFlow."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence

from schemas.dataset import Dataset
from schemas.dataset.local_cache import LocalCache

_LOG_SECONDS = 10.0


@contextlib.contextmanager
def local_data(
    dataset: Dataset, splits: Sequence[str], cache_dir: str | None, cache_gb: float, *, quiet: bool
) -> Iterator[Dataset]:
    """The dataset, read from a cache in `cache_dir`; without one, as it is.

    Args:
      dataset: an opened dataset.
      splits: those that are read; other names than the dataset's are left out.
      cache_dir: the cache's folder.
      cache_gb: the most that all files in it may take.
      quiet: whether to say nothing of what is copied.

    Raises:
      UsageError: the cache is too small for what TensorFlow cannot read where it is.
      MillraceError: a file cannot be copied.
    """
    if cache_dir is None:
        yield dataset
        return
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
        held = cache.hold(dataset, [split for split in splits if split in dataset.splits], copied=copied)
        say(
            f"{held.files - held.copied:,} files were in {cache_dir}, {held.copied:,} of "
            f"{held.copied_bytes / 1e6:,.1f} MB were copied"
        )
        if held.left_out:
            say(
                f"{len(held.left_out):,} shards do not fit within --cache_gb {cache_gb:g}, and are read from "
                f"{dataset.path} in every epoch"
            )
        yield held.dataset
