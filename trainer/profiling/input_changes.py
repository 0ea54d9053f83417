"""Other settings of a training's input, each as an input to measure alongside the current one.

Settings of the dataset (compression, number of shards, how images are stored) are tried on a sample of its records,
which is written twice: unchanged and changed.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable

import tensorflow as tf

from schemas.dataset import Dataset
from schemas.dataset.layout import COMPRESSIONS
from schemas.dataset.manifest import Shard, Split
from schemas.spec.images import ENCODED, HEIGHT, WIDTH
from trainer.data.input_fn import block_length, is_held
from trainer.data.input_options import shuffle_rows
from trainer.profiling.source import Source
from trainer.spec.hparams import Augmentation

SAMPLE_BYTES = 8 << 20
SAMPLE_RECORDS = 20_000
SHARDS = 8
FEW_SHARDS = 4  # fewer cannot be read well in parallel
MORE = 4  # times as many shards, records or batches


@dataclasses.dataclass(frozen=True)
class Change:
    """A setting that may make the input cheaper.

    Attributes:
      setting: the flag or schema key, as it is typed.
      before, after: the input without it and with it.
      sampled: whether both read a sample of the records, and `before` is not the training's own input.
    """

    setting: str
    before: Source
    after: Source
    sampled: bool = False


@dataclasses.dataclass(frozen=True)
class Form:
    """How records are stored: compression as the manifest names it, number of shards, images as pixels or not."""

    compression: str
    shards: int
    raw: bool


def changes(source: Source, folder: str, tell: Callable[[str], None] = lambda text: None) -> list[Change]:
    """The changes to try on an input.

    Args:
      source: the current input.
      folder: where samples of the records are written.
      tell: called with a line of progress before samples are written.
    """
    dataset, options = source.dataset, source.options
    held = is_held(dataset, "train", options)
    found = []

    def option(setting: str, **values: object) -> None:
        found.append(Change(setting, source, Source(dataset, dataclasses.replace(options, **values))))  # type: ignore[arg-type]

    if options.deterministic:
        option("no --deterministic", deterministic=False)
    if dataset.image_schema is not None and options.shuffle_buffer >= 20 * options.batch_size:
        fewer = max(options.batch_size, options.shuffle_buffer // 10)
        option(f"--shuffle_buffer {fewer}", shuffle_buffer=fewer)
    usual = shuffle_rows(dataset, "train", None)
    if not held and is_held(dataset, "train", dataclasses.replace(options, shuffle_buffer=usual)):
        option("no --shuffle_buffer, so that the split is held in memory", shuffle_buffer=usual)
    costly = options.augmentation.color_jitter or options.augmentation.resized_crop is not None
    if dataset.image_schema is not None and costly:
        option("--augment color_jitter=0 resized_crop=none", augmentation=Augmentation(options.augmentation.flip))
    for flag, value in _reading_flags(source, held=held).items():
        option(f"--{flag} {value}", **{flag: value})
    if held:
        return found
    return found + _dataset_changes(source, folder, tell)


def _reading_flags(source: Source, *, held: bool) -> dict[str, int]:
    """Another value of each flag that says how shards are read; of those alone that matter, if the split is held."""
    options, shards = source.options, len(source.dataset.shards("train"))
    cores = os.cpu_count() or 1
    found = {"read_threads": cores if options.read_threads is None else 2 * options.read_threads}
    found["prefetch"] = MORE * max(1, options.prefetch)
    if held:
        return found
    opened = min(options.cycle_length, shards)
    if shards > 1:
        found["cycle_length"] = min(shards, MORE * opened) if shards > opened else max(1, opened // MORE)
    found["block_length"] = MORE * block_length(source.dataset, options)
    return found


def _dataset_changes(source: Source, folder: str, tell: Callable[[str], None]) -> list[Change]:
    """Changes of the dataset's own settings, tried on a sample of its records."""
    dataset, schema = source.dataset, source.dataset.image_schema
    streamed = dataclasses.replace(source.options, cache_bytes=0)
    count = len(dataset.shards("train"))
    as_it_is = Form(dataset.manifest.compression, min(count, SHARDS), raw=False)
    wanted = []
    if dataset.compression:
        form = dataclasses.replace(as_it_is, compression="none")
        wanted.append(("--compression none, of beam_jobs.preprocess", form))
    if count < FEW_SHARDS:
        form = dataclasses.replace(as_it_is, shards=SHARDS)
        wanted.append((f"--num_shards {SHARDS}, of beam_jobs.preprocess", form))
    if schema is not None and schema.images.store == "jpeg":
        wanted.append(("images: {store: raw}, in the schema", dataclasses.replace(as_it_is, raw=True)))
    if not wanted:
        return []
    tell("writing samples of the records, to try changes")
    records = _sample(dataset)
    before = Source(_written(dataset, records, os.path.join(folder, "as_it_is"), as_it_is), streamed)
    return [
        Change(setting, before, Source(_written(dataset, records, os.path.join(folder, str(i)), form), streamed), True)
        for i, (setting, form) in enumerate(wanted)
    ]


def _sample(dataset: Dataset) -> list[bytes]:
    """The first records of the train split."""
    records, size = [], 0
    for record in itertools.islice(
        tf.data.TFRecordDataset(list(dataset.shards("train")), dataset.compression), SAMPLE_RECORDS
    ):
        records.append(record.numpy())
        size += len(records[-1])
        if size >= SAMPLE_BYTES:
            break
    return records


def _written(dataset: Dataset, records: list[bytes], folder: str, form: Form) -> Dataset:
    """The same dataset with other shards; the records are distributed over them in turn."""
    os.makedirs(folder)
    shards = min(form.shards, len(records))
    stored = [_decoded(dataset, record) for record in records] if form.raw else records
    written = []
    for i in range(shards):
        path = os.path.join(folder, f"{i}.tfrecord")
        with tf.io.TFRecordWriter(path, COMPRESSIONS[form.compression]) as writer:
            for record in stored[i::shards]:
                writer.write(record)
        rows = len(stored[i::shards])
        written.append(Shard.model_construct(path=os.path.abspath(path), rows=rows, bytes=os.path.getsize(path)))
    split = Split.model_construct(rows=len(records), shards=tuple(written))
    manifest = dataset.manifest.model_copy(update={"compression": form.compression, "splits": {"train": split}})
    declared = dataset.declared
    if form.raw and dataset.image_schema is not None:
        pixels = dataset.image_schema.images.model_copy(update={"store": "raw"})
        declared = dataset.image_schema.model_copy(update={"images": pixels})
    return dataclasses.replace(dataset, manifest=manifest, declared=declared)


def _decoded(dataset: Dataset, record: bytes) -> bytes:
    """A stored record with its JPEGs decoded to pixels."""
    schema = dataset.image_schema
    assert schema is not None  # noqa: S101 - the caller has checked
    example = tf.train.Example.FromString(record)
    feature = example.features.feature
    for name in schema.image_names:
        encoded = feature[schema.stored_key(name, ENCODED)].bytes_list
        pixels = tf.io.decode_jpeg(encoded.value[0], channels=3, dct_method="INTEGER_ACCURATE").numpy()
        encoded.value[0] = pixels.tobytes()
        for key, side in ((HEIGHT, pixels.shape[0]), (WIDTH, pixels.shape[1])):
            feature[schema.stored_key(name, key)].int64_list.value[:] = [side]
    return bytes(example.SerializeToString())
