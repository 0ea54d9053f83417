"""Shards of predictions: the formats, and the files that a bundle writes, each under a name of its own in staging."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import uuid
from collections.abc import Mapping
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa

from beam_jobs.records.examples import framed, joined
from beam_jobs.records.fragments import WrittenShard
from schemas import storage
from schemas.dataset import layout
from schemas.predictions import encoding
from schemas.predictions.encoding import CLASS, SOURCE
from schemas.predictions.manifest import FormatName
from schemas.storage import folders

ROW_GROUP = 1 << 17  # rows of a Parquet file that are compressed together
ROW_GROUP_BYTES = 64 << 20


class Writer:
    """Writes encoded batches to one shard: buffers, one after the other, unless a subclass says otherwise."""

    def __init__(self, file: ShardFile) -> None:
        self.file = file

    def write(self, encoded: Any) -> None:
        """Adds a batch, as `Format.encode` returns it."""
        for data in encoded:
            self.file.write(data)

    def close(self) -> None:
        """Writes what is left, and the file's end."""


@dataclasses.dataclass(frozen=True)
class Format:
    """A format: JSON lines, unless a subclass says otherwise. `encode` is called in several threads; a writer in one.

    Attributes:
      classes: their names by id; none for a regression.
    """

    classes: tuple[str, ...]

    def encode(self, batch: pa.RecordBatch) -> Any:
        """Encodes a batch, so that it can be written."""
        return encoding.encode_json_lines(batch, self.classes)

    def open(self, file: ShardFile, schema: pa.Schema) -> Writer:
        """Begins a shard."""
        return Writer(file)


class Csv(Format):
    """CSV with a header in each shard."""

    def encode(self, batch: pa.RecordBatch) -> list[pa.Buffer]:
        return [encoding.encode_csv(batch)]

    def open(self, file: ShardFile, schema: pa.Schema) -> Writer:
        file.write(encoding.header(schema, self.classes))
        return Writer(file)


class Parquet(Format):
    """Parquet; the names of the classes are in the file's metadata, as `millrace.classes`."""

    def encode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    def open(self, file: ShardFile, schema: pa.Schema) -> Writer:
        return ParquetWriter(file, schema.with_metadata({"millrace.classes": json.dumps(self.classes)}))


class ParquetWriter(Writer):
    """Collects batches to row groups, of which each is written at once."""

    def __init__(self, file: ShardFile, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        super().__init__(file)
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


PREDICTED = "predicted"  # in the place of a split, where counts and shards have one


class ShardFile:
    """The file of the shard that is being written. Computes the size and the CRC-32C of what is written."""

    closed = False  # which Arrow asks

    def __init__(self, path: str, first: tuple[str, int]) -> None:
        self.path, self.first = path, first
        self.rows = self.size = 0
        self._crc = google_crc32c.Checksum()
        self._stack = contextlib.ExitStack()
        with self._stack, storage.wrap_errors(path):  # closed here only if opening fails
            local = self._stack.enter_context(folders.written_locally(path))
            self._file = self._stack.enter_context(open(local, "wb", buffering=1 << 20))  # noqa: SIM115 - by the stack
            self._stack = self._stack.pop_all()

    def write(self, data: Any) -> int:
        with storage.wrap_errors(self.path):
            self._file.write(data)
        self._crc.update(data)
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        """Does nothing: `finish` flushes everything."""

    def finish(self) -> WrittenShard:
        """Flushes everything to disk, and uploads a file that was written locally."""
        with self._stack, storage.wrap_errors(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
        crc32c = self._crc.hexdigest().decode()
        return WrittenShard(PREDICTED, self.first, self.path, self.rows, self.size, crc32c)

    def drop(self) -> None:
        """Closes the file of a bundle that has failed; its folder is removed with the run's other leftovers."""
        with contextlib.suppress(OSError):
            self._stack.__exit__(RuntimeError, RuntimeError("dropped"), None)


class ShardWriter:
    """Writes encoded batches one after the other, and begins another shard when one is large enough.

    Args:
      folder: the staging folder.
      form: the format.
      suffix: of the files' names.
      shard_bytes: the size at which a shard ends.
    """

    def __init__(self, folder: str, form: Format, *, suffix: str, shard_bytes: float) -> None:
        self._folder, self._form, self._suffix, self._shard_bytes = folder, form, suffix, shard_bytes
        self._file: ShardFile | None = None
        self._done: list[WrittenShard] = []

    def write(self, encoded: Any, schema: pa.Schema, *, rows: int, first: tuple[str, int]) -> None:
        """Adds a batch of `rows` predictions, whose first one is that of the record at `first`."""
        if self._file is None:
            self._file = ShardFile(layout.join(self._folder, f"predictions-{uuid.uuid4().hex}.{self._suffix}"), first)
            self._writer = self._form.open(self._file, schema)
        self._writer.write(encoded)
        self._file.rows += rows
        if self._file.size >= self._shard_bytes:
            self._end_shard()

    def close(self) -> list[WrittenShard]:
        """Ends the last shard, and returns all of them."""
        self._end_shard()
        done, self._done = self._done, []
        return done

    def drop(self) -> None:
        """Gives up what was written."""
        if self._file is not None:
            self._file.drop()
        self._file, self._done = None, []

    def _end_shard(self) -> None:
        if self._file is not None:
            self._writer.close()
            self._done.append(self._file.finish())
            self._file = None
