"""The content of a report: an evaluation in numbers, its slices, its worst rows, the features that matter, the curves.

The split is read once more, without the model, for slices and worst rows; some rows are predicted again for the
importance of features.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf
import tensorflow_transform as tft

from schemas.dataset import Dataset, layout
from schemas.dataset.provenance import read_places, read_rows, sources_of
from schemas.errors import UsageError, counted, few
from schemas.report.thumbnails import opened, thumbnail
from schemas.spec import images
from trainer.data.input_fn import evaluation_pairs, input_fn
from trainer.data.input_options import input_options
from trainer.estimator import tf_estimator
from trainer.evaluation.features import (
    REPEATS,
    FeatureText,
    groups_of,
    importance,
    predicted_again,
    predictor,
    rows_for,
)
from trainer.evaluation.metrics import content_of
from trainer.evaluation.predictions import Predictions
from trainer.evaluation.slices import Slices, Slicing, crossed
from trainer.evaluation.watch import target_of
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
    wanted = dict.fromkeys(name for name in (best_metric, *FIRST, *names) if name in names)
    chosen = [name for name in wanted if name is not None and name.split("/")[0] not in UNREAD]
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
    return all(one is not None and two is not None and math.isclose(one, two, rel_tol=SAME_LOSS) for one, two in pairs)


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


def feature_batches(dataset: Dataset, split: str, rows: int) -> Iterator[dict[str, Any]]:
    """Stored features of a split's first rows as an evaluation reads them, in batches: `[rows, ...]` by name.

    Of rows all but bags of ids; of images the names of their files.
    """
    dense: dict[str, Any] = {images.FILENAME: tf.io.FixedLenFeature([], tf.string)}
    size = IMAGE_BATCH
    if dataset.image_schema is None:
        spec = tft.TFTransformOutput(dataset.graphs_dir).transformed_feature_spec()
        dense = {name: entry for name, entry in spec.items() if isinstance(entry, tf.io.FixedLenFeature)}
        size = BATCH
    records = tf.data.TFRecordDataset(list(dataset.shards(split)), dataset.compression).take(rows).batch(size)
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
    if not rows:
        return []
    shards, places = zip(*(located(dataset, split, row) for row in rows), strict=True)
    paths = [layout.join(dataset.path, shard) for shard in shards]

    @tf.autograph.experimental.do_not_convert
    def record(path: tf.Tensor, place: tf.Tensor) -> tf.data.Dataset:
        return tf.data.TFRecordDataset(path, dataset.compression).skip(place).take(1)

    every = tf.data.Dataset.from_tensor_slices((paths, tf.constant(places, tf.int64))).flat_map(
        record
    )  # one graph for all
    return [serialized.numpy() for serialized in every]


def described(
    dataset: Dataset, split: str, rows: list[int], records: list[bytes]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Where rows of a split are stored and come from, and what they hold.

    Args:
      dataset: the dataset.
      split: the rows'.
      rows: counted in the order of an evaluation.
      records: as `records_at` gives them.

    Returns:
      `shard` and `record` of each row; of images `files`; of rows `source`, `offset`, `features` (the text of its
      values by name, read there), and `key` if the schema has one. And notes for people.
    """
    entries: list[dict[str, Any]] = []
    key = key_name(dataset)
    for row, serialized in zip(rows, records, strict=True):
        shard, record = located(dataset, split, row)
        example = tf.train.Example.FromString(serialized)
        values = {name: _values(feature) for name, feature in example.features.feature.items()}
        entries.append({"shard": shard, "record": record})
        if dataset.image_schema is not None:
            entries[-1]["files"] = list(map(_text, values[images.FILENAME]))
            continue
        if key in values:
            entries[-1]["key"] = ", ".join(map(_text, values[key]))
    if not rows or dataset.image_schema is not None:
        return entries, []
    raw, notes = read_rows(dataset, read_places(dataset, split)[rows])
    names = [feature.name for feature in dataset.schema.inputs]
    for entry, origin in zip(entries, raw, strict=True):
        features = {name: origin.values[name] for name in names if name in origin.values}
        entry |= {"source": origin.source, "offset": origin.offset, "features": features}
    return entries, notes


PICTURES = "pictures"  # of the worst rows, as `data:` URLs: in the page alone


def thumbnails(serialized: bytes) -> list[str]:
    """The image of a record; none if it cannot be decoded."""
    import PIL.Image

    example = tf.train.Example.FromString(serialized)
    values = {name: _values(feature) for name, feature in example.features.feature.items()}
    with contextlib.suppress(OSError, ValueError, SyntaxError, KeyError, PIL.Image.DecompressionBombError):
        data = values[images.ENCODED][0]
        if values[images.FORMAT][0] == images.FORMATS["raw"]:
            size = values[images.WIDTH][0], values[images.HEIGHT][0]
            return [thumbnail(PIL.Image.frombytes("RGB", size, data))]
        with opened(data) as image:
            return [thumbnail(image)]
    return []


