"""What a served model takes: raw features, transformed in the graph by the transform that made the training data.

A model exported with `serving_input_receiver_fn` has these signatures (`NAME:` is Estimator's mark for another way in):

* `serving_default`: raw features by name, dense. A number is float32 `[batch]` or `[batch, width]`, NaN where missing;
  a string is `[batch]`, untrimmed as it stands in the file, '' where missing.
* `examples:serving_default`: `examples`, string `[batch]`: serialized `tf.Example`s of the same features; one that a
  record leaves out is missing.
* `without_key:serving_default`, where the schema has a key: as the first, but the key ('' in the predictions).

A model of images takes whole files' bytes, string `[batch]`, as `image`, or as `left` and `right`: the dataset's
ingest graph is in the exported one (`trainer.export.image_receivers`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from schemas.dataset import Dataset
from schemas.spec.raw_columns import RawColumn, raw_columns, serving_columns
from schemas.spec.table import Schema
from trainer.estimator import tf_estimator
from trainer.export.image_receivers import image_columns, served_images
from trainer.export.row_errors import ROW_ERROR, neutral, not_finite_errors, raw_errors

RAW = "serving_default"
EXAMPLES = "examples:serving_default"
WITHOUT_KEY = "without_key:serving_default"
EXAMPLES_INPUT = "examples"
_NONE_SENT = "no examples were sent"  # no serialized `tf.Example`; an empty batch of them is a request like any other


def serving_input_receiver_fn(dataset: Dataset) -> Callable[[], Any]:
    """The function that `Estimator.export_saved_model` calls to build the inputs of the serving graph.

    The key, the weight and the label are no inputs of the transform at serving: the label and the weight are not asked
    for, and the key passes by, as `features[key]`. So does what is wrong with each row, as `features[ROW_ERROR]`.

    Returns:
      A function of no arguments that returns a `ServingInputReceiver` whose features are the transformed ones, or
      images as the model sees them.
    """

    def receive() -> Any:
        raw, receivers = _placeholders(request_columns(dataset), key_name(dataset))
        features = _served_rows(dataset, raw) if dataset.image_schema is None else served_images(dataset, raw)
        return tf_estimator.export.ServingInputReceiver(features, receivers.pop(""), receivers)

    return receive


def _served_rows(dataset: Dataset, raw: dict[str, tf.Tensor]) -> dict[str, Any]:
    """What the model reads of rows, zeros in those that the job would have rejected, and why it would have."""
    schema = dataset.schema
    features = transform(tft.TFTransformOutput(dataset.graphs_dir), raw, schema)
    errors = raw_errors(raw, schema)
    made = {name: x for name, x in features.items() if name != key_name(dataset)}
    errors = tf.where(tf.equal(errors, ""), not_finite_errors(made, like=errors), errors)
    return {**features, **neutral(made, errors), ROW_ERROR: errors}


def request_columns(dataset: Dataset) -> tuple[RawColumn, ...]:
    """What a request sends, the key among them."""
    images = dataset.image_schema
    return serving_columns(dataset.schema) if images is None else image_columns(images)


def record_columns(dataset: Dataset) -> tuple[RawColumn, ...]:
    """What the raw records hold that the job kept: a row's label and weight too."""
    images = dataset.image_schema
    return raw_columns(dataset.schema) if images is None else image_columns(images)


def key_name(dataset: Dataset) -> str | None:
    """The name of the key, where there is one; images have none."""
    key = None if dataset.image_schema is not None else dataset.schema.key
    return None if key is None else key.name


def transform(transform_output: tft.TFTransformOutput, raw: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """Raw features -> what the model reads: neither label nor weight, whether `raw` holds them or not."""
    transformed = transform_output.transform_raw_features(dict(raw), drop_unused_features=True)
    return {name: transformed[name] for name in transformed if name not in not_features(schema)}


def not_features(schema: Schema) -> frozenset[str]:
    """What a transformed record holds beside the features: the label and the weight."""
    return frozenset({schema.label.name} | ({schema.weight.name} if schema.weight else set()))


def raw_example_spec(columns: tuple[RawColumn, ...]) -> dict[str, tf.io.FixedLenFeature]:
    """Parses `tf.Example`s of raw features: what a record leaves out is missing (NaN, '')."""
    spec = {}
    for column in columns:
        shape = [] if column.width is None else [column.width]
        missing: Any = "" if column.dtype == "string" else float("nan")
        default = missing if column.width is None else [missing] * column.width
        spec[column.name] = tf.io.FixedLenFeature(shape, tf.as_dtype(column.dtype), default)
    return spec


def _placeholders(
    columns: tuple[RawColumn, ...], key_column: str | None
) -> tuple[dict[str, tf.Tensor], dict[str, dict[str, tf.Tensor]]]:
    """The raw features, and the ways in: '' is the default one, the others are named as alternatives.

    All ways end in one graph: a feature's placeholder stands at the end of the parsing of `examples`, so that feeding
    the features cuts the parsing off.
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
        raw[column.name] = _one_each(key, rows=tf.shape(raw[inputs[0].name])[0])
    sizes = tf.stack([tf.shape(x)[0] for x in raw.values()])
    even = tf.compat.v1.assert_equal(sizes, sizes[0], message=f"one value for each row in each of {', '.join(raw)}")
    with tf.control_dependencies([even]):  # else one value would be taken for every row's
        return {name: tf.identity(x) for name, x in raw.items()}, receivers


def _placeholder(column: RawColumn, default: tf.Tensor) -> tf.Tensor:
    shape = [None] if column.width is None else [None, column.width]
    return tf.compat.v1.placeholder_with_default(default, shape, f"raw/{column.name}")


def _one_each(key: tf.Tensor, *, rows: tf.Tensor) -> tf.Tensor:
    """The keys, or '' for each row where no key was sent."""
    empty = tf.fill([tf.where(tf.equal(tf.size(key), 0), rows, 0)], "")
    keys = tf.concat([key, empty], axis=0)
    with tf.control_dependencies([tf.compat.v1.assert_equal(tf.size(keys), rows, message="one key for each row")]):
        return tf.identity(keys)
