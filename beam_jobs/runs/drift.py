"""Drift in a job: its train split against its other splits, and against the dataset that it replaces."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any

from beam_jobs.records.accounts import Unfit
from beam_jobs.records.result import Result
from schemas import storage
from schemas.comparison import Comparison, Sample, as_meant, compare, samples, stored_samples
from schemas.dataset import layout, read_checked
from schemas.dataset.manifest import DataWarning
from schemas.errors import MillraceError
from schemas.spec.loader import AnySchema
from schemas.spec.table import SPLITS
from schemas.storage import folders
from schemas.storage.json_files import as_written, read_if_there

TRAIN = SPLITS[0]
FORMAT_VERSION = 1


@dataclasses.dataclass(frozen=True)
class Compared:
    """What a job compared.

    Attributes:
      comparisons: of its splits, and with the dataset that it replaces or was told to compare with.
      missed: why the dataset that it replaces was not compared with; None if it was, or if there is none.
    """

    comparisons: tuple[Comparison, ...] = ()
    missed: str | None = None


def compared(result: Result, schema: AnySchema, *, output: str, compare_to: str | None) -> Compared:
    """Compares what a job has written, before its commit; nothing if it has no statistics.

    Args:
      result: of its pipeline.
      schema: with the thresholds.
      output: the dataset's folder. If it holds a dataset with statistics, this is what the job's is compared with.
      compare_to: another dataset to compare it with instead.

    Raises:
      MillraceError: the dataset `compare_to` cannot be read.
    """
    if result.statistics is None:
        return Compared()
    new = samples(storage.read_bytes(result.statistics), source=result.statistics)
    missed = None
    try:
        earlier = _samples_of(compare_to) if compare_to is not None else _replaced(output)
    except MillraceError as error:
        if compare_to is not None:
            raise
        earlier, missed = None, str(error)  # it may be replaced because it is broken
    found = [of_splits(new, schema)]
    if earlier is not None and TRAIN in new and TRAIN in earlier[1]:
        names = earlier[0], f"the new {TRAIN}"
        found.append([_compare(earlier[1][TRAIN], new[TRAIN], schema, names)])
    return Compared(tuple(comparison for some in found for comparison in some), missed)


def of_splits(found: dict[str, Sample], schema: AnySchema) -> list[Comparison]:
    """The train split against each other one."""
    return [
        _compare(found[TRAIN], found[split], schema, (TRAIN, split))
        for split in SPLITS[1:]
        if split in found and TRAIN in found
    ]


def _compare(first: Sample, second: Sample, schema: AnySchema, names: tuple[str, str]) -> Comparison:
    return compare(as_meant(first, schema), as_meant(second, schema), schema.drift_limits, names=names)


def _samples_of(data_dir: str) -> tuple[str, dict[str, Sample]]:
    """What a dataset is called here, and its splits."""
    manifest = read_checked(data_dir)
    return f"{TRAIN} of {data_dir}, run {manifest.run}", stored_samples(data_dir, manifest)


def _replaced(output: str) -> tuple[str, dict[str, Sample]] | None:
    """The dataset that is replaced; None if there is none.

    Raises:
      MillraceError: it has no statistics that this release can read.
    """
    return _samples_of(output) if storage.exists(layout.join(output, layout.MANIFEST)) else None


def check(found: Compared) -> None:
    """Checks that no threshold to fail above is exceeded.

    Raises:
      Unfit: one is; the message names the features.
    """
    failed = [one for one in found.comparisons if one.verdict == "fail"]
    if failed:
        told = "; ".join(f"{one.second} against {one.first}: {one.told.removeprefix('FAIL: ')}" for one in failed)
        raise Unfit(
            f"the data has drifted: {told}. Nothing was committed, and an earlier dataset stays as it was. If this is "
            "expected, set `drift` in the schema higher, or to {warn: ...} (docs/compare.md); an append "
            "takes --allow_drift"
        )


def unchecked(found: Compared, schema: AnySchema) -> Iterator[DataWarning]:
    """A warning if the schema's thresholds could not be checked against the dataset that is replaced."""
    if found.missed is not None and schema.limits_drift:
        message = (
            f"the schema's thresholds of drift were not checked against the dataset that is replaced: {found.missed}"
        )
        yield DataWarning(feature="", code="drift_not_compared", message=message)


def warnings(comparisons: Sequence[Comparison]) -> Iterator[DataWarning]:
    """A warning for each feature that exceeds its threshold to warn above."""
    for found in comparisons:
        for feature in found.features:
            if feature.verdict == "warn":
                message = f"{feature.excess}, {found.second} against {found.first}"
                yield DataWarning(feature=feature.feature, code="drift", message=message)


def place(run_dir: str, comparisons: Sequence[Comparison]) -> None:
    """Writes the comparisons to a run, if there are any. Processes that commit the same run write the same bytes."""
    if comparisons:
        data = {"format_version": FORMAT_VERSION, "comparisons": [found.as_json() for found in comparisons]}
        folders.create(layout.join(run_dir, layout.DRIFT), json.dumps(data, allow_nan=False).encode() + b"\n")


def place_splits(run_dir: str, schema: AnySchema) -> None:
    """Compares the splits of a run that has its statistics already, and writes that; no threshold fails it."""
    path = layout.join(run_dir, layout.STATISTICS_SKETCHES)
    if storage.exists(path):
        place(run_dir, of_splits(samples(storage.read_bytes(path), source=path), schema))


def read(run_dir: str) -> list[dict[str, Any]]:
    """The comparisons of a run, as JSON has them; none if it has none."""
    path = layout.join(run_dir, layout.DRIFT)
    found = read_if_there(path, "how the splits differ")
    with as_written(path, "how the splits differ"):
        return [] if found is None else list(found["comparisons"])
