"""Proves that a served model sees what training saw, on the records that the job kept for this.

    python -m trainer.verify --data_dir out/ --saved_model model/export/best/1700000000

The job keeps a few hundred raw records, each beside its transformed record. Three ways must end alike: the stored
transformed records and the raw ones put through the data set's transform, feature by feature; then the stored ones put
through the Estimator and the raw ones put through the exported signatures, prediction by prediction. Ids, classes and
keys agree exactly, floats within rtol 1e-4 + atol 1e-5. Raw images, ingested again, must be the stored ones byte for
byte.

Exit code: 0 no difference, 1 a difference or a failure, 2 asked wrongly.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from schemas.dataset import Dataset, open_dataset
from schemas.errors import MillraceError, SkewError, UsageError
from schemas.trust import TRUST_HELP
from trainer.graph_values import graph_values, strict_spec, transformed_values
from trainer.parity_records import ParityRecords, read_parity_records
from trainer.served import ServedModel, check_files, read_notes
from trainer.verbosity import start_tensorflow

if TYPE_CHECKING:
    from trainer.parity import Batch
    from trainer.rejected_requests import Judged


BATCH = 64  # records that are predicted at once, on either side: one sum in another order is another sum


def check_transform(dataset: Dataset, records: ParityRecords) -> None:
    """Raw records through the transform's graph (of images, the ingest graph) must be the stored records.

    Raises:
      SkewError: naming the first differing record, its feature and both values.
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
    from trainer.image_verify import ingested_records, stored_records, without_bytes

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
) -> None:
    """Raw records through each exported signature must predict what stored records do through the Estimator.

    And what the job would reject, no signature may answer (`trainer.rejected_requests`).

    Args:
      dataset: whose records these are.
      records: what `read_parity_records` gives.
      export_dir: the SavedModel, which the caller has written, or compared with its notes.
      estimator: as `with_keys_and_classes` wraps it.
      checkpoint_path: the variables that the Estimator is to predict with.
      judged: bad rows, of `judge`; None for an export of an earlier release, which has no output `error`.

    Raises:
      SkewError: naming the first differing record, the prediction and both values; or the input that is answered.
    """
    from trainer import rejected_requests, serving
    from trainer.predictions import ERROR

    expected = _estimator_predictions(dataset, records, estimator, checkpoint_path)
    if judged is None:
        expected = {name: values for name, values in expected.items() if name != ERROR}
    key = serving.key_name(dataset)
    record = _parsed(dataset, records.raw)
    raw = {column.name: record[column.name] for column in serving.request_columns(dataset)}
    with ServedModel(export_dir, checked=True) as served:
        by_signature: dict[str, Mapping[str, Any]] = {
            serving.RAW: raw,
            serving.EXAMPLES: {serving.EXAMPLES_INPUT: list(records.raw)},
        }
        if key is not None:
            by_signature[serving.WITHOUT_KEY] = {name: value for name, value in raw.items() if name != key}
        for signature, inputs in by_signature.items():
            found = _in_batches(served, inputs, signature, rows=len(records.raw))
            names = [n for n in expected if signature != serving.WITHOUT_KEY or n != "key"]
            found = {n: v for n, v in found.items() if n in names or n not in expected}
            _compare(
                {n: expected[n] for n in names},
                found,
                "the Estimator on the stored records",
                f"the signature {signature!r} of {export_dir} on the raw ones",
            )
        if judged is not None:
            rejected_requests.check(judged, served)


def judge(dataset: Dataset, records: ParityRecords) -> Judged:
    """What the job says of bad rows that are made of the first record; see `trainer.rejected_requests`."""
    from trainer import rejected_requests, serving

    first = _parsed(dataset, records.raw[:1])
    return rejected_requests.judge(dataset, first, [column.name for column in serving.request_columns(dataset)])


