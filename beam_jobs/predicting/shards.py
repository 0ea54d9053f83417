"""Writes shards of predictions to the staging folder, as JSON lines, CSV, Parquet or TFRecord.

Each bundle of the pipeline writes its own shards, with random names, so that repeated bundles overwrite no file.
"""

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

ROW_GROUP = 1 << 17  # the most rows of a Parquet file that are compressed together
ROW_GROUP_BYTES = 64 << 20  # the most bytes of a row group in memory


class Writer:
    """Writes encoded batches to one shard. This class writes lists of buffers; a subclass may write other batches."""

    def __init__(self, file: ShardFile) -> None:
        self.file = file

    def write(self, encoded: Any) -> None:
        """Writes a batch to the file. `encoded`: the batch, encoded by the format's `encode`."""
        for data in encoded:
            self.file.write(data)

    def close(self) -> None:
        """Writes the batches that are still in memory, and the end of the file. Does not close `file`."""


@dataclasses.dataclass(frozen=True)
class Format:
    """A format of shards. This class is JSON lines; the subclasses are the other formats.

    Several threads may call `encode` at once. A writer is used by one thread.

    Attributes:
      classes: the names of the classes by id; empty for a regression.
    """

    classes: tuple[str, ...]

    def encode(self, batch: pa.RecordBatch) -> Any:
        """Encodes a batch of predictions in the form that this format's writer takes."""
        return encoding.encode_json_lines(batch, self.classes)

    def open(self, file: ShardFile, schema: pa.Schema) -> Writer:
        """Begins a shard, and returns its writer. `schema`: the columns of the predictions."""
        return Writer(file)


class Csv(Format):
    """CSV with a header in each shard."""

    def encode(self, batch: pa.RecordBatch) -> list[pa.Buffer]:
        return [encoding.encode_csv(batch)]

    def open(self, file: ShardFile, schema: pa.Schema) -> Writer:
        file.write(encoding.header(schema, self.classes))
        return Writer(file)


class Parquet(Format):
    """Parquet. The file's metadata holds the names of the classes as `millrace.classes`."""

    def encode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    def open(self, file: ShardFile, schema: pa.Schema) -> Writer:
        return ParquetWriter(file, schema.with_metadata({"millrace.classes": json.dumps(self.classes)}))


class ParquetWriter(Writer):
    """Collects batches in memory until they make up a row group, and then writes the row group."""

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
        """Writes the collected batches as one row group."""
        if self._rows:
            table = pa.Table.from_batches(self._batches, schema=self._schema).unify_dictionaries()
            self._writer.write_table(table, row_group_size=self._rows)
        self._batches, self._rows, self._bytes = [], 0, 0


class TFRecords(Format):
    """TFRecord files with a tf.Example for each record.

    Strings are stored as bytes, the offset as an integer, and the probabilities or the predicted value as floats.
    """

    def encode(self, batch: pa.RecordBatch) -> list[pa.Buffer | bytes]:
        from tfx_bsl.coders.example_coder import RecordBatchToExamples

        columns = {name: _listed(column) for name, column in zip(batch.schema.names, batch.columns, strict=True)}
        examples = RecordBatchToExamples(pa.RecordBatch.from_pydict(columns))
        return [joined(framed(examples))]


def _listed(column: pa.Array) -> pa.ListArray:
    """Turns a column into a column of lists, because tf.Examples hold a list for each feature."""
    if pa.types.is_fixed_size_list(column.type):
        return column.cast(pa.list_(column.type.value_type))
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    return pa.ListArray.from_arrays(pa.array(np.arange(len(column) + 1, dtype=np.int32)), column)


FORMATS: Mapping[FormatName, type[Format]] = {"jsonl": Format, "csv": Csv, "parquet": Parquet, "tfrecord": TFRecords}


PREDICTED = "predicted"  # predictions have no splits; their counts and shards have this name in place of a split


class ShardFile:
    """The file of the shard that is being written. Computes the size and the CRC-32C of the written bytes.

    Args:
      path: the path of the shard.
      first: the place of the shard's first record: its file and offset.
    """

    closed = False  # Arrow reads this attribute of a file

    def __init__(self, path: str, first: tuple[str, int]) -> None:
        self.path, self.first = path, first
        self.rows = self.size = 0
        self._crc = google_crc32c.Checksum()
        self._stack = contextlib.ExitStack()
        # If opening fails, leaving the block closes everything. If it succeeds, `pop_all` keeps the file open.
        with self._stack, storage.wrap_errors(path):
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
        """Flushes the file to disk, uploads it if its path is in a bucket, and returns the written shard."""
        with self._stack, storage.wrap_errors(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
        crc32c = self._crc.hexdigest().decode()
        return WrittenShard(PREDICTED, self.first, self.path, self.rows, self.size, crc32c)

    def drop(self) -> None:
        """Closes the file of a bundle that has failed. The file stays until the staging folder is deleted."""
        with contextlib.suppress(OSError):
            self._stack.__exit__(RuntimeError, RuntimeError("dropped"), None)


class ShardWriter:
    """Writes encoded batches to shards. Begins a new shard when the current one is large enough.

    Args:
      folder: the staging folder.
      form: the format.
      suffix: the suffix of the files' names.
      shard_bytes: the size at which a shard ends.
    """

    def __init__(self, folder: str, form: Format, *, suffix: str, shard_bytes: float) -> None:
        self._folder, self._form, self._suffix, self._shard_bytes = folder, form, suffix, shard_bytes
        self._file: ShardFile | None = None
        self._done: list[WrittenShard] = []

    def write(self, encoded: Any, schema: pa.Schema, *, rows: int, first: tuple[str, int]) -> None:
        """Writes a batch of predictions.

        Args:
          encoded: the batch, encoded by the format.
          schema: the columns of the batch.
          rows: the number of predictions.
          first: the place of the batch's first record: its file and offset.
        """
        if self._file is None:
            self._file = ShardFile(layout.join(self._folder, f"predictions-{uuid.uuid4().hex}.{self._suffix}"), first)
            self._writer = self._form.open(self._file, schema)
        self._writer.write(encoded)
        self._file.rows += rows
        if self._file.size >= self._shard_bytes:
            self._end_shard()

    def close(self) -> list[WrittenShard]:
        """Ends the last shard, and returns all shards since the last call of `close` or `drop`."""
        self._end_shard()
        done, self._done = self._done, []
        return done

    def drop(self) -> None:
        """Gives up all shards since the last call of `close` or `drop`."""
        if self._file is not None:
            self._file.drop()
        self._file, self._done = None, []

    def _end_shard(self) -> None:
        """Ends the current shard, if there is one, and adds it to the written shards."""
        if self._file is not None:
            self._writer.close()
            self._done.append(self._file.finish())
            self._file = None
