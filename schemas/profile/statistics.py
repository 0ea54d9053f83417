"""The statistics of records, by split and feature: collected from batches, merged, and kept as `statistics.arrow`.

Batches wait until they are some megabytes, so that the calls for each column are few however many columns there are.
Columns of small whole numbers, such as pixels, are then counted; these counts are exact, and wait for the end. Others
are sorted: by that, what is missing is found, and the sketches take less than half the time.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from schemas import storage
from schemas.csv import values as csv_values
from schemas.dataset import layout
from schemas.dataset.manifest import Manifest
from schemas.errors import MillraceError, UsageError
from schemas.profile.columns import (
    WHOLE,
    Channels,
    Column,
    Numbers,
    RawBatch,
    Strings,
    add_numbers,
    add_tallied,
    tally,
)
from schemas.profile.distributions import Distributions
from schemas.profile.sketches import Distinct, Frequent, Quantiles, Sizes, summed
from schemas.spec import images
from schemas.spec.table import SPLITS
from schemas.storage.json_files import check_version, parse_json

FORMAT_VERSION = 1  # of statistics.arrow
WAITING_BYTES = 16 * 2**20
_META = b"millrace.statistics"
_SCALARS = {  # what a row holds of a summary by its own name; 0 where the summary has none
    **dict.fromkeys(("count", "missing", "zeros", "characters", "shortest", "longest"), pa.int64()),
    **dict.fromkeys(("mean", "deviations", "low", "high"), pa.float64()),
}
_LISTS = {
    "sample": pa.float32(),  # of numbers, see Quantiles.items
    "levels": pa.int32(),  # Quantiles.sizes
    "numbers": pa.float32(),  # the frequent values
    "strings": pa.binary(),
    "counts": pa.int64(),  # how often each of them occurs
}
_SCHEMA = pa.schema(
    [
        ("split", pa.string()),
        ("name", pa.string()),
        ("type", pa.string()),
        *_SCALARS.items(),
        ("error", pa.int64()),  # of the counts
        ("distinct", pa.binary()),  # a KMV sketch of tfx_bsl; empty if all values are held
        *((name, pa.list_(dtype)) for name, dtype in _LISTS.items()),
    ]
)
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")

Summary = Numbers | Strings
Place = tuple[str, str]  # (split, name of what is described)
S = TypeVar("S", Numbers, Strings)
_PIXELS = images.PIXELS, images.SUMS, images.SQUARES
_PARTS = 8  # batches whose numbers are counted one by one; more of them are small


class Statistics:
    """The statistics of records, by split and feature. Pickled as its bytes.

    Attributes:
      columns: what is described.
      sizes: of the sketches.
      rows: the records of each split that has some.
      channels: the pixels of images, by split, and by the prefix of the image's columns, '' if records have one image.
      tallies: how often small whole numbers occur that no summary has yet: int64 `[splits, names of numbers, WHOLE]`;
        None: none does. `to_bytes` adds them to the summaries first.
      stored: summaries that are read once one is asked for.
      written: its bytes, until something is added: Beam asks for the size of an element wherever one passes.
    """

    def __init__(self, columns: Iterable[Column]) -> None:
        columns = tuple(columns)
        self.columns = tuple(column for column in columns if column.reads != "pixels")
        self.sizes = Sizes.of(sum(len(column.names) for column in self.columns))
        self.rows: dict[str, int] = {}
        self._images = tuple(column.name for column in columns if column.reads == "pixels")
        self._summaries: dict[Place, Summary] = {}
        self.channels: dict[Place, Channels] = {}
        self._waiting: list[tuple[dict[str, np.ndarray], dict[str, csv_values.Distinct], np.ndarray]] = []
        self._waiting_bytes = 0
        self._numbers = [name for column in self.columns if column.reads == "numbers" for name in column.names]
        self.tallies: np.ndarray | None = None
        self.stored: Iterable[tuple[Place, Summary]] = ()
        self.written: bytes | None = None

    @property
    def summaries(self) -> dict[Place, Summary]:
        """By split and name; a split without records has none."""
        tallies = self.pending()
        for split, counts in zip(SPLITS, () if tallies is None else tallies, strict=False):
            some = np.flatnonzero(counts.any(1)).tolist()
            add_tallied([self.summary(Numbers, split, self._numbers[place]) for place in some], counts[some])
        return self._summaries

    def summary(self, kind: type[S], split: str, name: str) -> S:
        """The summary of a column in a split, made at its first use, to be added to."""
        self._summaries.update(self.stored)
        self.stored = ()
        self.written = None
        found = self._summaries.get((split, name))
        if found is None:
            found = self._summaries[split, name] = kind.empty(self.sizes)
        assert isinstance(found, kind)  # noqa: S101 - a name has one type
        return found

    def channels_of(self, split: str, prefix: str) -> Channels:
        """The pixels of images, made at their first use, to be added to."""
        self.written = None
        return self.channels.setdefault((split, prefix), Channels())

    def add(self, batch: pa.RecordBatch | RawBatch, splits: np.ndarray) -> None:
        """Adds accepted records: their raw columns, and the split of each, int8 `[rows]`."""
        raw = RawBatch.of(batch)
        if not raw.rows:
            return
        for split, rows in enumerate(np.bincount(splits).tolist()):
            if rows:
                self.rows[SPLITS[split]] = self.rows.get(SPLITS[split], 0) + rows
                for prefix in self._images:
                    sums = (np.asarray(raw.values[prefix + key]).reshape(raw.rows, -1) for key in _PIXELS)
                    self.channels_of(SPLITS[split], prefix).add(*(some[splits == split] for some in sums))
        self.written = None
        numbers = {column.name: raw.matrix(column.name) for column in self.columns if column.reads == "numbers"}
        strings = {column.name: raw.encoded(column) for column in self.columns if column.name not in numbers}
        groups = {column.name for column in self.columns if column.reads == "one_hot"}  # int32 places by now
        self._waiting_bytes += 4 * raw.rows * len(groups)
        self._waiting_bytes += sum(values.nbytes for name, values in raw.values.items() if name not in groups)
        self._waiting.append((numbers, strings, splits))
        if self._waiting_bytes >= WAITING_BYTES:
            self._take()

    def merge(self, other: Statistics) -> None:
        """Adds what the other one has seen, of the same columns."""
        if other.columns != self.columns:
            raise MillraceError("statistics of different columns cannot be merged. This is a bug.")
        self._take()
        self.written = None
        for split, rows in other.rows.items():
            self.rows[split] = self.rows.get(split, 0) + rows
        tallies = other.pending()
        for (split, name), theirs in other.summaries.items():
            if isinstance(theirs, Numbers):
                self.summary(Numbers, split, name).merge(theirs)
            else:
                self.summary(Strings, split, name).merge(theirs)
        for place, channels in other.channels.items():
            self.channels_of(*place).merge(channels)
        for each in (self, other):
            each.tally(tallies)

    def pending(self) -> np.ndarray | None:
        """Takes `tallies` out."""
        self._take()
        tallies, self.tallies = self.tallies, None
        return tallies

    def tally(self, counts: np.ndarray | None) -> None:
        """Adds to `tallies`."""
        self.written = None
        if self.tallies is None or counts is None:
            self.tallies = self.tallies if counts is None else counts.copy()
        else:
            self.tallies += counts

    def _take(self) -> None:
        stored, self.stored = self.stored, ()
        self._summaries.update(stored)
        if not self._waiting:
            return
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        splits = [some for *_, some in waiting]
        joins = len(waiting) > _PARTS
        batches = [np.concatenate(splits)] if joins else splits
        rows = {split: [np.flatnonzero(of == split) for of in batches] for split in np.unique(np.concatenate(splits))}
        place = 0  # among the names of numbers
        for column in self.columns:
            if column.reads == "numbers":
                found = [numbers[column.name] for numbers, *_ in waiting]
                self._add_numbers(column, place, [np.concatenate(found)] if joins else found, rows)
                place += len(column.names)
            else:
                self._add_strings(column, [strings[column.name] for _, strings, _ in waiting], splits)

    def _add_numbers(
        self, column: Column, place: int, parts: Sequence[np.ndarray], rows: Mapping[int, Sequence[np.ndarray]]
    ) -> None:
        """Adds numbers.

        Args:
          column: what they are of.
          place: that of its first name among all names of numbers.
          parts: float32 `[rows, width]`.
          rows: by split, which rows of each part are in it.
        """
        width = len(column.names)
        whole, found = tally(parts, rows, width)
        if whole.any():
            if self.tallies is None:
                self.tallies = np.zeros((len(SPLITS), len(self._numbers), WHOLE), np.int64)
            self.tallies[:, place + np.flatnonzero(whole)] += found
        others = np.flatnonzero(~whole)
        if len(others) < width:
            parts = [part[:, others] for part in parts]
        for split, places in rows.items() if len(others) else ():
            chosen = [
                part.take(some, axis=0).reshape(-1, len(others)).T for part, some in zip(parts, places, strict=True)
            ]
            size = len(others), sum(some.shape[1] for some in chosen)
            columns = np.concatenate(chosen, axis=1, out=np.empty(size, np.float32))
            columns.sort(axis=1)  # NaN comes last
            summaries = [self.summary(Numbers, SPLITS[split], column.names[i]) for i in others.tolist()]
            present = np.full(len(columns), columns.shape[1])
            some = np.flatnonzero(np.isnan(columns[:, -1]))
            present[some] -= np.isnan(columns[some]).sum(1)
            for count in np.unique(present).tolist():
                alike = np.flatnonzero(present == count)
                full = columns if len(alike) == len(columns) else columns[alike]
                alike_summaries = [summaries[i] for i in alike.tolist()]
                for summary in alike_summaries:
                    summary.missing += columns.shape[1] - count
                add_numbers(alike_summaries, np.ascontiguousarray(full[:, :count]))

    def _add_strings(self, column: Column, parts: Sequence[csv_values.Distinct], splits: Sequence[np.ndarray]) -> None:
        """Adds the strings of batches, whose records have these splits."""
        found: dict[str, list[tuple[pa.BinaryArray, np.ndarray, int]]] = {}
        joins = len(parts) > 1 or parts[0].trimmed.nbytes != parts[0].values.nbytes  # then two may have become one
        for part, of in zip(parts, splits, strict=True):
            size = len(part.values)
            table = np.bincount(part.codes + of.astype(np.int64) * size, minlength=len(SPLITS) * size)
            for split, counts in zip(SPLITS, table.reshape(len(SPLITS), size), strict=True):
                held = np.flatnonzero(counts)
                absent = part.absent[held]
                values, often = part.trimmed.take(pa.array(held[~absent])), counts[held[~absent]]
                if len(held):
                    found.setdefault(split, []).append((values, often, int(counts[held[absent]].sum())))
        for split, some in found.items():
            values, counts = (
                pa.concat_arrays([each for each, *_ in some]),
                np.concatenate([each for _, each, _ in some]),
            )
            if joins:
                values, counts = summed(values, counts)
            self.summary(Strings, split, column.names[0]).add(values, counts, sum(missing for *_, missing in some))

    def to_bytes(self) -> bytes:
        """An Arrow file with a row for each split and name."""
        if self.written is None:
            self.written = self._write()
        return self.written

    def _write(self) -> bytes:
        meta = {
            "version": FORMAT_VERSION,
            "columns": [dataclasses.asdict(column) for column in self.columns],
            "rows": self.rows,
            "channels": [[*place, dataclasses.asdict(channels)] for place, channels in self.channels.items()],
        }
        sink = pa.BufferOutputStream()
        schema = _SCHEMA.with_metadata({_META: json.dumps(meta)})
        with pa.ipc.new_file(sink, schema, options=_OPTIONS) as writer:
            writer.write_batch(_batch(sorted(self.summaries.items()), schema))
        return bytes(sink.getvalue())

    @staticmethod
    def from_bytes(data: bytes, *, source: str = "statistics.arrow") -> Statistics:
        """Reads `to_bytes`.

        Args:
          data: the file, as a job writes it.
          source: what the file is called in errors.

        Raises:
          MillraceError: it cannot be read.
        """
        try:
            table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
            meta = parse_json(table.schema.metadata[_META])
            check_version(source, meta["version"], FORMAT_VERSION, advice="write the dataset again")
            found = _statistics(meta, table)
            len(found.summaries)  # read while errors name the source
            found.written = data
            return found
        except (pa.ArrowInvalid, KeyError, TypeError, ValueError) as error:
            raise MillraceError(
                f"{source}: cannot be read ({error}); expected the sketches of a job. Restore the file, or write the "
                "dataset again."
            ) from error

    def __reduce__(self) -> tuple[Callable[[bytes], Statistics], tuple[bytes]]:
        return _unpickled, (self.to_bytes(),)


def _statistics(meta: Mapping[str, Any], table: pa.Table) -> Statistics:
    found = Statistics(map(_column, meta["columns"]))
    found.rows = meta["rows"]
    for split, name, sums in meta["channels"]:
        found.channels[split, name] = Channels(sums["pixels"], tuple(sums["sums"]), tuple(sums["squares"]))
    names = zip(*(table.column(name).to_pylist() for name in ("split", "name")), strict=True)
    found.stored = zip(names, _summaries(table, found.sizes), strict=True)
    return found


def _unpickled(data: bytes) -> Statistics:
    """Statistics whose summaries are read once one is asked for, which those of a single bundle never are."""
    table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
    found = _statistics(parse_json(table.schema.metadata[_META]), table)
    found.written = data
    return found


def _column(values: dict[str, Any]) -> Column:
    lists = {name: tuple(values[name]) for name in ("names", "values", "missing")}
    return Column(**(values | lists))


def _batch(summaries: Sequence[tuple[Place, Summary]], schema: pa.Schema) -> pa.RecordBatch:
    lists: dict[str, list[Any]] = {name: [] for name in _LISTS}
    for _, summary in summaries:
        numbers = isinstance(summary, Numbers)
        lists["sample"].append(summary.quantiles.items if isinstance(summary, Numbers) else ())
        lists["levels"].append(summary.quantiles.sizes if isinstance(summary, Numbers) else ())
        lists["numbers"].append(summary.frequent.values if numbers else ())
        lists["strings"].append(() if numbers else summary.frequent.values)
        lists["counts"].append(summary.frequent.counts)
    columns = {
        "split": [split for (split, _), _ in summaries],
        "name": [name for (_, name), _ in summaries],
        "type": ["numbers" if isinstance(summary, Numbers) else "strings" for _, summary in summaries],
        **{name: [getattr(summary, name, 0) for _, summary in summaries] for name in _SCALARS},
        "error": [summary.frequent.error for _, summary in summaries],
        "distinct": [b"" if summary.known else summary.distinct.to_bytes() for _, summary in summaries],
        **{name: _joined(parts, _LISTS[name]) for name, parts in lists.items()},
    }
    return pa.record_batch([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def _joined(parts: Sequence[Any], dtype: pa.DataType) -> pa.ListArray:
    """Arrays as one list each."""
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int32)
    if pa.types.is_binary(dtype):
        values = pa.concat_arrays([pa.nulls(0, dtype), *(part for part in parts if len(part))])
    else:
        values = pa.array(np.concatenate([np.empty(0, dtype.to_pandas_dtype()), *parts]), dtype)
    return pa.ListArray.from_arrays(offsets, values)


def _summaries(table: pa.Table, sizes: Sizes) -> Iterator[Summary]:
    columns: dict[str, Sequence[Any]] = {
        name: table.column(name).to_pylist() for name in table.column_names if name not in _LISTS
    }
    for name in _LISTS:
        lists = table.column(name).combine_chunks()
        values = lists.values if name == "strings" else np.asarray(lists.values)
        columns[name] = [values[start:stop] for start, stop in itertools.pairwise(lists.offsets.to_pylist())]
    for row in zip(*columns.values(), strict=True):
        own = dict(zip(columns, row, strict=True))
        frequent = Frequent(sizes.frequent, own[own["type"]], own["counts"], own["error"])
        distinct = Distinct(sizes.distinct, own["distinct"] or None)
        if own["type"] == "numbers":
            sample = Quantiles(own["sample"], own["levels"].tolist())
            yield Numbers(distinct, frequent, quantiles=sample, **{name: own[name] for name in _OF_NUMBERS})
        else:
            yield Strings(distinct, frequent, **{name: own[name] for name in _OF_STRINGS})


_OF_NUMBERS, _OF_STRINGS = (
    tuple(field.name for field in dataclasses.fields(kind) if field.name in _SCALARS) for kind in (Numbers, Strings)
)


@dataclasses.dataclass(frozen=True)
class ColumnSample:
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
    columns: Mapping[str, ColumnSample]
    channels: Mapping[str, Mapping[str, Mapping[str, float]]] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def numbers(self) -> tuple[Mapping[str, int], Distributions]:
        """The columns of numbers that have a value: the place of each, by name, and all of them."""
        held = {name: column.values for name, column in self.columns.items()}
        found = {name: each for name, each in held.items() if isinstance(each, Numbers) and each.count}
        return {name: place for place, name in enumerate(found)}, Distributions([*found.values()])


def samples(data: bytes, *, source: str = "statistics.arrow") -> dict[str, Sample]:
    """The records of each split, from the bytes of `statistics.arrow`.

    Args:
      data: the file, as a job writes it.
      source: what the file is called in errors.

    Raises:
      MillraceError: it cannot be read.
    """
    return samples_of(Statistics.from_bytes(data, source=source))


def samples_of(statistics: Statistics) -> dict[str, Sample]:
    """The records of each split."""
    found = statistics.summaries
    return {
        split: Sample(
            rows,
            {
                name: ColumnSample(name, column.name, column.kind, column.role, found[split, name])
                for column in statistics.columns
                for name in column.names
            },
            {image: told for image, told in described_channels(statistics, split).items() if told},
        )
        for split, rows in statistics.rows.items()
    }


def described_channels(statistics: Statistics, split: str) -> dict[str, dict[str, Any]]:
    """Mean and deviation of the pixels of a split, by image and channel."""
    found = sorted(statistics.channels.items())
    return {prefix.strip("/") or "image": channels.describe() for (at, prefix), channels in found if at == split}


def stored_samples(data_dir: str, manifest: Manifest) -> dict[str, Sample]:
    """What a dataset's run says of each of its splits.

    Raises:
      UsageError: it was written without statistics.
      MillraceError: they cannot be read.
    """
    path = manifest.path_of(data_dir, layout.STATISTICS_SKETCHES)
    if path is None:
        raise UsageError(
            f"{data_dir}: has no statistics to compare. It was written with --no_statistics; write it again to have "
            "them."
        )
    return samples(storage.read_bytes(path), source=path)
