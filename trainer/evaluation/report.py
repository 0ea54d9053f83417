"""The content of a report: an evaluation in numbers, its slices, its worst rows, the features that matter, the curves.

`brief` is what one evaluation gives at little cost; `full` reads the split once more, without the model, for slices and
worst rows, and predicts some rows again for the importance of features.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft

from schemas.dataset import Dataset, layout
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
from trainer.evaluation.metrics import class_content, value_content
from trainer.evaluation.predictions import Answers, ClassCollector
from trainer.evaluation.raw_rows import MOST_BYTES, find_rows
from trainer.evaluation.slices import Slices, Slicing, crossed
from trainer.evaluation.watch import AnyCollector, new_collector
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
            entry["files"] = list(map(_text, values[images.FILENAME]))
        else:
            key = key_name(dataset)
            if key in values:
                entry["key"] = ", ".join(map(_text, values[key]))
            entry["features"] = text.texts(values)
        found.append(entry)
    return found


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
      found: the predictions; None: the model gave none.
      slice_by: features to slice by; 'a,b' is each combination of their values.
      search_inputs: whether the worst rows are looked for in the inputs however large these are.
    """

    dataset: Dataset
    split: str
    step: int
    model: str
    metrics: Mapping[str, Any]
    found: AnyCollector | None
    slice_by: tuple[str, ...] = ()
    search_inputs: bool = False


