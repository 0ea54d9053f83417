"""Measures the labels of a training: the mean and deviation of a number, or the shares of the classes."""

from __future__ import annotations

import collections
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from schemas.dataset import OpenDataset, layout
from schemas.dataset.statistics import read_statistics
from schemas.errors import MillraceError, UsageError, did_you_mean
from schemas.spec.features import CategoryLabel
from schemas.spec.images import CLASS
from trainer.data.epochs import stored
from trainer.spec.task_spec import LabelScale

MEASURED = 1_000_000  # examples; shards are shuffled, so the first examples represent all
MEASURED_IMAGES = 10_000  # examples; records of images are large
BATCH = 10_000
IMAGE_BATCH = 100
LOGARITHMS = {"log": np.log, "log1p": np.log1p}


def measure_label(dataset: OpenDataset, classes: int | None) -> LabelScale:
    """Measures the labels of the train split of a CSV dataset; reads at most `MEASURED` of them.

    The labels are read from the transformed records, from which the model learns. They may differ from the raw file,
    since a `preprocessing_fn` may have changed them.

    Args:
      dataset: the opened dataset.
      classes: the number of classes; None if the label is a number.

    Raises:
      MillraceError: the labels are all the same number, or the model learns the label's logarithm and a label has none.
    """
    label = dataset.schema.label
    values = read_labels(dataset, label.name)
    if isinstance(label, CategoryLabel):
        counts = np.bincount(values, minlength=classes or 0) + 1.0  # + 1: no class has a share of 0
        shares = counts / counts.sum()
        if label.class_weights is None:
            return LabelScale(priors=tuple(shares.tolist()))
        # A class's weight is inverse to its share, so that all classes contribute equally to the loss.
        weights = 1 / (len(counts) * shares)
        return LabelScale(priors=tuple((shares * weights).tolist()), class_weights=tuple(weights.tolist()))
    if label.transform == "none":
        return LabelScale()
    least = float(values.min())
    if least <= label.lower_bound:
        raise MillraceError(
            f"{dataset.path}: the label {label.name!r} is {least:g} in a record of the train split; "
            f"{label.bound_hint}. Write the dataset again with this schema, or use `transform: z_score`."
        )
    learned = LOGARITHMS[label.transform](values) if label.transform in LOGARITHMS else values
    mean, deviation = float(learned.mean()), float(learned.std())
    if not deviation > 1e-12 * abs(mean):
        raise MillraceError(
            f"{dataset.path}: the label {label.name!r} is {least:g} in every record of the train split, so there is "
            "nothing to learn; check the label's column"
        )
    return LabelScale(transform=label.transform, mean=mean, deviation=deviation)


def read_labels(dataset: OpenDataset, name: str) -> np.ndarray:
    """Reads the first labels of the train split.

    Args:
      dataset: the opened dataset.
      name: the name of the label in a record.

    Returns:
      The labels, `[examples]`: int64 class ids, or float64 numbers.

    Raises:
      MillraceError: a number is not finite.
    """
    images = dataset.image_schema is not None
    dtype = tf.int64 if images or isinstance(dataset.schema.label, CategoryLabel) else tf.float32
    spec = {name: tf.io.FixedLenFeature([], dtype)}
    most, batch = (MEASURED_IMAGES, IMAGE_BATCH) if images else (MEASURED, BATCH)
    left, parts = most, []
    for path in dataset.shards("train"):
        records = stored(path, dataset.compression).take(left).batch(batch)
        parts += [
            x[name] for x in records.map(lambda serialized: tf.io.parse_example(serialized, spec)).as_numpy_iterator()
        ]
        left = most - sum(map(len, parts))
        if left <= 0:
            break
    values = np.concatenate(parts)
    if dtype == tf.int64:
        return values
    if not np.isfinite(values).all():
        bad_value = next(value for value in values if not math.isfinite(value))
        raise MillraceError(f"{dataset.path}: the label {name!r} is {bad_value} in a record of the train split")
    return values.astype(np.float64)


def positive_class(dataset: OpenDataset, classes: Sequence[str]) -> int:
    """Returns the id of the positive class, for which binary metrics such as precision are computed.

    The positive class is the class that the schema names, else the rarer class of the train split, or the second class
    if both are equally frequent. The frequencies come from the dataset's statistics, or from the records if it has
    none.

    Args:
      dataset: the opened dataset.
      classes: the class names by id.

    Returns:
      The id; 1 if there are not two classes, and for pairs of images, where 1 means a match.

    Raises:
      UsageError: the schema names a class that the label does not have, or names one for a label without two classes.
    """
    images = dataset.image_schema
    label = None if images is not None else dataset.schema.label
    aliases: dict[str, str] = {}
    if isinstance(label, CategoryLabel):
        aliases = label.aliases
        if label.positive is not None and (label.positive not in classes or len(classes) != 2):
            wrong = (
                f"is for labels of two classes; this one has {len(classes):,}"
                if label.positive in classes
                else f"is no class of the label{did_you_mean(label.positive, classes)}; it has {', '.join(classes)}"
            )
            raise UsageError(f"{dataset.path}: label: positive: {label.positive!r} {wrong}. Correct the schema.")
        if label.positive is not None:
            return list(classes).index(label.positive)
    if len(classes) != 2 or (images is not None and images.pairs):
        return 1
    if dataset.manifest.path_of(dataset.path, layout.STATISTICS_JSON) is None:
        name = dataset.schema.label.name if images is None else CLASS
        first, second = np.bincount(read_labels(dataset, name), minlength=2)
        return 0 if first < second else 1
    counts: collections.Counter[str] = collections.Counter()
    for column in read_statistics(dataset.path)["features"]:
        if column["role"] == "label" and column["type"] == "string":
            for entry in column["splits"]["train"]["top_values"]:
                counts[aliases.get(entry["value"], entry["value"])] += entry["count"]
    return 0 if 0 < counts[classes[0]] < counts[classes[1]] else 1