def _parsed(dataset: Dataset, raw: Sequence[bytes]) -> Batch:
    import tensorflow as tf

    from trainer.serving import record_columns

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

    def input_fn() -> Any:
        return _stored_features(dataset, records.transformed)

    batches = list(estimator.predict(input_fn, checkpoint_path=checkpoint_path, yield_single_examples=False))
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def _stored_features(dataset: Dataset, serialized: tuple[bytes, ...]) -> Any:
    """A `tf.data.Dataset` of what the model reads of stored records, in batches."""
    import tensorflow as tf
    import tensorflow_transform as tft

    from trainer.augment import AugmentOptions
    from trainer.image_inputs import image_examples
    from trainer.serving import not_features

    stored = tf.data.Dataset.from_generator(lambda: serialized, output_signature=tf.TensorSpec([], tf.string))
    images = dataset.image_schema
    if images is not None:
        return image_examples(stored, images, AugmentOptions(size=images.images.input_size)).batch(BATCH)
    spec = tft.TFTransformOutput(dataset.graphs_dir).transformed_feature_spec()
    features = {name: entry for name, entry in spec.items() if name not in not_features(dataset.schema)}
    return stored.batch(BATCH).map(lambda batch: tf.io.parse_example(batch, features))


def _compare(expected: Batch, found: Batch, expected_name: str, found_name: str) -> None:
    from trainer.parity import first_difference

    difference = first_difference(expected, found)
    if difference is not None:
        raise SkewError(
            f"skew: {difference} (expected: {expected_name}; found: {found_name}). What is served is not what was "
            "trained on; do not serve it. If the data set was written again since, train and export again."
        )


def verify(*, data_dir: str, saved_model: str, model_dir: str | None = None, trust: bool = False) -> int:
    """Checks an export against a data set; the Estimator is rebuilt from `model_dir` with the export's own variables.

    Returns:
      How many records were compared.

    Raises:
      SkewError: there is a difference.
      UsageError: the export is of another schema, or its `model_dir` is not known.
      MillraceError: a graph of either could do more than compute, and `trust` is not given.
    """
    saved_model = saved_model.rstrip("/")
    schema, notes = read_notes(saved_model)
    dataset = open_dataset(data_dir, trust=trust)
    if dataset.declared.fingerprint != schema.fingerprint:
        raise UsageError(f"{saved_model}: trained on another schema than {data_dir} has; give the data of its training")
    if notes.dataset_run != dataset.run:
        print(f"note: trained on run {notes.dataset_run}, compared with run {dataset.run}", file=sys.stderr)
    check_files(saved_model, notes)
    if notes.advice is not None:
        print(f"note: {saved_model}: {notes.advice}", file=sys.stderr)
    if not trust:
        from schemas.graph_check import check_graph

        check_graph(saved_model)
    start_tensorflow(verbose=False)
    from trainer.restore import restore_estimator

    records = read_parity_records(dataset)
    check_transform(dataset, records)
    with tempfile.TemporaryDirectory(prefix="millrace-verify-") as scratch:
        check_export(
            dataset,
            records,
            export_dir=saved_model,
            estimator=restore_estimator(model_dir or _model_dir(saved_model), dataset, scratch=scratch),
            checkpoint_path=os.path.join(saved_model, "variables", "variables"),
            judged=judge(dataset, records) if notes.advice is None else None,
        )
    return len(records.raw)


def _model_dir(saved_model: str) -> str:
    """model_dir/export/best/<number> -> model_dir."""
    parts = os.path.abspath(saved_model) if "://" not in saved_model else saved_model
    model_dir = os.path.dirname(os.path.dirname(os.path.dirname(parts)))
    if os.path.basename(os.path.dirname(os.path.dirname(parts))) != "export":
        raise UsageError(f"{saved_model} does not lie in model_dir/export/<name>/; say which with --model_dir")
    return model_dir


def main(argv: list[str] | None = None) -> int:
    """Parses, verifies, prints what came of it, and returns the exit code."""
    description, exit_codes = (__doc__ or "").split("\n\nExit code: ")
    parser = argparse.ArgumentParser(
        prog="python -m trainer.verify",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=description,
        epilog=f"Exit code: {exit_codes}",
    )
    parser.add_argument("--data_dir", required=True, help="the data set directory that the model was trained on")
    parser.add_argument("--saved_model", required=True, help="the exported model, such as model/export/best/1700000000")
    parser.add_argument("--model_dir", help="where the model was trained; default: three folders above --saved_model")
    parser.add_argument("--trust", action="store_true", help=TRUST_HELP)
    options = parser.parse_args(argv)
    try:
        records = verify(**vars(options))
    except MillraceError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"no skew: {records} records, through the transform, the Estimator and every exported signature")
    return 0


if __name__ == "__main__":
    sys.exit(main())
