"""Warnings about records that are added to a dataset: values that its transform does not know."""

from __future__ import annotations

from collections.abc import Iterator

from beam_jobs.output.joined import UNSEEN as CODE
from beam_jobs.output.result import Result
from beam_jobs.transform.unseen import LOOKED_UP, UNSEEN
from schemas.dataset import Dataset
from schemas.dataset.manifest import DataWarning
from schemas.spec.features import Category, Text


def warnings_of_added(result: Result, base: Dataset) -> Iterator[DataWarning]:
    """What is to be said of the records that a run adds.

    Args:
      result: the result of the run's pipeline.
      base: the dataset before.
    """
    yield from unseen_values(result, base)


def unseen_values(result: Result, base: Dataset) -> Iterator[DataWarning]:
    """How many values of each feature its vocabulary, or its list of values, lacks."""
    counted = {(stage, name): n for (_, stage, name), n in result.observed.items() if stage in (LOOKED_UP, UNSEEN)}
    for (stage, name), unseen in sorted(counted.items()):
        if stage != UNSEEN:
            continue
        feature = next(feature for feature in base.schema.features if feature.name == name)
        listed = "list of values" if isinstance(feature, Category) and feature.values is not None else "vocabulary"
        what = "words" if isinstance(feature, Text) else "values"
        told = f"{unseen:,} of {counted[LOOKED_UP, name]:,} {what} that were added are not in its {listed}"
        yield DataWarning(feature=name, code=CODE, message=f"{name}: {told}")
