"""Collects the data for finding leakage: hashes of rows, keys and images, and a sample of the train split."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from schemas.csv.values import Distinct
from schemas.profile.columns import EncodedBatch, ProfiledColumn, columns_of
from schemas.profile.duplicates import HASH, IMAGES, ROWS, SPLIT, RecordHashes, place_hash, value_hashes
from schemas.profile.label_leaks import SampledRows
from schemas.profile.near_duplicates import DifferenceHash
from schemas.spec.split_hash import GOLDEN, mix
from schemas.spec.table import SPLITS, HashSplit, Schema

ABSENT = 0  # the code of a missing string
_NAN = np.uint32(0x7FC00000)
_AT_ONCE = 1 << 16  # pairs of numbers that are hashed at once, so that the work stays in the cache


def codes_of(values: Distinct) -> np.ndarray:
    """Returns a hash of each row's string, uint64 `[rows]`, or ABSENT if the row's string is missing."""
    return np.where(values.absent, np.uint64(ABSENT), value_hashes(values.trimmed))[values.codes]


def hash_rows(numbers: np.ndarray, codes: Sequence[np.ndarray]) -> np.ndarray:
    """Returns a hash of each row's numbers and strings, uint64 `[rows]`.

    Each pair of neighbouring numbers, and each code of a string, is mixed with its place in the row to a hash of its
    own. The row's hash is the mixed sum of these hashes. A sum of products, as in `schemas.spec.split_hash`, would be
    faster, but small whole numbers as floats end in many zero bits, and the sum of products would end in zeros too.

    Args:
      numbers: the numbers of the rows, float32 `[rows, width]`. All NaNs have the same hash, and so have 0 and -0.
      codes: for each column of strings, the hashes of the rows' strings, uint64 `[rows]`.
    """
    # Two float32 numbers are hashed as one uint64 word. If `width` is odd, the last word has zeros in its second half.
    rows, width = numbers.shape
    pairs = -(-width // 2)
    salts = np.arange(1, pairs + len(codes) + 1, dtype=np.uint64) * GOLDEN
    total = np.zeros(rows, np.uint64)
    step = max(1, _AT_ONCE // max(1, pairs))
    words = np.zeros((min(step, rows), pairs), np.uint64)
    for start in range(0, rows if pairs else 0, step):
        part = numbers[start : start + step]
        both = words[: len(part)]
        bits = both.view(np.uint32)[:, :width]
        with np.errstate(invalid="ignore"):  # a signalling NaN
            np.add(part, np.float32(0), out=bits.view(np.float32))  # -0 + 0 is 0
        np.copyto(bits, _NAN, where=np.isnan(part))
        total[start : start + step] += mix(both + salts[:pairs]).sum(1, dtype=np.uint64)
    for code, salt in zip(codes, salts[pairs:], strict=True):
        total += mix(code ^ salt)
    return mix(total)


MOST_NUMBERS = 16_384  # of a row that a sample holds; further ones are not judged
SAMPLE = "sample"
_VALUES = 1 << 19  # of all rows of a sample together
_LEAST_SAMPLED, _MOST_SAMPLED = 256, 8192  # rows


@dataclasses.dataclass(frozen=True)
class WatchedRows:
    """The columns of rows that are searched for leakage.

    Attributes:
      features: the columns that a model reads.
      label: the column of the label.
      key: the column of the key, or None if a key cannot be in two splits.
      numbers: the names of the numbers in a sample's row, at most MOST_NUMBERS. A column of vectors has a name for each
        place of its vectors.
    """

    features: tuple[ProfiledColumn, ...]
    label: ProfiledColumn
    key: ProfiledColumn | None
    numbers: tuple[str, ...]

    @property
    def strings(self) -> tuple[str, ...]:
        """The names of the strings in a sample's row."""
        return tuple(column.name for column in self.features if column.reads != "numbers")

    @property
    def sample_rows(self) -> int:
        """The largest number of rows in a sample. The more columns, the fewer rows."""
        return min(_MOST_SAMPLED, max(_LEAST_SAMPLED, _VALUES // max(1, len(self.numbers) + len(self.strings))))

    def new_sample(self) -> RecordHashes:
        """Makes an empty sample for rows of the train split: those with the smallest hashes, in random order.

        It holds up to twice as many rows as are judged, since it loses about half of them at once.
        """
        numbers, strings = pa.binary(4 * len(self.numbers)), pa.binary(8 * len(self.strings))
        label = pa.float64() if self.label.reads == "numbers" else pa.binary()
        fields = pa.schema([(HASH, pa.uint64()), ("label", label), ("numbers", numbers), ("strings", strings)])
        return RecordHashes(fields, most=9 * self.sample_rows // 4)

    def sampled(self, sample: RecordHashes) -> tuple[SampledRows, list[str]] | None:
        """Returns the rows of a sample and the names of the classes, or None if the sample has no rows.

        If the label is a number, the list of names is empty.
        """
        table = sample.table.sort_by(HASH)[: self.sample_rows].combine_chunks()
        if not table.num_rows:
            return None
        label = table.column("label")
        labels, names = np.asarray(label), []
        if label.type == pa.binary():
            classes, labels = np.unique(np.array(label.to_pylist(), object), return_inverse=True)
            names = [value.decode(errors="replace") for value in classes]
        elif len(classes := np.unique(labels)) <= 2:
            labels, names = np.searchsorted(classes, labels), [f"{value:g}" for value in classes]
        numbers, strings = (b"".join(table.column(name).to_pylist()) for name in ("numbers", "strings"))
        rows = SampledRows(
            labels,
            np.frombuffer(numbers, np.float32).reshape(table.num_rows, -1),
            np.frombuffer(strings, np.uint64).reshape(table.num_rows, -1),
            (np.asarray(table.column(HASH)) & np.uint64(1)).astype(bool),
        )
        return rows, names


def watched_rows(schema: Schema) -> WatchedRows:
    """Returns the columns of a schema's rows that are searched for leakage."""
    columns = {column.name: column for column in columns_of(schema)}
    by_key = isinstance(schema.split, HashSplit) and schema.key is not None and schema.split.by == (schema.key.name,)
    return WatchedRows(
        tuple(column for column in columns.values() if column.role == "feature"),
        columns[schema.label.name],
        None if by_key or schema.key is None else columns[schema.key.name],
        tuple(itertools.islice(_numbers(schema, columns), MOST_NUMBERS)),
    )


def _numbers(schema: Schema, columns: Mapping[str, ProfiledColumn]) -> Iterator[str]:
    for item in schema.inputs:
        if item.raw is not None and columns[item.name].reads == "numbers":
            yield from (f"{item.name}[{ref}]" for ref in item.refs) if item.width > 1 else (item.name,)


@dataclasses.dataclass(frozen=True)
class ImageFingerprint:
    """An image as it was ingested: its path, a digest of its file, and its look."""

    path: str
    digest: int
    look: DifferenceHash


class LeakageProfile:
    """What records leave behind to find leakage by; takes batches, and merges.

    Attributes:
      hashes: by what they are of, such as rows or images.
    """

    def __init__(self, hashes: dict[str, RecordHashes]) -> None:
        self.hashes = hashes

    @property
    def records(self) -> int:
        """How many records it has taken."""
        return max(hashes.records for hashes in self.hashes.values())

    def merge(self, other: LeakageProfile) -> None:
        """Adds what the other one's records left."""
        for name, hashes in other.hashes.items():
            self.hashes[name].merge(hashes)


class RowLeakage(LeakageProfile):
    """What rows leave behind: hashes of them and of their keys, and a SAMPLE of the train split."""

    def __init__(self, watched: WatchedRows) -> None:
        keys = {} if watched.key is None else {"keys": RecordHashes(ROWS)}
        super().__init__({"rows": RecordHashes(ROWS), **keys, SAMPLE: watched.new_sample()})
        self.watched = watched

    def add(self, raw: EncodedBatch, splits: np.ndarray, files: np.ndarray, offsets: np.ndarray) -> None:
        """Adds rows: their raw columns, and of each its split (int8), its input's key and its offset (int64)."""
        watched = self.watched
        numeric = [raw.matrix(column.name) for column in watched.features if column.reads == "numbers"]
        empty = np.empty((raw.rows, 0), np.float32)
        numbers = numeric[0] if len(numeric) == 1 else np.concatenate([empty, *numeric], axis=1)
        codes = [codes_of(raw.encoded(column)) for column in watched.features if column.reads != "numbers"]
        labels, bits = _labels(raw, watched.label)
        where = {SPLIT: splits, "file": files, "offset": offsets}
        hashes = hash_rows(numbers, [*codes, bits])
        self.hashes["rows"].add({HASH: hashes, **where})
        if watched.key is not None:
            key_codes = codes_of(raw.encoded(watched.key))
            there = np.flatnonzero(key_codes != ABSENT)
            places = {name: values[there] for name, values in where.items()}
            self.hashes["keys"].add({HASH: key_codes[there], **places})
        # Not of the file, whose key holds its path. The offset tells equal rows apart: a frequent one is drawn as
        # often as its share.
        ranks = place_hash(hashes, offsets)
        sample = self.hashes[SAMPLE]
        rows = np.flatnonzero((splits == SPLITS.index("train")) & sample.keeps(ranks))
        if len(rows):
            strings = [np.empty((len(rows), 0), np.uint64), *(code[rows, None] for code in codes)]
            sample.add(
                {
                    HASH: ranks[rows],
                    "label": labels.take(pa.array(rows)),
                    "numbers": _as_bytes(numbers[rows, :MOST_NUMBERS]),
                    "strings": _as_bytes(np.concatenate(strings, axis=1)),
                }
            )


class ImageLeakage(LeakageProfile):
    """What images leave behind: hashes of their files, and their looks."""

    def __init__(self) -> None:
        super().__init__({"images": RecordHashes(IMAGES)})

    def add(self, images: Sequence[ImageFingerprint], splits: np.ndarray, labels: pa.Array) -> None:
        """Adds images, with the split (an index into SPLITS) and the label (binary) of each."""
        columns = {
            HASH: np.array([image.digest for image in images], np.uint64),
            SPLIT: splits.astype(np.int8),
            "across": np.array([image.look.across for image in images], np.uint64),
            "down": np.array([image.look.down for image in images], np.uint64),
            "clear": pa.array([image.look.clear for image in images], pa.bool_()),
            "label": labels,
            "path": pa.array([image.path.encode("utf-8", "surrogateescape") for image in images], pa.binary()),
        }
        self.hashes["images"].add(columns)


def _labels(raw: EncodedBatch, label: ProfiledColumn) -> tuple[pa.Array, np.ndarray]:
    """The labels, float64 numbers or classes; and as uint64, their bits or hashes."""
    if label.reads == "numbers":
        numbers = raw.matrix(label.name)[:, 0].astype(np.float64) + 0.0
        return pa.array(numbers), numbers.view(np.uint64)
    encoded = raw.encoded(label)
    return encoded.values.take(pa.array(encoded.codes)), value_hashes(encoded.values)[encoded.codes]


def _as_bytes(matrix: np.ndarray) -> pa.Array:
    """The bytes of each row."""
    width = matrix.shape[1] * matrix.itemsize
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(matrix), [None, pa.py_buffer(matrix.tobytes())])
