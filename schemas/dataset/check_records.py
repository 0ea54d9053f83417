"""Checks a shard: compares its bytes with the manifest, and its records with their checksums and the schema.

The schema says which features a record has, and their dtypes, shapes and valid values. tfx_bsl decodes a batch of
serialized `tf.Example`s to Arrow in C++, so that the features are checked as whole columns of a batch.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.dataset import layout
from schemas.dataset.checks import Issue, ReadProgress
from schemas.dataset.manifest import Shard
from schemas.dataset.records import StoredFeature
from schemas.errors import counted
from schemas.images.header import BadImage, ends_early, read_header
from schemas.spec import images as keys
from schemas.spec.images import Exact, ImageOptions
from schemas.storage.tfrecord import BrokenFileError, BrokenGzipError, gunzip, read_frames

_DTYPES = {"int64": pa.int64(), "float32": pa.float32(), "string": pa.large_binary()}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}

Fault = tuple[int, str]  # a record's index in the batch, and what is wrong with it


class RecordCheck:
    """Checks batches of records against the schema. Not thread-safe: use one object for each thread.

    Args:
      features: the features that each record must have, and no others.
      images: how images are stored; None if the dataset has rows.
      classes: the names of the images' classes, by id; empty if the dataset has rows.
    """

    def __init__(
        self, features: Sequence[StoredFeature], images: ImageOptions | None = None, classes: Sequence[str] = ()
    ) -> None:
        from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

        self._features = tuple(features)
        self._images, self._classes = images, classes
        self._decoder = ExamplesToRecordBatchDecoder()  # without a schema, so that it returns undeclared features too

    def __call__(self, records: Sequence[bytes]) -> dict[int, str]:
        """Returns the first fault of each invalid record, by the record's index in `records`, ascending."""
        try:
            batch = self._decoder.DecodeBatch(list(records))
        except RuntimeError as error:
            if len(records) == 1:
                return {0: f"is not a tf.Example ({error})"}
            # The decoder fails for the whole batch, if a record cannot be parsed or has other types. Check both halves
            # on their own, until the bad records are alone.
            half = len(records) // 2
            later = {half + place: what for place, what in self(records[half:]).items()}
            return self(records[:half]) | later
        # In a dict the last value of a key stays, so reverse the faults to keep the first one of each record.
        faults = dict(reversed([*self._form(batch)]))
        # Check the content only of records without a fault so far. `good` maps their indices back to those in the
        # batch.
        if self._features and len(faults) < batch.num_rows:
            good = np.setdiff1d(np.arange(batch.num_rows), np.array(list(faults), np.int64))
            rest = batch.take(pa.array(good)) if faults else batch
            faults |= dict(reversed([(int(good[place]), what) for place, what in self._content(rest)]))
        return dict(sorted(faults.items()))

    def _form(self, batch: pa.RecordBatch) -> Iterator[Fault]:
        """Yields records in which a feature is missing, undeclared, or has another dtype or length."""
        for feature in self._features:
            place = batch.schema.get_field_index(feature.name)
            lengths = np.zeros(batch.num_rows, np.int64)
            column = batch.column(place) if place >= 0 else pa.nulls(0)
            if not pa.types.is_null(column.type):  # a column of type null: no record of the batch has a value
                lengths = np.asarray(pc.fill_null(column.value_lengths(), 0))
                dtype = column.type.value_type
                if dtype != _DTYPES[feature.dtype]:
                    for row in np.flatnonzero(lengths):
                        yield int(row), f"{feature.name!r} holds {_NAMES.get(dtype, dtype)}, expected {feature.dtype}"
                    # These records are reported already: pretend that their lengths are right.
                    lengths = np.where(lengths, feature.length or 0, 0)
            if feature.length is not None:
                for row in np.flatnonzero(lengths != feature.length):
                    yield int(row), f"{feature.name!r} holds {lengths[row]} values, expected {feature.length}"
        for name in sorted(set(batch.schema.names) - {feature.name for feature in self._features}):
            for row in np.flatnonzero(np.asarray(batch.column(batch.schema.get_field_index(name)).is_valid())):
                yield int(row), f"holds {name!r}, which is not a feature of this dataset"

    def _content(self, batch: pa.RecordBatch) -> Iterator[Fault]:
        """Yields records with numbers out of range, and with invalid images. `_form` has found their lengths right."""
        for feature in self._features:
            yield from _number_faults(batch, feature)
        if self._images is not None:
            yield from _image_faults(batch, self._images)
            yield from _class_faults(batch, self._classes)


