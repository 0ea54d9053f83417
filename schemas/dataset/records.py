"""Reads stored records back as Python values, and prints them as a table. Imports neither TensorFlow nor Beam.

A record stores categories, classes and words as ids. The schema and the vocabularies of the run say which word each id
stands for.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

from schemas import storage
from schemas.dataset import layout
from schemas.dataset.manifest import Manifest
from schemas.dataset.opening import OpenDataset
from schemas.errors import MillraceError
from schemas.spec import images as keys
from schemas.spec.features import Category, CategoryLabel, OneHot, Text
from schemas.spec.forms import RawColumn
from schemas.spec.loader import AnySchema
from schemas.spec.table import Schema, graph_columns
from schemas.storage.tfrecord import BrokenFileError, BrokenGzipError, gunzip, read_frames


@dataclasses.dataclass(frozen=True)
class StoredFeature:
    """One feature of the `tf.Example`s that a dataset stores.

    Attributes:
      name: the key of the feature.
      dtype: 'int64', 'float32' or 'string'.
      shape: the shape of the value in one record, () for a scalar; None if the number of values varies.
      low: the smallest value of an integer feature; None if unknown.
      high: the largest value of an integer feature; None if unknown.
      finite: whether the values are never NaN or infinite.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] | None = ()
    low: int | None = None
    high: int | None = None
    finite: bool = False

    @property
    def length(self) -> int | None:
        """The number of values in a record; None if the number varies."""
        return None if self.shape is None else math.prod(self.shape)


def stored_features(data_dir: str, manifest: Manifest, schema: AnySchema) -> tuple[StoredFeature, ...]:
    """Returns the features of a dataset's records, sorted by name.

    Raises:
      MillraceError: the description of the transformed features cannot be read.
    """
    if isinstance(schema, Schema):
        features = _described(layout.join(data_dir, manifest.run, layout.TRANSFORMED_METADATA, layout.SCHEMA_PBTXT))
        label = schema.label
        if isinstance(label, CategoryLabel) and label.values is not None and manifest.preprocessing_fn is None:
            highest = len(label.values) - 1
            features = [dataclasses.replace(f, low=0, high=highest) if f.name == label.name else f for f in features]
        features = [dataclasses.replace(f, finite=f.dtype == "float32") for f in features]
    else:
        features = _image_features(classes=len(manifest.classes))
    return tuple(sorted(features, key=lambda f: f.name))


def graph_inputs(run_dir: str, schema: Schema) -> tuple[RawColumn, ...]:
    """Returns the columns that the transform graph of a run takes (see `schemas.spec.table.graph_columns`).

    Raises:
      MillraceError: the run's description of its graph cannot be read.
    """
    described = {feature.name for feature in _described(layout.join(run_dir, layout.SCHEMA_PBTXT))}
    return graph_columns(schema, described)


def _described(path: str) -> list[StoredFeature]:
    """Reads tf.Transform's description of the features that a graph takes or returns."""
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    dtypes = {schema_pb2.INT: "int64", schema_pb2.FLOAT: "float32", schema_pb2.BYTES: "string"}
    try:
        described = text_format.Parse(storage.read_bytes(path), schema_pb2.Schema())
    except (text_format.ParseError, UnicodeDecodeError, RecursionError) as error:
        raise MillraceError(f"{path}: not a tensorflow_metadata Schema ({error}); write the dataset again") from None
    features = []
    for feature in described.feature:
        shape = tuple(dim.size for dim in feature.shape.dim) if feature.HasField("shape") else None
        low, high = None, None
        if feature.HasField("int_domain"):
            domain = feature.int_domain
            low = domain.min if domain.HasField("min") else None
            high = domain.max if domain.HasField("max") else None
        features.append(StoredFeature(feature.name, dtypes[feature.type], shape, low, high))
    return features


def _image_features(*, classes: int) -> list[StoredFeature]:
    return [
        *(StoredFeature(key, "string") for key in (keys.ENCODED, keys.FORMAT, keys.FILENAME, keys.TEXT)),
        *(StoredFeature(key, "int64", low=1) for key in (keys.HEIGHT, keys.WIDTH)),
        StoredFeature(keys.CLASS, "int64", low=0, high=classes - 1),
    ]


