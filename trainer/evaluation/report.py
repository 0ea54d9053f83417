"""The content of a report: an evaluation in numbers, its slices, its worst rows, the features that matter, the curves.

The split is read once more, without the model, for slices and worst rows; some rows are predicted again for the
importance of features.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf
import tensorflow_transform as tft

from schemas.dataset import OpenDataset
from schemas.dataset.provenance import read_places, read_rows, sources_of
from schemas.errors import UsageError
from schemas.report.thumbnails import thumbnails
from schemas.spec import images
from trainer.data.input_fn import evaluation_pairs, input_fn
from trainer.data.input_options import InputOptions
from trainer.estimator import tf_estimator
from trainer.evaluation.content import content_of, notes_of
from trainer.evaluation.features import ModelFeatures
from trainer.evaluation.importance import REPEATS, groups_of, importance, rows_for
from trainer.evaluation.predictions import Predictions
from trainer.evaluation.records import read_records, shard_of, stored_batches, stored_values
from trainer.evaluation.slices import Part, Slicing, crossed, slice_rows, slice_table, worst_slices
from trainer.evaluation.watch import predictor
from trainer.export.receivers import key_name, weight_name

FORMAT_VERSION = 1
WORST_ROWS = 25
SAMPLE_BATCHES = 5  # of 4,096 rows, from which the ranges of numbers are taken
PICTURES = "pictures"  # of the worst rows, as `data:` URLs: in the page alone


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """An evaluation that a report is of.

    Attributes:
      dataset: the dataset.
      split: which split was evaluated.
      reading: how it was read.
      model: the name of the model.
      estimator: the Estimator, wrapped by `with_keys_and_classes`.
      checkpoint: the one that was evaluated.
      metrics: what the Estimator's own evaluation gave.
      predictions: of the rows, in their order.
      learning_curves: what the function of this name returned.
    """

    dataset: OpenDataset
    split: str
    reading: InputOptions
    model: str
    estimator: Any
    checkpoint: str
    metrics: Mapping[str, Any]
    predictions: Predictions
    learning_curves: Mapping[str, Any]


def summary(evaluated: Evaluated) -> dict[str, Any]:
    """Returns the content of a report without slices, worst rows and importance."""
    dataset, predictions = evaluated.dataset, evaluated.predictions
    content: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "data": {"path": dataset.path, "run": dataset.run, "name": dataset.declared.name, "split": evaluated.split},
        "model": evaluated.model,
        "step": int(evaluated.metrics["global_step"]),
        "rows": predictions.rows,
        "rows_of_the_split": dataset.rows(evaluated.split),
        "weight": weight_name(dataset),
        "metrics_of_the_estimator": {k: v for k, v in evaluated.metrics.items() if k != "global_step"},
        "learning_curves": evaluated.learning_curves,
        "not_finite": int(predictions.rows - predictions.usable.sum()),
        **content_of(predictions),
    }
    return {**content, "notes": list(notes_of(predictions, content))}


def full(evaluated: Evaluated, *, slice_by: Sequence[str], predictions_path: str) -> dict[str, Any]:
    """Returns the whole content of a report, and writes the predictions as an Arrow file.

    Args:
      evaluated: the evaluation.
      slice_by: features to slice by; 'a,b' is each combination of their values.
      predictions_path: where the predictions go.

    Raises:
      UsageError: `slice_by` names what is no feature of one value a row.
    """
    content = summary(evaluated)
    dataset, predictions = evaluated.dataset, evaluated.predictions
    if not predictions.rows:
        return content
    if dataset.image_schema is not None:
        pairs = evaluation_pairs(dataset, evaluated.split)[0] if dataset.image_schema.pairs else None
        names = _file_names(evaluated, pairs)
        predictions.write(predictions_path, pa.array(names, pa.string()), pa.nulls(len(names), pa.int64()))
        return content | _worst_images(evaluated, pairs)
    sources, offsets = sources_of(dataset, read_places(dataset, evaluated.split)[: predictions.rows])
    predictions.write(predictions_path, pa.array(sources, pa.string()).dictionary_encode(), pa.array(offsets))
    features = ModelFeatures(dataset)
    content["slices"] = _sliced(evaluated, features, slice_by)
    groups = groups_of(features.parts, features.inputs.values())
    rows = rows_for(len(groups), predictions.rows)
    measured = _importance(evaluated, groups, rows) if rows else []
    if not rows:
        content["notes"].append(f"The importance of {len(groups):,} features is not measured: they are too many.")
    content["importance"] = {"rows": rows, "repeats": REPEATS, "features": measured}
    return content | _worst_rows(evaluated)


def _importance(evaluated: Evaluated, groups: Sequence[tuple[Part, ...]], rows: int) -> list[dict[str, Any]]:
    sample = dataclasses.replace(evaluated.reading, batch_size=rows)
    batch = input_fn(evaluated.dataset, evaluated.split, mode=tf_estimator.ModeKeys.EVAL, options=sample)
    return importance(predictor(evaluated.estimator, evaluated.checkpoint), batch, groups, evaluated.predictions.target)


def _sliced(evaluated: Evaluated, features: ModelFeatures, slice_by: Sequence[str]) -> dict[str, Any]:
    """Slices by every feature, from which the worst are taken, and by those of `slice_by`."""
    dataset, predictions = evaluated.dataset, evaluated.predictions
    stored = tft.TFTransformOutput(dataset.graphs_dir).transformed_feature_spec()
    spec = {name: entry for name, entry in stored.items() if isinstance(entry, tf.io.FixedLenFeature)}
    batches = stored_batches(dataset, evaluated.split, spec, rows=predictions.rows)
    first = list(itertools.islice(batches, SAMPLE_BATCHES))
    slicings = list(features.slicings({name: np.concatenate([batch[name] for batch in first]) for name in first[0]}))
    requested = _requested(slice_by, slicings)
    combined = [slicing for slicing in requested if slicing not in slicings]
    rows = slice_rows([*slicings, *combined], predictions, itertools.chain(first, batches), with_codes=requested)
    tables = [slice_table(sliced, predictions) for sliced in rows]
    by_name = {table["feature"]: table for table in tables}
    return {
        "worst": worst_slices(rows[: len(slicings)], predictions.target),
        "asked": [by_name[slicing.name] for slicing in requested],
        "all": tables[: len(slicings)],
        "left_out": features.without_slices(slicings),
    }


def _requested(slice_by: Sequence[str], slicings: Sequence[Slicing]) -> list[Slicing]:
    by_name = {slicing.name: slicing for slicing in slicings}
    requested = []
    for text in slice_by:
        names = [name.strip() for name in text.split(",")]
        for name in names:
            if name not in by_name:
                raise UsageError(
                    f"--slice_by {text}: {name!r} is no feature with one value a row; choose from {', '.join(by_name)}"
                )
        requested.append(crossed([by_name[name] for name in names]))
    return requested


def _worst_rows(evaluated: Evaluated) -> dict[str, Any]:
    """The rows of a table that were most wrong: where they are stored and come from, what they hold, and notes."""
    dataset, split = evaluated.dataset, evaluated.split
    places = evaluated.predictions.worst(WORST_ROWS).tolist()
    raw_rows, notes = read_rows(dataset, read_places(dataset, split)[places])
    records = read_records(dataset, split, places)
    names, key = [feature.name for feature in dataset.schema.inputs], key_name(dataset)
    entries = []
    for place, raw in zip(places, raw_rows, strict=True):
        entry = _predicted(evaluated, place, place)
        stored = stored_values(records[place])
        if key in stored:
            entry["key"] = ", ".join(map(_text, stored[key]))
        features = {name: raw.values[name] for name in names if name in raw.values}
        entries.append({**entry, "source": raw.source, "offset": raw.offset, "features": features})
    return {"worst_rows": entries, "worst_rows_notes": notes}


def _worst_images(evaluated: Evaluated, pairs: np.ndarray | None) -> dict[str, Any]:
    """The images that were most wrong, or the pairs; `pairs` are the places of both images of each, `[pairs, 2]`."""
    places = evaluated.predictions.worst(WORST_ROWS).tolist()
    stored_places = [[place] for place in places] if pairs is None else pairs[places].tolist()
    needed = {place for images_of_row in stored_places for place in images_of_row}
    records = read_records(evaluated.dataset, evaluated.split, needed)
    entries, pictures = [], []
    for place, images_of_row in zip(places, stored_places, strict=True):
        stored = [stored_values(records[image]) for image in images_of_row]
        files = [_text(name) for values in stored for name in values[images.FILENAME]]
        entries.append({**_predicted(evaluated, place, images_of_row[0]), "files": files})
        pictures.append([url for values in stored for url in thumbnails(values)])
    return {"worst_rows": entries, PICTURES: pictures}


def _file_names(evaluated: Evaluated, pairs: np.ndarray | None) -> list[str]:
    """The file of each image that was predicted, or both files of each pair."""
    rows = evaluated.predictions.rows
    spec = {images.FILENAME: tf.io.FixedLenFeature([], tf.string)}
    batches = stored_batches(evaluated.dataset, evaluated.split, spec, rows=rows if pairs is None else -1)
    names = [_text(name) for batch in batches for name in batch[images.FILENAME].tolist()]
    return names if pairs is None else [f"{names[i]} {names[j]}" for i, j in pairs[:rows].tolist()]


def _predicted(evaluated: Evaluated, row: int, stored: int) -> dict[str, Any]:
    """A row, its label and its prediction, and the record that holds it, by its place in the split."""
    shard, record = shard_of(evaluated.dataset, evaluated.split, stored)
    predictions = evaluated.predictions
    label, score, target = predictions.label[row], float(predictions.score[row]), predictions.target
    entry: dict[str, Any] = {"row": row, "true": float(label), "predicted": score, "residual": score - float(label)}
    if target.names:
        predicted = int(predictions.predicted[row])
        entry = {
            "row": row,
            "true": target.names[int(label)],
            "predicted": target.names[predicted],
            "probability_of_predicted": 1 - score if target.binary and predicted != target.positive else score,
            "loss": float(predictions.loss[row]),
        }
    return {**entry, "shard": shard, "record": record}


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