def _number_faults(batch: pa.RecordBatch, feature: StoredFeature) -> Iterator[Fault]:
    """Yields records in which a feature holds NaN, infinity, or an integer out of its range."""
    place = batch.schema.get_field_index(feature.name)
    has_limits = feature.low is not None or feature.high is not None
    if place < 0 or pa.types.is_null(batch.column(place).type) or not (feature.finite or has_limits):
        return  # no record of the batch has a value, or any value is valid
    # All values of the column one after the other, and for each value the index of its record.
    values, rows = np.asarray(batch.column(place).flatten()), np.asarray(pc.list_parent_indices(batch.column(place)))
    if feature.finite:
        for i in np.flatnonzero(~np.isfinite(values)):
            yield int(rows[i]), f"{feature.name!r} is {values[i]}, which is not a finite number"
    if has_limits:
        low = np.iinfo(np.int64).min if feature.low is None else feature.low
        high = np.iinfo(np.int64).max if feature.high is None else feature.high
        for i in np.flatnonzero((values < low) | (values > high)):
            yield int(rows[i]), f"{feature.name!r} is {values[i]}, expected {low} to {high}"


def _image_faults(batch: pa.RecordBatch, options: ImageOptions) -> Iterator[Fault]:
    """Yields records with an image in another format or size than the schema asks for, or with invalid image data."""
    names = [keys.FORMAT, keys.HEIGHT, keys.WIDTH, keys.ENCODED]
    expected = keys.FORMATS[options.store]
    for row, values in enumerate(zip(*(_scalars(batch, name) for name in names), strict=True)):
        kind, height, width, encoded = (value.as_py() for value in values)
        if kind != expected:
            yield row, f"{names[0]!r} is {kind!r}, expected {expected!r}"
        elif not _is_size(options, height, width):
            yield row, f"holds an image of {height} x {width} pixels, which is not the size that `resize` gives"
        elif what := _pixels_fault(encoded, height, width, options):
            yield row, f"{names[-1]!r} {what}"


def _class_faults(batch: pa.RecordBatch, classes: Sequence[str]) -> Iterator[Fault]:
    """Yields records in which the id of the class and the name of the class do not match."""
    for row, values in enumerate(zip(*(_scalars(batch, name) for name in (keys.CLASS, keys.TEXT)), strict=True)):
        number, text = (value.as_py() for value in values)
        if 0 <= number < len(classes) and classes[number].encode() != text:
            yield row, f"is of class {number}, {classes[number]!r}, but says {text!r}"


def _scalars(batch: pa.RecordBatch, name: str) -> Any:
    """Returns the values of a scalar feature, one for each record."""
    return batch.column(batch.schema.get_field_index(name)).flatten()


def _is_size(options: ImageOptions, height: int, width: int) -> bool:
    resize = options.resize
    return (height, width) == resize.exact if isinstance(resize, Exact) else min(height, width) == resize.shorter


def _pixels_fault(data: bytes, height: int, width: int, options: ImageOptions) -> str:
    """Returns what is wrong with a stored image; '' if the image is valid."""
    if options.store == "raw":
        return "" if len(data) == 3 * height * width else f"holds {len(data):,} bytes for {height} x {width} pixels"
    try:
        header = read_header(data)
    except BadImage as error:
        return f"is not an image ({error})"
    if (header.format, header.height, header.width) != ("jpeg", height, width):
        description = f"a {header.format} of {header.height} x {header.width} pixels"
        return f"holds {description}, expected a jpeg of {height} x {width}"
    return "ends early" if ends_early(header, data) else ""


MAX_LISTED = 10  # so many records of a shard are reported one by one, and the rest are only counted

Content = tuple[int, str]  # identifies a file's content: the number of bytes, and their CRC-32C


