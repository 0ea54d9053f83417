"""Finds the file and the offset from which each record of a dataset of rows was made, and reads these rows again.

Beside each shard there is an Arrow file with the places of its records, in the same order. A place has two numbers: the
key of the input file (`schemas.storage.file_key`), and the offset of the row's first byte in that file. Datasets of
images have no such files, because a record of an image holds the image's name.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from schemas import storage
from schemas.csv.stream import MAX_INPUT_RATIO
from schemas.dataset import layout
from schemas.dataset.manifest import Input, read_inputs
from schemas.dataset.opening import OpenDataset
from schemas.display import readable
from schemas.errors import MillraceError
from schemas.formats import row_format
from schemas.rows import RowFile
from schemas.spec.table import OFFSET, Schema, raw_columns

_COLUMNS = pa.schema({"file": pa.int64(), "offset": pa.int64()})
_CODEC = pa.Codec("zstd", compression_level=1)  # level 2 takes three times as long, for files of the same size
MOST_GZIP_BYTES = 256 << 20  # a larger gzip file is not decompressed only to read a few rows


class PlacesFile:
    """Writes the places of a shard's records. Keeps them compressed in memory, in some four bytes a record."""

    def __init__(self) -> None:
        self._data = pa.BufferOutputStream()
        self._writer = pa.ipc.new_file(self._data, _COLUMNS, options=pa.ipc.IpcWriteOptions(compression=_CODEC))
        self.rows = 0

    def add(self, places: np.ndarray) -> None:
        """Adds the places of the next records: int64 `[rows, 2]`, the key of the file and the offset."""
        files, offsets = np.ascontiguousarray(places.T)
        self._writer.write_batch(pa.record_batch([files, offsets], schema=_COLUMNS))
        self.rows += len(places)

    def write(self, path: str) -> tuple[int, str]:
        """Writes the file. Returns its size in bytes, and its SHA-256 in hex."""
        self._writer.close()
        data = self._data.getvalue().to_pybytes()
        storage.write_bytes(path, data)
        return len(data), hashlib.sha256(data).hexdigest()


def read_places(dataset: OpenDataset, split: str) -> np.ndarray:
    """Returns the places of a split's records, in the order of its shards.

    Returns:
      int64 `[rows, 2]`: the key of the input file, and the offset of the row's first byte in it.

    Raises:
      MillraceError: a file of places cannot be read, or was changed after it was written.
    """
    parts = [np.empty((0, 2), np.int64)]
    for shard in dataset.manifest.splits[split].shards:
        if shard.places is None:
            raise MillraceError(f"{layout.join(dataset.path, shard.path)}: its manifest names no file of places")
        path = layout.join(dataset.path, shard.places.path)
        data = storage.read_bytes(path)
        if hashlib.sha256(data).hexdigest() != shard.places.sha256:
            raise MillraceError(
                f"{path}: was changed after it was written: {layout.MANIFEST} names another checksum. Restore it, or "
                "write the dataset again."
            )
        table = pa.ipc.open_file(data).read_all()
        parts.append(np.stack([table["file"].to_numpy(), table["offset"].to_numpy()], axis=1))
    return np.concatenate(parts)


@dataclasses.dataclass(frozen=True)
class RawRow:
    """The row of an input file from which a record was made.

    Attributes:
      source: the path of the input file, as the job was given it; '' if the manifest names no such file.
      offset: the offset of the row's first byte in the file. For a gzip file it counts decompressed bytes, and for a
        UTF-16 file the bytes of the text as UTF-8.
      values: the values as text, by feature; empty if the row cannot be read any more.
    """

    source: str
    offset: int
    values: Mapping[str, str]


