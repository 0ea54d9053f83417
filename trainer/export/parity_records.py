"""The parity records of a dataset: a sample of raw records and their transformed records, for the skew check."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

from schemas.dataset import Dataset, layout
from schemas.errors import MillraceError

MAX_BYTES = 256 << 20  # of raw records, since image files may be large; fewer of them are enough


@dataclasses.dataclass(frozen=True)
class ParityRecords:
    """Raw records and their transformed records, each serialized as a `tf.Example`, in the same order."""

    raw: tuple[bytes, ...]
    transformed: tuple[bytes, ...]


def read_parity_records(dataset: Dataset) -> ParityRecords:
    """Reads the parity records, up to `MAX_BYTES` of raw records.

    Raises:
      MillraceError: there are none, or the numbers of raw and transformed records differ.
    """
    raw, transformed = (_records(dataset, name) for name in (layout.PARITY_RAW, layout.PARITY_TRANSFORMED))
    pairs: list[tuple[bytes, bytes]] = []
    size = 0
    for one, other in itertools.zip_longest(raw, transformed):
        if one is None or other is None:
            raise MillraceError(
                f"{dataset.run_dir}: {'no raw' if one is None else 'no transformed'} parity record for the "
                f"{'transformed' if one is None else 'raw'} record {len(pairs)}; expected equally many of each. Write "
                "the dataset again."
            )
        size += len(one)
        if pairs and size > MAX_BYTES:
            break
        pairs.append((one, other))
    if not pairs:
        raise MillraceError(
            f"{dataset.run_dir}: 0 raw and 0 transformed parity records; expected at least one. Write the "
            "dataset again."
        )
    return ParityRecords(tuple(one for one, _ in pairs), tuple(other for _, other in pairs))


def _records(dataset: Dataset, name: str) -> Iterator[bytes]:
    import tensorflow as tf

    path = layout.join(dataset.run_dir, name)
    try:
        yield from tf.compat.v1.io.tf_record_iterator(path)
    except tf.errors.OpError as error:
        raise MillraceError(f"{path}: cannot be read ({error.message}); write the dataset again") from error
