"""The content of a report: an evaluation in numbers, its slices, its worst rows, the features that matter, the curves.

The split is read once more, without the model, for slices and worst rows; some rows are predicted again for the
importance of features.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf
import tensorflow_transform as tft

from schemas.dataset import OpenDataset
from schemas.dataset.provenance import read_places, read_rows, sources_of
from schemas.errors import UsageError, counted, few
from schemas.report.thumbnails import thumbnails
from schemas.spec import images
from trainer.data.input_fn import evaluation_pairs, input_fn
from trainer.data.input_options import input_options
from trainer.estimator import tf_estimator
from trainer.evaluation.content import content_of
from trainer.evaluation.features import (
    REPEATS,
    FeatureText,
    groups_of,
    importance,
    predicted_again,
    predictor,
    rows_for,
)
from trainer.evaluation.predictions import Predictions
from trainer.evaluation.slices import Slices, Slicing, crossed
from trainer.export.receivers import key_name, weight_name
from trainer.spec.options import TrainingPlan

ModeKeys = tf_estimator.ModeKeys
FIRST = ("rmse", "mae", "r2", "average_loss", "loss", "accuracy", "auc", "auc_precision_recall", "recall", "precision")
PANELS = 6
# The same in every evaluation, or no measure of the model.
UNREAD = {"bias", "label", "prediction", "accuracy_baseline", "rmse_baseline"}
SAME_LOSS = 0.02  # of the loss: how far batches and rows may differ, as the last batch has fewer rows
_STEP = "global_step"


def learning_curves(
    evaluations: Sequence[Mapping[str, Any]],
    *,
    best_metric: str | None,
    best_step: int | None,
    steps_an_epoch: float,
    training: Mapping[int, float] | None = None,
) -> dict[str, Any]:
    """The metrics of all evaluations, as JSON holds them.

    Args:
      evaluations: the content of `evaluations.json`.
      best_metric: the metric that selects the best export; its curve comes first.
      best_step: the step of the best export.
      steps_an_epoch: how many steps read the train split once.
      training: the loss of batches of the training, by step.

    Returns:
      `evaluations`, each with its `epoch`; and `panels`: the curves that are drawn, with `metric`, `steps`, `values`
      and `best`, the best export's step, if the curve has it. That of the loss has `train` and `train_steps`, too.
    """
    rows = [
        {
            "step": int(e[_STEP]),
            "epoch": round(e[_STEP] / steps_an_epoch, 2),
            **{k: v for k, v in e.items() if k != _STEP},
        }
        for e in evaluations
    ]
    names = dict.fromkeys(name for row in rows for name in row if name not in ("step", "epoch"))
    ordered_names = dict.fromkeys(name for name in (best_metric, *FIRST, *names) if name in names)
    chosen = [name for name in ordered_names if name is not None and name.split("/")[0] not in UNREAD]
    if "rmse_baseline" in names:  # the losses of a regression are in other units
        chosen = [name for name in chosen if name not in ("average_loss", "loss")]
    if "average_loss" in chosen and "loss" in chosen and (not training or _same_loss(rows)):
        chosen.remove("loss")
    learned = next((name for name in ("balanced_loss", "loss", "average_loss") if name in chosen), None)
    panels = []
    for name in chosen[:PANELS]:
        points = [
            (row["step"], row[name])
            for row in rows
            if isinstance(row.get(name), int | float) and math.isfinite(row[name])
        ]
        if points:
            steps, values = (list(column) for column in zip(*points, strict=True))
            panels.append(
                {"metric": name, "steps": steps, "values": values, "best": best_step if best_step in steps else None}
            )
            if name == learned and training:
                panels[-1] |= {"train_steps": [*training], "train": [*training.values()]}
    return {"evaluations": rows, "panels": panels, "best_metric": best_metric, "best_step": best_step}


def _same_loss(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the loss that a training lowers is the mean loss of a row, without weights or penalties."""
    pairs = [(row.get("loss"), row.get("average_loss")) for row in rows]
    return all(
        loss is not None and average_loss is not None and math.isclose(loss, average_loss, rel_tol=SAME_LOSS)
        for loss, average_loss in pairs
    )


