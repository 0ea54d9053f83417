"""The input of a training by stage: reading, reading and shuffling, and so on up to complete batches.

Each prefix of the pipeline is built by the functions that training uses, and yields one element for each batch.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from schemas.dataset import Dataset
from trainer.data.input_fn import (
    images,
    input_fn,
    is_held,
    parsed_in_blocks,
    parser,
    row_blocks,
    stored_records,
    untuned,
    window_rows,
)
from trainer.data.input_options import InputOptions, input_options, shuffle_rows
from trainer.estimator import tf_estimator
from trainer.images.augment import augment_options, seeds
from trainer.images.inputs import image_examples, record_spec
from trainer.spec.hparams import Augmentation
from trainer.spec.options import TrainingPlan

TRAIN = tf_estimator.ModeKeys.TRAIN
PREFETCH = 2  # batches
SHARDS = 8
FEW_SHARDS = 4  # fewer cannot be read well in parallel
WHOLE = "input alone"
TO_DEVICE = "to the device"
PLAIN = Augmentation(flip=False)  # the random crop, and nothing else


def measured(dataset: Dataset, options: TrainingPlan) -> InputOptions:
    """How the training reads its input, with a fixed number of prefetched batches: as asked, or two.

    tf.data prefetches more each time that its buffer runs empty, which happens in every turn. It would refill the
    buffer during the turns of other ways and slow them down. Training that waits for its model stays at two batches.
    """
    how = input_options(dataset, options, split="train", mode=TRAIN)
    return how if options.prefetch is not None else dataclasses.replace(how, prefetch=PREFETCH)


def prefixes(dataset: Dataset, options: InputOptions) -> dict[str, tf.data.Dataset]:
    """The pipeline up to the end of each stage, by the stage's name, in order.

    Returns:
      Datasets that repeat forever, with one small element for each batch. The last one, `WHOLE`, prefetches.
    """
    if is_held(dataset, "train", options):  # the split is read once, which costs nothing later
        found = {_of_held(dataset): _without_prefetch(dataset, options)}
    else:
        found = _of_columns(dataset, options) if dataset.image_schema is None else _of_images(dataset, options)
    found[WHOLE] = input_fn(dataset, "train", mode=TRAIN, options=options)
    return {name: counted(batches) for name, batches in found.items()}


def made_ahead(dataset: Dataset, options: InputOptions) -> int:
    """The number of batches that the input prefetches while none are read: those of two shuffle windows.

    0 if it has no windows: it then prefetches only a few batches.
    """
    if dataset.image_schema is not None or not options.shuffle_buffer or is_held(dataset, "train", options):
        return 0
    return math.ceil(2 * min(dataset.rows("train"), window_rows(options)) / options.batch_size)


def counted(batches: tf.data.Dataset) -> tf.data.Dataset:
    """The same work, with elements that cost nothing to pass to Python."""
    return batches.map(lambda *batch: 0)


def _of_held(dataset: Dataset) -> str:
    return "gather" if dataset.image_schema is None else "crop"


def _without_prefetch(dataset: Dataset, options: InputOptions) -> tf.data.Dataset:
    return input_fn(dataset, "train", mode=TRAIN, options=dataclasses.replace(options, prefetch=0))


def _of_columns(dataset: Dataset, options: InputOptions) -> dict[str, tf.data.Dataset]:
    made = _without_prefetch(dataset, options)
    found = {"read": _up_to(dataset, options, tf.identity)}
    if not parsed_in_blocks(dataset):
        found["shuffle"] = stored_records(dataset, "train", TRAIN, options)
        found["parse"] = made
    else:
        found["parse"] = _up_to(dataset, options, parser(dataset, TRAIN))
        found["shuffle"] = made
    return found if options.shuffle_buffer else {"read": found["read"], "parse": made}


def _up_to(dataset: Dataset, options: InputOptions, parse: Callable[[tf.Tensor], Any]) -> tf.data.Dataset:
    """Reads blocks and applies `parse`; yields a byte for each row, in batches.

    The rows themselves stay in the thread that read them, as in training.
    """

    def marks(serialized: tf.Tensor) -> tf.Tensor:
        return tf.zeros(tf.shape(tf.nest.flatten(parse(serialized))[0])[:1], tf.int8)

    blocks = row_blocks(dataset, "train", options, marks, seed=tf.zeros([2], tf.int64)).repeat()
    return untuned(blocks.rebatch(options.batch_size))


def _of_images(dataset: Dataset, options: InputOptions) -> dict[str, tf.data.Dataset]:
    schema = dataset.image_schema
    assert schema is not None  # noqa: S101 - the caller has checked
    in_order = dataclasses.replace(options, shuffle_buffer=0)
    spec, size = record_spec(schema), schema.images.input_size

    def records(how: InputOptions) -> tf.data.Dataset:
        return stored_records(dataset, "train", TRAIN, how)

    def parsed(record: tf.Tensor) -> tf.Tensor:
        values = tf.nest.flatten(tf.io.parse_single_example(record, spec))
        return tf.add_n([tf.strings.length(v) if v.dtype == tf.string else tf.cast(v, tf.int32) for v in values])

    def decoded(augmentation: Augmentation) -> tf.data.Dataset:
        examples = image_examples(
            records(options),
            schema,
            augment_options(augmentation, size),
            seeds=seeds(options.seed),
            deterministic=options.deterministic,
        )
        return examples.map(lambda features, label: [image[0, 0, 0] for image in features.values()])

    found = {"read": records(in_order)}
    if options.shuffle_buffer:
        found["shuffle"] = records(options)
    found["parse"] = records(options).map(
        parsed, num_parallel_calls=tf.data.AUTOTUNE, deterministic=options.deterministic
    )
    found["decode and crop" if schema.images.store == "jpeg" else "crop"] = decoded(PLAIN)
    if options.augmentation != PLAIN:
        found["augment"] = decoded(options.augmentation)
    found = {name: examples.batch(options.batch_size) for name, examples in found.items()}
    return {**found, "batch": images(dataset, "train", records(options), TRAIN, options)}


def settings(dataset: Dataset, options: InputOptions) -> dict[str, tuple[str, ...]]:
    """By stage, the settings that would make it cheaper than it is, as they are typed."""
    if is_held(dataset, "train", options):
        return {_of_held(dataset): ("no --deterministic",)} if options.deterministic else {}
    usual = dataclasses.replace(options, shuffle_buffer=shuffle_rows(dataset, "train", None))
    possible = {
        "no --shuffle_buffer, so that the split is held in memory": is_held(dataset, "train", usual),
        "--compression none, of millrace preprocess": bool(dataset.compression),
        f"--num_shards {SHARDS}, of millrace preprocess": len(dataset.shards("train")) < FEW_SHARDS,
        "no --deterministic": options.deterministic,
    }
    found = {"read": tuple(setting for setting, wanted in possible.items() if wanted)}
    if dataset.image_schema is None:
        return found
    if options.shuffle_buffer >= 20 * options.batch_size:
        found["shuffle"] = (f"--shuffle_buffer {options.shuffle_buffer // 10}",)
    if dataset.image_schema.images.store == "jpeg":
        found["decode and crop"] = ("images: {store: raw}, in the schema",)
    if options.augmentation.color_jitter or options.augmentation.resized_crop is not None:
        found["augment"] = ("--augment color_jitter=0 resized_crop=none",)
    return found


def accelerator() -> str | None:
    """The device that batches are copied to; None if training runs on the CPU."""
    devices = [device for device in tf.config.list_logical_devices() if device.device_type != "CPU"]
    return devices[0].name if devices else None


def copies(dataset: Dataset, options: InputOptions, device: str) -> Callable[[], None]:
    """A function that copies the next batch of the complete input to a device and waits for it."""
    iterator = iter(input_fn(dataset, "train", mode=TRAIN, options=options))

    def step() -> None:
        batch = next(iterator)
        with tf.device(device):
            there = [tf.identity(x) for x in tf.nest.flatten(batch, expand_composites=True) if x.dtype != tf.string]
            sum(float(tf.reduce_sum(tf.cast(x[:1], tf.float32))) for x in there)  # a value that depends on each

    return step
