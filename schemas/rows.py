"""The interface of a row format: files, ranges of files, and batches of raw columns with their rejects.

Jobs, replays, predictions and the check of an export go through `RowFormat`; `schemas.formats` lists them.
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
NGRAM_BATCH_BYTES = 2 << 20  # of texts whose n-grams are taken, which need some 440 times as much memory
_ARROW_TYPES = {
    "float32": pa.list_(pa.float32()),
    "int64": pa.list_(pa.int64()),
    "string": pa.list_(pa.binary()),
}


def batch_bytes(schema: Schema) -> int:
    """Returns the approximate size of a batch of records that is transformed at once."""
    texts = (feature for feature in schema.features if isinstance(feature, Text))
    return NGRAM_BATCH_BYTES if any(text.weighted for text in texts) else BATCH_BYTES


# By "<place in a vector> <feature>": how many distinct numbers some rows hold, as they are written and as float32s.
DistinctNumbers = dict[str, tuple[int, int]]


@dataclasses.dataclass(frozen=True)
class Decoded:
    """Some records of one file, in file order: the rows of a raw batch, the rejects, and how many records were read.

    `read` is counted from the bytes, not by the parser; read == batch.num_rows + len(rejects). `consumed` says about
    how many bytes of the range, as the file is stored, were read for these records and those before them.
    `distinct_numbers` is of the first of these records, and of columns whose numbers may be too close for a float32.
    `digests`, which the last batch of a range has if they are taken, are those of the blocks of the file that begin in
    the range (see `schemas.storage.content`); the first range begins with the file.
    """

    batch: pa.RecordBatch
    rejects: list[Reject]
    read: int
    consumed: int = 0
    distinct_numbers: DistinctNumbers = dataclasses.field(default_factory=dict)
    digests: Mapping[int, str] = dataclasses.field(default_factory=dict)

    def numbers(self) -> np.ndarray:
        """Returns the index of each row among these records, rejects included: int64 `[rows]`."""
        offsets = np.asarray(self.batch.column(OFFSET))
        rejected = np.sort(np.array([reject.offset for reject in self.rejects], np.int64))
        return np.arange(len(offsets)) + np.searchsorted(rejected, offsets)


class RowFile(Protocol):
    """A file of rows as it was found when it was opened. It holds no open file and can be pickled."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int:
        """Bytes on disk."""

    @property
    def version(self) -> str:
        """The version by which `schemas.storage` recognizes a changed file."""

    @property
    def gzip(self) -> bool: ...

    @property
    def codec(self) -> str:
        """The encoding of its text."""

    @property
    def header(self) -> tuple[str, ...] | None:
        """The column names in its header; None if it has no header."""

    @property
    def labels(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The feature and label names that are read from it, each with the names of its columns in this file."""

    @property
    def ignored(self) -> tuple[str, ...]:
        """The columns of a file for prediction that the schema does not declare, and that are not read."""

    @property
    def min_record_bytes(self) -> int:
        """The least size of a record, including its line end; 0 if there are no records."""

    @property
    def covers(self) -> int:
        """The sum of `covers` over its ranges, known without planning them; at most `size`."""


class RowRange(Protocol):
    """A part of a file that one worker reads: the records that begin in [start, end)."""

    @property
    def file(self) -> RowFile: ...

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int | None:
        """None: the end of the file."""

    @property
    def covers(self) -> int:
        """The size of this part in bytes of the file."""


File = TypeVar("File", bound=RowFile)
Range = TypeVar("Range", bound=RowRange)


class RowFormat(Protocol[File, Range]):
    """How one raw format is opened, planned, read, and read again."""

    def open_file(
        self, path: str, schema: Schema, *, label: Literal["required", "optional", "if_present"], max_input_ratio: float
    ) -> File:
        """Reads a file's beginning and finds out how to read the rest.

        Args:
          path: a local path or gs://bucket/name.
          schema: what the file should hold.
          label: "optional" reads for prediction: label and weight may be absent, and are not read, nor are columns that
            the schema does not declare. "if_present" reads
            for a comparison: label, weight and key are read if they are there, and other columns are passed over.
          max_input_ratio: how many times its size a gzip file may decompress to.

        Raises:
          UsageError: the file does not fit the schema.
          MillraceError: the file cannot be read.
        """

    def plan_ranges(self, file: File, *, range_bytes: int) -> Sequence[Range]:
        """Cuts the file's records into ranges of about `range_bytes`, each record in exactly one."""

    def cell_position(self, file: File, schema: Schema, name: str) -> int:
        """Returns the position of a column, by its name in the file or by that of the feature that it is.

        Raises:
          UsageError: there is no such column in the file.
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

        `with_split` adds the column `_split`; `cells` the cells of these columns of the file, as `cell_field` has them.
        `digests`: the last batch has those of the range. `batch_bytes` is the approximate size of a batch, in bytes of
        the file.

        Raises:
          MillraceError: the file cannot be read, or has changed since it was opened.
        """

    def read_records(self, file: File, schema: Schema, offsets: Iterable[int]) -> Mapping[int, bytes]:
        """Reads the raw bytes of single records, by offset.

        Raises:
          MillraceError: no record begins at one of the offsets.
        """

    def file_from_manifest(self, path: str, schema: Schema, *, encoding: str, header: tuple[str, ...] | None) -> File:
        """Restores the file from the manifest, as `open_file` once opened it. It need not exist any more."""

    def decode_records(self, file: File, schema: Schema, raws: Sequence[bytes], offsets: Sequence[int]) -> Decoded:
        """Decodes corrected records one by one, as `read_range` does, and assigns them the `offsets`."""

    def encode_record(self, file: File, schema: Schema, cells: Mapping[str, Sequence[bytes]]) -> bytes:
        """Encodes a record. `cells`: by feature, a cell for each of its columns; a feature left out is missing."""


AnyRowFormat = RowFormat[Any, Any]


def batch_schema(columns: Sequence[RawColumn], *, with_split: bool, cells: int = 0) -> pa.Schema:
    """Returns the schema of decoded batches: raw columns, `_offset` int64, and if asked for `_split` int8 and cells."""
    fields = [*raw_fields(columns), pa.field(OFFSET, pa.int64())]
    fields += [pa.field(SPLIT, pa.int8())] if with_split else []
    return pa.schema([*fields, *map(cell_field, range(cells))])


def cell_field(index: int) -> pa.Field:
    """Returns the field for the cells of a column of the file as they stand there, in UTF-8 if it is Latin-1."""
    return pa.field(f"_cell_{index}", pa.binary())


def raw_fields(columns: Sequence[RawColumn]) -> list[pa.Field]:
    """Returns raw columns as Arrow has them: `list<float32>` and `list<binary>`."""
    return [pa.field(column.name, _ARROW_TYPES[column.dtype]) for column in columns]


def dense(values: pa.Array, column: RawColumn) -> np.ndarray:
    """Returns a raw column as a model takes it: float32 or objects of `bytes`, `[rows]` or `[rows, width]`."""
    flat = values.flatten().to_numpy(zero_copy_only=False)
    return flat if column.width is None else flat.reshape(-1, column.width)


def list_array(values: np.ndarray | pa.BinaryArray, keep: np.ndarray | None) -> pa.ListArray:
    """Makes a list column of rows of k values each; only of the rows `keep` where given."""
    if isinstance(values, np.ndarray):
        matrix = values if keep is None else values[keep]
        count, width = matrix.shape
        flat = pa.array(matrix.reshape(-1), pa.float32(), from_pandas=False)
    else:
        flat = values if keep is None else values.take(pa.array(keep))
        count, width = len(flat), 1
    return pa.ListArray.from_arrays(pa.array(np.arange(count + 1, dtype=np.int32) * width), flat)
