"""The records that the job keeps to prove by that nothing is skewed: raw ones, each beside what is stored of it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

from schemas.dataset import Dataset, layout
from schemas.errors import MillraceError

MOST_BYTES = 256 << 20  # of raw records: files of images may be large, and fewer of them will do


@dataclasses.dataclass(frozen=True)
class ParityRecords:
    """Raw records and their transformed records, each serialized as a `tf.Example`, in the same order."""

    raw: tuple[bytes, ...]
    transformed: tuple[bytes, ...]


def read_parity_records(dataset: Dataset) -> ParityRecords:
    """The records that the job kept, as many as `MOST_BYTES` hold of raw ones.

    Raises:
      MillraceError: there are none, or not as many raw ones as transformed ones.
    """
    raw, transformed = (_records(dataset, name) for name in (layout.PARITY_RAW, layout.PARITY_TRANSFORMED))
    kept: list[tuple[bytes, bytes]] = []
    size = 0
    for one, other in itertools.zip_longest(raw, transformed):
        if one is None or other is None:
            raise MillraceError(
                f"{dataset.run_dir}: {'no raw' if one is None else 'no transformed'} parity record beside the "
                f"{'transformed' if one is None else 'raw'} record {len(kept)}; expected equally many of each. Write "
                "the dataset again."
            )
        size += len(one)
        if kept and size > MOST_BYTES:
            break
        kept.append((one, other))
    if not kept:
        raise MillraceError(
            f"{dataset.run_dir}: 0 raw and 0 transformed parity records; expected at least one. Write the "
            "dataset again."
        )
    return ParityRecords(tuple(one for one, _ in kept), tuple(other for _, other in kept))


def _records(dataset: Dataset, name: str) -> Iterator[bytes]:
    import tensorflow as tf

    path = layout.join(dataset.run_dir, name)
    try:
        yield from tf.compat.v1.io.tf_record_iterator(path)
    except tf.errors.OpError as error:
        raise MillraceError(f"{path}: cannot be read ({error.message}); write the dataset again") from error
