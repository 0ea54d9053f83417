"""Collects what rows leave behind: hashes of their features and keys, and a sample of the train split."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from beam_jobs.core.parity_sample import place_hash
from beam_jobs.leakage.row_hashes import ABSENT, codes_of, hash_rows, numbers_of
from beam_jobs.leakage.sample import Drawn, Sample
from beam_jobs.leakage.state import Known
from beam_jobs.leakage.traces import HASH, KEYS, ROWS, SPLIT, Traces
from beam_jobs.statistics.columns import Column, columns_of
from schemas.csv import strings
from schemas.csv.numbers import missing_tokens
from schemas.inference.hashing import mix, value_hashes
from schemas.spec.table import SPLITS, HashSplit, Schema

DRAWN = 16_384  # numbers of a row that a sample holds; those of a wider row are not judged


@dataclasses.dataclass(frozen=True)
class Watched:
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


def watched_rows(schema: Schema) -> Watched:
    """What is looked at of the rows of a schema."""
    columns = {column.name: column for column in columns_of(schema)}
    by_key = isinstance(schema.split, HashSplit) and schema.key is not None and schema.split.by == (schema.key.name,)
    return Watched(
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
    """Collects what the accepted rows of a bundle leave."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._known: Known | None = None

    @property
    def known(self) -> Known | None:
        """None if there was no row."""
        return self._known

    def add(self, batch: pa.RecordBatch, splits: np.ndarray, files: np.ndarray, offsets: np.ndarray) -> None:
        """Adds rows: their raw columns, and of each its split (int8), its input's key and its offset (int64)."""
        rows = batch.num_rows
        values = {name: column.flatten() for name, column in zip(batch.schema.names, batch.columns, strict=True)}
        numbers, codes, drawn_numbers, place = {}, {}, [], 0
        for column in self._watched.features:
            if column.reads == "numbers":
                numbers[place] = matrix = numbers_of(values[column.name], rows)
                drawn_numbers.append(matrix)
                place += matrix.shape[1]
            else:
                codes[place] = codes_of(column, values[column.name], rows)
                place += 1
        if self._known is None:
            traces = {"rows": Traces(ROWS)} | ({} if self._watched.key is None else {"keys": Traces(KEYS)})
            self._known = Known(traces, sample=Sample(place))
        labels, names = self._labels(values[self._watched.label.name])
        where = {SPLIT: splits, "file": files, "offset": offsets}
        bits = labels.view(np.uint64)
        hashes = hash_rows(numbers, codes, rows)
        self._known.traces["rows"].add({HASH: hashes, "label": bits, **where})
        if self._watched.key is not None:
            self._add_keys(values[self._watched.key.name], where)
        train = np.flatnonzero(splits == SPLITS.index("train"))
        sample = self._known.sample
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

    def _add_keys(self, values: pa.Array, where: dict[str, np.ndarray]) -> None:
        key = self._watched.key
        assert key is not None and self._known is not None  # noqa: S101, PT018 - the caller saw to it
        found = strings.distinct(values, missing_tokens(key.missing).tokens)
        hashes = np.where(found.absent, np.uint64(ABSENT), value_hashes(found.trimmed))[found.codes]
        there = np.flatnonzero(~found.absent[found.codes])
        self._known.traces["keys"].add({HASH: hashes[there], **{name: some[there] for name, some in where.items()}})


def _beside(parts: Sequence[np.ndarray], rows: int, dtype: type) -> np.ndarray:
    """Matrices side by side, `[rows, 0]` if there is none."""
    return np.concatenate([np.empty((rows, 0), dtype), *parts], axis=1)
