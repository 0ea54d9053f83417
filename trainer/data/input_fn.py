"""Reads a dataset's records: shards in, batches of (features, label) out.

Transformed records of a CSV dataset are parsed many at a time, in C++: record by record is a tenth of the rate. In
training the shards are opened in random order and read side by side, in blocks, each of which the thread that has read
it also parses; windows of many blocks are then shuffled whole (`trainer.data.window_shuffle`). What is done for every
record by itself is what limits the rate. (The job has dealt the records to the shards at random, and shuffled each
shard whole.) A split of moderate size is read once and held in memory, which leaves more of the cores to the model.
Evaluation and prediction read the shards one after the other, so that every run sees the same records in the same
order.

Images are decoded, and in training cropped and changed at random, one by one on every core (`trainer.images.inputs`);
there each shard has a shuffle buffer of its own, so that they are shuffled in parallel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from schemas.dataset import Dataset
from schemas.errors import MillraceError
from trainer.data.input_options import InputOptions
from trainer.data.interleave import READ_BUFFER, side_by_side
from trainer.data.window_shuffle import GATHERED, kept, shuffled_batches, windows
from trainer.estimator import tf_estimator
from trainer.images import augment
from trainer.images.hooks import name_split
from trainer.images.inputs import image_examples, record_spec

ModeKeys = tf_estimator.ModeKeys
READ_TOGETHER = 4096  # rows, at most: of a shard, before the next one's turn
UNPACKED = 8  # times the size of a compressed shard: about what its records take
STRING = 64  # bytes, about what one takes


def input_fn(dataset: Dataset, split: str, *, mode: str, options: InputOptions, config: Any = None) -> tf.data.Dataset:
    """Reads a split.

    Args:
      dataset: an opened dataset; its manifest names the shards.
      split: 'train', 'eval' or 'test'.
      mode: a `tf_estimator.ModeKeys`. TRAIN shuffles, repeats and reads this worker's part; EVAL and PREDICT read the
        whole split in order. The key is among the features in PREDICT only.
      options: see `InputOptions`.
      config: the `RunConfig` of a cluster's task, which says what part of the split it reads.

    Returns:
      A `tf.data.Dataset` of (features, label): features by name, each `[batch]`, `[batch, n]` or a SparseTensor, the
      weight among them; the label int64 `[batch]` (a class) or float32 `[batch]`. Of images, the features are uint8
      `[batch, height, width, 3]`: `image`, or `left` and `right`.

    Raises:
      MillraceError: the dataset has no such split.
    """
    name_split(split)
    if mode == ModeKeys.TRAIN and config is not None:
        options = options.for_task(config)
    if dataset.image_schema is not None:
        read = images(dataset, stored_records(dataset, split, mode, options), mode, options)
    elif mode == ModeKeys.TRAIN and parsed_in_blocks(dataset):
        read = row_batches(dataset, split, options, parser(dataset, mode))
    else:
        read = columns(dataset, stored_records(dataset, split, mode, options), mode, options)
    return read.prefetch(options.prefetch)


def stored_records(dataset: Dataset, split: str, mode: str, options: InputOptions) -> tf.data.Dataset:
    """A split's serialized records, in the order and as often as the mode reads them.

    Returns:
      A Dataset of string: batches of a CSV dataset's records, `[batch_size]`, the last one smaller unless it is
      dropped; one by one, `[]`, those of images.
    """
    rows = dataset.image_schema is None
    if mode == ModeKeys.TRAIN:
        return row_batches(dataset, split, options) if rows else shuffled(dataset, split, options)
    records = tf.data.TFRecordDataset(list(dataset.shards(split)), dataset.compression, READ_BUFFER)
    records = records.repeat(options.num_epochs or 1)
    return untuned(records.batch(options.batch_size, options.drop_remainder)) if rows else records


def untuned(rows: tf.data.Dataset) -> tf.data.Dataset:
    """Read without tf.data's own timing of every stage: a record is so small that its timing costs as much again.

    A block is parsed by one thread, the one that has read it: more than one share what is in its cache.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    options.threading.max_intra_op_parallelism = 1
    return rows.with_options(options)


def is_held(dataset: Dataset, split: str, options: InputOptions) -> bool:
    """Whether training reads a split once and holds it in memory."""
    if dataset.image_schema is not None or not options.shuffle_buffer:
        return False
    if parsed_in_blocks(dataset):
        spec = training_spec(dataset).values()
        width = sum(math.prod(f.shape) * max(f.dtype.size, STRING * (f.dtype == tf.string)) for f in spec)
        return dataset.rows(split) * width <= options.cache_bytes
    size = sum(shard.bytes for shard in dataset.manifest.splits[split].shards)
    return (UNPACKED * size if dataset.compression else size) <= options.cache_bytes


