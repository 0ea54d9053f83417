"""What `statistics.arrow` says of the records of one split: all that a comparison needs, and nothing to merge."""

from __future__ import annotations

import dataclasses
import functools
import io
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from schemas import storage
from schemas.dataset import layout
from schemas.dataset.manifest import Manifest
from schemas.errors import MillraceError, UsageError
from schemas.storage.json_files import parse_json

if TYPE_CHECKING:
    import datasketches


FORMAT_VERSION = 1  # of statistics.arrow
_META = b"millrace.statistics"
RANK_ERROR_SDS = 2.576  # standard deviations of a rank that its error with 99 % confidence is


@dataclasses.dataclass(frozen=True)
class Numbers:
    """The float32 values of a column.

    Attributes:
      count: the values that are not missing.
      missing: the others.
      low, high: the least and the greatest value; infinite if there is none.
      mean: in float64.
      values: the distinct values in order, float64 `[n]`, if all of them are known; else None.
      counts: how often each of them occurs, int64 `[n]`.
      sketch: a KLL sketch of DataSketches, serialized.
    """

    count: int
    missing: int
    low: float
    high: float
    mean: float
    values: np.ndarray | None
    counts: np.ndarray
    sketch: bytes

    @functools.cached_property
    def _kll(self) -> datasketches.kll_floats_sketch:
        import datasketches

        return datasketches.kll_floats_sketch.deserialize(self.sketch)

    @property
    def rank_deviation(self) -> float:
        """The standard deviation of a fraction that `up_to` returns; 0 if it is exact."""
        if self.values is not None or not self._kll.is_estimation_mode():
            return 0.0
        return float(self._kll.normalized_rank_error(False)) / RANK_ERROR_SDS

    def at(self, ranks: np.ndarray) -> np.ndarray:
        """The least values that at least these fractions of all values do not exceed, float64; there is a value."""
        if self.values is None:
            return np.array(self._kll.get_quantiles(ranks.tolist(), inclusive=True), np.float64)
        places = np.searchsorted(np.cumsum(self.counts), np.ceil(ranks * self.count - 1e-9).clip(1), "left")
        return self.values[places.clip(max=len(self.values) - 1)]

    def up_to(self, points: np.ndarray) -> np.ndarray:
        """The fractions of values that are at most each of some points: float64; the points are rising float32."""
        if self.values is None:
            return np.array(self._kll.get_cdf(points.tolist(), inclusive=True)[:-1], np.float64)
        cumulative = np.concatenate([[0], np.cumsum(self.counts)])
        found: np.ndarray = cumulative[np.searchsorted(self.values, points.astype(np.float64), "right")] / self.count
        return found


@dataclasses.dataclass(frozen=True)
class Strings:
    """The strings of a column.

    Attributes:
      count: the values that are not missing.
      missing: the others.
      shortest, longest: in characters; -1 if there is none.
      counts: how often each value occurs. If not all values are known, those that are frequent.
      error: each count is too low by at most this, also that of a value that is not known.
    """

    count: int
    missing: int
    shortest: int
    longest: int
    counts: Mapping[bytes, int]
    error: int


@dataclasses.dataclass(frozen=True)
class Column:
    """What is described. `name`: a column of a vector, or the feature; `feature`: its name in the schema."""

    name: str
    feature: str
    kind: str
    role: str
    values: Numbers | Strings


@dataclasses.dataclass(frozen=True)
class Sample:
    """The records of one split, or of some files.

    Attributes:
      rows: how many there are.
      columns: what is known of them, by name, in the schema's order.
      channels: of the stored pixels of images, by image and channel: mean and std, from 0 to 255.
    """

    rows: int
    columns: Mapping[str, Column]
    channels: Mapping[str, Mapping[str, Mapping[str, float]]] = dataclasses.field(default_factory=dict)


