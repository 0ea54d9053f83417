"""Makes tf.Examples and the frames of TFRecord files from Arrow and NumPy arrays, many records at a time.

A frame is what a TFRecord file holds for one record: a header (the record's length and the length's checksum), the
record, and a footer (the record's checksum).

Until a record is written to its shard, 16 bytes with its place may follow its frame: the key of its input file and its
offset in that file, two int64. The shard then gets the frames, and a second file next to the shard gets the places.
"""

from __future__ import annotations

import dataclasses
import itertools
import struct
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.spec.table import PLACE
from schemas.storage.tfrecord import FOOTER, HEADER, masked

PLACE_BYTES = 16

_AT_ONCE = 256  # the number of records that are copied at once to compute checksums; so few fit in the CPU cache


def example(features: Mapping[str, bytes | int]) -> bytes:
    """Serializes a tf.Example with one value for each feature."""
    import tensorflow as tf

    protos = {
        name: tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
        if isinstance(value, int)
        else tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
        for name, value in features.items()
    }
    return tf.train.Example(features=tf.train.Features(feature=protos)).SerializeToString(deterministic=True)


def framed(records: Sequence[bytes]) -> pa.LargeBinaryArray:
    """Adds header and footer to records of any lengths. Returns the frames, large_binary `[n]`."""
    count = len(records)
    lengths = np.fromiter(map(len, records), np.int64, count)
    headers = {length: _header(length) for length in np.unique(lengths).tolist()}
    sums = np.fromiter(map(google_crc32c.value, records), np.uint32, count)
    footers = masked(sums).astype("<u4").tobytes()
    # The pieces are header, record, footer, header, record, footer, ...; one join then copies each record only once.
    pieces: list[bytes] = [b""] * (3 * count)
    pieces[0::3] = [headers[length] for length in lengths.tolist()]
    pieces[1::3] = records
    pieces[2::3] = [footers[at : at + FOOTER] for at in range(0, len(footers), FOOTER)]
    return _array(np.cumsum(lengths + (HEADER + FOOTER)), b"".join(pieces))


def sealed(frames: np.ndarray) -> pa.LargeBinaryArray:
    """Writes the headers and footers around records that all have the same length.

    Args:
        frames: uint8 `[n, HEADER + length + FOOTER]`. The records are in place already; this function fills the bytes
          of the headers and footers.

    Returns:
        The frames, large_binary `[n]`, which share the memory of the argument.
    """
    count, size = frames.shape
    frames[:, :HEADER] = np.frombuffer(_header(size - HEADER - FOOTER), np.uint8)
    # Views each row as a struct of three byte strings, so that `tolist` makes the `bytes` of many records at once.
    parts = np.dtype([("header", f"V{HEADER}"), ("record", f"V{size - HEADER - FOOTER}"), ("footer", f"V{FOOTER}")])
    records = frames.view(parts)["record"].reshape(-1)
    few = (records[at : at + _AT_ONCE].tolist() for at in range(0, count, _AT_ONCE))
    sums = np.fromiter(map(google_crc32c.value, itertools.chain.from_iterable(few)), np.uint32, count)
    frames[:, size - FOOTER :] = masked(sums).astype("<u4").view(np.uint8).reshape(count, FOOTER)
    return _array(np.arange(1, count + 1) * size, frames)


def record(frames: pa.LargeBinaryArray, index: int) -> bytes:
    """Returns the record in frame number `index`, without header and footer, and without a place."""
    data = frames[index].as_py()
    return bytes(data[HEADER : HEADER + int.from_bytes(data[:8], "little")])


def with_places(frames: pa.LargeBinaryArray, places: np.ndarray) -> pa.LargeBinaryArray:
    """Appends to each frame the place of its record.

    Args:
        frames: large_binary `[n]`.
        places: the key of each record's input file, and the record's offset in that file, int64 `[n, 2]`.
    """
    data = pa.py_buffer(np.ascontiguousarray(places, "<i8"))
    trailers = pa.Array.from_buffers(pa.binary(PLACE_BYTES), len(places), [None, data]).cast(pa.large_binary())
    return pc.binary_join_element_wise(frames, trailers, pa.scalar(b"", pa.large_binary()))


