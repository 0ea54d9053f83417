"""A column of strings as its distinct values: string ops cost by the value, and a batch of rows holds few."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class UniqueValues:
    """A batch's values of one column, each once.

    Attributes:
      values: `[distinct]`. What `map` makes of them may hold equal ones.
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
        """The same rows, with what `op` makes of each value."""
        return dataclasses.replace(self, values=op(self.values))

    def spread(self, results: tf.Tensor) -> tf.Tensor:
        """`[batch]`: each row's result, from the results of the values."""
        return tf.gather(results, self.rows)
