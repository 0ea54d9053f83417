"""Checks for skew between training and serving, on the dataset's parity records: raw records and their transformed
ones.

Applying the dataset's transform to raw records must give the stored transformed records, feature by feature. The
exported signatures on raw records must give the Estimator's predictions on stored records. Records are compared one by
one: floats within a tolerance, all else exactly. For an export that was written earlier, the Estimator
is rebuilt with the export's own variables.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from schemas.dataset import OpenDataset, layout
from schemas.errors import MillraceError, SkewError, counted
from schemas.exports.model import EXAMPLES, EXAMPLES_INPUT, RAW, WITHOUT_KEY, ServedModel, inputs_of
from trainer.export.warmup import Recorded, graph_values, raw_transform, recorded, strict_spec

if TYPE_CHECKING:
    from trainer.model_dir.session_graph import SessionGraph

RTOL = 1e-4
ATOL = 1e-5

Batch = Mapping[str, Any]  # name -> array [records, ...], or a sequence of one array per record if lengths vary


def first_difference(expected: Batch, actual: Batch) -> str | None:
    """Says where two batches differ first: the feature, in the order of `expected`, and its first record.

    Floats agree if |actual - expected| <= ATOL + RTOL * |expected|, or if both are NaN; everything else must be equal.
    Shapes and kinds of dtype (float, integer, string) must agree, too.

    Returns:
      Such as "record 3, 'age': expected 1.0, found 2.0"; None if there is no difference.
    """
    for name in dict.fromkeys((*expected, *actual)):
        sides: list[Any] = [batch.get(name) for batch in (expected, actual)]
        if sides[0] is None or sides[1] is None:
            descriptions = ["none" if side is None else "a value" for side in sides]
        elif len(sides[0]) != len(sides[1]):
            descriptions = [counted(len(side), "records") for side in sides]
        elif all(isinstance(side, np.ndarray) for side in sides):
            if _agree(*sides):
                continue
            descriptions = _forms(*(side[:1] for side in sides))
        else:
            descriptions = []
        if descriptions:
            return f"all records, {name!r}: expected {descriptions[0]}, found {descriptions[1]}"
        for record, (want, got) in enumerate(zip(*map(_each, sides), strict=True)):
            if not _agree(want, got):
                return f"record {record}, {_first_component(name, want, got)}"
    return None


def _each(values: Any) -> Iterator[np.ndarray]:
    return (np.asarray(value, values.dtype if isinstance(values, np.ndarray) else None) for value in values)


def _agree(expected: np.ndarray, actual: np.ndarray) -> bool:
    if _forms(expected, actual):
        return False
    if expected.dtype.kind == "f":
        return bool(np.allclose(actual, expected, rtol=RTOL, atol=ATOL, equal_nan=True))
    return bool(np.all(expected == actual))


def _forms(expected: np.ndarray, actual: np.ndarray) -> list[str]:
    """The shapes of two arrays, or their dtypes, if these differ; empty if they do not."""
    if expected.shape != actual.shape:
        return [f"shape {list(array.shape[1:])}" for array in (expected, actual)]
    kinds = [{"u": "i"}.get(array.dtype.kind, array.dtype.kind) for array in (expected, actual)]
    return [str(array.dtype) for array in (expected, actual)] if expected.size and kinds[0] != kinds[1] else []


def _first_component(name: str, expected: np.ndarray, actual: np.ndarray) -> str:
    """What differs in a record: the component, if the value is not a scalar."""
    for index in np.ndindex(expected.shape if expected.shape == actual.shape else ()):
        if index and not _agree(expected[index], actual[index]):
            return f"'{name}[{', '.join(map(str, index))}]': expected {expected[index]!s}, found {actual[index]!s}"
    return f"{name!r}: expected {expected!s}, found {actual!s}"


MAX_BYTES = 256 << 20  # of raw records, since image files may be large; fewer of them are enough


@dataclasses.dataclass(frozen=True)
class ParityRecords:
    """Raw records and their transformed records, each serialized as a `tf.Example`, in the same order."""

    raw: tuple[bytes, ...]
    transformed: tuple[bytes, ...]


def read_parity_records(dataset: OpenDataset) -> ParityRecords:
    """Reads the parity records, up to `MAX_BYTES` of raw records.

    Raises:
      MillraceError: there are none, or the numbers of raw and transformed records differ.
    """
    raw, transformed = (_records(dataset, name) for name in (layout.PARITY_RAW, layout.PARITY_TRANSFORMED))
    pairs: list[tuple[bytes, bytes]] = []
    size = 0
    for raw_record, transformed_record in itertools.zip_longest(raw, transformed):
        if raw_record is None or transformed_record is None:
            raise MillraceError(
                f"{dataset.run_dir}: {'no raw' if raw_record is None else 'no transformed'} parity record for the "
                f"{'transformed' if raw_record is None else 'raw'} record {len(pairs)}; expected equally many of each. "
                "Write the dataset again."
            )
        size += len(raw_record)
        if pairs and size > MAX_BYTES:
            break
        pairs.append((raw_record, transformed_record))
    if not pairs:
        raise MillraceError(
            f"{dataset.run_dir}: 0 raw and 0 transformed parity records; expected at least one. Write the "
            "dataset again."
        )
    return ParityRecords(
        tuple(raw_record for raw_record, _ in pairs), tuple(transformed_record for _, transformed_record in pairs)
    )


def _records(dataset: OpenDataset, name: str) -> Iterator[bytes]:
    import tensorflow as tf

    path = layout.join(dataset.run_dir, name)
    try:
        yield from tf.compat.v1.io.tf_record_iterator(path)
    except tf.errors.OpError as error:
        raise MillraceError(f"{path}: cannot be read ({error.message}); write the dataset again") from error


BATCH = 64  # the same batch size on both sides, since sums of floats depend on their order


def check_transform(dataset: OpenDataset, records: ParityRecords) -> None:
    """Checks that the transform (for images, the ingest graph) of the raw records gives the stored records.

    Args:
      dataset: the dataset.
      records: the result of `read_parity_records`.

    Raises:
      SkewError: names the first record that differs, its feature and both values.
    """
    import tensorflow as tf

    from trainer.data.input_fn import stored_spec

    if dataset.image_schema is None:
        spec = stored_spec(dataset)
        stored = graph_values(lambda serialized: tf.io.parse_example(serialized, spec), records.transformed)
        again = graph_values(raw_transform(dataset), records.raw)
        _compare(stored, again, "the stored transformed records", "the transform of the raw ones")
        return
    from trainer.export.image_receivers import ingested_records, stored_records, without_bytes

    stored = graph_values(lambda serialized: stored_records(dataset, serialized), records.transformed)
    again = graph_values(lambda serialized: ingested_records(dataset, serialized), records.raw)
    _compare(without_bytes(stored), without_bytes(again), "the stored records", "the raw files ingested again")


def check_export(
    dataset: OpenDataset,
    records: ParityRecords,
    *,
    export_dir: str,
    predictions: SessionGraph,
    checkpoint_path: str,
) -> Iterator[Recorded]:
    """Checks that each exported signature on raw records predicts the same as the Estimator on stored records.

    Args:
      dataset: the dataset of the records.
      records: the result of `read_parity_records`.
      export_dir: the SavedModel, which the caller has written, or compared with its notes.
      predictions: the result of `stored_predictions` for these records.
      checkpoint_path: the Estimator predicts with the variables of this checkpoint.

    Returns:
      Warm-up requests: some of the records, and the Estimator's predictions.

    Raises:
      SkewError: names the first record that differs, the prediction and both values.
    """
    from trainer.export.receivers import key_name

    expected = _predicted(predictions, checkpoint_path)
    key = key_name(dataset)
    requests = records.raw
    if dataset.image_schema is not None and dataset.image_schema.pairs:
        from trainer.export.image_receivers import paired

        requests = tuple(paired(records.raw))
    record = _parsed(dataset, requests)
    raw = {column.name: record[column.name] for column in inputs_of(dataset.declared)}
    with ServedModel(export_dir, checked=True) as served:
        by_signature: dict[str, Mapping[str, Any]] = {
            RAW: raw,
            EXAMPLES: {EXAMPLES_INPUT: list(requests)},
        }
        if key is not None:
            by_signature[WITHOUT_KEY] = {name: value for name, value in raw.items() if name != key}
        for signature, inputs in by_signature.items():
            actual = _in_batches(served, inputs, signature, rows=len(requests))
            names = [n for n in expected if signature != WITHOUT_KEY or n != "key"]
            actual = {n: v for n, v in actual.items() if n in names or n not in expected}
            _compare(
                {n: expected[n] for n in names},
                actual,
                "the Estimator on the stored records",
                f"the signature {signature!r} of {export_dir} on the raw ones",
            )
    return recorded(RAW, raw, expected)


def _parsed(dataset: OpenDataset, raw: Sequence[bytes]) -> Batch:
    import tensorflow as tf

    from trainer.export.receivers import record_columns

    spec = strict_spec(record_columns(dataset))
    return graph_values(lambda serialized: tf.io.parse_example(serialized, spec), raw)


def _in_batches(served: ServedModel, inputs: Mapping[str, Any], signature: str, *, rows: int) -> Batch:
    parts = [
        served.predict({name: value[i : i + BATCH] for name, value in inputs.items()}, signature=signature)
        for i in range(0, rows, BATCH)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def stored_predictions(dataset: OpenDataset, records: ParityRecords, estimator: Any) -> SessionGraph:
    """Builds the graph that predicts the stored records with the variables of an Estimator's checkpoints.

    The Estimator is wrapped by `with_keys_and_classes`.
    """
    from trainer.estimator import tf_estimator
    from trainer.model_dir.session_graph import SessionGraph
    from trainer.strategies.run_config import as_exported

    return SessionGraph(
        as_exported(estimator),
        tf_estimator.ModeKeys.PREDICT,
        lambda: _stored_features(dataset, records.transformed),
        lambda spec: spec.predictions,
    )


def _predicted(predictions: SessionGraph, checkpoint: str) -> Batch:
    """The predictions with the variables of a checkpoint."""
    import tensorflow as tf

    batches = []
    predictions.restore(checkpoint)
    with contextlib.suppress(tf.errors.OutOfRangeError):
        while True:
            batches.append(predictions.session.run(predictions.fetches))
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def _stored_features(dataset: OpenDataset, serialized: tuple[bytes, ...]) -> Any:
    """A `tf.data.Dataset` of the model's inputs from stored records, in batches."""
    import tensorflow as tf

    from trainer.data.input_fn import stored_spec
    from trainer.export.receivers import not_features
    from trainer.images.augment import AugmentOptions
    from trainer.images.inputs import image_examples

    stored = tf.data.Dataset.from_generator(lambda: serialized, output_signature=tf.TensorSpec([], tf.string))
    images = dataset.image_schema
    if images is not None:
        read = image_examples(stored, images.images, AugmentOptions(size=images.images.input_size))
        features = read.map(lambda features, _: features["image"])
        if images.pairs:  # as `paired` does
            last = features.skip(len(serialized) - 1)
            features = tf.data.Dataset.zip((last.concatenate(features), features))
            return features.map(lambda *pair: dict(zip(images.image_names, pair, strict=True))).batch(BATCH)
        return features.map(lambda image: {"image": image}).batch(BATCH)
    features = {name: entry for name, entry in stored_spec(dataset).items() if name not in not_features(dataset.schema)}
    return stored.batch(BATCH).map(lambda batch: tf.io.parse_example(batch, features))


