"""Defines the interface of a row format: files, ranges of files, and batches of raw columns with their rejects.

Jobs, replays, predictions and the check of an export read rows only through `RowFormat`. `schemas.formats` lists the
formats.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from schemas.rejects import Reject
from schemas.spec.features import Text
from schemas.spec.forms import RawColumn
from schemas.spec.table import OFFSET, SPLIT, Schema

BATCH_BYTES = 8 << 20
NGRAM_BATCH_BYTES = 2 << 20  # smaller batches for texts with n-grams, which need some 440 times their size in memory
_ARROW_TYPES = {
    "float32": pa.list_(pa.float32()),
    "int64": pa.list_(pa.int64()),
    "string": pa.list_(pa.binary()),
}


def batch_bytes(schema: Schema) -> int:
    """Returns the approximate size of a batch of records that is transformed at once, in bytes of the file."""
    texts = (feature for feature in schema.features if isinstance(feature, Text))
    return NGRAM_BATCH_BYTES if any(text.weighted for text in texts) else BATCH_BYTES


# How many distinct numbers a column has in some rows: (as they are written, as float32). The key is
# "<place in a vector> <feature>". If the second count is smaller, float32 cannot tell some of the numbers apart.
DistinctNumbers = dict[str, tuple[int, int]]


@dataclasses.dataclass(frozen=True)
class Decoded:
    """The rows and rejects that were decoded from consecutive records of one file.

    Every record becomes a row or a reject: read == batch.num_rows + len(rejects). `read` is counted in the bytes of the
    file, independently of the parser, so that a parser that loses records is noticed.

    Attributes:
      batch: the rows, in the order of the file (see `batch_schema`).
      rejects: the records that could not be decoded.
      read: the number of records.
      consumed: about how many bytes of the range, as the file is stored, were read for these records and the ones
        before them.
      distinct_numbers: counts over the first of these records, for columns whose numbers may be too close for a
        float32.
      digests: only in the last batch of a range, if they were asked for: the digests of the blocks of the file that
        begin in the range, by number (see `schemas.storage.content`). The first range includes the header.
    """

    batch: pa.RecordBatch
    rejects: list[Reject]
    read: int
    consumed: int = 0
    distinct_numbers: DistinctNumbers = dataclasses.field(default_factory=dict)
    digests: Mapping[int, str] = dataclasses.field(default_factory=dict)

    def numbers(self) -> np.ndarray:
        """Returns the index of each row among all these records, rejects included: int64 `[rows]`.

        For example, the rows have the numbers 0 and 2 if the second of three records was rejected.
        """
        offsets = np.asarray(self.batch.column(OFFSET))
        rejected = np.sort(np.array([reject.offset for reject in self.rejects], np.int64))
        # A row's index among the rows, plus the number of rejects that begin before the row.
        return np.arange(len(offsets)) + np.searchsorted(rejected, offsets)


class RowFile(Protocol):
    """A file of rows, as it was when it was opened. It holds no open file handle, and can be pickled."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int:
        """The size on disk, in bytes."""

    @property
    def version(self) -> str:
        """The version by which `schemas.storage` recognizes that a file has changed."""

    @property
    def gzip(self) -> bool: ...

    @property
    def codec(self) -> str:
        """The encoding of the file's text."""

    @property
    def header(self) -> tuple[str, ...] | None:
        """The column names in the file's header; None if the file has no header."""

    @property
    def labels(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The names of the features and the label that are read from the file, each with the names of its columns
        there.
        """

    @property
    def ignored(self) -> tuple[str, ...]:
        """The columns of a file for prediction that are not read, because the schema does not declare them."""

    @property
    def min_record_bytes(self) -> int:
        """The smallest size of a record, including its line end, in bytes; 0 if there are no records."""

    @property
    def covers(self) -> int:
        """The sum of `RowRange.covers` over the file's ranges.

        It is known before the ranges are planned, and at most `size`.
        """


class RowRange(Protocol):
    """A part of a file that one worker reads: the records that begin in [start, end)."""

    @property
    def file(self) -> RowFile: ...

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int | None:
        """The end of the range, in bytes; None: the end of the file."""

    @property
    def covers(self) -> int:
        """The size of this part in bytes of the file."""


File = TypeVar("File", bound=RowFile)
Range = TypeVar("Range", bound=RowRange)


class RowFormat(Protocol[File, Range]):
    """A format of raw data: opens files, plans ranges, reads ranges, and reads single records again."""

    def open_file(
        self, path: str, schema: Schema, *, label: Literal["required", "optional", "if_present"], max_input_ratio: float
    ) -> File:
        """Reads the beginning of a file, and finds out how to read the rest.

        Args:
          path: a local path or gs://bucket/name.
          schema: what the file should hold.
          label: how label, weight and key are read. "required" is for training: they must be there. "optional" is for
            prediction: label and weight may be absent, and are not read; columns that the schema does not declare are
            not read either. "if_present" is for a comparison: label, weight and key are read if they are there, and
            other columns are ignored.
          max_input_ratio: how many times its own size a gzip file may decompress to.

        Raises:
          UsageError: the file does not fit the schema.
          MillraceError: the file cannot be read.
        """

    def plan_ranges(self, file: File, *, range_bytes: int) -> Sequence[Range]:
        """Cuts a file into ranges of about `range_bytes`, so that each record is in exactly one range."""

    def cell_position(self, file: File, schema: Schema, name: str) -> int:
        """Returns the position of a column in the file, from 0.

        Args:
          file: the file.
          schema: its schema.
          name: the column's name in the file, or the name of the feature that is read from the column.

        Raises:
          UsageError: the file has no such column.
        """

    def read_range(
        self,
        part: Range,
        schema: Schema,
        *,
        with_split: bool,
        cells: Sequence[str] = (),
        digests: bool = False,
        batch_bytes: int = BATCH_BYTES,
    ) -> Iterator[Decoded]:
        """Reads a range: every record becomes a row or a reject, each with the offset of its first byte.

        Args:
          part: the range.
          schema: the schema of the file.
          with_split: whether the batches have the column `_split`.
          cells: names of columns of the file. The batches have a further column for each of them, see `cell_field`.
          digests: whether the last batch has the digests of the file's blocks that begin in the range.
          batch_bytes: the approximate size of a batch, in bytes of the file.

        Raises:
          MillraceError: the file cannot be read, or has changed since it was opened.
        """

    def read_records(self, file: File, schema: Schema, offsets: Iterable[int]) -> Mapping[int, bytes]:
        """Reads the raw bytes of single records, and returns them by offset.

        Args:
          file: the file.
          schema: the schema of the file.
          offsets: the offset of each record's first byte.

        Raises:
          MillraceError: no record begins at one of the offsets.
        """

    def file_from_manifest(self, path: str, schema: Schema, *, encoding: str, header: tuple[str, ...] | None) -> File:
        """Restores the file as `open_file` once returned it, from what the manifest says.

        The file need not exist any more.

        Args:
          path: the file.
          schema: the schema of the file.
          encoding: the encoding that was detected.
          header: the names in the header; None if the file has no header.
        """

    def decode_records(self, file: File, schema: Schema, raws: Sequence[bytes], offsets: Sequence[int]) -> Decoded:
        """Decodes corrected records one by one, as `read_range` does, and gives each record one of the `offsets`."""

    def encode_record(self, file: File, schema: Schema, cells: Mapping[str, Sequence[bytes]]) -> bytes:
        """Encodes a record as a line of the file.

        Args:
          file: the file.
          schema: the schema of the file.
          cells: the cells by feature, one for each column of the feature. A feature that is left out is missing in the
            record.
        """


AnyRowFormat = RowFormat[Any, Any]


def batch_schema(columns: Sequence[RawColumn], *, with_split: bool, cells: int = 0) -> pa.Schema:
    """Returns the Arrow schema of decoded batches.

    Its columns are the raw columns, `_offset` (int64), `_split` (int8) if `with_split` is True, and `cells` columns of
    cells.
    """
    fields = [*raw_fields(columns), pa.field(OFFSET, pa.int64())]
    fields += [pa.field(SPLIT, pa.int8())] if with_split else []
    return pa.schema([*fields, *map(cell_field, range(cells))])


def cell_field(index: int) -> pa.Field:
    """Returns the Arrow field of the cells of a column of the file, as they stand in the file.

    Latin-1 is converted to UTF-8.
    """
    return pa.field(f"_cell_{index}", pa.binary())


def raw_fields(columns: Sequence[RawColumn]) -> list[pa.Field]:
    """Returns the Arrow fields of raw columns: lists of float32, int64 or bytes."""
    return [pa.field(column.name, _ARROW_TYPES[column.dtype]) for column in columns]


def dense(values: pa.Array, column: RawColumn) -> np.ndarray:
    """Converts a raw column to the array that a model takes: float32 or `bytes` objects.

    Args:
      values: the column, a list of values for each row.
      column: its description.

    Returns:
      `[rows]`, or `[rows, width]` if the column has a width.
    """
    flat = values.flatten().to_numpy(zero_copy_only=False)
    return flat if column.width is None else flat.reshape(-1, column.width)


def list_array(values: np.ndarray | pa.BinaryArray, keep: np.ndarray | None) -> pa.ListArray:
    """Makes a list column that has the same number of values in each row.

    Args:
      values: numbers `[rows, width]`, or strings `[rows]`.
      keep: the indices of the rows to keep; None keeps all.
    """
    if isinstance(values, np.ndarray):
        matrix = values if keep is None else values[keep]
        count, width = matrix.shape
        flat = pa.array(matrix.reshape(-1), pa.float32(), from_pandas=False)
    else:
        flat = values if keep is None else values.take(pa.array(keep))
        count, width = len(flat), 1
    # The list of row i is flat[offsets[i] : offsets[i + 1]], so the offsets are 0, width, 2 * width, ...
    return pa.ListArray.from_arrays(pa.array(np.arange(count + 1, dtype=np.int32) * width), flat)
