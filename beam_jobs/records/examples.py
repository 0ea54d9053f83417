"""tf.Examples and the frames of TFRecord files, made of Arrow and NumPy arrays: nothing is done record by record."""

from __future__ import annotations

import dataclasses
import itertools
import struct
from collections.abc import Mapping, Sequence

import google_crc32c
import numpy as np
import pyarrow as pa

from schemas.storage.tfrecord import FOOTER, HEADER, masked

_AT_ONCE = 256  # records copied at once to compute checksums; few enough for the CPU cache


def example(features: Mapping[str, bytes | int]) -> bytes:
    """A serialized tf.Example of one value each."""
    import tensorflow as tf

    found = {
        name: tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
        if isinstance(value, int)
        else tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
        for name, value in features.items()
    }
    return tf.train.Example(features=tf.train.Features(feature=found)).SerializeToString(deterministic=True)


def framed(records: Sequence[bytes]) -> pa.LargeBinaryArray:
    """Frames records of different lengths: large_binary `[n]`."""
    count = len(records)
    lengths = np.fromiter(map(len, records), np.int64, count)
    headers = {length: _header(length) for length in np.unique(lengths).tolist()}
    sums = np.fromiter(map(google_crc32c.value, records), np.uint32, count)
    footers = masked(sums).astype("<u4").tobytes()
    pieces: list[bytes] = [b""] * (3 * count)
    pieces[0::3] = [headers[length] for length in lengths.tolist()]
    pieces[1::3] = records
    pieces[2::3] = [footers[at : at + FOOTER] for at in range(0, len(footers), FOOTER)]
    return _array(np.cumsum(lengths + (HEADER + FOOTER)), b"".join(pieces))


def sealed(frames: np.ndarray) -> pa.LargeBinaryArray:
    """Frames records of one length: large_binary `[n]`.

    Args:
        frames: uint8 `[n, HEADER + length + FOOTER]` with the records in place; headers and footers are written here.
    """
    count, size = frames.shape
    frames[:, :HEADER] = np.frombuffer(_header(size - HEADER - FOOTER), np.uint8)
    parts = np.dtype([("header", f"V{HEADER}"), ("record", f"V{size - HEADER - FOOTER}"), ("footer", f"V{FOOTER}")])
    records = frames.view(parts)["record"].reshape(-1)
    few = (records[at : at + _AT_ONCE].tolist() for at in range(0, count, _AT_ONCE))
    sums = np.fromiter(map(google_crc32c.value, itertools.chain.from_iterable(few)), np.uint32, count)
    frames[:, size - FOOTER :] = masked(sums).astype("<u4").view(np.uint8).reshape(count, FOOTER)
    return _array(np.arange(1, count + 1) * size, frames)


def record(frames: pa.LargeBinaryArray, index: int) -> bytes:
    """The record in a frame."""
    return bytes(frames[index].as_py()[HEADER:-FOOTER])


def joined(frames: pa.LargeBinaryArray) -> pa.Buffer | bytes:
    """The bytes of all frames, concatenated."""
    offsets = np.frombuffer(frames.buffers()[1], np.int64, len(frames) + 1, 8 * frames.offset)
    first, last = int(offsets[0]), int(offsets[-1])
    return frames.buffers()[2].slice(first, last - first) if last > first else b""


def lengths(frames: pa.LargeBinaryArray) -> np.ndarray:
    """The frames' lengths in bytes, int64 `[n]`."""
    offsets = np.frombuffer(frames.buffers()[1], np.int64, len(frames) + 1, 8 * frames.offset)
    return np.diff(offsets)


def _header(length: int) -> bytes:
    size = struct.pack("<Q", length)
    return size + struct.pack("<I", int(masked(np.array([google_crc32c.value(size)]))[0]))


def _array(ends: np.ndarray, data: bytes | np.ndarray) -> pa.LargeBinaryArray:
    offsets = np.concatenate([[0], ends]).astype(np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(ends), buffers)


LAYOUTS = 16  # with more, each would have too few rows to be worth it
_VARINT = np.array([1 << (7 * i) for i in range(1, 10)], np.uint64)  # the smallest number that needs one more byte
_FEATURES, _ENTRY, _KEY, _VALUE, _LIST = 0x0A, 0x0A, 0x0A, 0x12, 0x0A  # tags, all length-delimited
_KIND = {"f": 0x12, "i": 0x1A}  # tags of Feature.float_list and Feature.int64_list


@dataclasses.dataclass(frozen=True)
class Column:
    """A feature's values, float32 or int64 `[rows, k]`, and the encoded size of each in bytes, uint8 `[rows, k]`."""

    name: bytes
    values: np.ndarray
    sizes: np.ndarray