def apart(records: RecordBlock) -> tuple[pa.LargeBinaryArray, np.ndarray | None]:
    """Separates frames from the places that may follow them.

    Returns:
        The frames, large_binary `[n]`, and the places of the records, int64 `[n, 2]`; None in place of the places if
        the records carry no places.
    """
    if isinstance(records, UnencodedRows):
        return records.encoded(), records.places
    if not len(records) or len(records[0].as_py()) == HEADER + len(record(records, 0)) + FOOTER:
        return records, None
    # Cuts the joined bytes at the end of each frame and at the end of each place. Elements 0, 2, 4, ... of `parts` are
    # the frames, and elements 1, 3, 5, ... are the places.
    ends = np.cumsum(lengths(records))
    bounds = np.stack([ends - PLACE_BYTES, ends], axis=1).ravel()
    parts = _array(bounds, joined(records))
    frames, places = (parts.take(pa.array(np.arange(first, len(parts), 2))) for first in (0, 1))
    return frames, np.frombuffer(places.buffers()[2], "<i8").reshape(-1, 2)


def joined(frames: pa.LargeBinaryArray) -> pa.Buffer | bytes:
    """Returns the concatenated bytes of all frames, without copying them."""
    # A slice of an Arrow array shares its parent's buffers, so its offsets begin at element `frames.offset`.
    offsets = np.frombuffer(frames.buffers()[1], np.int64, len(frames) + 1, 8 * frames.offset)
    first, last = int(offsets[0]), int(offsets[-1])
    return frames.buffers()[2].slice(first, last - first) if last > first else b""


def lengths(records: RecordBlock) -> np.ndarray:
    """Returns the length in bytes of each record's frame, with the place if there is one, int64 `[n]`.

    For rows that are not encoded yet, the lengths are computed without encoding the rows.
    """
    if isinstance(records, UnencodedRows):
        return records.lengths()
    offsets = np.frombuffer(records.buffers()[1], np.int64, len(records) + 1, 8 * records.offset)
    return np.diff(offsets)


def of_lengths(lengths: np.ndarray, data: bytes | np.ndarray) -> pa.LargeBinaryArray:
    """Makes an Arrow array of concatenated frames. The array shares the memory of `data`.

    Args:
        lengths: the length of each frame in bytes, `[n]`.
        data: the concatenated frames.
    """
    return _array(np.cumsum(lengths, dtype=np.int64), data)


def _header(length: int) -> bytes:
    """The header of a frame: the length of the record (uint64), and the masked checksum of these eight bytes."""
    size = struct.pack("<Q", length)
    return size + struct.pack("<I", int(masked(np.array([google_crc32c.value(size)]))[0]))


def _array(ends: np.ndarray, data: bytes | np.ndarray | pa.Buffer) -> pa.LargeBinaryArray:
    """An Arrow array over `data`, without a copy. `ends`: the byte in `data` where each element ends, `[n]`."""
    offsets = np.concatenate([[0], ends]).astype(np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(ends), buffers)


LAYOUTS = 16  # the most groups of rows that are encoded group by group; more groups would have too few rows each
_VARINT = np.array([1 << (7 * i) for i in range(1, 10)], np.uint64)  # the smallest number that needs one more byte
# The tags of protobuf fields in a tf.Example. All these fields are length-delimited: tag, length, content.
_FEATURES, _ENTRY, _KEY, _VALUE, _LIST = 0x0A, 0x0A, 0x0A, 0x12, 0x0A
_KIND = {"f": 0x12, "i": 0x1A}  # tags of Feature.float_list and Feature.int64_list
_DTYPE, _ARROW = {"f": "<f4", "i": "<i8"}, {"f": pa.float32(), "i": pa.int64()}

# An int64 takes 1 to 10 bytes in protobuf, so a size is a digit below _SIZES. The sizes of up to _EXACT integers are
# combined to one number with these digits: there are at most 11 ** 4 such numbers.
_SIZES, _EXACT = 11, 4

Field = tuple[str, str, int]  # a feature's name, "f" for float32 or "i" for int64, and its number of values