OTHER = "<other>"  # stands for all values that are not in the vocabulary
_PADDING = "<padding>"


def meanings(dataset: OpenDataset) -> Mapping[str, Sequence[str]]:
    """Returns the words that ids stand for, by feature: the word of id i is at index i.

    Larger ids stand for unknown values.

    A feature has no words here if its ids come from hash buckets or from a custom preprocessing_fn.
    """
    schema = dataset.declared
    if not isinstance(schema, Schema) or dataset.manifest.preprocessing_fn is not None:
        return {}
    words_by_feature: dict[str, Sequence[str]] = {}
    for item in schema.items:
        match item:
            case Category() | CategoryLabel() if item.values is not None:
                words_by_feature[item.name] = item.values
            case OneHot():
                words_by_feature[item.name] = tuple(map(str, item.refs))
            case Category() | CategoryLabel() | Text() if item.vocabulary is not None:
                words = read_vocabulary(dataset.path, dataset.manifest, item.vocabulary.name)
                if words is not None:
                    words_by_feature[item.name] = (_PADDING, *words) if isinstance(item, Text) else words
            case _:
                pass
    return words_by_feature


def read_vocabulary(data_dir: str, manifest: Manifest, name: str) -> list[str] | None:
    """Returns the words of a run's vocabulary, in the order of their ids.

    Returns None if there is no such file, because a custom preprocessing_fn names its vocabularies differently.
    """
    return read_words(layout.join(data_dir, manifest.run, layout.TRANSFORM_FN, "assets", name))


def read_words(path: str) -> list[str] | None:
    """Returns the words of a vocabulary file, in the order of their ids; None if there is no such file."""
    if not storage.exists(path):
        return None
    words = storage.read_bytes(path).decode("utf-8", "replace").removesuffix("\n")
    return words.split("\n")  # `splitlines` would also split at other characters


def classes_of(data_dir: str, manifest: Manifest, schema: AnySchema) -> list[str] | None:
    """Returns the classes that a model predicts, by id.

    Returns None if the label is a number, or if the vocabulary of the label is not found.
    """
    if not isinstance(schema, Schema):
        return list(schema.model_classes(manifest.classes))
    if not isinstance(schema.label, CategoryLabel):
        return None
    if schema.label.values is not None:
        return list(schema.label.values)
    return read_vocabulary(data_dir, manifest, schema.label.name)


def words_of(value: Any, words: Sequence[str]) -> Any:
    """Returns the word that an id stands for, or the words of a list of ids.

    >>> words_of([1, 0, 7], ["no", "yes"])
    ['yes', 'no', '<other>']
    """
    if isinstance(value, list):
        return [words_of(word_id, words) for word_id in value]
    return words[value] if isinstance(value, int) and 0 <= value < len(words) else OTHER


_WIDTH, _CELL = 140, 26  # the most characters of a line, and of a value


