"""Warnings about records that are added to a dataset: values that its transform does not know, and drift."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from beam_jobs.output.drift import TRAIN, warnings
from beam_jobs.output.joined import DRIFT
from beam_jobs.output.joined import UNSEEN as CODE
from beam_jobs.output.result import Result
from beam_jobs.transform.vocabularies import LOOKED_UP, UNSEEN
from schemas.comparison import Comparison
from schemas.dataset import Dataset
from schemas.dataset.manifest import DataWarning
from schemas.spec.features import Category, Text


def warnings_of_added(result: Result, base: Dataset, comparisons: Sequence[Comparison]) -> Iterator[DataWarning]:
    """What is to be said of the records that a run adds.

    Args:
      result: the result of the run's pipeline.
      base: the dataset before.
      comparisons: of the added records, with the dataset and of their splits.
    """
    yield from unseen_values(result, base)
    yield from drifted(comparisons)


def drifted(comparisons: Sequence[Comparison]) -> Iterator[DataWarning]:
    """Features that exceed a threshold, and else the one that differs most from the dataset, if any truly does."""
    yield from warnings(comparisons)
    for found in comparisons:
        for feature in found.features:
            if feature.verdict == "fail":  # allowed, or the run would not have come so far
                yield DataWarning(
                    feature=feature.feature,
                    code=DRIFT,
                    message=f"{feature.excess}, {found.second} against {found.first}",
                )
        most = max(found.drifted, key=lambda feature: feature.drift, default=None)
        if most is not None and found.verdict in ("ok", "not_judged") and found.first != TRAIN:
            many = len(found.drifted)
            differ = "1 feature differs" if many == 1 else f"{many:,} features differ"
            told = f"{differ} from the dataset by more than chance explains, most of all {most.excess}"
            yield DataWarning(feature=most.feature, code=DRIFT, message=told)


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