def brief(evaluated: Evaluated, learning_curves: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a report without slices, worst rows and importance."""
    dataset, found = evaluated.dataset, evaluated.found
    content: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "data": {"path": dataset.path, "run": dataset.run, "name": dataset.declared.name, "split": evaluated.split},
        "model": evaluated.model,
        "step": evaluated.step,
        "rows": 0 if found is None else found.rows,
        "rows_of_the_split": dataset.rows(evaluated.split),
        "weight": weight_name(dataset),
        "metrics_of_the_estimator": {k: v for k, v in evaluated.metrics.items() if k != "global_step"},
        "learning_curves": learning_curves,
        "notes": [],
    }
    if found is None:
        note = "The model gives no predictions, so there is nothing but its own metrics."
        return {**content, "kind": "none", "metrics": {}, "undefined": {}, "notes": [note]}
    content |= class_content(found) if isinstance(found, ClassCollector) else value_content(found)
    content["not_finite"] = found.not_finite
    content["notes"] = list(notes(found, content))
    return content


def notes(found: AnyCollector, content: Mapping[str, Any]) -> Any:
    """What a reader must know before he reads the numbers."""
    if not found.rows:
        yield "The split has no rows: there is nothing to report."
    if found.not_finite:
        yield (
            f"{found.not_finite:,} of {found.rows:,} predictions are NaN or infinite, and are left out of all "
            "figures. Look at the learning rate and at the features of these rows."
        )
    if 0 < found.rows < content["rows_of_the_split"]:
        yield f"Evaluated on {found.rows:,} of the {content['rows_of_the_split']:,} rows of the split (--eval_steps)."
    if 0 < found.rows < 100:
        yield f"Only {counted(found.rows, 'rows')}: with so few, other rows could give quite different numbers."
    if found.kept.rows < found.rows:
        yield f"Slices and the worst rows are of the first {found.kept.rows:,} of {found.rows:,} rows."
    if isinstance(found, ClassCollector):
        support = found.confusion.margins()[0]
        missing = [found.names[i] for i in np.flatnonzero(support == 0)]
        if found.weight and missing:
            yield f"No row of the split is of the class {few(missing)}: recall and AUC of it are undefined."


def full(
    evaluated: Evaluated,
    learning_curves: Mapping[str, Any],
    estimator: Any,
    checkpoint: str,
    *,
    options: TrainingPlan,
    steps: int | None,
) -> dict[str, Any]:
    """The whole content of a report, of predictions that are made again if the evaluation has none.

    Args:
      evaluated: the evaluation.
      learning_curves: as the function of this name gives them.
      estimator: the Estimator, wrapped by `with_keys_and_classes`.
      checkpoint: the one that was evaluated.
      options: how the split is read.
      steps: how many batches were evaluated; None: all.

    Raises:
      UsageError: `slice_by` names what is no feature of one value a row.
    """
    dataset, split = evaluated.dataset, evaluated.split
    reading = input_options(dataset, options, split=split, mode=ModeKeys.EVAL)
    if evaluated.found is None:
        again = predicted_again(estimator, checkpoint, dataset, split, reading, steps=steps)
        evaluated = dataclasses.replace(evaluated, found=again)
    found = evaluated.found
    content = brief(evaluated, learning_curves)
    if found is None or not found.rows:
        return content
    text = None if dataset.image_schema is not None else FeatureText(dataset)
    if text is not None:
        content["slices"] = sliced(evaluated, found.kept, text)
    content |= _worst(evaluated, found, text)
    if text is not None:
        groups = groups_of(text.parts, text.inputs.values())
        rows = rows_for(len(groups), found.rows)
        measured = rows and importance(
            predictor(estimator, checkpoint),
            lambda: input_fn(dataset, split, mode=ModeKeys.EVAL, options=dataclasses.replace(reading, batch_size=rows)),
            groups,
            functools.partial(copy.deepcopy, new_collector(dataset)),
        )
        content["importance"] = {"rows": rows, "repeats": REPEATS, "features": measured or []}
        if not rows:
            content["notes"].append(f"The importance of {len(groups):,} features is not measured: they are too many.")
    return content


def _worst(evaluated: Evaluated, found: AnyCollector, text: FeatureText | None) -> dict[str, Any]:
    """The rows that were most wrong; those of CSV with where they come from, and what is to know of that."""
    dataset, split = evaluated.dataset, evaluated.split
    worst = found.kept.worst(WORST_ROWS).tolist()
    if text is None and dataset.image_schema is not None and dataset.image_schema.pairs:
        return _worst_pairs(evaluated, found, worst)
    records = records_at(dataset, split, worst)
    entries = described(dataset, split, worst, records, text)
    rows = [{**_prediction(found, row), **entry} for row, entry in zip(worst, entries, strict=True)]
    if text is None or not rows:
        return {"worst_rows": rows, PICTURES: [thumbnails(record) for record in records]}
    origins = find_rows(dataset, split, records, most_bytes=math.inf if evaluated.search_inputs else MOST_BYTES)
    for row, (places, alike) in zip(rows, origins.rows, strict=False):  # none where they were not searched
        row |= {"places": [dataclasses.asdict(place) for place in places], "rows_alike": alike}
    return {"worst_rows": rows, "worst_rows_notes": origins.notes}


def _worst_pairs(evaluated: Evaluated, found: AnyCollector, worst: list[int]) -> dict[str, Any]:
    """The pairs of images that were most wrong: the files, and both pictures side by side."""
    dataset, split = evaluated.dataset, evaluated.split
    places = evaluation_pairs(dataset, split)[0][worst].reshape(-1).tolist()
    records = records_at(dataset, split, places)
    entries = described(dataset, split, places, records, None)
    pictures = [thumbnails(record) for record in records]
    both = list(zip(entries[::2], entries[1::2], strict=True))
    rows = [
        {**_prediction(found, row), **left, "files": left["files"] + right["files"]}
        for row, (left, right) in zip(worst, both, strict=True)
    ]
    return {"worst_rows": rows, PICTURES: [a + b for a, b in zip(pictures[::2], pictures[1::2], strict=True)]}


def sliced(evaluated: Evaluated, kept: Answers, text: FeatureText) -> dict[str, Any]:
    """Slices by every feature, from which the worst are taken, and by those that were asked for.

    Raises:
      UsageError: see `full`.
    """
    batches = feature_batches(evaluated.dataset, evaluated.split)
    first = list(itertools.islice(batches, SAMPLE_BATCHES))
    every = list(text.slicings(sample_of(first)))
    asked = _asked(evaluated.slice_by, every)
    classes = isinstance(evaluated.found, ClassCollector)
    binary = isinstance(evaluated.found, ClassCollector) and evaluated.found.binary
    all_slices = Slices(every, kept, classes=classes)
    asked_slices = Slices(asked, kept, classes=classes, keep_parts=binary)
    for batch in itertools.chain(first, batches):
        more = all_slices.add(batch)
        asked_slices.add(batch)
        if not more:
            break
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


def _prediction(found: AnyCollector, row: int) -> dict[str, Any]:
    kept = found.kept
    label, score = kept.label[row], kept.score[row]
    if isinstance(found, ClassCollector):
        predicted = int(kept.predicted[row])
        of_predicted = 1 - float(score) if found.binary and predicted == 0 else float(score)
        return {
            "row": row,
            "true": found.names[int(label)],
            "predicted": found.names[predicted],
            "probability_of_predicted": of_predicted,
            "loss": float(kept.loss[row]),
        }
    return {
        "row": row,
        "true": float(label),
        "predicted": float(score),
        "residual": float(score) - float(label),
    }
