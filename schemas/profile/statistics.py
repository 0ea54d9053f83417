"""Collects the statistics of records, a summary of each column in each split; merges and writes them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.csv import values as csv_values
from schemas.dataset import layout
from schemas.dataset.statistics import FORMAT_VERSION as JSON_VERSION
from schemas.errors import MillraceError
from schemas.profile.columns import EncodedBatch, ProfiledColumn
from schemas.profile.sketches import RANK_ERROR, Sizes, summed
from schemas.profile.summary import ROW, Distribution, Summary, counted_rows
from schemas.spec.table import SPLITS
from schemas.storage import folders
from schemas.storage.json_files import check_version, parse_json

FORMAT_VERSION = 1  # of statistics.arrow
WHOLE = 256  # whole numbers from 0 on, such as pixels, which are counted without being sorted
_META = b"millrace.statistics"
_SCHEMA = pa.schema([("split", pa.string()), ("name", pa.string()), *ROW])
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")
_TILE = 16  # columns whose numbers are counted at once, so that the counts stay in the cache

Place = tuple[str, str]  # (split, name of what is described)


class Statistics:
    """The statistics of records, by split and feature.

    Attributes:
      columns: what is described.
      sizes: of the sketches.
      rows: the records of each split that has some.
      collected: the summaries so far, without the numbers that `tallies` holds.
      tallies: how often small whole numbers occur that no summary has yet, by split and column: int64 `[names, WHOLE]`.
    """

    def __init__(self, columns: Iterable[ProfiledColumn]) -> None:
        self.columns = tuple(columns)
        self.sizes = Sizes.of(sum(len(column.names) for column in self.columns))
        self.rows: dict[str, int] = {}
        self.collected: dict[Place, Summary] = {}
        self.tallies: dict[Place, np.ndarray] = {}

    @property
    def summaries(self) -> dict[Place, Summary]:
        """By split and name; a split without records has none."""
        names = {column.name: column.names for column in self.columns}
        for (split, column), table in self.tallies.items():
            for place in np.flatnonzero(table.any(1)).tolist():
                (whole,) = np.nonzero(table[place])
                summary = self._summary(split, names[column][place], numeric=True)
                summary.add_counted(whole.astype(np.float32), table[place, whole])
        self.tallies = {}
        return self.collected

    def _summary(self, split: str, name: str, *, numeric: bool) -> Summary:
        """The summary of a column in a split, made at its first use, to be added to."""
        place = split, name
        if place not in self.collected:
            self.collected[place] = Summary(self.sizes, numeric=numeric)
        return self.collected[place]

    def add(self, batch: pa.RecordBatch | EncodedBatch, splits: np.ndarray) -> None:
        """Adds accepted records: their raw columns, and the split of each, int8 `[rows]`."""
        raw = EncodedBatch.of(batch)
        if not raw.rows:
            return
        by_split = {SPLITS[split]: np.flatnonzero(splits == split) for split in np.unique(splits).tolist()}
        for split, rows in by_split.items():
            self.rows[split] = self.rows.get(split, 0) + len(rows)
        for column in self.columns:
            if column.reads == "numbers":
                self._add_numbers(column, raw.matrix(column.name), by_split)
            else:
                self._add_strings(column, raw.encoded(column), splits)

    def _add_numbers(self, column: ProfiledColumn, matrix: np.ndarray, by_split: Mapping[str, np.ndarray]) -> None:
        """Adds float32 `[rows, columns]`: small whole numbers to the tallies, the other columns to summaries."""
        width = len(column.names)  # 1 for a vector that is described as one column
        with np.errstate(invalid="ignore"):
            small = matrix.astype(np.uint8)
        whole = (small == matrix).all(0).reshape(width, -1).all(1)
        tallied, fractional = np.flatnonzero(whole), np.flatnonzero(~whole)
        if len(fractional):
            matrix = matrix if len(fractional) == width else matrix[:, fractional]
            small = small[:, tallied if width > 1 else slice(0)]
        for split, rows in by_split.items():
            if len(tallied):
                table = np.zeros((width, WHOLE), np.int64)
                table[tallied] = tally(
                    small.take(rows, axis=0).reshape(-1, len(tallied), small.shape[1] // len(tallied))
                )
                _add_to(self.tallies, (split, column.name), table)
            if len(fractional):
                values = np.ascontiguousarray(matrix.take(rows, axis=0).reshape(-1, len(fractional)).T)
                for place, (distinct, counts) in zip(fractional.tolist(), counted_rows(values), strict=True):
                    summary = self._summary(split, column.names[place], numeric=True)
                    summary.add_counted(distinct, counts, missing=values.shape[1] - int(counts.sum()))

    def _add_strings(self, column: ProfiledColumn, encoded: csv_values.Distinct, splits: np.ndarray) -> None:
        size = len(encoded.values)
        table = np.bincount(encoded.codes + splits.astype(np.int64) * size, minlength=len(SPLITS) * size)
        for split, counts in zip(SPLITS, table.reshape(len(SPLITS), size), strict=True):
            (places,) = np.nonzero(counts)
            present = places[~encoded.absent[places]]
            values, often = encoded.trimmed.take(pa.array(present)), counts[present]
            if encoded.trimmed.nbytes != encoded.values.nbytes:  # then two may have become one
                values, often = summed(values, often)
            if len(places):
                missing = int(counts.sum() - often.sum())
                self._summary(split, column.names[0], numeric=False).add_counted(values, often, missing=missing)

    def merge(self, other: Statistics) -> None:
        """Adds other statistics of the same columns, whose summaries it takes over, so that they are used up."""
        if other.columns != self.columns:
            raise MillraceError("statistics of different columns cannot be merged. This is a bug.")
        for split, rows in other.rows.items():
            self.rows[split] = self.rows.get(split, 0) + rows
        for place, summary in other.collected.items():
            if place in self.collected:
                self.collected[place].merge(summary)
            else:
                self.collected[place] = summary
        for place, table in other.tallies.items():
            _add_to(self.tallies, place, table)

    def to_bytes(self) -> bytes:
        """Returns the bytes of an Arrow file with a row for each split and name."""
        return self._table_of(self.summaries)

    def _table_of(self, summaries: Mapping[Place, Summary]) -> bytes:
        meta = {
            "version": FORMAT_VERSION,
            "columns": [vars(column) for column in self.columns],
            "rows": self.rows,
        }
        rows = [
            {"split": split, "name": name, **summary.to_row()} for (split, name), summary in sorted(summaries.items())
        ]
        table = pa.Table.from_pylist(rows, schema=_SCHEMA.with_metadata({_META: json.dumps(meta)}))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema, options=_OPTIONS) as writer:
            writer.write_table(table)
        return bytes(sink.getvalue())

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._table_of(self.collected), self.tallies)  # to pickle the summaries takes twice as long

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
            statistics = Statistics(map(_column, meta["columns"]))
            statistics.rows = meta["rows"]
            statistics.collected = {
                (row["split"], row["name"]): Summary.from_row(row, statistics.sizes) for row in _rows(table)
            }
            return statistics
        except (pa.ArrowInvalid, KeyError, TypeError, ValueError) as error:
            raise MillraceError(
                f"{source}: cannot be read ({error}); expected the sketches of a job. Restore the file, or write the "
                "dataset again."
            ) from error


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    """The rows of a table; their lists are arrays that share its memory."""
    columns: list[Sequence[Any]] = []
    for chunks in table.columns:
        column = chunks.combine_chunks()
        if pa.types.is_list(column.type):
            flat = column.values if column.type.value_type == pa.binary() else np.asarray(column.values)
            columns.append([flat[start:end] for start, end in itertools.pairwise(np.asarray(column.offsets).tolist())])
        else:
            columns.append(column.to_pylist())
    return (dict(zip(table.schema.names, cells, strict=True)) for cells in zip(*columns, strict=True))


def _restored(data: bytes, tallies: dict[Place, np.ndarray]) -> Statistics:
    statistics = Statistics.from_bytes(data)
    statistics.tallies = tallies
    return statistics


def _add_to(sums: dict[Place, np.ndarray], place: Place, values: np.ndarray) -> None:
    sums[place] = sums[place] + values if place in sums else values


def _column(values: dict[str, Any]) -> ProfiledColumn:
    lists = {name: tuple(values[name]) for name in ("names", "values", "missing")}
    return ProfiledColumn(**(values | lists))


def tally(values: np.ndarray) -> np.ndarray:
    """Counts how often each number occurs in columns: uint8 `[rows, columns, width]` to int64 `[columns, WHOLE]`."""
    columns = values.shape[1]
    table = np.empty((columns, WHOLE), np.int64)
    for start in range(0, columns, _TILE):
        tile = min(_TILE, columns - start)
        codes = values[:, start : start + tile] + WHOLE * np.arange(tile)[:, None]
        table[start : start + tile] = np.bincount(codes.ravel(), minlength=tile * WHOLE).reshape(tile, WHOLE)
    return table


TOP = 20  # frequent values that are listed
RANKS = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)  # of the quantiles that are reported


def describe(statistics: Statistics) -> dict[str, Any]:
    """Describes all splits, feature by feature in the schema's order. See docs/statistics.md for the keys."""
    splits = [split for split in SPLITS if split in statistics.rows]
    summaries = statistics.summaries
    return {
        "format_version": JSON_VERSION,
        "sketches": {
            "rank_error": RANK_ERROR,
            "distinct_values": statistics.sizes.distinct,
            "frequent_values": statistics.sizes.frequent,
        },
        "splits": {split: {"rows": statistics.rows[split]} for split in splits},
        "features": [
            {
                "name": name,
                "feature": column.name,
                "kind": column.kind,
                "role": column.role,
                "type": "number" if column.reads == "numbers" else "string",
                "splits": {split: describe_summary(summaries[split, name]) for split in splits},
            }
            for column in statistics.columns
            for name in column.names
        ],
    }


