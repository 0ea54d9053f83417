"""Reads a dataset's records: shards in, batches of (features, label) out.

The transformed records of a CSV dataset are parsed in blocks, by one C++ op for each block. To parse them one by one is
ten times slower. In training, the shards are opened in random order and read in parallel. The thread that reads a block
also parses it. Windows of many blocks are then shuffled completely (`trainer.data.epochs`), because a stage that
handles records one by one would limit the speed. The job that wrote the dataset has already distributed the records
among the shards at random and shuffled each shard. A split of moderate size is read once and cached in memory, which
leaves more of the cores to the model.

Evaluation and prediction read the shards one after the other, so that every run sees the same records in the same
order.

Images are decoded one by one on all cores, and in training they are also cropped and augmented
(`trainer.images.inputs`). Each open shard has a shuffle buffer of its own, so that images are shuffled in parallel. If
the decoded images of a split fit in memory, they are decoded once and kept there; their crops have the same pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft

from schemas.dataset import OpenDataset
from schemas.dataset.records import read_records
from schemas.errors import MillraceError
from schemas.spec.images import CLASS, ImageOptions
from trainer.data.epochs import (
    GATHERED,
    epochs,
    part_rows,
    repeated,
    shuffle,
    shuffled_batches,
    shuffled_places,
    side_by_side,
    stored,
    windows,
    with_threads,
    without_first,
)
from trainer.data.input_options import InputOptions
from trainer.data.pairs import WINDOW_BYTES, draw_pairs, evaluation_orders, orders, pairs_of
from trainer.estimator import tf_estimator
from trainer.images import augment
from trainer.images.inputs import decoded_windows, image_examples, pair_examples, record_spec, window_examples
from trainer.images.summaries import name_split

ModeKeys = tf_estimator.ModeKeys
READ_TOGETHER = 4096  # the most rows that are read from a shard before the next shard's turn
ROW_BLOCK = 64  # the fewest rows that are read from a shard before the next shard's turn
IMAGE_BLOCK = 16
UNPACKED = 8  # the records of a compressed shard take about this many times its size
MEASURED = 64  # records: the decoded size of all images is estimated from theirs
STRING = 64  # bytes: the assumed size of a string value


@tf.autograph.experimental.do_not_convert  # no `if` or loop here depends on a tensor; converting takes 1 s
def input_fn(
    dataset: OpenDataset, split: str, *, mode: str, options: InputOptions, config: Any = None
) -> tf.data.Dataset:
    """Reads a split as batches of (features, label).

    Args:
      dataset: an opened dataset; its manifest names the shards.
      split: 'train', 'eval' or 'test'.
      mode: a `tf_estimator.ModeKeys`. TRAIN shuffles, repeats and reads this worker's part of the split; EVAL and
        PREDICT read the whole split in order. The key column is among the features in PREDICT only.
      options: batch size, shuffling, caching and the place where reading starts.
      config: in training, the `RunConfig` of a cluster's task, which tells the worker's index and the number of
        workers. None: this process reads as `options` say.

    Returns:
      A `tf.data.Dataset` of (features, label). The features are a dictionary by name, which includes the weight column.
      Each feature is `[batch]`, `[batch, n]` or a SparseTensor. The label is int64 `[batch]` (a class id) or float32
      `[batch]` (a number). For images, the features are uint8 `[batch, height, width, 3]`: `image`, or `left` and
      `right` for pairs of images.

    Raises:
      MillraceError: the dataset has no such split.
    """
    name_split(split)
    if mode == ModeKeys.TRAIN and config is not None:
        options = options.for_task(config)
    schema = dataset.image_schema
    if schema is not None:
        read_examples = pairs if schema.pairs else images
        examples = read_examples(dataset, split, schema.images, mode, options)
        read = examples.batch(options.batch_size, drop_remainder=options.drop_remainder)
    elif mode == ModeKeys.TRAIN and parsed_in_blocks(dataset):
        parse, unpack = packing_parser(dataset)
        read = untuned(row_batches(dataset, split, options, parse).map(unpack))
    else:
        in_order = options.deterministic or mode != ModeKeys.TRAIN
        records = stored_records(dataset, split, mode, options)
        read = records.map(parser(dataset, mode), num_parallel_calls=tf.data.AUTOTUNE, deterministic=in_order)
    read = read.prefetch(tf.data.AUTOTUNE)
    return with_threads(read, dataset.shards(split), options.cycle_length) if mode == ModeKeys.TRAIN else read


def stored_records(dataset: OpenDataset, split: str, mode: str, options: InputOptions) -> tf.data.Dataset:
    """Reads a split's serialized records for a mode.

    TRAIN shuffles and repeats the records; EVAL and PREDICT read them in the order of the shards.

    Returns:
      A Dataset of serialized records, string. Records of a CSV dataset come in batches, `[batch_size]`; the last batch
      is smaller unless it is dropped. Records of images come one by one, `[]`.
    """
    rows = dataset.image_schema is None
    if mode == ModeKeys.TRAIN:
        return row_batches(dataset, split, options) if rows else shuffled(dataset, split, options)
    records = stored(list(dataset.shards(split)), dataset.compression).repeat(options.num_epochs or 1)
    return untuned(records.batch(options.batch_size, options.drop_remainder)) if rows else records


def untuned(rows: tf.data.Dataset) -> tf.data.Dataset:
    """Turns off tf.data's autotuning, and lets one thread parse a block.

    Autotuning measures the time of every element in every stage. A row is so small that the measurement would take as
    long as the work. A block is parsed by the thread that has read it, because several threads would share one core's
    cache.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    options.threading.max_intra_op_parallelism = 1
    return rows.with_options(options)


