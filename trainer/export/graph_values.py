"""Evaluates a small graph on serialized records, in a session of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from schemas.dataset import Dataset
from schemas.spec.forms import RawColumn
from schemas.spec.raw_columns import raw_columns


def strict_spec(columns: tuple[RawColumn, ...]) -> dict[str, Any]:
    """The parsing spec of raw records. They contain every column, so a missing one is an error here."""
    import tensorflow as tf

    return {c.name: tf.io.FixedLenFeature(c.shape, tf.as_dtype(c.dtype)) for c in columns}


def plain_session() -> Any:
    """The configuration of a session that runs a graph as it is, without Grappler.

    Optimizing the graph of an image export takes two seconds for each signature, and no batch is quicker for it: 64
    images through a SqueezeNext take 0.15 s either way, 1,024 rows through a dnn 7 ms.
    """
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto(gpu_options={"allow_growth": True})
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return config


def graph_values(build: Callable[[Any], Mapping[str, Any]], records: Sequence[bytes]) -> dict[str, Any]:
    """Evaluates the tensors that `build` returns, in a new graph, since the caller may be inside another one.

    Args:
      build: string `[records]` -> tensors by name.
      records: the serialized records to feed.

    Returns:
      Arrays by name `[records, ...]`; for a sparse tensor, one array per record.
    """
    with opened_graph(build) as values:
        return values(records)


@contextlib.contextmanager
def opened_graph(build: Callable[[Any], Mapping[str, Any]]) -> Iterator[Callable[[Sequence[bytes]], dict[str, Any]]]:
    """The same, to be fed more than once: yields a function from records to values by name."""
    import tensorflow as tf

    with tf.Graph().as_default(), tf.compat.v1.Session(config=plain_session()) as session:
        serialized = tf.compat.v1.placeholder(tf.string, [None])
        tensors = dict(build(serialized))
        session.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.tables_initializer()])

        def values(records: Sequence[bytes]) -> dict[str, Any]:
            found = session.run(tensors, {serialized: list(records)})
            return {
                name: _records_of(value) if hasattr(value, "dense_shape") else value for name, value in found.items()
            }

        yield values


def transformed_values(dataset: Dataset, raw: Sequence[bytes]) -> dict[str, Any]:
    """Applies the dataset's transform to raw records: arrays by feature, `[records, ...]`."""
    import tensorflow as tf
    import tensorflow_transform as tft

    from trainer.spec.transform_graph import transformed

    output = tft.TFTransformOutput(dataset.graphs_dir)

    def parsed_and_transformed(serialized: Any) -> Mapping[str, Any]:
        parsed = tf.io.parse_example(serialized, strict_spec(raw_columns(dataset.schema)))
        return transformed(output, parsed)

    return graph_values(parsed_and_transformed, raw)


def _records_of(sparse: Any) -> list[Any]:
    """A SparseTensorValue of rank 2 -> its values by record."""
    import numpy as np

    counts = np.bincount(sparse.indices[:, 0], minlength=int(sparse.dense_shape[0]))
    return np.split(sparse.values, np.cumsum(counts)[:-1])
