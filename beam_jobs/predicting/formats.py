"""The formats of shards: how a batch of predictions becomes bytes, in threads; and a file, in order."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from beam_jobs.records.examples import framed, joined
from schemas.predictions import encoding
from schemas.predictions.encoding import CLASS, SOURCE
from schemas.predictions.manifest import FormatName

ROW_GROUP = 1 << 17  # rows of a Parquet file that are compressed together
ROW_GROUP_BYTES = 64 << 20


class File(Protocol):
    """An open shard."""

    def write(self, data: Any) -> int: ...


class Writer(Protocol):
    """Writes encoded batches to one shard."""

    def write(self, encoded: Any) -> None: ...

    def close(self) -> None:
        """Writes what is left, and the file's end."""


@dataclasses.dataclass
class Bytes:
    """Writes buffers one after the other."""

    file: File

    def write(self, encoded: Sequence[pa.Buffer | bytes]) -> None:
        for data in encoded:
            self.file.write(data)

    def close(self) -> None:
        """Nothing is left."""


@dataclasses.dataclass(frozen=True)
class Format:
    """A format: JSON lines, unless a subclass says otherwise. `encode` is called in several threads; a writer in one.

    Attributes:
      classes: their names by id; none for a regression.
    """

    classes: tuple[str, ...]

    def encode(self, batch: pa.RecordBatch) -> Any:
        """A batch, ready to be written."""
        return encoding.encode_json_lines(batch, self.classes)

    def open(self, file: File, schema: pa.Schema) -> Writer:
        """Begins a shard."""
        return Bytes(file)


class Csv(Format):
    """CSV with a header in each shard."""

    def encode(self, batch: pa.RecordBatch) -> list[pa.Buffer]:
        return [encoding.encode_csv(batch)]

    def open(self, file: File, schema: pa.Schema) -> Writer:
        file.write(encoding.header(schema, self.classes))
        return Bytes(file)


class Parquet(Format):
    """Parquet; the names of the classes are in the file's metadata, as `millrace.classes`."""

    def encode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    def open(self, file: File, schema: pa.Schema) -> Writer:
        return ParquetWriter(file, schema.with_metadata({"millrace.classes": json.dumps(self.classes)}))


class ParquetWriter:
    """Collects batches to row groups, of which each is written at once."""

    def __init__(self, file: File, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        distinct = [name for name in (SOURCE, CLASS) if name in schema.names]
        self._schema = schema
        self._writer = pq.ParquetWriter(file, schema, use_dictionary=distinct)
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def write(self, encoded: pa.RecordBatch) -> None:
        self._batches.append(encoded.replace_schema_metadata(self._schema.metadata))
        self._rows += encoded.num_rows
        self._bytes += encoded.nbytes
        if self._rows >= ROW_GROUP or self._bytes >= ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._rows:
            table = pa.Table.from_batches(self._batches, schema=self._schema).unify_dictionaries()
            self._writer.write_table(table, row_group_size=self._rows)
        self._batches, self._rows, self._bytes = [], 0, 0


class TFRecords(Format):
    """A tf.Example a record: strings as bytes, the offset as an integer, probabilities or value as floats."""

    def encode(self, batch: pa.RecordBatch) -> list[pa.Buffer | bytes]:
        from tfx_bsl.coders.example_coder import RecordBatchToExamples

        columns = {name: _listed(column) for name, column in zip(batch.schema.names, batch.columns, strict=True)}
        examples = RecordBatchToExamples(pa.RecordBatch.from_pydict(columns))
        return [joined(framed(examples))]


def _listed(column: pa.Array) -> pa.ListArray:
    """A column as a list for each row, as tf.Examples have it."""
    if pa.types.is_fixed_size_list(column.type):
        return column.cast(pa.list_(column.type.value_type))
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    return pa.ListArray.from_arrays(pa.array(np.arange(len(column) + 1, dtype=np.int32)), column)


FORMATS: Mapping[FormatName, type[Format]] = {"jsonl": Format, "csv": Csv, "parquet": Parquet, "tfrecord": TFRecords}
