"""The inputs of an exported model: raw features, which the dataset's own transform processes inside the graph.

A model exported with `serving_input_receiver_fn` has these signatures (`NAME:` is Estimator's prefix for an alternative
input):

* `serving_default`: raw features by name, dense. A number is float32 `[batch]` or `[batch, width]`, NaN if missing; a
  string is `[batch]`, untrimmed as in the file, '' if missing.
* `examples:serving_default`: `examples`, string `[batch]`: serialized `tf.Example`s of the same features. A feature
  that is not in an example is missing.
* `without_key:serving_default`, if the schema has a key: as `serving_default`, without the key ('' in the predictions).

An image model takes the bytes of files, string `[batch]`, as `image`, or as `left` and `right`. The exported graph
contains the dataset's ingest graph (`trainer.export.image_receivers`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from schemas.csv.values import missing_tokens
from schemas.dataset import OpenDataset
from schemas.exports.model import EXAMPLES_INPUT, inputs_of
from schemas.spec.features import Bool, Category, Key, ReadAsNumbers, Text
from schemas.spec.forms import RawColumn
from schemas.spec.table import Schema, raw_columns
from schemas.spec.words import TRUTH, WHOLE
from trainer.estimator import tf_estimator
from trainer.export.image_receivers import served_images
from trainer.export.row_errors import ROW_ERROR, neutral, not_finite_errors, raw_errors, too_long
from trainer.spec.transform_graph import row_transform

_SPACE = r"[\s\v]*"  # ASCII white space, which is left out around a word
_NONE_SENT = "no examples were sent"  # not a `tf.Example`; an empty batch of examples is a normal request


def serving_input_receiver_fn(dataset: OpenDataset) -> Callable[[], Any]:
    """Returns the function that `Estimator.export_saved_model` calls to build the inputs of the serving graph.

    A request has no label and no weight. The key bypasses the transform, as `features[key]`, and so do the errors of
    rows, as `features[ROW_ERROR]`.

    Returns:
      A function without arguments that returns a `ServingInputReceiver`. Its features are transformed features, or
      images in the form that the model reads.
    """

    def receive() -> Any:
        raw, receivers = _placeholders(inputs_of(dataset.declared), key_name(dataset))
        features = _served_rows(dataset, raw) if dataset.image_schema is None else served_images(dataset, raw)
        return tf_estimator.export.ServingInputReceiver(features, receivers.pop(""), receivers)

    return receive


def _served_rows(dataset: OpenDataset, raw: dict[str, tf.Tensor]) -> dict[str, Any]:
    """The transformed features, zero in rows that the job would have rejected; and why, as `ROW_ERROR`."""
    schema = dataset.schema
    raw = {**raw, **_words(raw, schema), **_numbers(raw, schema)}
    features = transform(dataset, {**raw, **_short_texts(raw, schema)})
    errors = raw_errors(raw, schema)
    made = {name: x for name, x in features.items() if name != key_name(dataset)}
    errors = tf.where(tf.equal(errors, ""), not_finite_errors(made, like=errors), errors)
    return {**features, **neutral(made, errors), ROW_ERROR: errors}


def _short_texts(raw: Mapping[str, tf.Tensor], schema: Schema) -> dict[str, tf.Tensor]:
    """The texts, but those that are too long, whose rows have an error and whose words would take up the memory."""
    texts = [feature for feature in schema.features if isinstance(feature, Text) and feature.name in raw]
    return {text.name: tf.where(too_long(text, raw[text.name]), "", raw[text.name]) for text in texts}


def _words(raw: Mapping[str, tf.Tensor], schema: Schema) -> dict[str, tf.Tensor]:
    """The categories, truth values and keys in the spelling of `schemas.spec.words`, as the job's reader has them."""
    names = [f.name for f in schema.features if isinstance(f, Category | Bool | Key) and f.name in raw]
    if not names:
        return {}
    columns = tf.stack([raw[name] for name in names], axis=1)
    words, places = tf.unique(tf.reshape(columns, [-1]))
    words = tf.strings.regex_replace(words, rf"^{_SPACE}{WHOLE}{_SPACE}$", r"\1")
    for word in sorted(set(TRUTH.values())):
        spellings = "|".join(spelling for spelling in TRUTH if TRUTH[spelling] == word)
        words = tf.strings.regex_replace(words, f"^{_SPACE}(?:{spellings}){_SPACE}$", word)
    spelled = tf.reshape(tf.gather(words, places), tf.shape(columns))
    return dict(zip(names, tf.unstack(spelled, num=len(names), axis=1), strict=True))


def _numbers(raw: Mapping[str, tf.Tensor], schema: Schema) -> dict[str, tf.Tensor]:
    """The numbers of columns that have numbers as tokens of missing values, such as -999: NaN where they equal one."""
    numbers = {}
    for feature in schema.features:
        tokens = missing_tokens(feature.tokens(schema.csv.missing)).numbers
        if len(tokens) and isinstance(feature, ReadAsNumbers) and feature.name in raw:
            x = raw[feature.name]
            absent = tf.reduce_any(tf.equal(x[..., tf.newaxis], tokens), axis=-1)
            numbers[feature.name] = tf.where(absent, np.float32(np.nan), x)
    return numbers


