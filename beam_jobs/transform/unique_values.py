"""A column of strings as its distinct values, which are few: string ops take time for each value."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class UniqueValues:
    """The distinct values of one column of a batch.

    Attributes:
      values: `[distinct]`; after `map` some may be equal.
      rows: int64 `[batch]`, the place of each row's value in `values`.
      counts: int64 `[distinct]`, how many rows have each value.
    """

    values: tf.Tensor
    rows: tf.Tensor
    counts: tf.Tensor

    @staticmethod
    def of(x: tf.Tensor) -> UniqueValues:
        """The distinct values of `[batch]`."""
        return UniqueValues(*tf.unique_with_counts(x, out_idx=tf.int64))

    def map(self, op: Callable[[tf.Tensor], tf.Tensor]) -> UniqueValues:
        """Applies `op` to the distinct values."""
        return dataclasses.replace(self, values=op(self.values))

    def spread(self, results: tf.Tensor) -> tf.Tensor:
        """`[batch]`: each row's result, from the results of the values."""
        return tf.gather(results, self.rows)
