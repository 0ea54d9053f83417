"""Reads a split again, without the model: for slices, for the worst rows, and for rows to be predicted once more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft

from schemas.dataset import Dataset, layout
from schemas.spec import images
from trainer.export.receivers import key_name
from trainer.report.feature_text import FeatureText

BATCH = 4096


def feature_batches(dataset: Dataset, split: str) -> Iterator[dict[str, Any]]:
    """The stored features of a CSV split in the order of an evaluation: dense arrays `[rows, ...]`, no bags of ids."""
    spec = tft.TFTransformOutput(dataset.graphs_dir).transformed_feature_spec()
    dense = {name: entry for name, entry in spec.items() if isinstance(entry, tf.io.FixedLenFeature)}
    records = tf.data.TFRecordDataset(list(dataset.shards(split)), dataset.compression).batch(BATCH)
    for batch in records.map(lambda serialized: tf.io.parse_example(serialized, dense)).prefetch(1):
        yield {name: value.numpy() for name, value in batch.items()}


def located(dataset: Dataset, split: str, row: int) -> tuple[str, int]:
    """The shard of a row, relative to the dataset directory, and the record's place in it, both counted from 0."""
    for shard in dataset.manifest.splits[split].shards:
        if row < shard.rows:
            return shard.path, row
        row -= shard.rows
    raise IndexError(f"the split {split!r} has no row {row}")


def records_at(dataset: Dataset, split: str, rows: list[int]) -> list[bytes]:
    """Single records as they are stored. `rows`: counted in the order of an evaluation."""
    found = []
    for shard, record in (located(dataset, split, row) for row in rows):
        path = layout.join(dataset.path, shard)
        (serialized,) = tf.data.TFRecordDataset(path, dataset.compression).skip(record).take(1)
        found.append(serialized.numpy())
    return found


def described(
    dataset: Dataset, split: str, rows: list[int], records: list[bytes], text: FeatureText | None
) -> list[dict[str, Any]]:
    """Where rows of a split are stored, and what is known of them: the key, the image's file, the values of features.

    Args:
      dataset: the dataset.
      split: the rows'.
      rows: counted in the order of an evaluation.
      records: as `records_at` gives them.
      text: names values; None for images.

    Returns:
      `shard` and `record` of each row, `key` if the schema has one, `files` of images, and `features` by name.
    """
    found = []
    for row, serialized in zip(rows, records, strict=True):
        shard, record = located(dataset, split, row)
        example = tf.train.Example.FromString(serialized)
        values = {name: _values(feature) for name, feature in example.features.feature.items()}
        entry: dict[str, Any] = {"shard": shard, "record": record}
        if text is None:
            entry["files"] = [_text(v[0]) for name, v in sorted(values.items()) if name.endswith(images.FILENAME) and v]
        else:
            key = key_name(dataset)
            if key in values:
                entry["key"] = ", ".join(map(_text, values[key]))
            entry["features"] = {name: text.text(name, values[name]) for name in text.readable() if name in values}
        found.append(entry)
    return found


def _values(feature: tf.train.Feature) -> list[Any]:
    return list(getattr(feature, feature.WhichOneof("kind") or "int64_list").value)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def sample_of(batches: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """The values of batches, `[rows, ...]` by feature."""
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]} if batches else {}
