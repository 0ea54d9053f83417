"""What the host of a TPU computes of a batch, at the end of the input pipeline, since XLA does not compile it.

The step gets dense tensors of fixed shapes:

* A bag of ids, which is a SparseTensor elsewhere, becomes int64 `[batch, longest]`, filled up with -1; its weights
  become float32, filled up with 0. `longest` is the length of the train split's longest bag, so none is cut.
* Images are normalized by the dataset's transform graph: float32 instead of uint8.
* Strings are left out. No model has any among its inputs: words became ids when the dataset was written.

Numbers, single ids, texts of a fixed length, weights and labels are dense already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from schemas.dataset import Dataset
from schemas.errors import UsageError
from trainer.data.epochs import stored
from trainer.data.input_fn import training_spec
from trainer.images.inputs import normalized, note_normalized

NO_ID = -1
MOST_BYTES = 1 << 30  # of one feature of a batch
_SCANNED = 4096  # records at once

Features = dict[str, Any]


def host_features(dataset: Dataset, *, batch_size: int) -> Callable[[Features, tf.Tensor], tuple[Features, tf.Tensor]]:
    """What the host makes of a batch of a TPU's training, for `InputOptions.on_host`.

    Reads the train split through once, if it holds bags of ids.

    Args:
      dataset: what is trained on.
      batch_size: of a step.

    Returns:
      A function of (features, label), which gives them as the step gets them.

    Raises:
      UsageError: a batch of padded bags would take too much memory.
    """
    if dataset.image_schema is not None:
        return lambda features, label: (_normalized(features, dataset), label)
    sparse = {name: x for name, x in training_spec(dataset).items() if isinstance(x, tf.io.VarLenFeature)}
    found = {name: entry.dtype for name, entry in sparse.items() if entry.dtype != tf.string}
    bags = longest_bags(dataset, found)
    for name, length in bags.items():
        size = batch_size * length * found[name].size
        if size > MOST_BYTES:
            raise UsageError(
                f"--tpu: {dataset.path}: the longest {name!r} of the train split has {length:,} ids; filled up to "
                f"that, {batch_size:,} examples take {size / 2**30:,.1f} GiB. Give the feature a length in the schema, "
                "or use a smaller --batch_size."
            )
    return lambda features, label: (_dense(features, bags, rows=label.shape[0]), label)


def part_of_host(params: Mapping[str, Any]) -> dict[str, Any]:
    """The part of the split that a host of a TPU reads, as arguments of `InputOptions`: each host feeds its own cores.

    Args:
      params: as TPUEstimator calls an `input_fn`; without a TPU it names no host, which then reads all.
    """
    context = params.get("context")
    return {} if context is None else {"num_workers": context.num_hosts, "worker": context.current_host}


def note_host_features(dataset: Dataset, features: Features) -> None:
    """To be called where the step is built, before the model, with the features that it gets from the host."""
    if dataset.image_schema is not None:
        for images in features.values():
            note_normalized(images)


def longest_bags(dataset: Dataset, bags: Mapping[str, tf.DType]) -> dict[str, int]:
    """The length of the train split's longest bag of each feature, whose values are of this dtype; at least 1."""
    if not bags:
        return {}
    spec = {name: tf.io.VarLenFeature(dtype) for name, dtype in bags.items()}

    def longest(records: tf.Tensor) -> tf.Tensor:
        found = tf.io.parse_example(records, spec)
        return tf.stack([found[name].dense_shape[1] for name in bags])

    batches = stored(list(dataset.shards("train")), dataset.compression).batch(_SCANNED)
    found = batches.map(longest, num_parallel_calls=tf.data.AUTOTUNE)
    lengths = found.reduce(tf.ones([len(bags)], tf.int64), tf.maximum)
    return dict(zip(bags, lengths.numpy().tolist(), strict=True))


def _normalized(features: Features, dataset: Dataset) -> Features:
    transform_output = tft.TFTransformOutput(dataset.graphs_dir)
    return {name: normalized(images, transform_output) for name, images in features.items()}


def _dense(features: Features, bags: Mapping[str, int], *, rows: int | None) -> Features:
    """Bags by the lengths of the longest; without strings, and without what else is sparse, which no model reads."""
    dense = {name: x for name, x in features.items() if isinstance(x, tf.Tensor) and x.dtype != tf.string}
    return {**dense, **{name: _padded(features[name], [rows, length]) for name, length in bags.items()}}


def _padded(bags: tf.SparseTensor, shape: list[int | None]) -> tf.Tensor:
    """`[batch, length]`, which is its static shape, too."""
    full = tf.stack([bags.dense_shape[0], shape[1]])
    none = NO_ID if bags.dtype.is_integer else 0
    return tf.ensure_shape(tf.sparse.to_dense(tf.SparseTensor(bags.indices, bags.values, full), none), shape)