@dataclasses.dataclass(frozen=True)
class UnencodedRows:
    """Records of numbers before they are encoded. They take a fraction of the bytes of the same records as tf.Examples.

    Attributes:
      fields: the features, sorted by name. If the rows carry their places, the last field is PLACE.
      data: a structured array `[rows]`, with the type `row_type(fields)`.
    """

    fields: tuple[Field, ...]
    data: np.ndarray

    @staticmethod
    def of(batch: pa.RecordBatch, places: np.ndarray | None = None) -> UnencodedRows | None:
        """Packs a batch as rows; returns None if a feature is not numeric, or has no fixed number of values.

        Args:
          batch: list columns, one for each feature.
          places: the key of each row's input file, and the row's offset in that file, int64 `[rows, 2]`; None: the
            rows carry no places.
        """
        values_by_name = {name: _values(array) for name, array in zip(batch.schema.names, batch.columns, strict=True)}
        fields, columns = [], []
        for name, values in sorted(values_by_name.items(), key=lambda item: item[0].encode()):
            if values is None:
                return None
            fields.append((name, values.dtype.kind, values.shape[1]))
            columns.append(values)
        if places is not None:
            fields.append((PLACE, "i", 2))
            columns.append(places)
        data = np.empty(batch.num_rows, row_type(tuple(fields)))
        if not data.itemsize or len(values_by_name) < batch.num_columns:
            return None
        for i, values in enumerate(columns):
            data[str(i)] = values
        return UnencodedRows(tuple(fields), data)

    def __len__(self) -> int:
        return len(self.data)

    @property
    def nbytes(self) -> int:
        return int(self.data.nbytes)

    @property
    def columns(self) -> list[NumberColumn]:
        """The values of each feature, without the places."""
        values = [(name.encode(), self.data[str(i)]) for i, (name, _, _) in enumerate(self._features)]
        return [NumberColumn(name, v, _sizes(v)) for name, v in values]

    @property
    def places(self) -> np.ndarray | None:
        """The places of the rows, int64 `[rows, 2]`; None if the rows carry no places."""
        return self.data[str(len(self.fields) - 1)] if self.fields[-1][0] == PLACE else None

    @property
    def _features(self) -> tuple[Field, ...]:
        """The fields without PLACE."""
        return self.fields[:-1] if self.fields[-1][0] == PLACE else self.fields

    def take(self, rows: np.ndarray) -> UnencodedRows:
        """Selects rows by their numbers."""
        # As void elements, NumPy copies each row in one piece. A structured array would be copied field by field.
        whole = self.data.view(np.dtype((np.void, self.data.itemsize)))
        return UnencodedRows(self.fields, whole[rows].view(self.data.dtype))

    def lengths(self) -> np.ndarray:
        """Computes the length in bytes of each row's frame, int64 `[rows]`, without encoding the rows.

        A frame's length is the sum of the encoded values, of the tags and lengths around them, and of header, footer
        and place. The length of a protobuf length field depends on the number of bytes that follow it, so that
        number is summed feature by feature.
        """
        pattern = np.zeros(len(self), np.int64)
        for column in self.columns:
            # A stride of 0 means that the sizes were broadcast from one row: the first row then stands for all rows.
            sizes = column.sizes[:1] if column.sizes.strides[0] == 0 else column.sizes
            sums = sizes[:, 0] if sizes.shape[1] == 1 else sizes.sum(1, dtype=np.int64)
            last = int(sums.max(initial=0))
            first = int(sums.min(initial=last))
            # `wrapped[i]` is the length of the feature with values of `first + i` bytes. The sums lie close together,
            # so this short table replaces a computation for each row.
            wrapped = [size + len(_wrapper(column, size)) for size in range(first, last + 1)]
            pattern += wrapped[0] if first == last else np.array(wrapped)[sums - first]
        longest = pattern.max(initial=0)
        # The number of bytes of the Example's own length field. If the shortest and the longest row need the same
        # number of bytes, one number serves all rows.
        starts = 1 + np.searchsorted(_VARINT, [pattern.min(initial=longest), longest], side="right")
        varint = starts[0] if starts[0] == starts[1] else 1 + np.searchsorted(_VARINT, pattern, side="right")
        return HEADER + 1 + varint + pattern + FOOTER + (0 if self.places is None else PLACE_BYTES)

    def frames(self) -> pa.LargeBinaryArray:
        """Encodes the rows as framed tf.Examples, large_binary `[rows]`. The row's place follows each frame, if any."""
        return self.encoded() if self.places is None else with_places(self.encoded(), self.places)

    def encoded(self) -> pa.LargeBinaryArray:
        """Encodes the rows as framed tf.Examples, large_binary `[rows]`, without their places.

        The tf.Examples of two rows have the same layout if each value takes the same number of bytes in both rows. Rows
        of one layout are encoded together with NumPy. A float32 always takes 4 bytes, so only integers make several
        layouts. If there are more than LAYOUTS layouts, tfx_bsl encodes the rows one by one.
        """
        columns = self.columns
        integers = [column.sizes for column in columns if column.values.dtype.kind == "i"]
        groups = _alike(np.concatenate([*integers, np.empty((len(self), 0), np.uint8)], axis=1))
        if groups is None:
            return framed(self._serialized())
        if len(groups) == 1:
            return sealed(_frames(columns))
        parts = []
        for rows in groups:
            group_data = self.take(rows).data
            alike = [NumberColumn(c.name, group_data[str(i)], c.sizes[rows[:1]]) for i, c in enumerate(columns)]
            parts.append(sealed(_frames(alike)))
        # The groups were encoded one after the other. `places[row]` is where a row is in `parts`, so that `take`
        # restores the order of the rows.
        places = np.empty(len(self), np.int64)
        places[np.concatenate(groups)] = np.arange(len(self))
        return pa.concat_arrays(parts).take(pa.array(places))

    def _serialized(self) -> list[bytes]:
        """The rows as tf.Examples without frames, encoded by tfx_bsl."""
        from tfx_bsl.coders.example_coder import RecordBatchToExamples

        lists = [
            pa.FixedSizeListArray.from_arrays(pa.array(self.data[str(i)].reshape(-1), from_pandas=False), width).cast(
                pa.list_(_ARROW[kind])
            )
            for i, (_, kind, width) in enumerate(self._features)
        ]
        return RecordBatchToExamples(pa.RecordBatch.from_arrays(lists, names=[name for name, _, _ in self._features]))


