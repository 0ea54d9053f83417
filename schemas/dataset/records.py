"""Stored records read back, as Python values and as a table to look at. Imports neither TensorFlow nor Beam."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, overload

from schemas import storage
from schemas.dataset.opening import Dataset
from schemas.dataset.stored_features import stored_features
from schemas.errors import MillraceError
from schemas.spec import image_keys as keys
from schemas.spec.images import ImageSchema
from schemas.storage.tfrecord import BrokenFileError, BrokenGzipError, gunzip, read_frames

_CHUNK = 1 << 20  # bytes read at once
_WIDTH, _CELL = 120, 24  # characters of a table, and of one of its cells


@dataclasses.dataclass(frozen=True)
class Image:
    """A stored image; its repr says its size, height x width.

    Attributes:
      data: a JPEG's bytes, or uint8 pixels row by row.
      format: 'JPEG' or 'RAW'.
      height: in pixels.
      width: in pixels.
    """

    data: bytes = dataclasses.field(repr=False)
    format: str
    height: int
    width: int

    def __repr__(self) -> str:
        return f"{self.height} x {self.width} {self.format}"


@dataclasses.dataclass(frozen=True)
class Records(Sequence[dict[str, Any]]):
    """Records by feature name; prints as a table, of as many features as fit."""

    rows: tuple[dict[str, Any], ...]

    @overload
    def __getitem__(self, place: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, place: slice) -> Records: ...
    def __getitem__(self, place: int | slice) -> dict[str, Any] | Records:
        return Records(self.rows[place]) if isinstance(place, slice) else self.rows[place]

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        if not self.rows:
            return "no records"
        names = list(self.rows[0])
        columns = [[name, *(_cell(row.get(name)) for row in self.rows)] for name in names]
        shown, width = 0, 0
        for column in columns:
            width += max(map(len, column)) + 2
            if shown and width > _WIDTH:
                break
            shown += 1
        widths = [max(map(len, column)) for column in columns[:shown]]
        lines = [
            "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip()
            for line in zip(*columns[:shown], strict=True)
        ]
        rest = names[shown:]
        if rest:
            lines.append(f"and {len(rest)} more: {', '.join(rest[:5])}{', ...' if len(rest) > 5 else ''}")
        return "\n".join(lines)


def _cell(value: Any) -> str:
    if isinstance(value, list):
        text = f"[{', '.join(_cell(item) for item in value)}]"
    elif isinstance(value, float):
        text = f"{value:.4g}"
    else:
        text = str(value)
    return text if len(text) <= _CELL else f"{text[: _CELL - 3]}..."


def read_records(dataset: Dataset, split: str, n: int) -> Records:
    """The first records of a split, in stored order.

    Returns:
      Records whose values are int, float, str (bytes where they are not UTF-8) or `Image`; a list where a feature holds
      several values.

    Raises:
      MillraceError: there is no such split, or a record cannot be read.
    """
    from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

    serialized: list[bytes] = []
    for path in dataset.shards(split):
        if len(serialized) < n:
            serialized += _first(path, n - len(serialized), compressed=bool(dataset.compression))
    if not serialized:
        return Records(())
    try:
        columns = ExamplesToRecordBatchDecoder().DecodeBatch(serialized).to_pydict()
    except RuntimeError as error:
        raise MillraceError(f"{dataset.path}: split {split!r} holds what is no tf.Example: {error}") from None
    described = {f.name: f for f in stored_features(dataset.path, dataset.manifest, dataset.declared)}
    rows = []
    for i in range(len(serialized)):
        row = {}
        for name in sorted(columns, key=lambda name: (name not in described, name)):
            values = [_text(value) for value in columns[name][i] or ()]
            scalar = name in described and described[name].shape == () and len(values) == 1
            row[name] = values[0] if scalar else values
        rows.append(row if dataset.image_schema is None else _with_images(row, dataset.image_schema))
    return Records(tuple(rows))


def _first(path: str, n: int, *, compressed: bool) -> list[bytes]:
    """The first `n` records of a shard, or all of fewer."""
    found: list[bytes] = []
    try:
        with storage.wrap_errors(path), storage.open_read(path) as file:
            chunks: Iterator[bytes] = iter(lambda: file.read(_CHUNK), b"")
            for frames in read_frames(gunzip(chunks) if compressed else chunks):
                damaged = [place for place in frames.damaged if len(found) + place < n]
                if damaged:
                    raise MillraceError(f"{path}: record {frames.first + damaged[0]:,} does not match its checksum")
                found += frames.records
                if len(found) >= n:
                    break
    except (BrokenFileError, BrokenGzipError) as error:
        raise MillraceError(f"{path}: cannot be read beyond record {len(found):,}: {error}") from error
    return found[:n]


def _text(value: Any) -> Any:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _with_images(row: dict[str, Any], schema: ImageSchema) -> dict[str, Any]:
    """The record with one `Image` in place of each image's bytes, format and size."""
    images = {}
    stored = (keys.ENCODED, keys.FORMAT, keys.HEIGHT, keys.WIDTH)
    for image in schema.image_names:
        data, form, height, width = (row.pop(schema.stored_key(image, key)) for key in stored)
        data = data.encode() if isinstance(data, str) else data
        images[image] = Image(data, form, height, width)
    return {**images, **row}