def fixed_examples(batch: pa.RecordBatch) -> pa.LargeBinaryArray | None:
    """Encodes the rows as framed tf.Examples, large_binary `[rows]`.

    Returns None if the rows are too different for this: there is a string feature, a feature whose number of values
    varies or is missing in some rows, or integers with too many combinations of byte lengths.
    """
    found = [_column(name, array) for name, array in zip(batch.schema.names, batch.columns, strict=True)]
    columns = [column for column in found if column is not None]
    if len(columns) < len(found) or not batch.num_rows:
        return None
    columns.sort(key=lambda column: column.name)
    groups = _alike(np.concatenate([c.sizes for c in columns if c.values.dtype.kind == "i"] or [_none(batch)], axis=1))
    if groups is None:
        return None
    parts = [sealed(_frames(columns, rows)) for rows in groups]
    if len(parts) == 1:
        return parts[0]
    places = np.empty(batch.num_rows, np.int64)
    places[np.concatenate(groups)] = np.arange(batch.num_rows)
    return pa.concat_arrays(parts).take(pa.array(places))


def _none(batch: pa.RecordBatch) -> np.ndarray:
    return np.empty((batch.num_rows, 0), np.uint8)


def _column(name: str, array: pa.Array) -> Column | None:
    """The feature; None if it is not a list of numbers, or its number of values varies."""
    if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)) or array.null_count:
        return None
    flat = array.flatten()
    if not (pa.types.is_float32(flat.type) or pa.types.is_int64(flat.type)) or flat.null_count:
        return None
    rows = len(array)
    width = len(flat) // max(rows, 1)
    if not (np.diff(np.asarray(array.offsets)) == width).all():
        return None
    values = np.asarray(flat).reshape(rows, width)
    return Column(name.encode(), values, _sizes(values))


def _sizes(values: np.ndarray) -> np.ndarray:
    """The encoded size of each value in bytes."""
    if values.dtype.kind == "f":
        return np.broadcast_to(np.uint8(4), values.shape)
    unsigned = values.view(np.uint64)  # a negative number takes ten bytes
    if not values.size or unsigned.max() < _VARINT[0]:
        return np.broadcast_to(np.uint8(1), values.shape)
    return (1 + np.searchsorted(_VARINT, unsigned, side="right")).astype(np.uint8)


def _alike(sizes: np.ndarray) -> list[np.ndarray] | None:
    """Groups the rows by their sizes: int64 `[rows of the group]` each; None if there are too many groups."""
    if (sizes == sizes[:1]).all():
        return [np.arange(len(sizes))]
    weights = np.random.default_rng(0).integers(0, 2**63, sizes.shape[1], np.uint64)
    found, group = np.unique(sizes.astype(np.uint64) @ weights, return_inverse=True)
    if len(found) > LAYOUTS:
        return None
    groups = [np.flatnonzero(group == i) for i in range(len(found))]
    # Rows with different sizes but equal hashes are practically impossible, but would corrupt records silently.
    return groups if all((sizes[rows] == sizes[rows[:1]]).all() for rows in groups) else None


def _frames(columns: list[Column], rows: np.ndarray) -> np.ndarray:
    """uint8 `[rows, HEADER + length + FOOTER]`: the rows' tf.Examples, with space for the frame's header and footer."""
    pattern = bytearray()
    places = []  # offset of each column's first value, without the Example's own tag and length, which come before it
    for column in columns:
        size = int(column.sizes[rows[0]].sum())
        values = bytes([_LIST]) + _varint(size) if size else b""
        value = bytes([_KIND[column.values.dtype.kind]]) + _varint(len(values) + size) + values
        entry = bytes([_KEY]) + _varint(len(column.name)) + column.name + bytes([_VALUE]) + _varint(len(value) + size)
        pattern += bytes([_ENTRY]) + _varint(len(entry) + len(value) + size) + entry + value
        places.append(len(pattern))
        pattern += bytes(size)
    before = bytes([_FEATURES]) + _varint(len(pattern))
    example = np.frombuffer(before + bytes(pattern), np.uint8)
    frames = np.empty((len(rows), HEADER + len(example) + FOOTER), np.uint8)
    frames[:, HEADER : HEADER + len(example)] = example
    everything = len(rows) == len(columns[0].values)
    for column, place in zip(columns, places, strict=True):
        chosen = column.values if everything else column.values[rows]
        _write(frames, HEADER + len(before) + place, chosen, column.sizes[rows[0]])
    return frames


def _write(frames: np.ndarray, at: int, values: np.ndarray, sizes: np.ndarray) -> None:
    """Writes values `[rows, k]` with encoded sizes `[k]` into the frames, starting at byte `at`."""
    if values.dtype.kind == "f":
        floats = np.ascontiguousarray(values, "<f4")
        frames[:, at : at + 4 * floats.shape[1]] = floats.view(np.uint8)
        return
    for value, size in zip(values.view(np.uint64).T, sizes.tolist(), strict=True):
        for byte in range(size):
            more = 0x80 if byte < size - 1 else 0
            frames[:, at] = (value >> np.uint64(7 * byte)) & np.uint64(0x7F) | np.uint64(more)
            at += 1


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])