def rounds_panel(
    losses: Mapping[str, Sequence[float]], best_step: int | None, *, rmse_of: str | None = None
) -> dict[str, Any]:
    """The panel of boosted trees: the loss after each round on the evaluated split, and on `train` beside it.

    Args:
      losses: by split.
      best_step: the number of rounds of the best export.
      rmse_of: of a regression, what the root mean squared error is of; the losses are its squares.
    """
    if rmse_of is not None:
        losses = {split: [math.sqrt(loss) for loss in values] for split, values in losses.items()}
    measure = "log loss" if rmse_of is None else f"RMSE of {rmse_of}"
    split = next((name for name in losses if name != "train"), "train")
    values = [*losses[split]]
    steps = [*range(1, len(values) + 1)]
    panel: dict[str, Any] = {"metric": f"{measure} on {split}, by round", "steps": steps, "values": values}
    panel["best"] = best_step if best_step in steps else None
    return panel if split == "train" else {**panel, "train": [*losses.get("train", ())]}


BATCH, IMAGE_BATCH = 4096, 64


class StoredRows:
    """The records of a split's first rows in the order of an evaluation, read once more.

    Args:
      dataset: the dataset.
      split: the split.
      count: how many records are read.
      places: those of the records that are taken out whole.

    Attributes:
      records: the records that were taken out by place, as far as `batches` has read.
      files: of images, by batch, the names of the files.
    """

    def __init__(self, dataset: OpenDataset, split: str, count: int, places: np.ndarray) -> None:
        self._dataset, self._split, self._count, self._places = dataset, split, count, np.unique(places).tolist()
        self.records: dict[int, bytes] = {}
        self.files: list[np.ndarray] = []

    def batches(self) -> Iterator[dict[str, Any]]:
        """The stored features of a batch, `[rows, ...]` by name: of rows all but bags of ids, of images the file."""
        dataset = self._dataset
        spec: dict[str, Any] = {images.FILENAME: tf.io.FixedLenFeature([], tf.string)}
        size = IMAGE_BATCH
        if dataset.image_schema is None:
            stored = tft.TFTransformOutput(dataset.graphs_dir).transformed_feature_spec()
            spec = {name: entry for name, entry in stored.items() if isinstance(entry, tf.io.FixedLenFeature)}
            size = BATCH
        shards = tf.data.TFRecordDataset(list(dataset.shards(self._split)), dataset.compression)
        batches = shards.take(self._count).batch(size)
        first = 0
        for records, batch in batches.map(lambda batch: (batch, tf.io.parse_example(batch, spec))).prefetch(1):
            rows = len(records)
            self.records |= {i: records[i - first].numpy() for i in self._places if first <= i < first + rows}
            first += rows
            if images.FILENAME in batch:
                self.files.append(batch[images.FILENAME].numpy())
            yield {name: value.numpy() for name, value in batch.items()}


def located(dataset: OpenDataset, split: str, row: int) -> tuple[str, int]:
    """The shard of a row, relative to the dataset directory, and the record's place in it, both counted from 0."""
    for shard in dataset.manifest.splits[split].shards:
        if row < shard.rows:
            return shard.path, row
        row -= shard.rows
    raise IndexError(f"the split {split!r} has no row {row}")


PICTURES = "pictures"  # of the worst rows, as `data:` URLs: in the page alone


def stored_values(serialized: bytes) -> dict[str, list[Any]]:
    """The values of a record, by feature."""
    features = tf.train.Example.FromString(serialized).features.feature
    return {name: list(getattr(x, x.WhichOneof("kind") or "int64_list").value) for name, x in features.items()}


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


FORMAT_VERSION = 1
WORST_ROWS = 25
SAMPLE_BATCHES = 5  # of 4,096 rows, from which the ranges of numbers are taken


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """An evaluation that a report is of.

    Attributes:
      dataset: the dataset.
      split: which split was evaluated.
      step: the checkpoint's.
      model: the name of the model.
      metrics: what the Estimator's own evaluation gave.
      predictions: None: the model gave none.
      slice_by: features to slice by; 'a,b' is each combination of their values.
    """

    dataset: OpenDataset
    split: str
    step: int
    model: str
    metrics: Mapping[str, Any]
    predictions: Predictions | None
    slice_by: tuple[str, ...] = ()