def is_held(dataset: OpenDataset, split: str, options: InputOptions) -> bool:
    """Returns whether training reads a split once and keeps it in memory."""
    if not options.shuffle_buffer:
        return False
    if dataset.image_schema is not None:
        return decoded_bytes(dataset, split, most=options.cache_bytes) <= options.cache_bytes
    if parsed_in_blocks(dataset):
        # Bytes of one parsed row: the number of values times their size; a string counts as STRING bytes.
        spec = training_spec(dataset).values()
        width = sum(math.prod(f.shape) * max(f.dtype.size, STRING * (f.dtype == tf.string)) for f in spec)
        return dataset.rows(split) * width <= options.cache_bytes
    size = sum(shard.bytes for shard in dataset.manifest.splits[split].shards)
    return (UNPACKED * size if dataset.compression else size) <= options.cache_bytes


def decoded_bytes(dataset: OpenDataset, split: str, *, most: int) -> int:
    """Estimates the size of a split's decoded images in bytes.

    The estimate reads the first images. If the encoded images alone take more than `most` bytes, their size is returned
    instead, and no image is read.
    """
    size, rows = sum(shard.bytes for shard in dataset.manifest.splits[split].shards), dataset.rows(split)
    if not rows or not most or size > most:
        return size
    return image_bytes(dataset, split) * rows


def image_bytes(dataset: OpenDataset, split: str) -> int:
    """Estimates the size of one decoded image in bytes, as the mean of the first `MEASURED` images of the split."""
    images = [record["image"] for record in read_records(dataset, split, MEASURED)]
    return 3 * sum(image.height * image.width for image in images) // max(len(images), 1)