def _compare(expected: Batch, actual: Batch, expected_name: str, actual_name: str) -> None:
    difference = first_difference(expected, actual)
    if difference is not None:
        raise SkewError(
            f"skew: {difference} (expected: {expected_name}; found: {actual_name}). The exported model differs from "
            "the trained one; do not serve it. If the dataset was written again since, train and export again."
        )


def check_saved_model(dataset: OpenDataset, saved_model: str, model_dir: str) -> int:
    """Compares an export with the Estimator of `model_dir` on the dataset's parity records.

    Args:
      dataset: the dataset.
      saved_model: the export, whose files the caller has compared with its notes.
      model_dir: the model directory of the training.

    Returns:
      How many records were compared.

    Raises:
      SkewError: there is a difference.
      UsageError: `model_dir` holds no model.
    """
    from trainer.export.outputs import restore_estimator

    records = read_parity_records(dataset)
    check_transform(dataset, records)
    with tempfile.TemporaryDirectory(prefix="millrace-verify-") as scratch:
        estimator = restore_estimator(model_dir, dataset, scratch=scratch)
        with contextlib.closing(stored_predictions(dataset, records, estimator)) as predictions:
            check_export(
                dataset,
                records,
                export_dir=saved_model,
                predictions=predictions,
                checkpoint_path=os.path.join(saved_model, "variables", "variables"),
            )
    return len(records.raw)
