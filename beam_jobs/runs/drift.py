"""Compares the splits of a new dataset with each other, and its train split with the one of an earlier dataset."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from beam_jobs.records.accounts import Unfit
from schemas import storage
from schemas.comparison import Comparison, Sample, as_meant, compare, of_groups, samples_of, stored_samples
from schemas.dataset import layout, read_checked
from schemas.errors import MillraceError
from schemas.profile.statistics import Statistics
from schemas.spec.loader import AnySchema
from schemas.spec.table import SPLITS
from schemas.storage import folders
from schemas.storage.json_files import as_written, read_if_there

TRAIN_SPLIT = SPLITS[0]
FORMAT_VERSION = 1


@dataclasses.dataclass(frozen=True)
class Compared:
    """The comparisons of a job.

    Attributes:
      comparisons: first the train split with each other split, then with the dataset that the job replaces or that
        --compare_to names.
      missed: the reason why the dataset that the job replaces could not be compared; None if it was compared, or if
        the job replaces no dataset.
    """

    comparisons: tuple[Comparison, ...] = ()
    missed: str | None = None


def compare_job(statistics: Statistics, schema: AnySchema, *, output: str, compare_to: str | None) -> Compared:
    """Compares the records that a job has written, before the commit.

    Args:
      statistics: the statistics of the written records.
      schema: the schema, with the thresholds.
      output: the dataset's folder. If it holds a dataset already, the new train split is compared with the old one.
      compare_to: another dataset to compare with, in place of the one in `output`; None: the one in `output`.

    Raises:
      MillraceError: the dataset `compare_to` cannot be read.
    """
    earlier, missed = None, None
    if compare_to is not None:
        earlier = _samples_of(compare_to)
    elif storage.exists(layout.join(output, layout.MANIFEST)):
        try:
            earlier = _samples_of(output)
        except MillraceError as error:
            missed = str(error)  # no failure: a user may replace a dataset because it is broken
    return Compared(of_splits(statistics, schema, earlier), missed)


def of_splits(
    statistics: Statistics, schema: AnySchema, earlier: tuple[str, Mapping[str, Sample]] | None = None
) -> tuple[Comparison, ...]:
    """Compares the train split with each other split, and with the train split of an earlier dataset.

    Args:
      statistics: the statistics of the written records.
      schema: the schema, with the thresholds.
      earlier: the name of the earlier dataset in messages, and its splits; None: no earlier dataset is compared.

    Returns:
      The comparisons; () if there is no train split.
    """
    splits = {split: as_meant(sample, schema) for split, sample in samples_of(statistics).items()}
    train = splits.pop(TRAIN_SPLIT, None)
    if train is None:
        return ()
    comparisons = [
        of_groups(compare(train, splits[split], schema.drift_limits, names=(TRAIN_SPLIT, split)), schema)
        for split in SPLITS
        if split in splits
    ]
    if earlier is not None and TRAIN_SPLIT in earlier[1]:
        before = as_meant(earlier[1][TRAIN_SPLIT], schema)
        names = earlier[0], f"the new {TRAIN_SPLIT}"
        comparisons.append(compare(before, train, schema.drift_limits, names=names))
    return tuple(comparisons)


def _samples_of(data_dir: str) -> tuple[str, dict[str, Sample]]:
    """Reads a dataset's statistics. Returns the dataset's name for messages, and a sample for each split."""
    manifest = read_checked(data_dir)
    return f"{TRAIN_SPLIT} of {data_dir}, run {manifest.run}", stored_samples(data_dir, manifest)


def check_drift(comparisons: Sequence[Comparison]) -> None:
    """Checks that drift exceeds no threshold to fail above.

    Raises:
      Unfit: a threshold is exceeded; the message names the features.
    """
    failed = [
        f"{comparison.second} against {comparison.first}: {comparison.summary.removeprefix('FAIL: ')}"
        for comparison in comparisons
        if comparison.verdict == "fail"
    ]
    if failed:
        raise Unfit(
            f"the data has drifted: {'; '.join(failed)}. Nothing was committed, and an earlier dataset stays as it "
            "was. If this is expected, set `drift` in the schema higher, or to {warn: ...} (docs/compare.md); an "
            "append takes --allow_drift"
        )


def place_drift(run_dir: str, comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Writes the comparisons to the run's `drift.json`; writes no file if there are no comparisons.

    Every attempt at a commit writes the same bytes.

    Returns:
      The comparisons as JSON values.
    """
    values = [comparison.as_json() for comparison in comparisons]
    if values:
        data = {"format_version": FORMAT_VERSION, "comparisons": values}
        folders.create(layout.join(run_dir, layout.DRIFT), json.dumps(data, allow_nan=False).encode() + b"\n")
    return values


def read_drift(run_dir: str) -> list[dict[str, Any]]:
    """Reads the comparisons of a run as JSON values; [] if the run has no `drift.json`."""
    path = layout.join(run_dir, layout.DRIFT)
    content = read_if_there(path, "how the splits differ")
    with as_written(path, "how the splits differ"):
        return [] if content is None else list(content["comparisons"])