def window_images(dataset: OpenDataset, split: str, rows: int, size: int) -> int:
    """Returns how many images are decoded together, as a window from which pairs are drawn.

    Args:
      dataset: the opened dataset.
      split: the name of the split.
      rows: the number of images to divide into windows.
      size: the most bytes that the decoded images of a window may take.

    Returns:
      The number of images in a window, at least 2 if there are as many. The windows are about equally large.
    """
    most = max(2, size // max(image_bytes(dataset, split), 1))
    rows = max(rows, 1)
    # The inner division gives the number of windows; the outer one divides the images equally among them.
    return math.ceil(rows / math.ceil(rows / most))


def row_batches(
    dataset: OpenDataset, split: str, options: InputOptions, parse: Callable[[tf.Tensor], Any] | None = None
) -> tf.data.Dataset:
    """Reads one worker's part of a CSV split for training, in batches.

    Args:
      dataset: the opened dataset.
      split: the name of the split.
      options: how the split is shuffled, cached and repeated.
      parse: turns serialized records, string `[n]`, into dense tensors `[n, ...]`. None: the batches hold serialized
        records.
    """

    def blocks(seed: tf.Tensor) -> tf.data.Dataset:
        return row_blocks(dataset, split, options, parse, seed=seed)

    any_order = tf.zeros([2], tf.int64)
    if not options.shuffle_buffer:
        # Without shuffling, a resumed training skips records in the first epoch only; the later epochs are whole.
        more = None if options.num_epochs is None else options.num_epochs - 1
        first = without_first(blocks(any_order), options.start.record)
        rows_in_order = first.concatenate(blocks(any_order).repeat(more))
        return untuned(rows_in_order.rebatch(options.batch_size, options.drop_remainder))
    rows = dataset.rows(split)
    passes: dict[str, Any] = {"num_epochs": options.num_epochs, "seed": options.seed, "start": options.start}
    if is_held(dataset, split, options):
        parts = repeated(blocks(any_order).rebatch(rows), **passes)
    else:
        rows = math.ceil(rows / options.num_workers)
        parts = windows(blocks, rows=rows, window=window_rows(options), **passes)
    batches = shuffled_batches(
        parts,
        batch_size=options.batch_size,
        drop_remainder=options.drop_remainder,
        deterministic=options.deterministic,
    )
    return untuned(batches)


def window_rows(options: InputOptions) -> int:
    """Returns the number of rows in a shuffled window.

    A window of twice the size of the requested shuffle buffer separates neighbours as well as the buffer would.
    """
    return max(2 * options.shuffle_buffer, GATHERED)


def row_blocks(
    dataset: OpenDataset,
    split: str,
    options: InputOptions,
    parse: Callable[[tf.Tensor], Any] | None = None,
    *,
    seed: tf.Tensor,
) -> tf.data.Dataset:
    """Reads one worker's part of a CSV split once, in blocks of rows.

    Args:
      dataset: the opened dataset.
      split: the name of the split.
      options: how many shards are open at a time, and how reading is shuffled.
      parse: turns serialized records, string `[n]`, into dense tensors `[n, ...]`. None: the blocks hold serialized
        records.
      seed: the epoch's seed, int64 `[2]`, which decides the order in which shards are opened.
    """

    def blocks(records: tf.data.Dataset, seed: tf.Tensor, open_shards: int) -> tf.data.Dataset:
        batches = records.batch(block_length(options, open_shards))
        return batches if parse is None else batches.map(parse)

    return side_by_side(dataset, split, options, blocks, seed=seed, block_length=1)


def block_length(options: InputOptions, open_shards: int) -> int:
    """Returns how many rows training takes from a shard before the next shard's turn.

    The number is small enough that a window holds several blocks of every open shard.
    """
    share = window_rows(options) // (4 * open_shards) if options.shuffle_buffer else 0
    return min(READ_TOGETHER, max(ROW_BLOCK, share))


def parser(dataset: OpenDataset, mode: str) -> Callable[[tf.Tensor], tuple[dict[str, Any], tf.Tensor]]:
    """Returns a function that parses serialized records of a CSV dataset, string `[n]`, into (features, label)."""
    spec = stored_spec(dataset) if mode == ModeKeys.PREDICT else training_spec(dataset)
    label = dataset.schema.label.name

    def parse(serialized: tf.Tensor) -> tuple[dict[str, Any], tf.Tensor]:
        features = tf.io.parse_example(serialized, spec)
        return features, features.pop(label)

    return parse


def packing_parser(dataset: OpenDataset) -> tuple[Callable[[tf.Tensor], Any], Callable[..., Any]]:
    """Splits the parsing of a CSV dataset's records into two functions, so that rows can be shuffled between them.

    Shuffling 1,000 tensors costs 1,000 gathers. The first function therefore stacks all features that are single
    numbers into one float32 matrix, and the second function takes the matrix apart after the shuffle.

    Returns:
      Two functions. `pack` turns serialized records, string `[n]`, into (other features, the matrix, label). `unpack`
      turns the result of `pack` into (features, label).
    """
    parse, label = parser(dataset, ModeKeys.TRAIN), dataset.schema.label.name
    spec = {name: entry for name, entry in training_spec(dataset).items() if name != label}
    numbers = [name for name, entry in spec.items() if entry.dtype == tf.float32 and not entry.shape]

    def pack(serialized: tf.Tensor) -> tuple[Any, ...]:
        features, value = parse(serialized)
        together = (tf.stack([features.pop(name) for name in numbers], axis=1),) if numbers else ()
        return features, together, value

    def unpack(features: Any, together: Any, value: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        columns = features | {
            name: x for matrix in together for name, x in zip(numbers, tf.unstack(matrix, axis=1), strict=True)
        }
        return {name: columns[name] for name in spec}, value

    return pack, unpack


def images(
    dataset: OpenDataset, split: str, stored_as: ImageOptions, mode: str, options: InputOptions
) -> tf.data.Dataset:
    """Reads a split's images one by one, as (features, label).

    Training caches the decoded images if they fit in memory.
    """
    crops = augment.augment_options(options.augmentation, stored_as.input_size)
    training = mode == ModeKeys.TRAIN
    seeds = image_seeds(dataset, split, options) if training else None
    in_order = options.deterministic or not training
    if seeds is not None and is_held(dataset, split, options):
        places = shuffled_places(held_window(dataset, split, stored_as, options))
        return window_examples(places, crops, seeds=seeds, deterministic=in_order)
    records = stored_records(dataset, split, mode, options)
    return image_examples(records, stored_as, crops, seeds=seeds, deterministic=in_order)


def held_window(dataset: OpenDataset, split: str, stored_as: ImageOptions, options: InputOptions) -> tf.data.Dataset:
    """Decodes one worker's part of a split once, and repeats it from memory in another random order in each epoch.

    Returns:
      A Dataset of (`Window`, order), one element for each epoch; `trainer.data.epochs` describes the order.
    """
    rows = part_rows(dataset, split, num_workers=options.num_workers, worker=options.worker)
    records = side_by_side(
        dataset, split, options, lambda shard, *_: shard, seed=tf.zeros([2], tf.int64), block_length=IMAGE_BLOCK
    )
    whole = decoded_windows(records, stored_as, max(rows, 1))
    return repeated(whole, num_epochs=options.num_epochs, seed=options.seed, start=options.start)


def pairs(
    dataset: OpenDataset, split: str, stored_as: ImageOptions, mode: str, options: InputOptions
) -> tf.data.Dataset:
    """Reads a split's pairs of images one by one, as (features, label).

    `trainer.data.pairs` describes which pairs are drawn. An evaluation draws the same pairs every time. Training draws
    new pairs in each epoch. They come from the whole split if its decoded images fit in memory, else from windows of
    it.
    """
    training = mode == ModeKeys.TRAIN
    if not training:
        rows = evaluated_together(dataset, split)
        windows = decoded_windows(stored(list(dataset.shards(split)), dataset.compression), stored_as, rows)
        ordered = tf.data.Dataset.zip((windows, evaluation_orders(rows))).repeat(options.num_epochs or 1)
    elif is_held(dataset, split, options):
        ordered = held_window(dataset, split, stored_as, options)
    else:
        part = part_rows(dataset, split, num_workers=options.num_workers, worker=options.worker)
        rows = window_images(dataset, split, part, options.cache_bytes or WINDOW_BYTES)

        def epoch(seed: tf.Tensor, before: tf.Tensor) -> tf.data.Dataset:
            windows = decoded_windows(shuffled_once(dataset, split, options, seed), stored_as, rows)
            return tf.data.Dataset.zip((windows, orders(seed, rows, before)))

        ordered = epochs(epoch, seed=options.seed, num_epochs=options.num_epochs, start=options.start)
    return pair_examples(
        pairs_of(ordered),
        augment.augment_options(options.augmentation, stored_as.input_size),
        seeds=image_seeds(dataset, split, options) if training else None,
        deterministic=options.deterministic or not training,
    )


def evaluated_together(dataset: OpenDataset, split: str) -> int:
    """Returns how many images form a window in an evaluation of pairs.

    The number depends on the dataset alone, so that the same pairs are drawn on every machine.
    """
    return window_images(dataset, split, dataset.rows(split), WINDOW_BYTES)


def evaluation_pairs(dataset: OpenDataset, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Finds which pairs an evaluation draws, without decoding the images.

    Returns:
      The indices of the two records of each pair in the split, int64 `[n, 2]`, and 1 where both images are of one
      identity, else 0, int64 `[n]`.
    """
    rows, spec = evaluated_together(dataset, split), {CLASS: tf.io.FixedLenFeature([], tf.int64)}
    records = stored(list(dataset.shards(split)), dataset.compression).batch(rows)
    labels = records.map(lambda serialized: tf.io.parse_example(serialized, spec)[CLASS])
    drawn = tf.data.Dataset.zip((labels, evaluation_orders(rows))).map(lambda x, order: draw_pairs(x, order[0]))
    places, same = zip(*drawn.as_numpy_iterator(), strict=True)
    return np.concatenate([part + i * rows for i, part in enumerate(places)]), np.concatenate(same)


def image_seeds(dataset: OpenDataset, split: str, options: InputOptions) -> tf.data.Dataset:
    """Returns the seeds of the augmentations in TRAIN: one for each image, or pair of images, of each epoch."""
    rows = part_rows(dataset, split, num_workers=options.num_workers, worker=options.worker)
    return augment.seeds(options.seed, begin=options.start.records(rows))


def stored_spec(dataset: OpenDataset) -> dict[str, Any]:
    """Returns the feature spec of `tf.io.parse_example` for a record of the shards."""
    if dataset.image_schema is not None:
        return record_spec(dataset.image_schema.images)
    return dict(tft.TFTransformOutput(dataset.graphs_dir).transformed_feature_spec())


def training_spec(dataset: OpenDataset) -> dict[str, Any]:
    """Returns the feature spec of `tf.io.parse_example` for training on a CSV dataset, without the key column."""
    key = dataset.schema.key
    return {name: entry for name, entry in stored_spec(dataset).items() if key is None or name != key.name}


def parsed_in_blocks(dataset: OpenDataset) -> bool:
    """Returns whether training parses a CSV dataset's records before the shuffle: only if all features are dense."""
    return all(isinstance(entry, tf.io.FixedLenFeature) for entry in training_spec(dataset).values())


def shuffled(dataset: OpenDataset, split: str, options: InputOptions) -> tf.data.Dataset:
    """Reads one worker's part of an image split, in another order in each epoch.

    Returns:
      A Dataset of serialized records, string `[]`.
    """

    def epoch(seed: tf.Tensor, before: tf.Tensor) -> tf.data.Dataset:
        return shuffled_once(dataset, split, options, seed).skip(before)

    return epochs(epoch, seed=options.seed, num_epochs=options.num_epochs, start=options.start)


def shuffled_once(dataset: OpenDataset, split: str, options: InputOptions, seed: tf.Tensor) -> tf.data.Dataset:
    """Reads one epoch of one worker's part of an image split, in the random order of `seed`.

    Images pass through shuffle buffers record by record, unlike rows: they are large, and copying them into windows
    would cost more. Each open shard has an equal share of the buffer.
    """

    def records_of(records: tf.data.Dataset, seed: tf.Tensor, open_shards: int) -> tf.data.Dataset:
        size = math.ceil(options.shuffle_buffer / open_shards)
        return shuffle(records, size, seed) if size else records

    return side_by_side(dataset, split, options, records_of, seed=seed, block_length=IMAGE_BLOCK)


def find_unreadable_shard(dataset: OpenDataset, split: str) -> MillraceError | None:
    """Looks for the damaged shard after reading a split has failed, by reading its shards one by one.

    Returns:
      The error of the first shard that cannot be read, with the file's name and the number of records before the
      damage; None if all shards can be read.
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
