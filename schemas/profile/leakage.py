"""What records leave behind to find leakage by: hashes of rows, keys and images, and a sample of the train split."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from schemas.csv.values import distinct, missing_tokens
from schemas.profile.columns import Column, columns_of
from schemas.profile.duplicates import (
    HASH,
    IMAGES,
    KEYS,
    ROWS,
    SPLIT,
    Extremes,
    RecordHashes,
    Sized,
    place_hash,
    value_hashes,
)
from schemas.profile.label_leaks import Drawn, Sample
from schemas.profile.near_duplicates import DifferenceHash
from schemas.spec.split_hash import GOLDEN, canonical_bits, mix
from schemas.spec.table import SPLITS, HashSplit, Schema
from schemas.storage.json_files import parse_json

_META = b"hashes"
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclasses.dataclass
class LeakageProfile:
    """What records leave behind to find leakage by.

    Attributes:
      hashes: of rows, of keys, of images, as far as there are such.
      sample: of the rows of the train split; None for images.
      extremes: the largest and the smallest images; None for rows.
    """

    hashes: dict[str, RecordHashes]
    sample: Sample | None = None
    extremes: Extremes | None = None

    def merge(self, other: LeakageProfile) -> None:
        """Adds what the other one's records left."""
        for name, hashes in other.hashes.items():
            self.hashes[name].merge(hashes)
        if self.sample is not None and other.sample is not None:
            self.sample.merge(other.sample)
        if self.extremes is not None and other.extremes is not None:
            self.extremes.merge(other.extremes)

    def to_bytes(self) -> bytes:
        """What rows left, as Arrow streams: those of each kind of hashes, then the sample's."""
        sink = pa.BufferOutputStream()
        for name, hashes in self.hashes.items():
            meta = {"name": name, "records": hashes.records, "zeros": hashes.zeros}
            _append(sink, hashes.table.combine_chunks().replace_schema_metadata({_META: json.dumps(meta)}))
        if self.sample is not None:
            _append(sink, pa.Table.from_batches([self.sample.to_batch()]))
        return bytes(sink.getvalue())

    @staticmethod
    def from_bytes(data: bytes | memoryview) -> LeakageProfile:
        """The inverse of `to_bytes`, which only the process that started its writer calls."""
        found, source = LeakageProfile({}), pa.BufferReader(data)
        while source.tell() < source.size():
            table = pa.ipc.open_stream(source).read_all()
            if _META in table.schema.metadata:
                meta = parse_json(table.schema.metadata[_META])
                held = RecordHashes.restored(table, records=meta["records"], zeros=meta["zeros"])
                found.hashes[meta["name"]] = held
            else:
                found.sample = Sample.from_table(table)
        return found


def _append(sink: pa.NativeFile, table: pa.Table) -> None:
    with pa.ipc.new_stream(sink, table.schema, options=_OPTIONS) as writer:
        writer.write_table(table)


ABSENT = 0  # the code of a missing string
_AT_ONCE = 1 << 16  # values that are hashed at once, so that the work stays in the cache


def codes_of(column: Column, values: pa.Array, rows: int) -> np.ndarray:
    """uint64 `[rows]`: a hash of each string, or the place of the 1 in a one-hot group; ABSENT if it is missing."""
    if column.reads == "one_hot":
        ones: np.ndarray = np.asarray(values).reshape(rows, -1) == 1
        return ones.argmax(1).astype(np.uint64) + np.uint64(1)
    found = distinct(values, missing_tokens(column.missing).tokens)
    hashes = np.where(found.absent, np.uint64(ABSENT), value_hashes(found.trimmed))
    return hashes[found.codes]


