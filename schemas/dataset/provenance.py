"""Tells from which file and offset each record of rows was made, and reads that row again.

An Arrow file beside each shard holds these places in the order of the shard's records: the key of a record's file
(`schemas.storage.file_key`) and the offset of its first byte. A record of images holds the names of its files instead.
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
_CODEC = pa.Codec("zstd", compression_level=1)  # the next level takes three times as long, and makes no smaller files
MOST_GZIP_BYTES = 256 << 20  # a larger gzip'd file is not decompressed for the sake of a few rows


class PlacesFile:
    """The file of the places of a shard's records: compressed in memory, where a record takes some four bytes."""

    def __init__(self) -> None:
        self._data = pa.BufferOutputStream()
        self._writer = pa.ipc.new_file(self._data, _COLUMNS, options=pa.ipc.IpcWriteOptions(compression=_CODEC))
        self.rows = 0

    def add(self, places: np.ndarray) -> None:
        """Adds the places of the next records, int64 `[rows, 2]`."""
        files, offsets = np.ascontiguousarray(places.T)
        self._writer.write_batch(pa.record_batch([files, offsets], schema=_COLUMNS))
        self.rows += len(places)

    def write(self, path: str) -> tuple[int, str]:
        """Writes the file. Returns its size in bytes, and its SHA-256."""
        self._writer.close()
        data = self._data.getvalue().to_pybytes()
        storage.write_bytes(path, data)
        return len(data), hashlib.sha256(data).hexdigest()


def read_places(dataset: OpenDataset, split: str) -> np.ndarray:
    """Returns the places of a split's records, in the order of its shards: int64 `[rows, 2]`, the key of the file, the
    offset.

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
    """The row that a record was made of.

    Attributes:
      source: its file, as the job was given it; empty if the dataset names no such file.
      offset: its first byte in the file; of gzip in the decompressed one, of UTF-16 in the text as UTF-8.
      values: the text of its values, by feature; none where it cannot be read there.
    """

    source: str
    offset: int
    values: Mapping[str, str]


def sources_of(dataset: OpenDataset, places: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Returns the files that rows come from, empty where the dataset names none, and the offsets, int64 `[rows]`.

    Args:
      dataset: the dataset.
      places: those of their records, int64 `[rows, 2]`, see `read_places`.
    """
    files = _files(dataset, places)
    keys, which = np.unique(places[:, 0], return_inverse=True)
    paths = [files[key].path if key in files else "" for key in keys.tolist()]
    return [paths[i] for i in which.tolist()], places[:, 1]


def read_rows(dataset: OpenDataset, places: np.ndarray) -> tuple[list[RawRow], list[str]]:
    """Reads single rows again.

    Args:
      dataset: the dataset.
      places: those of their records, int64 `[rows, 2]`, see `read_places`.

    Returns:
      The rows, and notes on what could not be read, or has changed.
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
    """The inputs that rows come from, by their keys."""
    keys = set(places[:, 0].tolist())
    inputs = (file for part in read_inputs(dataset.path, dataset.manifest) for file in part.inputs)
    by_key = ((storage.file_key(file.path), file) for file in inputs)
    return {key: file for key, file in by_key if key in keys}


def _read(file: Input | None, offsets: Sequence[int], dataset: OpenDataset) -> tuple[dict[int, Mapping[str, str]], str]:
    """The values of rows of a file by offset, and a note if the file may be another one."""
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
    """Opens a file of rows with labels.

    Raises:
      MillraceError: it cannot be read, or does not fit the schema.
    """
    return row_format(schema).open_file(path, schema, label="required", max_input_ratio=MAX_INPUT_RATIO)


def possible_paths(path: str, dataset: OpenDataset) -> Iterator[str]:
    """Yields where an input may be: a relative path is that of a file below this folder, or below one that the dataset
    is in.

    Args:
      path: as the job was given it, or a pattern.
      dataset: that was read from it.
    """
    yield path
    if storage.is_local(path) and storage.is_local(dataset.path) and not os.path.isabs(path):
        for folder in Path(dataset.path).resolve().parents:
            yield str(folder / path)


def located(file: Input, dataset: OpenDataset) -> str | None:
    """Returns where an input of a dataset is now; None if no file of its size is there."""
    for path in possible_paths(file.path, dataset):
        if storage.exists(path) and storage.stat(path).size == file.bytes:
            return path
    return None