def row_batches(
    dataset: Dataset, split: str, options: InputOptions, parse: Callable[[tf.Tensor], Any] | None = None
) -> tf.data.Dataset:
    """Batches of one worker's part of a CSV split for training: what `parse` makes of records, or the records.

    Args:
      parse: takes string `[n]` and gives dense tensors `[n, ...]`.
    """
    blocks = row_blocks(dataset, split, options, parse)
    if not options.shuffle_buffer:
        return untuned(blocks.repeat(options.num_epochs).rebatch(options.batch_size, options.drop_remainder))
    rows, epochs = dataset.rows(split), options.num_epochs
    if is_held(dataset, split, options):
        parts = kept(blocks, rows=rows, num_epochs=epochs)
    else:
        rows = math.ceil(rows / options.num_workers)
        parts = windows(blocks, rows=rows, window=window_rows(options), num_epochs=epochs, seed=options.seed)
    batches = shuffled_batches(
        parts,
        batch_size=options.batch_size,
        drop_remainder=options.drop_remainder,
        seed=options.seed,
        deterministic=options.deterministic,
    )
    return untuned(batches)


def window_rows(options: InputOptions) -> int:
    """Rows that are shuffled whole: what is as good as the shuffle buffer that was asked for, or better."""
    return max(2 * options.shuffle_buffer, GATHERED)


def row_blocks(
    dataset: Dataset, split: str, options: InputOptions, parse: Callable[[tf.Tensor], Any] | None = None
) -> tf.data.Dataset:
    """The same once through, in blocks, and shuffled no more than by the order in which shards are opened."""

    def blocks(records: tf.data.Dataset, seed: tf.Tensor, open_shards: int) -> tf.data.Dataset:
        share = (
            window_rows(options) // (4 * open_shards) if options.shuffle_buffer else 0
        )  # several blocks of each shard
        found = records.batch(min(READ_TOGETHER, max(options.block_length, share)))
        return found if parse is None else found.map(parse)

    return side_by_side(dataset, split, options, blocks, block_length=1)


def parser(dataset: Dataset, mode: str) -> Callable[[tf.Tensor], tuple[dict[str, Any], tf.Tensor]]:
    """A function that makes (features, label) of serialized records of a CSV dataset, string `[n]`."""
    spec = stored_spec(dataset) if mode == ModeKeys.PREDICT else training_spec(dataset)
    label = dataset.schema.label.name

    def parse(serialized: tf.Tensor) -> tuple[dict[str, Any], tf.Tensor]:
        features = tf.io.parse_example(serialized, spec)
        return features, features.pop(label)

    return parse


def columns(dataset: Dataset, batches: tf.data.Dataset, mode: str, options: InputOptions) -> tf.data.Dataset:
    """(features, label) of a CSV dataset's batches of serialized records."""
    in_order = options.deterministic or mode != ModeKeys.TRAIN
    return batches.map(parser(dataset, mode), num_parallel_calls=tf.data.AUTOTUNE, deterministic=in_order)


def images(dataset: Dataset, records: tf.data.Dataset, mode: str, options: InputOptions) -> tf.data.Dataset:
    """Batches of (features, label) of an image dataset's serialized records."""
    assert dataset.image_schema is not None  # noqa: S101 - the caller has looked
    training = mode == ModeKeys.TRAIN
    examples = image_examples(
        records,
        dataset.image_schema,
        augment.augment_options(options.augmentation, dataset.image_schema.images.input_size),
        seeds=augment.seeds(options.seed) if training else None,
        deterministic=options.deterministic or not training,
    )
    return examples.batch(options.batch_size, drop_remainder=options.drop_remainder)


def stored_spec(dataset: Dataset) -> dict[str, Any]:
    """How a record of the shards is parsed."""
    if dataset.image_schema is not None:
        return record_spec(dataset.image_schema)
    return dict(tft.TFTransformOutput(dataset.graphs_dir).transformed_feature_spec())


def training_spec(dataset: Dataset) -> dict[str, Any]:
    """The same of a CSV dataset, without the key."""
    key = dataset.schema.key
    return {name: entry for name, entry in stored_spec(dataset).items() if key is None or name != key.name}


def parsed_in_blocks(dataset: Dataset) -> bool:
    """Whether training parses a CSV dataset's records before it shuffles them: where all features are dense."""
    return all(isinstance(entry, tf.io.FixedLenFeature) for entry in training_spec(dataset).values())


def shuffled(dataset: Dataset, split: str, options: InputOptions) -> tf.data.Dataset:
    """One worker's part of an image split for training, in another order in each epoch: serialized records, `[]`.

    They are handed on one by one: they are large, and cost more to copy into blocks.
    """

    def records_of(records: tf.data.Dataset, seed: tf.Tensor, open_shards: int) -> tf.data.Dataset:
        size = math.ceil(options.shuffle_buffer / open_shards)
        return records.shuffle(size, seed=seed) if size else records

    once = side_by_side(dataset, split, options, records_of, block_length=options.block_length)
    return once.repeat(options.num_epochs)


def find_unreadable_shard(dataset: Dataset, split: str) -> MillraceError | None:
    """Reads a split's shards through, one by one, after a read of them failed.

    Returns:
      What is wrong with the first that cannot be read, naming the file and the record; None where all can be.
    """
    spec = stored_spec(dataset)
    for path in dataset.shards(split):
        rows = 0
        try:
            for batch in tf.data.TFRecordDataset(path, dataset.compression).batch(1000):
                tf.io.parse_example(batch, spec)
                rows += int(batch.shape[0])
        except (tf.errors.DataLossError, tf.errors.InvalidArgumentError, tf.errors.NotFoundError) as error:
            return MillraceError(
                f"{path}: cannot be read after record {rows:,} ({error.message}). The file was damaged after it was "
                "written: restore it, or write the dataset again."
            )
    return None