def samples(data: bytes, *, source: str = "statistics.arrow") -> dict[str, Sample]:
    """The records of each split, from the bytes of `statistics.arrow`.

    Args:
      data: the file, as a job writes it.
      source: what the file is called in errors.

    Raises:
      MillraceError: it cannot be read.
    """
    try:
        table = pa.ipc.open_file(io.BytesIO(data)).read_all()
        meta = parse_json(table.schema.metadata[_META])
        version = meta["version"]
        if version == FORMAT_VERSION:
            return _samples(meta, table.to_pylist())
    except (pa.ArrowInvalid, KeyError, TypeError, ValueError) as error:
        raise MillraceError(
            f"{source}: cannot be read ({error}); expected the sketches of a job. Restore the file, or write the "
            "dataset again."
        ) from error
    raise MillraceError(
        f"{source}: is of format version {version}; this release reads version {FORMAT_VERSION}. Use the release that "
        "wrote the dataset."
    )


def _samples(meta: Mapping[str, Any], rows: list[dict[str, Any]]) -> dict[str, Sample]:
    described = {name: column for column in meta["columns"] for name in column["names"]}
    columns: dict[str, dict[str, Column]] = {split: {} for split in meta["rows"]}
    found = {(row["split"], row["name"]): row for row in rows}
    for split, held in columns.items():
        for name, column in described.items():
            row = found[split, name]
            values = _numbers(row) if row["type"] == "numbers" else _strings(row)
            held[name] = Column(name, column["name"], column["kind"], column["role"], values)
    channels: dict[str, dict[str, dict[str, dict[str, float]]]] = {split: {} for split in columns}
    for split, prefix, sums in meta["channels"]:
        if sums["pixels"]:
            channels[split][prefix.strip("/") or "image"] = _channels(sums)
    return {split: Sample(meta["rows"][split], columns[split], channels[split]) for split in columns}


def _numbers(row: Mapping[str, Any]) -> Numbers:
    scalars = parse_json(row["scalars"])
    values, counts = _frequent(row)
    numbers = np.asarray(values, np.float64)
    order = np.argsort(numbers)
    return Numbers(
        count=scalars["count"],
        missing=scalars["missing"],
        low=scalars["low"],
        high=scalars["high"],
        mean=scalars["mean"] if scalars["count"] else math.nan,
        values=None if scalars["error"] else numbers[order],
        counts=counts[order],
        sketch=row["quantiles"],
    )


def _strings(row: Mapping[str, Any]) -> Strings:
    scalars = parse_json(row["scalars"])
    values, counts = _frequent(row)
    return Strings(
        count=scalars["count"],
        missing=scalars["missing"],
        shortest=scalars["shortest"],
        longest=scalars["longest"],
        counts=dict(zip(values.to_pylist(), counts.tolist(), strict=True)),
        error=scalars["error"],
    )


def _frequent(row: Mapping[str, Any]) -> tuple[pa.Array, np.ndarray]:
    batch = pa.ipc.open_stream(row["values"]).read_next_batch()
    return batch.column("value"), np.asarray(batch.column("count"))


def _channels(sums: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    pixels, told = sums["pixels"], {}
    for name, total, squares in zip(("red", "green", "blue"), sums["sums"], sums["squares"], strict=True):
        variance = (squares * pixels - total * total) / (pixels * pixels)
        told[name] = {"mean": total / pixels, "std": math.sqrt(variance)}
    return told


def stored_samples(data_dir: str, manifest: Manifest) -> dict[str, Sample]:
    """What a dataset's run says of each of its splits.

    Raises:
      UsageError: it was written without statistics.
      MillraceError: they cannot be read.
    """
    name = layout.join(manifest.run, layout.STATISTICS_SKETCHES)
    path = layout.join(data_dir, name)
    if name not in {file.path for file in manifest.files}:
        raise UsageError(
            f"{data_dir}: has no statistics to compare. It was written with --no_statistics, or by an earlier release; "
            "write it again to have them."
        )
    return samples(storage.read_bytes(path), source=path)