def hash_rows(numbers: Mapping[int, np.ndarray], codes: Mapping[int, np.ndarray], rows: int) -> np.ndarray:
    """uint64 `[rows]`: the sum of a hash of each value and its place, finalised.

    Each value is mixed before it is added. A sum of products, as in `schemas.spec.split_hash`, takes less time, but
    floats that are small integers have many zero bits at their end, and so would the sum.

    Args:
      numbers: float32 `[rows, width]`, by the place of their first column; one NaN is like another, and so are zeros.
      codes: uint64 `[rows]`, by place.
      rows: how many there are.
    """
    total = np.zeros(rows, np.uint64)
    for place, matrix in numbers.items():
        width = matrix.shape[1]
        salts = np.arange(place + 1, place + width + 1, dtype=np.uint64) * GOLDEN
        step = max(1, _AT_ONCE // width)
        for start in range(0, rows, step):
            some = canonical_bits(matrix[start : start + step])
            total[start : start + step] += mix(some + salts).sum(1, dtype=np.uint64)
    for place, code in codes.items():
        total += mix(code ^ (np.arange(place + 1, place + 2, dtype=np.uint64) * GOLDEN))
    return mix(total)


DRAWN = 16_384  # numbers of a row that a sample holds; those of a wider row are not judged


@dataclasses.dataclass(frozen=True)
class WatchedRows:
    """What is looked at of rows.

    Attributes:
      features: the columns that a model reads.
      label: the label's column.
      key: the key's, if it may be in two splits.
      numbers: what the numbers of a sample's row are called: columns of vectors by their place, DRAWN at most.
    """

    features: tuple[Column, ...]
    label: Column
    key: Column | None
    numbers: tuple[str, ...]

    @property
    def strings(self) -> tuple[str, ...]:
        """What the strings of a sample's row are called."""
        return tuple(column.name for column in self.features if column.reads != "numbers")


def watched_rows(schema: Schema) -> WatchedRows:
    """What is looked at of the rows of a schema."""
    columns = {column.name: column for column in columns_of(schema)}
    by_key = isinstance(schema.split, HashSplit) and schema.key is not None and schema.split.by == (schema.key.name,)
    return WatchedRows(
        tuple(column for column in columns.values() if column.role == "feature"),
        columns[schema.label.name],
        None if by_key or schema.key is None else columns[schema.key.name],
        tuple(itertools.islice(_numbers(schema, columns), DRAWN)),
    )


def _numbers(schema: Schema, columns: Mapping[str, Column]) -> Iterator[str]:
    for item in schema.inputs:
        if item.raw is not None and columns[item.name].reads == "numbers":
            yield from (f"{item.name}[{ref}]" for ref in item.refs) if item.width > 1 else (item.name,)


class RowCollector:
    """Collects what the accepted rows of a bundle leave.

    Attributes:
      profile: None if there was no row.
    """

    def __init__(self, watched: WatchedRows) -> None:
        self._watched = watched
        self.profile: LeakageProfile | None = None

    def add(self, batch: pa.RecordBatch, splits: np.ndarray, files: np.ndarray, offsets: np.ndarray) -> None:
        """Adds rows: their raw columns, and of each its split (int8), its input's key and its offset (int64)."""
        rows = batch.num_rows
        values = {name: column.flatten() for name, column in zip(batch.schema.names, batch.columns, strict=True)}
        numbers, codes, drawn_numbers, place = {}, {}, [], 0
        for column in self._watched.features:
            if column.reads == "numbers":
                numbers[place] = matrix = (
                    np.asarray(values[column.name]).astype(np.float32, copy=False).reshape(rows, -1)
                )
                drawn_numbers.append(matrix)
                place += matrix.shape[1]
            else:
                codes[place] = codes_of(column, values[column.name], rows)
                place += 1
        if self.profile is None:
            kinds = {"rows": ROWS} | ({} if self._watched.key is None else {"keys": KEYS})
            self.profile = LeakageProfile({k: RecordHashes(v) for k, v in kinds.items()}, sample=Sample(place))
        labels, names = self._labels(values[self._watched.label.name])
        where = {SPLIT: splits, "file": files, "offset": offsets}
        bits = labels.view(np.uint64)
        hashes = hash_rows(numbers, codes, rows)
        self.profile.hashes["rows"].add({HASH: hashes, "label": bits, **where})
        if (key := self._watched.key) is not None:
            found = codes_of(key, values[key.name], rows)
            there = np.flatnonzero(found != ABSENT)
            self.profile.hashes["keys"].add({HASH: found[there], **{name: some[there] for name, some in where.items()}})
        train = np.flatnonzero(splits == SPLITS.index("train"))
        sample = self.profile.sample
        if len(train) and sample is not None:
            drawn = Drawn(
                # Not of the file, whose key holds its path. The offset tells equal rows apart: one that is frequent is
                # drawn as often as its share.
                place_hash(hashes[train] + mix(bits[train]), offsets[train]),
                labels[train],
                _beside([some[train] for some in drawn_numbers], len(train), np.float32)[:, :DRAWN],
                _beside([code[train, None] for code in codes.values()], len(train), np.uint64),
            )
            sample.add(drawn, names)

    def _labels(self, values: pa.Array) -> tuple[np.ndarray, dict[int, bytes]]:
        """Float64 numbers, or hashes of classes and what these are called."""
        if self._watched.label.reads == "numbers":
            return np.asarray(values).astype(np.float64) + 0.0, {}
        encoded = values.dictionary_encode()
        hashes = value_hashes(encoded.dictionary)
        names = dict(zip(hashes.tolist(), encoded.dictionary.to_pylist(), strict=True))
        return hashes[encoded.indices.to_numpy(zero_copy_only=False)], names


def _beside(parts: Sequence[np.ndarray], rows: int, dtype: type) -> np.ndarray:
    """Matrices side by side, `[rows, 0]` if there is none."""
    return np.concatenate([np.empty((rows, 0), dtype), *parts], axis=1)


@dataclasses.dataclass(frozen=True)
class ImageFingerprint:
    """An image as it was ingested: its path, a digest of its file, the file's sides in pixels, and its look."""

    path: str
    digest: int
    height: int
    width: int
    look: DifferenceHash


class ImageCollector:
    """Collects what the accepted images of a bundle leave.

    Attributes:
      profile: None if there was no image.
    """

    def __init__(self) -> None:
        self.profile: LeakageProfile | None = None

    def add(self, images: Sequence[ImageFingerprint], splits: np.ndarray, labels: pa.Array) -> None:
        """Adds images, with the split (an index into SPLITS) and the label (binary) of each."""
        if self.profile is None:
            self.profile = LeakageProfile({"images": RecordHashes(IMAGES)}, extremes=Extremes())
        columns = {
            HASH: np.array([image.digest for image in images], np.uint64),
            SPLIT: splits.astype(np.int8),
            "across": np.array([image.look.across for image in images], np.uint64),
            "down": np.array([image.look.down for image in images], np.uint64),
            "clear": pa.array([image.look.clear for image in images], pa.bool_()),
            "label": labels,
            "path": pa.array([image.path.encode("utf-8", "surrogateescape") for image in images], pa.binary()),
        }
        self.profile.hashes["images"].add(columns)
        if self.profile.extremes is not None:
            sized = [Sized(each.height * each.width, each.path, each.height, each.width) for each in images]
            self.profile.extremes.add(sized)