def _summary(evaluated: Evaluated, predictions: Predictions, learning_curves: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a report without slices, worst rows and importance."""
    dataset = evaluated.dataset
    content: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "data": {"path": dataset.path, "run": dataset.run, "name": dataset.declared.name, "split": evaluated.split},
        "model": evaluated.model,
        "step": evaluated.step,
        "rows": predictions.rows,
        "rows_of_the_split": dataset.rows(evaluated.split),
        "weight": weight_name(dataset),
        "metrics_of_the_estimator": {k: v for k, v in evaluated.metrics.items() if k != "global_step"},
        "learning_curves": learning_curves,
        "not_finite": int(predictions.rows - predictions.usable.sum()),
        **content_of(predictions),
    }
    content["notes"] = list(notes(predictions, content))
    return content


def notes(predictions: Predictions, content: Mapping[str, Any]) -> Iterator[str]:
    """What a reader must know before he reads the numbers."""
    rows = predictions.rows
    if not rows:
        yield "The split has no rows: there is nothing to report."
    if bad := int(rows - predictions.usable.sum()):
        yield (
            f"{bad:,} of {rows:,} predictions are NaN or infinite, and are left out of all "
            "figures. Look at the learning rate and at the features of these rows."
        )
    if 0 < rows < content["rows_of_the_split"]:
        yield f"Evaluated on {rows:,} of the {content['rows_of_the_split']:,} rows of the split (--eval_steps)."
    if 0 < rows < 100:
        yield f"Only {counted(rows, 'rows')}: with so few, other rows could give quite different numbers."
    scored = 0 if predictions.probabilities is None else len(predictions.probabilities)
    if 0 < scored < rows:
        yield f"Curves and the areas under them are of the first {scored:,} of {rows:,} rows."
    if predictions.usable.any() and predictions.target.names:
        missing = [row["class"] for row in content["classes"] if row["support"] == 0]
        if missing:
            yield f"No row of the split is of the class {few(missing)}: recall and AUC of it are undefined."


def full(
    evaluated: Evaluated,
    learning_curves: Mapping[str, Any],
    estimator: Any,
    checkpoint: str,
    *,
    options: TrainingPlan,
    steps: int | None,
    predictions_path: str | None = None,
) -> dict[str, Any]:
    """The whole content of a report, of predictions that are made again if the evaluation has none.

    Args:
      evaluated: the evaluation.
      learning_curves: as the function of this name gives them.
      estimator: the Estimator, wrapped by `with_keys_and_classes`.
      checkpoint: the one that was evaluated.
      options: how the split is read.
      steps: how many batches were evaluated; None: all.
      predictions_path: where the predictions are written as an Arrow file; None: the content is of the metrics alone.

    Raises:
      UsageError: `slice_by` names what is no feature of one value a row.
    """
    dataset, split = evaluated.dataset, evaluated.split
    reading = input_options(dataset, options, split=split, mode=ModeKeys.EVAL)
    predictions = evaluated.predictions
    if predictions is None:
        predictions = predicted_again(estimator, checkpoint, dataset, split, reading, steps=steps)
    content = _summary(evaluated, predictions, learning_curves)
    if not predictions.rows or predictions_path is None:
        return content
    worst, pairs = predictions.worst(WORST_ROWS), _pairs(dataset, split)
    if pairs is None:
        stored = StoredRows(dataset, split, predictions.rows, worst)
    else:  # any image of the split may be in the first pairs
        stored = StoredRows(dataset, split, dataset.rows(split), pairs[worst])
    if dataset.image_schema is None:
        text = FeatureText(dataset)
        content["slices"] = sliced(evaluated, predictions, text, stored.batches())
        groups = groups_of(text.parts, text.inputs.values())
        rows = rows_for(len(groups), predictions.rows)
        content["importance"] = {"rows": rows, "repeats": REPEATS, "features": []}
        if rows:
            sample = dataclasses.replace(reading, batch_size=rows)
            batch = input_fn(dataset, split, mode=ModeKeys.EVAL, options=sample)
            measured = importance(predictor(estimator, checkpoint), batch, groups, predictions.target)
            content["importance"]["features"] = measured
        else:
            content["notes"].append(f"The importance of {len(groups):,} features is not measured: they are too many.")
    else:
        collections.deque(stored.batches(), maxlen=0)
    predictions.write(predictions_path, *_sources(dataset, split, stored.files, predictions.rows))
    return content | _worst_rows(dataset, split, predictions, worst.tolist(), stored.records)


def _pairs(dataset: OpenDataset, split: str) -> np.ndarray | None:
    """Of a dataset of pairs, the places of both images of each, `[pairs, 2]`."""
    pairs = dataset.image_schema is not None and dataset.image_schema.pairs
    return evaluation_pairs(dataset, split)[0] if pairs else None


def _sources(dataset: OpenDataset, split: str, files: Sequence[np.ndarray], rows: int) -> tuple[pa.Array, pa.Array]:
    """The files of the predicted rows, and their offsets, which images do not have: each `[rows]`."""
    if dataset.image_schema is None:
        sources, offsets = sources_of(dataset, read_places(dataset, split)[:rows])
        return pa.array(sources, pa.string()).dictionary_encode(), pa.array(offsets)
    names = [_text(name) for batch in files for name in batch.tolist()]
    pairs = _pairs(dataset, split)
    if pairs is not None:
        names = [f"{names[i]} {names[j]}" for i, j in pairs[:rows].tolist()]
    return pa.array(names, pa.string()), pa.nulls(len(names), pa.int64())


def _worst_rows(
    dataset: OpenDataset, split: str, predictions: Predictions, rows: Sequence[int], records: Mapping[int, bytes]
) -> dict[str, Any]:
    """The rows that were most wrong: where they are stored and come from, what they hold, and notes for people.

    Args:
      dataset: the dataset.
      split: the rows'.
      predictions: of all rows.
      rows: which of them, counted in the order of the evaluation.
      records: their records, by place; of a pair those of both images.
    """
    pairs, key = _pairs(dataset, split), key_name(dataset)
    entries: list[dict[str, Any]] = []
    pictures = []
    for row in rows:
        stored = [row] if pairs is None else pairs[row].tolist()
        shard, record = located(dataset, split, stored[0])
        entries.append({**_prediction(predictions, row), "shard": shard, "record": record})
        values = [stored_values(records[place]) for place in stored]
        if dataset.image_schema is not None:
            entries[-1]["files"] = [_text(name) for image in values for name in image[images.FILENAME]]
            pictures.append([url for image in values for url in thumbnails(image)])
            continue
        if key in values[0]:
            entries[-1]["key"] = ", ".join(map(_text, values[0][key]))
    if dataset.image_schema is not None:
        return {"worst_rows": entries, PICTURES: pictures}
    raw, notes = read_rows(dataset, read_places(dataset, split)[rows])
    names = [feature.name for feature in dataset.schema.inputs]
    for entry, origin in zip(entries, raw, strict=True):
        features = {name: origin.values[name] for name in names if name in origin.values}
        entry |= {"source": origin.source, "offset": origin.offset, "features": features}
    return {"worst_rows": entries, "worst_rows_notes": notes}


def sliced(
    evaluated: Evaluated, predictions: Predictions, text: FeatureText, batches: Iterator[dict[str, Any]]
) -> dict[str, Any]:
    """Slices by every feature, from which the worst are taken, and by those that were asked for.

    Raises:
      UsageError: see `full`.
    """
    first = list(itertools.islice(batches, SAMPLE_BATCHES))
    every = list(text.slicings({name: np.concatenate([batch[name] for batch in first]) for name in first[0]}))
    requested = _asked(evaluated.slice_by, every)
    all_slices = Slices(every, predictions)
    asked_slices = Slices(requested, predictions, keep_parts=predictions.target.binary)
    for batch in itertools.chain(first, batches):
        all_slices.add(batch)
        asked_slices.add(batch)
    sliced_parts = {slicing.name for slicing in every}
    whole = [name for name in text.inputs if name not in {part.feature for part in text.parts}]
    left_out = [*(part.name for part in text.parts if part.name not in sliced_parts), *whole]
    return {
        "worst": all_slices.worst(),
        "asked": asked_slices.tables(),
        "all": all_slices.tables(),
        "left_out": left_out,
    }


def _asked(slice_by: Sequence[str], every: Sequence[Slicing]) -> list[Slicing]:
    slicing_by_name = {slicing.name: slicing for slicing in every}
    slicings = []
    for features_text in slice_by:
        names = [name.strip() for name in features_text.split(",")]
        for name in names:
            if name not in slicing_by_name:
                raise UsageError(
                    f"--slice_by {features_text}: {name!r} is no feature with one value a row; choose from "
                    f"{', '.join(slicing_by_name)}"
                )
        slicings.append(
            slicing_by_name[names[0]] if len(names) == 1 else crossed([slicing_by_name[name] for name in names])
        )
    return slicings


def _prediction(predictions: Predictions, row: int) -> dict[str, Any]:
    label, score, target = predictions.label[row], float(predictions.score[row]), predictions.target
    if not target.names:
        return {"row": row, "true": float(label), "predicted": score, "residual": score - float(label)}
    predicted = int(predictions.predicted[row])
    return {
        "row": row,
        "true": target.names[int(label)],
        "predicted": target.names[predicted],
        "probability_of_predicted": 1 - score if target.binary and predicted != target.positive else score,
        "loss": float(predictions.loss[row]),
    }
