"""The statistics of a job as they grow: mergeable, and as bytes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from beam_jobs.statistics.channels import Channels
from beam_jobs.statistics.columns import Column
from beam_jobs.statistics.frequent import Frequent
from beam_jobs.statistics.numbers import Numbers
from beam_jobs.statistics.sketches import Distinct, Quantiles, Sizes
from beam_jobs.statistics.strings import Strings
from schemas.errors import MillraceError
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
