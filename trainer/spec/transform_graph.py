"""Applies a dataset's tf.Transform graph inside another graph."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from schemas.dataset import OpenDataset
from schemas.dataset.records import graph_inputs
from schemas.spec.table import CODES, NUMBERS, WORDS, number_columns, word_columns


@tf.autograph.experimental.do_not_convert  # tf.Transform's layer needs no AutoGraph; converting it takes a second
def transformed(transform_output: tft.TFTransformOutput, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Applies the transform of a dataset run inside the current graph.

    Args:
      transform_output: the transform of the run.
      inputs: inputs of the transform graph, by name. Only features that can be computed from these inputs are computed.

    Returns:
      The transformed features by name.
    """
    return dict(transform_output.transform_raw_features(dict(inputs), drop_unused_features=True))


def side_by_side(columns: Sequence[Any]) -> tf.Tensor:
    """Joins columns of shape `[batch]` or `[batch, ...]` into one matrix `[batch, sum of widths]`, with few ops."""
    parts: list[tf.Tensor] = []
    # Neighbouring columns of rank 1 are stacked by a single op, since a reshape for each column would make many ops.
    for rank, run in itertools.groupby(map(tf.convert_to_tensor, columns), lambda x: x.shape.rank):
        tensors = list(run)
        if rank == 1:
            tensors = [tf.stack(tensors, axis=1)]
        parts += [tf.reshape(x, [-1, math.prod(x.shape[1:])]) if rank > 2 else x for x in tensors]
    return tf.concat(parts, axis=1)


def row_transform(dataset: OpenDataset) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Returns a function that applies the dataset's transform: raw columns by name -> transformed features by name.

    Raises:
      MillraceError: a file of the transform is damaged.
    """
    output = tft.TFTransformOutput(dataset.graphs_dir)
    together = [column.name for column in graph_inputs(dataset.graphs_dir, dataset.schema)]
    numbers = number_columns(dataset.schema) if NUMBERS in together else ()
    words = word_columns(dataset.schema) if WORDS in together else ()
    names = {column.name for column in (*numbers, *words)}

    def transform(raw: Mapping[str, Any]) -> dict[str, Any]:
        """Applies the transform to a batch of raw columns, `[batch]` each."""
        inputs = {name: x for name, x in raw.items() if name not in names}
        if numbers:
            inputs[NUMBERS] = side_by_side([raw[column.name] for column in numbers])
        if words:
            # The transform graph takes all text columns together: WORDS is a list of each column's distinct words, one
            # column after another, as the first row of a sparse matrix. CODES `[rows, columns]` is the index of each
            # row's word in the column's part of the list.
            unique = [tf.unique(raw[column.name], out_idx=tf.int64) for column in words]
            values = tf.concat([vocabulary.y for vocabulary in unique], axis=0)
            count = tf.size(values, tf.int64)
            places = tf.stack([tf.zeros([count], tf.int64), tf.range(count)], axis=1)
            inputs[CODES] = tf.stack([vocabulary.idx for vocabulary in unique], axis=1)
            inputs[WORDS] = tf.SparseTensor(places, values, [tf.shape(inputs[CODES], tf.int64)[0], count])
        return transformed(output, inputs)

    return transform