def row_type(fields: Sequence[Field]) -> np.dtype:
    """Returns the NumPy type of a row. Its fields are named "0", "1", ...: the indices in `fields`."""
    return np.dtype([(str(i), _DTYPE[kind], (width,)) for i, (_, kind, width) in enumerate(fields)])


RecordBlock: TypeAlias = pa.LargeBinaryArray | UnencodedRows  # framed tf.Examples, or rows that are not encoded yet


def frames(records: RecordBlock) -> pa.LargeBinaryArray:
    """Returns records as framed tf.Examples, large_binary `[rows]`."""
    return records.frames() if isinstance(records, UnencodedRows) else records


def taken(records: RecordBlock, rows: np.ndarray) -> RecordBlock:
    """Selects records by their numbers."""
    return records.take(rows) if isinstance(records, UnencodedRows) else records.take(pa.array(rows))


@dataclasses.dataclass(frozen=True)
class NumberColumn:
    """The values of a numeric feature, and how many bytes each value takes in a tf.Example.

    Attributes:
      name: the feature's name.
      values: float32 or int64 `[rows, k]`.
      sizes: the encoded size of each value in bytes, uint8 `[rows, k]`; or `[1, k]` if all rows have equal sizes.
    """

    name: bytes
    values: np.ndarray
    sizes: np.ndarray


def _values(array: pa.Array) -> np.ndarray | None:
    """A feature's values, `[rows, k]`; None if it is not a list of float32 or int64, or if rows differ in length."""
    if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)) or array.null_count:
        return None
    flat = array.flatten()
    if not (pa.types.is_float32(flat.type) or pa.types.is_int64(flat.type)) or flat.null_count:
        return None
    rows = len(array)
    width = len(flat) // max(rows, 1)
    if not (np.diff(np.asarray(array.offsets)) == width).all():
        return None
    return np.asarray(flat).reshape(rows, width)


def _sizes(values: np.ndarray) -> np.ndarray:
    """The size in bytes of each value in a tf.Example, with the shape of `values`.

    A float32 takes 4 bytes. An int64 is a varint: one byte for every 7 bits.
    """
    if values.dtype.kind == "f":
        return np.broadcast_to(np.uint8(4), values.shape)
    unsigned = values.view(np.uint64)  # a negative number is a very large unsigned number, and takes ten bytes
    longer = np.searchsorted(_VARINT, unsigned.max(initial=0), side="right")
    sizes = np.broadcast_to(np.uint8(1), values.shape)
    for least in _VARINT[:longer]:
        sizes = sizes + (unsigned >= least)
    return sizes