@dataclasses.dataclass(frozen=True)
class ShardCheck:
    """Checks the shards of one dataset.

    Attributes:
      compressed: whether the shards are gzip files.
      by_content: the paths of all shards of the dataset, by content. A shard with the content of another path was
        swapped.
      record_check: makes a new `RecordCheck`, one for each shard; None: records are not checked against the schema.
    """

    compressed: bool
    by_content: dict[Content, list[str]]
    record_check: Callable[[], RecordCheck] | None

    def __call__(self, shard: Shard, chunks: Iterator[bytes], tally: ReadProgress) -> list[Issue]:
        """Returns all issues of a shard. Uses a few MB of memory and the size of one record, even for a large shard.

        Args:
          shard: what the manifest says about the shard.
          chunks: the bytes of the file.
          tally: counts the records that were read.
        """
        size, crc = 0, google_crc32c.Checksum()

        def summed() -> Iterator[bytes]:
            nonlocal size
            for chunk in chunks:
                crc.update(chunk)
                size += len(chunk)
                yield chunk

        check = self.record_check() if self.record_check else None
        rows, broken, data = 0, "", summed()
        damaged: list[str] = []
        faults: list[str] = []
        try:
            for frames in read_frames(gunzip(data) if self.compressed else data):
                rows += len(frames.records)
                tally.add(rows=len(frames.records))
                for i in frames.damaged:
                    start, end = frames.offsets[i : i + 2]
                    place = f"record {frames.first + i:,} at bytes {start:,} to {end:,}"
                    damaged.append(f"{place}: does not match its checksum")
                if check:
                    # Damaged records are reported already, so only the others are checked against the schema.
                    intact = np.delete(np.arange(len(frames.records)), frames.damaged).tolist()
                    for i, what in check([frames.records[i] for i in intact]).items():
                        at = frames.offsets[intact[i]]
                        faults.append(f"record {frames.first + intact[i]:,} at byte {at:,}: {what}")
        except BrokenFileError as error:
            broken = f"record {error.record:,} at byte {error.offset:,}: {error.reason}"
        except BrokenGzipError as error:
            broken = f"after {rows:,} complete records, at compressed {error}"
        # If reading stopped early, the size and the checksum still need the rest: a deque of length 0 consumes it.
        collections.deque(data, maxlen=0)
        content = size, crc.hexdigest().decode()
        elsewhere = [path for path in self.by_content.get(content, ()) if path != shard.path]
        if elsewhere and content != (shard.bytes, shard.crc32c):
            return [Issue(shard.path, "swapped", f"holds the bytes of {' and of '.join(elsewhere)}")]
        return [
            *_whole(shard, content, rows, broken, is_damaged=bool(damaged)),
            *_listed(shard, "damaged", damaged, "with a wrong checksum"),
            *_listed(shard, "record", faults, "against the schema"),
        ]


def _whole(shard: Shard, content: Content, rows: int, broken: str, *, is_damaged: bool) -> Iterator[Issue]:
    """Yields an issue if a shard was cut, cannot be read beyond some record, or is another file than the job wrote.

    Args:
      shard: what the manifest says about the shard.
      content: the size and the checksum of the file.
      rows: the number of records that could be read.
      broken: why the rest cannot be read; '' if all could be read.
      is_damaged: whether some records do not match their checksums. These are reported one by one, and explain why the
        checksum of the file differs.
    """
    size, crc = content
    readable = f"{rows:,} of its {counted(shard.rows, 'records')} can be read"
    if size < shard.bytes:
        where = broken or f"after record {rows - 1:,}, at the boundary of a record"
        left = f"{size:,} of {shard.bytes:,} bytes are left"
        yield Issue(shard.path, "cut", f"{left}, truncated: {where}; {readable}")
    elif broken:
        yield Issue(shard.path, "damaged", f"{broken}; {readable}")
    elif content == (shard.bytes, shard.crc32c) and rows != shard.rows:
        message = f"holds {counted(rows, 'records')}, and {layout.MANIFEST} says {shard.rows:,}"
        yield Issue(shard.path, "rows", message)
    elif content != (shard.bytes, shard.crc32c) and not is_damaged:
        message = (
            f"is not the file that was written: {counted(rows, 'records')} in {size:,} bytes, crc32c {crc}, "
            f"and {layout.MANIFEST} says {shard.rows:,} in {shard.bytes:,}, {shard.crc32c}"
        )
        yield Issue(shard.path, "changed", message)


def _listed(shard: Shard, kind: str, messages: Sequence[str], rest: str) -> Iterator[Issue]:
    """Yields an issue for each of the first MAX_LISTED messages, and one issue that counts the others."""
    yield from (Issue(shard.path, kind, message) for message in messages[:MAX_LISTED])
    if more := len(messages[MAX_LISTED:]):
        yield Issue(shard.path, kind, f"{counted(more, 'more records')} {rest}")
