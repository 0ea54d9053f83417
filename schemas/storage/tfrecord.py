"""Reads TFRecord files record by record, in bounded memory, and compares each record with its checksum.

A TFRecord file is a sequence of frames. A frame holds the record's length (8 bytes, uint64), the masked CRC-32C of
these eight bytes (4 bytes), the record, and the masked CRC-32C of the record (4 bytes). `masked` computes the mask,
which TensorFlow defines in `lib/hash/crc32c.h`.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import google_crc32c
import numpy as np

HEADER, FOOTER = 12, 4  # bytes of a frame before the record, and after it
LARGEST = 2**31  # bytes of the largest record: protobuf reads no larger message
PIECE = 1 << 16  # bytes to decompress at once; the result is at most about a thousand times larger


class BrokenFileError(Exception):
    """The rest of a file cannot be read.

    Attributes:
      record: the number of records before the broken one.
      offset: the byte at which the broken frame begins.
      reason: what is wrong.
    """

    def __init__(self, record: int, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.record = record
        self.offset = offset
        self.reason = reason


class BrokenGzipError(Exception):
    """A gzip file cannot be decompressed beyond a byte. `offset` counts bytes of the compressed file."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"byte {offset:,}: {reason}")


@dataclasses.dataclass(frozen=True)
class Frames:
    """Consecutive records of a file.

    Attributes:
      first: the index in the file of the first of these records, from 0.
      offsets: the byte at which each record's frame begins, and as last value the byte at which the last frame ends.
        For a gzip file, these are bytes of the decompressed content.
      records: the bytes of each record.
      damaged: the indices in `records` of the records that do not match their checksums.
    """

    first: int
    offsets: tuple[int, ...]
    records: tuple[bytes, ...]
    damaged: tuple[int, ...]


def read_frames(chunks: Iterable[bytes]) -> Iterator[Frames]:
    """Cuts a file's bytes into records. Holds at most one chunk and one record in memory.

    Args:
      chunks: the (decompressed) bytes of the file, in pieces of any size.

    Yields:
      The records that each chunk completes.

    Raises:
      BrokenFileError: a frame's length does not match its checksum, or the bytes end inside a frame.
    """
    waiting: list[bytes] = []
    have, frame_size, first, start = 0, HEADER, 0, 0
    lengths: dict[bytes, int] = {}  # headers that were checked: most records of a file share a few lengths
    for chunk in chunks:
        waiting.append(chunk)
        have += len(chunk)
        if have < frame_size:
            continue
        data = b"".join(waiting)
        # Keep the incomplete frame at the end for later, and join chunks only when they are enough for it. Otherwise a
        # large record would be copied again with each chunk.
        frames, rest, frame_size, broken = _cut(data, first, start, lengths)
        if frames.records:
            yield frames
        if broken:
            raise broken
        first += len(frames.records)
        start += rest
        waiting, have = [data[rest:]], len(data) - rest
    if have:
        raise BrokenFileError(first, start, f"the file ends inside it, after {have:,} of {frame_size:,} bytes")


def _cut(
    data: bytes, first: int, start: int, lengths: dict[bytes, int]
) -> tuple[Frames, int, int, BrokenFileError | None]:
    """Cuts the complete frames from the front of some bytes.

    Args:
      data: bytes of the file that begin with a frame.
      first: the index of the first record in the file.
      start: the byte of the file at which `data` begins.
      lengths: the record length of each header that was checked before; new ones are added.

    Returns:
      The complete frames; the number of bytes of `data` that they take; the size of the incomplete frame after them, in
      bytes; and the error, or None if that frame can be read.
    """
    checksum = google_crc32c.value
    offsets: list[int] = []
    records: list[bytes] = []
    sums: list[int] = []
    footers: list[bytes] = []
    at, frame_size, broken = 0, HEADER, None
    while at + HEADER <= len(data):
        header = data[at : at + HEADER]
        length = lengths.get(header)
        if length is None:
            length = int.from_bytes(header[:8], "little")
            if int(masked(np.array([checksum(header[:8])]))[0]) != int.from_bytes(header[8:], "little"):
                broken = BrokenFileError(first + len(records), start + at, "its length does not match its checksum")
                break
            if length > LARGEST:
                broken = BrokenFileError(first + len(records), start + at, f"it claims {length:,} bytes")
                break
            if len(lengths) < 1 << 16:
                lengths[header] = length
        end = at + HEADER + length
        if end + FOOTER > len(data):
            frame_size = HEADER + length + FOOTER
            break
        record = data[at + HEADER : end]
        offsets.append(start + at)
        records.append(record)
        sums.append(checksum(record))
        footers.append(data[end : end + FOOTER])
        at = end + FOOTER
    # Mask and compare the checksums of all records at once: NumPy calls for each record would be slow.
    differ = masked(np.array(sums, np.uint32)) != np.frombuffer(b"".join(footers), "<u4")
    damaged = tuple(np.flatnonzero(differ).tolist())
    return Frames(first, (*offsets, start + at), tuple(records), damaged), at, frame_size, broken


def masked(checksums: np.ndarray) -> np.ndarray:
    """Masks CRC-32C values as TFRecord files store them: rotates each right by 15 bits, and adds a constant.

    Args:
      checksums: the values, integers `[n]`.

    Returns:
      The masked values, uint32 `[n]`. The addition wraps around at 2^32.
    """
    crc = checksums.astype(np.uint32)
    # Two shifts rotate the 32 bits by 15 to the right.
    return ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(0xA282EAD8)


def gunzip(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Decompresses a gzip file, of one or several members, and yields everything before the first fault.

    Raises:
      BrokenGzipError: the bytes are not a gzip stream, were changed, or end early.
    """
    decoder = zlib.decompressobj(wbits=31)
    at = 0
    for chunk in chunks:
        for start in range(0, len(chunk), PIECE):
            rest = chunk[start : start + PIECE]
            while rest:
                if decoder.eof:
                    decoder = zlib.decompressobj(wbits=31)
                # After an error, zlib does not say how far it came. So keep a copy of the decoder, to repeat the piece
                # byte by byte.
                snapshot = decoder.copy()
                try:
                    out = decoder.decompress(rest)
                except zlib.error as error:
                    valid, taken = _until_error(snapshot, rest)
                    yield valid
                    raise BrokenGzipError(at + taken, str(error)) from None
                yield out
                at += len(rest) - len(decoder.unused_data)
                rest = decoder.unused_data
    yield decoder.flush()
    if not decoder.eof:
        raise BrokenGzipError(at, "the gzip stream ends early")


def _until_error(decoder: Any, data: bytes) -> tuple[bytes, int]:
    """Decompresses `data` byte by byte until it fails.

    Returns the result, and the number of bytes that were decompressed.
    """
    valid = []
    for i in range(len(data)):
        try:
            valid.append(decoder.decompress(data[i : i + 1]))
        except zlib.error:
            return b"".join(valid), i
    return b"".join(valid), len(data)