def record_columns(dataset: OpenDataset) -> tuple[RawColumn, ...]:
    """Returns the columns of raw parity records, which for rows include the label and the weight."""
    return inputs_of(dataset.declared) if dataset.image_schema is not None else raw_columns(dataset.schema)


def key_name(dataset: OpenDataset) -> str | None:
    """Returns the name of the key; None if there is none, as for images."""
    key = None if dataset.image_schema is not None else dataset.schema.key
    return None if key is None else key.name


def weight_name(dataset: OpenDataset) -> str | None:
    """Returns the name of the example weight; None if there is none, as for images."""
    weight = None if dataset.image_schema is not None else dataset.schema.weight
    return None if weight is None else weight.name


def transform(dataset: OpenDataset, raw: Mapping[str, Any]) -> dict[str, Any]:
    """Transforms raw features, without label and weight."""
    features = row_transform(dataset)(raw)
    return {name: features[name] for name in features if name not in not_features(dataset.schema)}


def not_features(schema: Schema) -> frozenset[str]:
    """Returns the parts of a transformed record that are not features: the label and the weight."""
    return frozenset({schema.label.name} | ({schema.weight.name} if schema.weight else set()))


def raw_example_spec(columns: tuple[RawColumn, ...]) -> dict[str, tf.io.FixedLenFeature]:
    """Returns the parsing spec for `tf.Example`s of raw features; absent features are missing (NaN, '')."""
    spec = {}
    for column in columns:
        missing: Any = "" if column.dtype == "string" else float("nan")
        default = missing if column.width is None else [missing] * column.width
        spec[column.name] = tf.io.FixedLenFeature(column.shape, tf.as_dtype(column.dtype), default)
    return spec


def _placeholders(
    columns: tuple[RawColumn, ...], key_column: str | None
) -> tuple[dict[str, tf.Tensor], dict[str, dict[str, tf.Tensor]]]:
    """The raw features, and the receiver tensors: '' has the default ones, the other names are the alternatives.

    All alternatives share one graph: the default of each feature's placeholder is parsed from `examples`, so that
    feeding the features skips the parsing.
    """
    keys = [c for c in columns if c.name == key_column]
    inputs = tuple(c for c in columns if c not in keys)
    examples = tf.compat.v1.placeholder_with_default(tf.constant([_NONE_SENT]), [None], "raw_examples")
    rows_sent = tf.boolean_mask(examples, tf.not_equal(examples, _NONE_SENT))
    needed = f"a request needs every input: {', '.join(c.name for c in inputs)}; or `examples`"
    sent = tf.compat.v1.assert_equal(tf.size(rows_sent), tf.size(examples), message=needed)
    with tf.control_dependencies([sent]):
        parsed = tf.io.parse_example(tf.identity(rows_sent), raw_example_spec(inputs))
    raw = {c.name: _placeholder(c, parsed[c.name]) for c in inputs}
    receivers = {"": dict(raw), "examples": {EXAMPLES_INPUT: examples}}
    for column in keys:
        receivers["without_key"] = dict(raw)
        key = _placeholder(column, tf.io.parse_example(rows_sent, raw_example_spec((column,)))[column.name])
        receivers[""][column.name] = key
        raw[column.name] = _keys(key, rows=tf.shape(raw[inputs[0].name])[0])
    sizes = _rows_of(list(raw.values()))
    even = tf.compat.v1.assert_equal(sizes, sizes[0], message=f"one value for each row in each of {', '.join(raw)}")
    with tf.control_dependencies([even]):  # otherwise a single value would be broadcast to all rows
        return dict(zip(raw, tf.identity_n(list(raw.values())), strict=True)), receivers


def _rows_of(columns: list[tf.Tensor]) -> tf.Tensor:
    """The numbers of rows of columns, int32 `[columns]`, by few ops however many columns there are."""
    columns_by_kind: dict[Any, list[tf.Tensor]] = {}
    for x in columns:
        columns_by_kind.setdefault((x.dtype, x.shape.rank), []).append(x)
    return tf.concat([tf.stack(tf.shape_n(alike))[:, 0] for alike in columns_by_kind.values()], axis=0)


def _placeholder(column: RawColumn, default: tf.Tensor) -> tf.Tensor:
    shape = [None, *column.shape]
    return tf.compat.v1.placeholder_with_default(default, shape, f"raw/{column.name}")


def _keys(key: tf.Tensor, *, rows: tf.Tensor) -> tf.Tensor:
    """The keys, or '' for each row if no keys were sent."""
    empty = tf.fill([tf.where(tf.equal(tf.size(key), 0), rows, 0)], "")
    keys = tf.concat([key, empty], axis=0)
    with tf.control_dependencies([tf.compat.v1.assert_equal(tf.size(keys), rows, message="one key for each row")]):
        return tf.identity(keys)