def _alike(sizes: np.ndarray) -> list[np.ndarray] | None:
    """Groups rows with equal encoded sizes.

    Args:
      sizes: the sizes of each row's integers, uint8 `[rows, integers]`.

    Returns:
      The row numbers of each group, int64; None if there are more than LAYOUTS groups.
    """
    varied = sizes[:, (sizes != sizes[:1]).any(axis=0)]
    if not varied.shape[1]:
        return [np.arange(len(sizes))]
    # Makes one number of each row's sizes: with few columns, an exact number with base-11 digits; else a random hash.
    if varied.shape[1] <= _EXACT:
        group = varied @ (_SIZES ** np.arange(varied.shape[1]))
        group_ids = np.flatnonzero(np.bincount(group))
    else:
        weights = np.random.default_rng(0).integers(0, 2**63, varied.shape[1], np.uint64)
        group = varied.astype(np.uint64) @ weights
        group_ids = np.unique(group)
    if len(group_ids) > LAYOUTS:
        return None
    groups = [np.flatnonzero(group == i) for i in group_ids]
    # Rows with different sizes but equal hashes are practically impossible, but would corrupt records silently.
    return groups if all((varied[rows] == varied[rows[:1]]).all() for rows in groups) else None


def _frames(columns: list[NumberColumn]) -> np.ndarray:
    """Encodes rows that have equal encoded sizes as tf.Examples, and leaves space for headers and footers.

    All the rows share one byte pattern: tags, lengths and names. The pattern is copied to every row, and then the
    values of each feature are written over the zeros in it.

    Returns:
      uint8 `[rows, HEADER + length + FOOTER]`, where header and footer are not filled in yet.
    """
    pattern = bytearray()
    places = []  # the offset in `pattern` of each column's first value
    for column in columns:
        size = int(column.sizes[0].sum())
        pattern += _wrapper(column, size)
        places.append(len(pattern))
        pattern += bytes(size)
    before = bytes([_FEATURES]) + _varint(len(pattern))
    example = np.frombuffer(before + bytes(pattern), np.uint8)
    frames = np.empty((len(columns[0].values), HEADER + len(example) + FOOTER), np.uint8)
    frames[:, HEADER : HEADER + len(example)] = example
    for column, place in zip(columns, places, strict=True):
        _write(frames, HEADER + len(before) + place, column.values, column.sizes[0])
    return frames


def _wrapper(column: NumberColumn, size: int) -> bytes:
    """The bytes of a tf.Example that stand before a feature's values: tags, lengths and the name.

    `size`: the number of bytes that the values take.
    """
    values = bytes([_LIST]) + _varint(size) if size else b""
    value = bytes([_KIND[column.values.dtype.kind]]) + _varint(len(values) + size) + values
    entry = bytes([_KEY]) + _varint(len(column.name)) + column.name + bytes([_VALUE]) + _varint(len(value) + size)
    return bytes([_ENTRY]) + _varint(len(entry) + len(value) + size) + entry + value


def _write(frames: np.ndarray, at: int, values: np.ndarray, sizes: np.ndarray) -> None:
    """Encodes the values of a feature into the frames of all rows, starting at byte `at`.

    Args:
      frames: uint8 `[rows, bytes of a frame]`, changed in place.
      at: the byte of each frame where the first value begins.
      values: float32 or int64 `[rows, k]`.
      sizes: the number of bytes of each of the k values, `[k]`; it is the same in all rows.
    """
    if values.dtype.kind == "f":
        floats = np.ascontiguousarray(values, "<f4")
        frames[:, at : at + 4 * floats.shape[1]] = floats.view(np.uint8)
        return
    # A varint has 7 bits of the number in each byte, the lowest first. The high bit says that another byte follows.
    for value, size in zip(values.view(np.uint64).T, sizes.tolist(), strict=True):
        for byte in range(size - 1):
            frames[:, at + byte] = (value >> np.uint64(7 * byte)) & np.uint64(0x7F) | np.uint64(0x80)
        frames[:, at + size - 1] = value >> np.uint64(7 * (size - 1))  # the last byte: at most 7 bits remain
        at += size


def _varint(number: int) -> bytes:
    """A number as protobuf stores it: 7 bits in each byte, the lowest first, with the high bit set if more follow."""
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])
