"""Checks for skew between training and serving, on the dataset's parity records.

Applying the dataset's transform to raw records must give the stored transformed records, feature by feature. The
exported signatures on raw records must give the Estimator's predictions on stored records. And no signature may give a
prediction for a row that the job rejects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from schemas.dataset import Dataset
from schemas.errors import SkewError
from trainer.export.graph_values import graph_values, strict_spec, transformed_values
from trainer.export.parity_records import ParityRecords
from trainer.export.saved_model import ServedModel
from trainer.export.warmup import Recorded, recorded

if TYPE_CHECKING:
    from trainer.export.compare import Batch
    from trainer.export.rejected_requests import Judged


BATCH = 64  # the same batch size on both sides, since sums of floats depend on their order


def check_transform(dataset: Dataset, records: ParityRecords) -> None:
    """Checks that the transform (for images, the ingest graph) of the raw records gives the stored records.

    Raises:
      SkewError: names the first record that differs, its feature and both values.
    """
    import tensorflow as tf
    import tensorflow_transform as tft

    if dataset.image_schema is not None:
        _check_ingest(dataset, records)
        return
    output = tft.TFTransformOutput(dataset.graphs_dir)

    def stored(serialized: Any) -> Mapping[str, Any]:
        parsed: Mapping[str, Any] = tf.io.parse_example(serialized, output.transformed_feature_spec())
        return parsed

    expected, found = graph_values(stored, records.transformed), transformed_values(dataset, records.raw)
    _compare(expected, found, "the stored transformed records", "the transform of the raw ones")


def _check_ingest(dataset: Dataset, records: ParityRecords) -> None:
    from trainer.export.image_ingest_check import ingested_records, stored_records, without_bytes

    stored = graph_values(lambda serialized: stored_records(dataset, serialized), records.transformed)
    again = graph_values(lambda serialized: ingested_records(dataset, serialized), records.raw)
    _compare(without_bytes(stored), without_bytes(again), "the stored records", "the raw files ingested again")


def check_export(
    dataset: Dataset,
    records: ParityRecords,
    *,
    export_dir: str,
    estimator: Any,
    checkpoint_path: str,
    judged: Judged | None,
) -> Iterator[Recorded]:
    """Checks that each exported signature on raw records predicts the same as the Estimator on stored records.

    Also checks that rows that the job rejects get no prediction (`trainer.export.rejected_requests`).

    Args:
      dataset: the dataset of the records.
      records: the result of `read_parity_records`.
      export_dir: the SavedModel, which the caller has written, or compared with its notes.
      estimator: an Estimator wrapped by `with_keys_and_classes`.
      checkpoint_path: the Estimator predicts with the variables of this checkpoint.
      judged: the result of `judge`; None for an export of an earlier release, which has no output `error`.

    Returns:
      Warm-up requests: some of the records, and the Estimator's predictions.

    Raises:
      SkewError: names the first record that differs, the prediction and both values; or an input whose verdicts differ.
    """
    from trainer.export import receivers, rejected_requests
    from trainer.export.outputs import ERROR

    expected = _estimator_predictions(dataset, records, estimator, checkpoint_path)
    if judged is None:
        expected = {name: values for name, values in expected.items() if name != ERROR}
    key = receivers.key_name(dataset)
    record = _parsed(dataset, records.raw)
    raw = {column.name: record[column.name] for column in receivers.request_columns(dataset)}
    with ServedModel(export_dir, checked=True) as served:
        by_signature: dict[str, Mapping[str, Any]] = {
            receivers.RAW: raw,
            receivers.EXAMPLES: {receivers.EXAMPLES_INPUT: list(records.raw)},
        }
        if key is not None:
            by_signature[receivers.WITHOUT_KEY] = {name: value for name, value in raw.items() if name != key}
        for signature, inputs in by_signature.items():
            found = _in_batches(served, inputs, signature, rows=len(records.raw))
            names = [n for n in expected if signature != receivers.WITHOUT_KEY or n != "key"]
            found = {n: v for n, v in found.items() if n in names or n not in expected}
            _compare(
                {n: expected[n] for n in names},
                found,
                "the Estimator on the stored records",
                f"the signature {signature!r} of {export_dir} on the raw ones",
            )
        if judged is not None:
            rejected_requests.check(judged, served)
    return recorded(receivers.RAW, raw, expected)


def judge(dataset: Dataset, records: ParityRecords, *, current: bool = True) -> Judged:
    """The job's verdicts on bad rows made of the first record; see `trainer.export.rejected_requests`."""
    from trainer.export import receivers, rejected_requests

    first = _parsed(dataset, records.raw[:1])
    inputs = [column.name for column in receivers.request_columns(dataset)]
    return rejected_requests.judge(dataset, first, inputs, current=current)


def _parsed(dataset: Dataset, raw: Sequence[bytes]) -> Batch:
    import tensorflow as tf

    from trainer.export.receivers import record_columns

    spec = strict_spec(record_columns(dataset))
    return graph_values(lambda serialized: tf.io.parse_example(serialized, spec), raw)


def _in_batches(served: ServedModel, inputs: Mapping[str, Any], signature: str, *, rows: int) -> Batch:
    import numpy as np

    parts = [
        served.predict({name: value[i : i + BATCH] for name, value in inputs.items()}, signature=signature)
        for i in range(0, rows, BATCH)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _estimator_predictions(dataset: Dataset, records: ParityRecords, estimator: Any, checkpoint_path: str) -> Batch:
    import numpy as np

    from trainer.strategies.run_config import as_exported

    def input_fn() -> Any:
        return _stored_features(dataset, records.transformed)

    predictions = as_exported(estimator).predict(input_fn, checkpoint_path=checkpoint_path, yield_single_examples=False)
    batches = list(predictions)
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def _stored_features(dataset: Dataset, serialized: tuple[bytes, ...]) -> Any:
    """A `tf.data.Dataset` of the model's inputs from stored records, in batches."""
    import tensorflow as tf
    import tensorflow_transform as tft

    from trainer.export.receivers import not_features
    from trainer.images.augment import AugmentOptions
    from trainer.images.inputs import image_examples

    stored = tf.data.Dataset.from_generator(lambda: serialized, output_signature=tf.TensorSpec([], tf.string))
    images = dataset.image_schema
    if images is not None:
        return image_examples(stored, images, AugmentOptions(size=images.images.input_size)).batch(BATCH)
    spec = tft.TFTransformOutput(dataset.graphs_dir).transformed_feature_spec()
    features = {name: entry for name, entry in spec.items() if name not in not_features(dataset.schema)}
    return stored.batch(BATCH).map(lambda batch: tf.io.parse_example(batch, features))


def _compare(expected: Batch, found: Batch, expected_name: str, found_name: str) -> None:
    from trainer.export.compare import first_difference

    difference = first_difference(expected, found)
    if difference is not None:
        raise SkewError(
            f"skew: {difference} (expected: {expected_name}; found: {found_name}). The exported model differs from "
            "the trained one; do not serve it. If the dataset was written again since, train and export again."
        )