def sources_of(dataset: OpenDataset, places: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Returns the input files and offsets of some records.

    Args:
      dataset: the dataset.
      places: the places of the records, int64 `[rows, 2]` (see `read_places`).

    Returns:
      The path of the input file of each record ('' if the manifest names no such file), and the offsets, int64
      `[rows]`.
    """
    files = _files(dataset, places)
    # Look each distinct file up once; `which` says which of them each record comes from.
    keys, which = np.unique(places[:, 0], return_inverse=True)
    paths = [files[key].path if key in files else "" for key in keys.tolist()]
    return [paths[i] for i in which.tolist()], places[:, 1]


def read_rows(dataset: OpenDataset, places: np.ndarray) -> tuple[list[RawRow], list[str]]:
    """Reads the rows again from which some records were made.

    Args:
      dataset: the dataset.
      places: the places of the records, int64 `[rows, 2]` (see `read_places`).

    Returns:
      The rows, and notes about rows that could not be read or may have changed.
    """
    files = _files(dataset, places)
    sources, offsets = sources_of(dataset, places)
    keys = places[:, 0].tolist()
    values: dict[tuple[int, int], Mapping[str, str]] = {}
    notes = []
    for key in sorted(set(keys)):
        own_offsets = [offset for own, offset in zip(keys, offsets.tolist(), strict=True) if own == key]
        try:
            own_values, note = _read(files.get(key), own_offsets, dataset)
            notes += [note] if note else []
            values |= {(key, offset): row for offset, row in own_values.items()}
        except MillraceError as error:
            notes.append(f"{error}. Rows of this file are named without their values.")
    rows = [RawRow(s, o, values.get((k, o), {})) for s, o, k in zip(sources, offsets.tolist(), keys, strict=True)]
    if dataset.manifest.replayed and not all(row.values for row in rows):
        notes.append("A record that a replay corrected stands in its file as it was rejected.")
    return rows, notes


def _files(dataset: OpenDataset, places: np.ndarray) -> dict[int, Input]:
    """Returns the inputs from which some records were made, by their keys."""
    keys = set(places[:, 0].tolist())
    inputs = (file for part in read_inputs(dataset.path, dataset.manifest) for file in part.inputs)
    by_key = ((storage.file_key(file.path), file) for file in inputs)
    return {key: file for key, file in by_key if key in keys}


def _read(file: Input | None, offsets: Sequence[int], dataset: OpenDataset) -> tuple[dict[int, Mapping[str, str]], str]:
    """Reads rows of one input file.

    Args:
      file: the input; None if the manifest does not name it.
      offsets: the offsets of the rows.
      dataset: the dataset.

    Returns:
      The values of the rows, by offset; and a note if the file may have changed since the job, otherwise ''.
    """
    if file is None:
        raise MillraceError(f"{dataset.path}: some records come from a file that its manifest does not name")
    path = located(file, dataset)
    if path is None:
        raise MillraceError(f"{file.path}: is gone, or has another size than when the job read it")
    schema, form = dataset.schema, row_format(dataset.schema)
    opened = open_rows(schema, path)
    if opened.gzip and opened.size > MOST_GZIP_BYTES:
        size = f"{MOST_GZIP_BYTES >> 20} MB"
        raise MillraceError(f"{path}: is gzip'd and larger than {size}, so it was not read for the sake of single rows")
    raws = form.read_records(opened, schema, offsets)
    batch = form.decode_records(opened, schema, [*raws.values()], [*raws]).batch
    columns = {column.name: batch.column(column.name).to_pylist() for column in raw_columns(schema)}
    # Rows that are rejected now are not in the batch, so the offset identifies each row.
    rows: dict[int, Mapping[str, str]] = {
        offset: {name: ", ".join(map(_text, cells[place] or ())) for name, cells in columns.items()}
        for place, offset in enumerate(batch.column(OFFSET).to_pylist())
    }
    changed = opened.version != file.version
    return rows, f"{path}: changed since the job read it, or copied." if changed else ""


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return "(missing)" if math.isnan(value) else readable(value, 5)


def open_rows(schema: Schema, path: str) -> RowFile:
    """Opens a file of rows that has a label.

    Raises:
      MillraceError: the file cannot be read, or does not fit the schema.
    """
    return row_format(schema).open_file(path, schema, label="required", max_input_ratio=MAX_INPUT_RATIO)


def possible_paths(path: str, dataset: OpenDataset) -> Iterator[str]:
    """Yields the paths where an input file may be now.

    The manifest has the path as the job was given it. A relative path is relative to a folder that nobody knows any
    more. So first the current folder is tried, and then each folder above the dataset.

    Args:
      path: the path of an input as the job was given it, or a pattern.
      dataset: the dataset that was made from it.
    """
    yield path
    if storage.is_local(path) and storage.is_local(dataset.path) and not os.path.isabs(path):
        for folder in Path(dataset.path).resolve().parents:
            yield str(folder / path)


def located(file: Input, dataset: OpenDataset) -> str | None:
    """Returns where an input of a dataset is now; None if there is no file of the same size."""
    for path in possible_paths(file.path, dataset):
        if storage.exists(path) and storage.stat(path).size == file.bytes:
            return path
    return None
