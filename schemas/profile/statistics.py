"""The statistics of a job as they grow: mergeable, and as bytes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.csv import strings
from schemas.csv.numbers import missing_tokens
from schemas.errors import MillraceError
from schemas.profile.columns import Column
from schemas.profile.sketches import Distinct, Frequent, Quantiles, Sizes, summed
from schemas.profile.summaries import Channels, Numbers, Strings
from schemas.spec import images
from schemas.spec.table import SPLITS
from schemas.storage.json_files import parse_json

FORMAT_VERSION = 1
_META = b"millrace.statistics"
_SCHEMA = pa.schema(
    [
        ("split", pa.string()),
        ("name", pa.string()),
        ("type", pa.string()),
        ("scalars", pa.string()),  # JSON
        ("quantiles", pa.binary()),  # a KLL sketch of DataSketches; null for strings
        ("distinct", pa.binary()),  # a KMV sketch of tfx_bsl
        ("values", pa.binary()),  # the frequent values, an Arrow stream
    ]
)
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")

Summary = Numbers | Strings
Place = tuple[str, str]  # (split, name of what is described)


class Statistics:
    """What is known of the records of each split. Pickled as its bytes.

    Attributes:
      columns: what is described.
      sizes: of the sketches.
      rows: the records of each split that has some.
      summaries: by split and name; a split without records has none.
      channels: by split, and by the prefix of an image's columns, which is empty if a record has one image.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = tuple(columns)
        self.sizes = Sizes.of(sum(len(column.names) for column in self.columns))
        self.rows: dict[str, int] = {}
        self.summaries: dict[Place, Summary] = {}
        self.channels: dict[Place, Channels] = {}

    def numbers(self, split: str, name: str) -> Numbers:
        """The summary of a column of numbers, made at its first use."""
        found = self.summaries.get((split, name))
        if found is None:
            found = self.summaries[split, name] = Numbers.empty(self.sizes)
        assert isinstance(found, Numbers)  # noqa: S101 - a name has one type
        return found

    def strings(self, split: str, name: str) -> Strings:
        """The summary of a column of strings, made at its first use."""
        found = self.summaries.get((split, name))
        if found is None:
            found = self.summaries[split, name] = Strings.empty(self.sizes)
        assert isinstance(found, Strings)  # noqa: S101 - a name has one type
        return found

    def channels_of(self, split: str, prefix: str) -> Channels:
        """The pixels of images, made at their first use."""
        return self.channels.setdefault((split, prefix), Channels())

    def merge(self, other: Statistics) -> None:
        """Adds what the other one has seen, of the same columns."""
        if other.columns != self.columns:
            raise MillraceError("statistics of different columns cannot be merged. This is a bug.")
        for split, rows in other.rows.items():
            self.rows[split] = self.rows.get(split, 0) + rows
        for (split, name), theirs in other.summaries.items():
            if isinstance(theirs, Numbers):
                self.numbers(split, name).merge(theirs)
            else:
                self.strings(split, name).merge(theirs)
        for place, channels in other.channels.items():
            self.channels_of(*place).merge(channels)

    def to_bytes(self) -> bytes:
        """An Arrow file with a row for each split and name."""
        meta = {
            "version": FORMAT_VERSION,
            "columns": [dataclasses.asdict(column) for column in self.columns],
            "rows": self.rows,
            "channels": [[*place, dataclasses.asdict(channels)] for place, channels in self.channels.items()],
        }
        rows = [_row(*place, summary) for place, summary in sorted(self.summaries.items())]
        schema = _SCHEMA.with_metadata({_META: json.dumps(meta)})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, schema, options=_OPTIONS) as writer:
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
        return bytes(sink.getvalue())

    @staticmethod
    def from_bytes(data: bytes) -> Statistics:
        """Reads `to_bytes`."""
        table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
        meta = parse_json(table.schema.metadata[_META])
        found = Statistics([_column(column) for column in meta["columns"]])
        found.rows = meta["rows"]
        for split, name, channels in meta["channels"]:
            found.channels[split, name] = Channels(
                channels["pixels"], tuple(channels["sums"]), tuple(channels["squares"])
            )
        for row in table.to_pylist():
            found.summaries[row["split"], row["name"]] = _summary(row, found.sizes)
        return found

    def __reduce__(self) -> tuple[Callable[[bytes], Statistics], tuple[bytes]]:
        return Statistics.from_bytes, (self.to_bytes(),)


def _column(values: dict[str, Any]) -> Column:
    lists = {name: tuple(values[name]) for name in ("names", "values", "missing")}
    return Column(**(values | lists))


def _row(split: str, name: str, summary: Summary) -> dict[str, Any]:
    numbers = isinstance(summary, Numbers)
    sketches = {"quantiles", "distinct", "frequent"}
    scalars = {
        field.name: getattr(summary, field.name) for field in dataclasses.fields(summary) if field.name not in sketches
    }
    frequent = summary.frequent
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"value": frequent.values, "count": frequent.counts})
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return {
        "split": split,
        "name": name,
        "type": "numbers" if numbers else "strings",
        "scalars": json.dumps(scalars | {"error": frequent.error}),
        "quantiles": summary.quantiles.to_bytes() if isinstance(summary, Numbers) else None,
        "distinct": summary.distinct.to_bytes(),
        "values": bytes(sink.getvalue()),
    }


