"""Checks that raw image files, ingested again, equal the stored records byte for byte."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from schemas.dataset import Dataset
from schemas.spec.image_keys import ENCODED, FORMAT, HEIGHT, WIDTH
from schemas.spec.images import ImageSchema
from trainer.export.image_receivers import load_ingest

LABEL = "label"  # key of the class name in a raw parity record
_STRINGS, _INTEGERS = (ENCODED, FORMAT), (HEIGHT, WIDTH)


def stored_records(dataset: Dataset, serialized: tf.Tensor) -> dict[str, tf.Tensor]:
    """Parses all keys of serialized stored records, string `[batch]`: tensors `[batch]` by key."""
    return dict(tf.io.parse_example(serialized, _full_spec(_schema(dataset))))


def ingested_records(dataset: Dataset, serialized: tf.Tensor) -> dict[str, tf.Tensor]:
    """Ingests serialized raw records, string `[batch]`, again, in the form of `stored_records`.

    A raw record has the bytes of files and the class name; the id of an unknown class is -1.
    """
    schema = _schema(dataset)
    names = schema.image_names
    strings = tf.io.FixedLenFeature([], tf.string)
    raw = tf.io.parse_example(serialized, dict.fromkeys((*names, LABEL), strings))
    ingest = load_ingest(dataset)
    records = {schema.stored_key(n, k): v for n in names for k, v in ingest.batch(raw[n]).items()}
    equal = tf.equal(raw[LABEL][:, tf.newaxis], tf.constant(list(dataset.manifest.classes)))
    ids = tf.where(tf.reduce_any(equal, 1), tf.argmax(equal, 1), -1)
    texts = {} if schema.text_key is None else {schema.text_key: raw[LABEL]}
    return {**records, schema.label_key: ids, **texts}


def without_bytes(records: Mapping[str, Any]) -> dict[str, Any]:
    """The records with each encoded image replaced by its length and digest, for comparisons and messages."""
    return {n: _digests(v) if n.rpartition("image/")[2] == "encoded" else v for n, v in records.items()}


def _digests(images: np.ndarray) -> np.ndarray:
    return np.array([f"{len(x):,} bytes, SHA-256 {hashlib.sha256(x).hexdigest()}" for x in images], object)


def _full_spec(schema: ImageSchema) -> dict[str, Any]:
    string, integer = tf.io.FixedLenFeature([], tf.string), tf.io.FixedLenFeature([], tf.int64)
    spec: dict[str, Any] = {}
    for name in schema.image_names:
        spec |= dict.fromkeys((schema.stored_key(name, key) for key in _STRINGS), string)
        spec |= dict.fromkeys((schema.stored_key(name, key) for key in _INTEGERS), integer)
    spec[schema.label_key] = integer
    return spec if schema.text_key is None else {**spec, schema.text_key: string}


def _schema(dataset: Dataset) -> ImageSchema:
    assert dataset.image_schema is not None  # noqa: S101 - callers pass image datasets only
    return dataset.image_schema
