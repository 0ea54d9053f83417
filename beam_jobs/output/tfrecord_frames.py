"""Frames many records at once for TFRecord files; `schemas.storage.tfrecord` describes a frame.

A writer of one record at a time spends more time on calls than on checksums.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence

import google_crc32c
import numpy as np
import pyarrow as pa

from schemas.storage.tfrecord import FOOTER, HEADER, masked

_AT_ONCE = 256  # records copied at once to compute checksums; few enough for the CPU cache


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