def describe_summary(summary: Summary) -> dict[str, Any]:
    """Describes a column as JSON values."""
    counts = {"count": summary.count, "missing": summary.missing}
    if not summary.count:
        return counts
    moments = summary.moments
    distinct = {"distinct": summary.distinct, "distinct_exact": summary.distinct_exact}
    top = summary.frequent.top(TOP)
    error = {"top_values_error": summary.frequent.error}
    if not summary.numeric:
        lengths = {"mean": moments.mean, "min": int(moments.low), "max": int(moments.high)}
        top = [(value.decode(errors="replace"), count) for value, count in top]
        return counts | distinct | {"length": lengths, "top_values": _listed(top)} | error
    values = Distribution(summary)
    edges, bins = values.histogram()
    return {
        **counts,
        "mean": moments.mean,
        "std": moments.deviation,
        "min": moments.low,
        "max": moments.high,
        "zeros": summary.zeros,
        **distinct,
        "quantiles": {
            "ranks": list(RANKS),
            "values": values.at(np.array(RANKS)).tolist(),
            "exact": summary.quantiles_exact,
        },
        "histogram": {"edges": edges.tolist(), "counts": bins.tolist()},
        "top_values": _listed(top),
        **error,
    }


def _listed(top: Iterable[tuple[Any, int]]) -> list[dict[str, Any]]:
    return [{"value": value, "count": count} for value, count in top]


def place_statistics(run_dir: str, statistics: Statistics) -> dict[str, Any]:
    """Writes the statistics to a run, for programs (JSON) and for merging (the sketches).

    Processes that commit the same run write the same bytes. Returns the values of `statistics.json`.
    """
    described = describe(statistics)
    for name, data in (
        (layout.STATISTICS_SKETCHES, statistics.to_bytes()),
        (layout.STATISTICS_JSON, json.dumps(described, allow_nan=False).encode() + b"\n"),
    ):
        folders.create(layout.join(run_dir, name), data)
    return described