def _values(feature: tf.train.Feature) -> list[Any]:
    return list(getattr(feature, feature.WhichOneof("kind") or "int64_list").value)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def sample_of(batches: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """The values of batches, `[rows, ...]` by feature."""
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]} if batches else {}


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

    dataset: Dataset
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
      predictions_path: where the predictions are written as an Arrow file; None: nowhere.

    Raises:
      UsageError: `slice_by` names what is no feature of one value a row.
    """
    dataset, split = evaluated.dataset, evaluated.split
    reading = input_options(dataset, options, split=split, mode=ModeKeys.EVAL)
    predictions = evaluated.predictions
    if predictions is None:
        predictions = predicted_again(estimator, checkpoint, dataset, split, reading, steps=steps)
    content = _summary(evaluated, predictions, learning_curves)
    if not predictions.rows:
        return content
    text = None if dataset.image_schema is not None else FeatureText(dataset)
    if text is not None:
        content["slices"] = sliced(evaluated, predictions, text, feature_batches(dataset, split, predictions.rows))
    if predictions_path is not None:
        predictions.write(predictions_path, *_sources(dataset, split, predictions.rows))
    content |= _worst(evaluated, predictions)
    if text is not None:
        groups = groups_of(text.parts, text.inputs.values())
        rows = rows_for(len(groups), predictions.rows)
        measured = rows and importance(
            predictor(estimator, checkpoint),
            input_fn(dataset, split, mode=ModeKeys.EVAL, options=dataclasses.replace(reading, batch_size=rows)),
            groups,
            target_of(dataset),
        )
        content["importance"] = {"rows": rows, "repeats": REPEATS, "features": measured or []}
        if not rows:
            content["notes"].append(f"The importance of {len(groups):,} features is not measured: they are too many.")
    return content


def _sources(dataset: Dataset, split: str, rows: int) -> tuple[pa.Array, pa.Array]:
    """The files of a split's first rows, and their offsets, which images do not have: each `[rows]`."""
    if dataset.image_schema is None:
        sources, offsets = sources_of(dataset, read_places(dataset, split)[:rows])
        return pa.array(sources, pa.string()).dictionary_encode(), pa.array(offsets)
    records = dataset.rows(split) if dataset.image_schema.pairs else rows  # any may be in the first pairs
    batches = feature_batches(dataset, split, records)
    names = [_text(name) for batch in batches for name in batch[images.FILENAME].tolist()]
    if dataset.image_schema.pairs:
        names = [f"{names[i]} {names[j]}" for i, j in evaluation_pairs(dataset, split)[0][:rows].tolist()]
    return pa.array(names, pa.string()), pa.nulls(len(names), pa.int64())


def _worst(evaluated: Evaluated, predictions: Predictions) -> dict[str, Any]:
    """The rows that were most wrong, with where they come from, and what is to know of that."""
    dataset, split = evaluated.dataset, evaluated.split
    worst = predictions.worst(WORST_ROWS).tolist()
    if dataset.image_schema is not None and dataset.image_schema.pairs:
        return _worst_pairs(evaluated, predictions, worst)
    records = records_at(dataset, split, worst)
    entries, notes = described(dataset, split, worst, records)
    rows = [{**_prediction(predictions, row), **entry} for row, entry in zip(worst, entries, strict=True)]
    if dataset.image_schema is not None:
        return {"worst_rows": rows, PICTURES: [thumbnails(record) for record in records]}
    return {"worst_rows": rows, "worst_rows_notes": notes}


def _worst_pairs(evaluated: Evaluated, predictions: Predictions, worst: list[int]) -> dict[str, Any]:
    """The pairs of images that were most wrong: the files, and both pictures side by side."""
    dataset, split = evaluated.dataset, evaluated.split
    places = evaluation_pairs(dataset, split)[0][worst].reshape(-1).tolist()
    records = records_at(dataset, split, places)
    entries, _ = described(dataset, split, places, records)
    pictures = [thumbnails(record) for record in records]
    both = list(zip(entries[::2], entries[1::2], strict=True))
    rows = [
        {**_prediction(predictions, row), **left, "files": left["files"] + right["files"]}
        for row, (left, right) in zip(worst, both, strict=True)
    ]
    return {"worst_rows": rows, PICTURES: [a + b for a, b in zip(pictures[::2], pictures[1::2], strict=True)]}


def sliced(
    evaluated: Evaluated, predictions: Predictions, text: FeatureText, batches: Iterator[dict[str, Any]]
) -> dict[str, Any]:
    """Slices by every feature, from which the worst are taken, and by those that were asked for.

    Raises:
      UsageError: see `full`.
    """
    first = list(itertools.islice(batches, SAMPLE_BATCHES))
    every = list(text.slicings(sample_of(first)))
    asked = _asked(evaluated.slice_by, every)
    all_slices = Slices(every, predictions)
    asked_slices = Slices(asked, predictions, keep_parts=predictions.target.binary)
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
    known = {slicing.name: slicing for slicing in every}
    found = []
    for asked in slice_by:
        names = [name.strip() for name in asked.split(",")]
        for name in names:
            if name not in known:
                raise UsageError(
                    f"--slice_by {asked}: {name!r} is no feature with one value a row; choose from {', '.join(known)}"
                )
        found.append(known[names[0]] if len(names) == 1 else crossed([known[name] for name in names]))
    return found


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