def _summary(row: Mapping[str, Any], sizes: Sizes) -> Summary:
    scalars = parse_json(row["scalars"])
    batch = pa.ipc.open_stream(row["values"]).read_next_batch()
    error = scalars.pop("error")
    distinct = Distinct.from_bytes(sizes.distinct, row["distinct"])
    frequent = Frequent(sizes.frequent, batch.column("value"), np.asarray(batch.column("count")), error)
    if row["type"] == "numbers":
        return Numbers(Quantiles.from_bytes(row["quantiles"]), distinct, frequent, **scalars)
    return Strings(distinct, frequent, **scalars)


WAITING_BYTES = 16 * 2**20


@dataclasses.dataclass(frozen=True)
class Described:
    """What is described of a kind of records.

    Attributes:
      columns: their raw columns.
      images: the prefixes of the columns that hold the sums of images' pixels; see `Statistics.channels`.
    """

    columns: tuple[Column, ...]
    images: tuple[str, ...] = ()


class Collector:
    """Collects the statistics of one bundle."""

    def __init__(self, described: Described) -> None:
        self._columns = described.columns
        self._images = described.images
        self._statistics = Statistics(described.columns)
        self.rows = 0
        self._waiting: list[tuple[dict[str, pa.Array], np.ndarray]] = []
        self._bytes = 0

    def add(self, batch: pa.RecordBatch, splits: np.ndarray) -> None:
        """Adds accepted records: their raw columns, and the split of each, int8 `[rows]`."""
        values = {name: column.flatten() for name, column in zip(batch.schema.names, batch.columns, strict=True)}
        for column in self._columns:
            if column.reads == "one_hot":  # what waits is the place of the 1
                ones = np.asarray(values[column.name]).reshape(batch.num_rows, -1) == 1
                values[column.name] = pa.array(ones.argmax(1).astype(np.int32))
        self.rows += len(splits)
        self._waiting.append((values, splits))
        self._bytes += sum(array.nbytes for array in values.values())
        if self._bytes >= WAITING_BYTES:
            self._take()

    def finish(self) -> Statistics:
        """The statistics of all that was added."""
        self._take()
        return self._statistics

    def _take(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        splits = np.concatenate([some for _, some in waiting])
        rows = {
            SPLITS[split]: np.flatnonzero(splits == split) for split in np.flatnonzero(np.bincount(splits)).tolist()
        }
        for split, places in rows.items():
            self._statistics.rows[split] = self._statistics.rows.get(split, 0) + len(places)

        def values(name: str) -> pa.Array:
            return pa.concat_arrays([found[name] for found, _ in waiting])

        for column in self._columns:
            match column.reads:
                case "numbers":
                    self._numbers(column, np.asarray(values(column.name)), rows)
                case "strings":
                    self._strings(column, values(column.name), rows)
                case "one_hot":
                    self._one_hot(column, np.asarray(values(column.name)), rows)
        for prefix in self._images:
            sums, squares, pixels = (
                np.asarray(values(prefix + key)).reshape(len(splits), -1)
                for key in (images.SUMS, images.SQUARES, images.PIXELS)
            )
            for split, places in rows.items():
                channels = self._statistics.channels_of(split, prefix)
                channels.add(pixels[places], sums[places], squares[places])

    def _numbers(self, column: Column, flat: np.ndarray, rows: Mapping[str, np.ndarray]) -> None:
        total = sum(map(len, rows.values()))
        matrix = flat.reshape(total, -1).astype(np.float32, copy=False)
        for split, places in rows.items():
            chosen = matrix if len(places) == total else matrix[places]
            columns = np.array(
                chosen.reshape(1, -1) if len(column.names) == 1 else chosen.T, order="C"
            )  # a copy, to sort
            columns.sort(axis=1)  # NaN comes last
            missing = np.isnan(columns[:, -1:]).any(1)
            for name, values, some in zip(column.names, columns, missing.tolist(), strict=True):
                absent = int(np.isnan(values).sum()) if some else 0
                self._statistics.numbers(split, name).add(values[: len(values) - absent], absent)

    def _strings(self, column: Column, cells: pa.BinaryArray, rows: Mapping[str, np.ndarray]) -> None:
        found = strings.distinct(cells, missing_tokens(column.missing).tokens)
        trimmed = found.trimmed.nbytes != found.values.nbytes  # then two values may have become one
        for split, codes, occurrences in _counted(found.codes, len(found.values), rows):
            absent = found.absent[codes]
            values, counts = found.trimmed.take(pa.array(codes[~absent])), occurrences[~absent]
            if trimmed:
                values, counts = summed(values, counts)
            missing = int(occurrences[absent].sum())
            self._statistics.strings(split, column.names[0]).add(values, counts, missing)

    def _one_hot(self, column: Column, places: np.ndarray, rows: Mapping[str, np.ndarray]) -> None:
        values = pa.array([value.encode() for value in column.values], pa.binary())
        for split, codes, counts in _counted(places, len(values), rows):
            self._statistics.strings(split, column.names[0]).add(values.take(pa.array(codes)), counts, 0)


def _counted(
    codes: np.ndarray, size: int, rows: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """The codes that occur in each split, and how often."""
    for split, places in rows.items():
        counts = np.bincount(codes if len(places) == len(codes) else codes[places], minlength=size)
        found = np.flatnonzero(counts)
        yield split, found, counts[found]


def merged(parts: Iterable[Statistics]) -> Statistics | None:
    """The statistics of all parts together, which become part of the first one; None if there is none."""
    total: Statistics | None = None
    for part in parts:
        if total is None:
            total = part
        else:
            total.merge(part)
    return total
