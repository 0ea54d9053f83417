"""The content of a report: an evaluation in numbers, its slices, its worst rows, the features that matter, the curves.

`brief` is what one evaluation gives at little cost; `full` reads the split once more, without the model, for slices and
worst rows, and predicts some rows again for the importance of features.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from schemas.dataset import Dataset
from schemas.errors import UsageError
from trainer.report.class_metrics import class_content
from trainer.report.collect import ClassCollector
from trainer.report.feature_text import FeatureText
from trainer.report.hook import AnyCollector, new_collector
from trainer.report.importance import REPEATS, groups_of, importance, rows_for
from trainer.report.kept_rows import KeptRows
from trainer.report.raw_rows import MOST_BYTES, find_rows
from trainer.report.reading import described, feature_batches, records_at, sample_of
from trainer.report.slices import Slices, Slicing, crossed
from trainer.report.value_metrics import value_content

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
    weight = None if dataset.image_schema is not None else dataset.schema.weight
    content: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "data": {"path": dataset.path, "run": dataset.run, "name": dataset.declared.name, "split": evaluated.split},
        "model": evaluated.model,
        "step": evaluated.step,
        "rows": 0 if found is None else found.rows,
        "rows_of_the_split": dataset.rows(evaluated.split),
        "weight": None if weight is None else weight.name,
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
        yield f"{found.rows:,} rows are few: a figure of so few rows can be off by much."
    if found.kept.rows < found.rows:
        yield f"Slices and the worst rows are of the first {found.kept.rows:,} of {found.rows:,} rows."
    if isinstance(found, ClassCollector):
        support = found.confusion.margins()[0]
        missing = [found.names[i] for i in np.flatnonzero(support == 0)]
        if found.weight and missing:
            shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5:,} more" if len(missing) > 5 else "")
            yield f"No row of the split is of the class {shown}: recall and AUC of it are undefined."


def full(
    evaluated: Evaluated,
    learning_curves: Mapping[str, Any],
    *,
    predict: Callable[[Callable[[], tf.data.Dataset]], Any] | None,
    batch: Callable[[int], tf.data.Dataset],
) -> dict[str, Any]:
    """The whole content of a report.

    Args:
      evaluated: the evaluation.
      learning_curves: see `trainer.report.learning`.
      predict: predictions of an `input_fn`, by batch; None: leave the importance of features out.
      batch: the first rows of the split in one batch of (features, labels): takes their number.

    Raises:
      UsageError: `slice_by` names what is no feature of one value a row.
    """
    content = brief(evaluated, learning_curves)
    dataset, found = evaluated.dataset, evaluated.found
    images = dataset.image_schema is not None
    if images and evaluated.slice_by:
        raise UsageError(f"--slice_by {evaluated.slice_by[0]}: images have no features to slice by")
    if found is None or not found.rows:
        return content
    text = None if images else FeatureText(dataset)
    if text is not None:
        content["slices"] = sliced(evaluated, found.kept, text)
    content |= _worst(evaluated, found, text)
    if text is not None and predict is not None:
        groups = groups_of(text.parts, list(text.inputs))
        rows = rows_for(len(groups), found.rows)
        measured = importance(predict, lambda: batch(rows), groups, lambda: new_collector(dataset)) if rows else []
        content["importance"] = {"rows": rows, "repeats": REPEATS, "features": measured}
        if not rows:
            content["notes"].append(f"The importance of {len(groups):,} features is not measured: they are too many.")
    return content


def _worst(evaluated: Evaluated, found: AnyCollector, text: FeatureText | None) -> dict[str, Any]:
    """The rows that were most wrong; those of CSV with where they come from, and what is to know of that."""
    dataset, split = evaluated.dataset, evaluated.split
    worst = found.kept.worst(WORST_ROWS).tolist()
    records = records_at(dataset, split, worst)
    entries = described(dataset, split, worst, records, text)
    rows = [{**_prediction(found, row), **entry} for row, entry in zip(worst, entries, strict=True)]
    if text is None or not rows:
        return {"worst_rows": rows}
    origins = find_rows(dataset, split, records, most_bytes=math.inf if evaluated.search_inputs else MOST_BYTES)
    for row, (places, alike) in zip(rows, origins.rows, strict=False):  # none where they were not searched
        row |= {"places": [dataclasses.asdict(place) for place in places], "rows_alike": alike}
    return {"worst_rows": rows, "worst_rows_notes": origins.notes}


def sliced(evaluated: Evaluated, kept: KeptRows, text: FeatureText) -> dict[str, Any]:
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
    label, score, loss = kept["label"][row], kept["score"][row], float(kept["loss"][row])
    if isinstance(found, ClassCollector):
        predicted = int(kept["predicted"][row])
        of_predicted = 1 - float(score) if found.binary and predicted == 0 else float(score)
        return {
            "row": row,
            "true": found.names[int(label)],
            "predicted": found.names[predicted],
            "probability_of_predicted": of_predicted,
            "loss": loss,
        }
    return {
        "row": row,
        "true": float(label),
        "predicted": float(score),
        "residual": float(score) - float(label),
        "loss": loss,
    }