@dataclasses.dataclass(frozen=True)
class Image:
    """A stored image. Its repr is its size, height x width, and its format.

    Attributes:
      data: the bytes of a JPEG, or uint8 pixels row by row.
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
class RecordTable(Sequence[dict[str, Any]]):
    """A sequence of records, each a dict by feature name.

    Its repr shows the records side by side, one line for each feature.
    """

    rows: tuple[dict[str, Any], ...]

    @overload
    def __getitem__(self, place: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, place: slice) -> RecordTable: ...
    def __getitem__(self, place: int | slice) -> dict[str, Any] | RecordTable:
        return RecordTable(self.rows[place]) if isinstance(place, slice) else self.rows[place]

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return "\n".join(self.lines({})).strip("\n") or "no records"

    def lines(self, words: Mapping[str, Sequence[str]]) -> Iterator[str]:
        """Yields the lines of a table: a line for each feature, and a column for each record.

        Records that do not fit into the width of a line follow in another table below.

        Args:
          words: the words that ids stand for, by feature (see `meanings`).
        """
        names = list(dict.fromkeys(name for record in self.rows for name in record))
        first = [name if len(name) <= 2 * _CELL else f"{name[: 2 * _CELL - 3]}..." for name in names]
        margin = max(map(len, first), default=0)
        columns = [[_cell(record.get(name), words.get(name)) for name in names] for record in self.rows]
        # Each round yields a table of as many records as fit into a line, at least one.
        start = 0
        while start < len(columns):
            widths: list[int] = []
            for column in columns[start:]:
                width = max(map(len, column), default=0)
                if widths and margin + sum(widths) + 2 * (len(widths) + 1) + width > _WIDTH:
                    break
                widths.append(width)
            yield ""
            for row, name in enumerate(first):
                cells = (columns[start + i][row].ljust(width) for i, width in enumerate(widths))
                yield "  ".join((name.ljust(margin), *cells)).rstrip()
            start += len(widths)


def _cell(value: Any, words: Sequence[str] | None) -> str:
    """Returns a value in a few characters; an id together with its word."""
    if words is not None and isinstance(value, int):
        text = f"{words_of(value, words)} ({value})"
    elif words is not None and isinstance(value, list):
        text = " ".join(map(str, words_of(value, words)))
    else:
        text = _plain(value)
    text = "".join(c if c.isprintable() else " " for c in text)
    return text if len(text) <= _CELL else f"{text[: _CELL - 3]}..."


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_plain(item) for item in value[:_CELL])}{', ...' if len(value) > _CELL else ''}]"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)


def read_records(dataset: OpenDataset, split: str, n: int) -> RecordTable:
    """Returns the first records of a split, in stored order.

    Args:
      dataset: the dataset.
      split: the name of the split.
      n: the number of records.

    Returns:
      The records. A value is an int, float, str, `Image`, or bytes if a string is not UTF-8; or a list of these if the
      feature has several values.

    Raises:
      MillraceError: there is no such split, or a record cannot be read.
    """
    from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

    every = (stored_records(path, compressed=bool(dataset.compression)) for path in dataset.shards(split))
    serialized = list(itertools.islice(itertools.chain.from_iterable(every), n))
    if not serialized:
        return RecordTable(())
    try:
        columns = ExamplesToRecordBatchDecoder().DecodeBatch(serialized).to_pydict()
    except RuntimeError as error:
        raise MillraceError(
            f"{dataset.path}: split {split!r} holds a record that is not a tf.Example: {error}"
        ) from None
    described = {f.name: f for f in stored_features(dataset.path, dataset.manifest, dataset.declared)}
    rows = []
    for i in range(len(serialized)):
        row = {}
        # Declared features come first, in alphabetical order, then undeclared ones.
        for name in sorted(columns, key=lambda name: (name not in described, name)):
            values = [_text(value) for value in columns[name][i] or ()]
            scalar = name in described and described[name].shape == () and len(values) == 1
            row[name] = values[0] if scalar else values
        rows.append(row if dataset.image_schema is None else _with_image(row))
    return RecordTable(tuple(rows))


def stored_records(path: str, *, compressed: bool) -> Iterator[bytes]:
    """Yields the records of a shard one by one.

    Args:
      path: the shard.
      compressed: whether the shard is a gzip file.

    Raises:
      MillraceError: the next record cannot be read.
    """
    read = 0
    try:
        chunks = storage.read_chunks(path)
        for frames in read_frames(gunzip(chunks) if compressed else chunks):
            for place, record in enumerate(frames.records):
                if place in frames.damaged:
                    raise MillraceError(f"{path}: record {read:,} does not match its checksum")
                yield record
                read += 1
    except (BrokenFileError, BrokenGzipError) as error:
        raise MillraceError(f"{path}: cannot be read beyond record {read:,}: {error}") from error


def _text(value: Any) -> Any:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _with_image(row: dict[str, Any]) -> dict[str, Any]:
    """Returns a record with one value `Image` in place of the image's bytes, format, height and width."""
    data, form, height, width = (row.pop(key) for key in (keys.ENCODED, keys.FORMAT, keys.HEIGHT, keys.WIDTH))
    return {"image": Image(data.encode() if isinstance(data, str) else data, form, height, width), **row}
