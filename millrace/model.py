"""The class `Model` of the Python API, which predicts on rows or images with an exported model.

Columns are found by the names of a schema's features, or by those that the raw file gives them.
"""

from __future__ import annotations

import dataclasses
import math
import os
import reprlib
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from millrace.values import column_array
from schemas.errors import UsageError
from schemas.exports.model import ERROR, KEY, PROBABILITIES, RAW, WITHOUT_KEY, ServedModel, failures_as, spread
from schemas.exports.notes import read_notes
from schemas.exports.words import KnownValues, notes_of
from schemas.images.header import BadImage, check_image
from schemas.images.reading import ERRORS, ImageFile
from schemas.predictions.encoding import PROBABILITY
from schemas.spec.features import Feature
from schemas.spec.images import ImageSchema
from schemas.spec.loader import AnySchema
from schemas.spec.naming import (
    ColumnLabel,
    few_labels,
    file_labels,
    find_columns,
    note_of_undeclared,
    similar_name,
    undeclared,
)
from schemas.spec.table import Schema, served_features, serving_columns
from schemas.spec.words import canonical


def feature_values(data: Any, schema: Schema) -> dict[str, list[Any]]:
    """Reads the raw values that a model takes, by feature; a vector or a one_hot group is a list or tuple in each row.

    Warns of columns that the schema does not declare.

    Args:
      data: a list of dicts, a dict of columns, a DataFrame, or a table of Arrow. A feature is found under its own name,
        or else under the columns of the raw file that it is read from: names, or positions as pandas numbers columns
        without names.
      schema: of the data that the model was trained on.

    Returns:
      Lists of one length. A key that is not there is left out.

    Raises:
      UsageError: `data` is none of these, a feature is not there or could be either of two columns, or columns are of
        different lengths.
    """
    names, column, rows = _table(data)
    features = served_features(schema)
    if not names and not rows:
        return {feature.name: [] for feature in features}
    labels_by_feature = {feature.name: find_columns(feature, schema, names) for feature in features}
    lacking = [f for f in features if labels_by_feature[f.name] is None and f is not schema.key]
    if lacking:
        absent, needed = (", ".join(f.name for f in listed) for listed in (lacking, features))
        expected = "".join(f"\n{_expected(f, schema, names)}" for f in lacking[:5])
        raise UsageError(f"no column {absent}; the model needs {needed}; found {few_labels(list(names))}{expected}")
    read = {label: column(label) for labels in labels_by_feature.values() for label in labels or ()}
    lengths = {str(label): len(values) for label, values in read.items()}
    if len(set(lengths.values())) > 1:
        raise UsageError(f"columns of different lengths: {', '.join(f'{n} {size:,}' for n, size in lengths.items())}")
    if unread := undeclared(names, schema):
        warnings.warn(note_of_undeclared(unread), stacklevel=_CALLER)
    values = {}
    for feature in features:
        labels = labels_by_feature[feature.name]
        if labels == (feature.name,) or (labels and feature.raw and feature.raw.width is None):
            values[feature.name] = read[labels[0]]
        elif labels:
            values[feature.name] = list(zip(*(read[label] for label in labels), strict=True))
    return values


_CALLER = 4  # levels of calls from a warning up to the line that calls `Model.predict`
_ROWS_ARE = "rows are a list of dicts, a dict of columns, a DataFrame or an Arrow table"


def _table(data: Any) -> tuple[Mapping[Any, None], Callable[[ColumnLabel], list[Any]], int]:
    """Returns the columns' names, a function that reads a column, and the number of rows, 0 for a dict of columns.

    A row of several that leaves a column out holds None.
    """
    if isinstance(data, pa.Table | pa.RecordBatch):
        return _once(data.schema.names), lambda label: data.column(label).to_pylist(), data.num_rows
    if isinstance(data, Mapping):
        return dict.fromkeys(data), lambda label: _column(data[label], label), 0
    if hasattr(data, "columns"):
        return _once(data.columns), lambda label: list(data[label]), len(data)
    if isinstance(data, str | bytes) or not isinstance(data, Iterable):
        raise UsageError(f"{_ROWS_ARE}; found {type(data).__name__}")
    rows = list(data)
    for place, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise UsageError(f"{_ROWS_ARE}; row {place} is {type(row).__name__}")
    return {name: None for row in rows for name in row}, lambda label: [row.get(label) for row in rows], len(rows)


def _once(names: Iterable[Any]) -> Mapping[Any, None]:
    """Returns the names of columns. Raises UsageError if one is there twice."""
    counts = Counter(names)
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise UsageError(f"several columns have the name {few_labels(twice)}; expected each column's name once")
    return dict.fromkeys(counts)


def _column(values: Any, label: ColumnLabel) -> list[Any]:
    """Reads a column of a dict of columns."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise UsageError(
            f"the column {label!r} is {type(values).__name__}; expected a list with a value for each row. For one row, "
            "give a list of one dict"
        )
    return list(values)


def _expected(feature: Feature, schema: Schema, there: Iterable[ColumnLabel]) -> str:
    """Says which column a feature that is not there is read from."""
    names = file_labels(feature, schema)[0]
    similar = similar_name((feature.name, *names), there)
    size = f" of lists of {feature.width} values" if feature.raw and feature.raw.width is not None else ""
    columns = "" if names == (feature.name,) else f", or the file's {few_labels(names)}"
    return f"{feature.name}: expected one column {feature.name!r}{size}{columns}{similar}"


@dataclasses.dataclass(frozen=True)
class Request:
    """Inputs by name, arrays `[rows, ...]`; for each row why it is not sent ("" where it is), and its key if any."""

    inputs: Mapping[str, np.ndarray]
    errors: Sequence[str]
    keys: np.ndarray | None = None

    def take(self, places: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the inputs of some rows."""
        return {name: values[places] for name, values in self.inputs.items()}


def row_request(data: Any, schema: Schema) -> Request:
    """Reads rows for a CSV model.

    Raises:
      UsageError: a column is missing or ambiguous, columns are of different lengths, or a value is none that a cell of
        a file could hold.
    """
    columns, key = feature_values(data, schema), schema.key
    errors = [""] * len(next(iter(columns.values())))
    inputs = {}
    for column in serving_columns(schema):
        if column.name in columns:
            inputs[column.name], problems = column_array(
                columns[column.name], column, schema.missing_tokens[column.name]
            )
            for row, problem in problems.items():
                if problem.reason is None:
                    raise UsageError(f"row {row}, {column.name}: {problem.text}")
                errors[row] = errors[row] or f"{column.name}: {problem.reason}"
    return Request(inputs, errors, None if key is None else inputs.get(key.name))


def _unfit(value: Any, name: str, row: int, expected: str) -> UsageError:
    return UsageError(f"row {row}, {name}: found {type(value).__name__} {reprlib.repr(value)}; expected {expected}")


def image_request(data: Any, schema: ImageSchema) -> Request:
    """Reads images, or pairs of them, each a path or a file's bytes.

    Raises:
      UsageError: an element is neither.
    """
    names = schema.image_names
    if isinstance(data, str | bytes | os.PathLike) or not isinstance(data, Iterable):
        raise UsageError(f"images are a list, of one image too; found {type(data).__name__}")
    files: dict[str, list[bytes]] = {name: [] for name in names}
    errors = []
    for row, element in enumerate(data):
        images = (element,) if len(names) == 1 else element
        if isinstance(images, str | bytes) or not isinstance(images, Collection) or len(images) != len(names):
            raise _unfit(element, "pair", row, "two images, each a path or bytes")
        error = ""
        for name, image in zip(names, images, strict=True):
            image_bytes, reason = _read_image(image, name, row, schema)
            files[name].append(image_bytes)
            error = error or (f"{name}: {reason}" if reason else "")
        errors.append(error)
    return Request({name: np.array(contents or np.empty(0), object) for name, contents in files.items()}, errors)


def _read_image(image: Any, name: str, row: int, schema: ImageSchema) -> tuple[bytes, str]:
    """Returns a file's bytes and ""; or b"" and the reason why the image is not taken."""
    if isinstance(image, bytes):
        try:
            check_image(image, schema.images)
        except BadImage as bad:
            return b"", bad.reason
        return image, ""
    path = os.fspath(image) if isinstance(image, str | os.PathLike) else None
    if not isinstance(path, str) or "\0" in path:
        raise _unfit(image, name, row, "a path or a file's bytes")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise _unfit(image, name, row, "a path, without half of a surrogate pair") from None
    file = ImageFile(path, schema.images)
    try:
        file.measure()
        return file.read()[0], ""
    except ERRORS as error:
        return b"", file.refusal(error).reason


class PredictedColumns(dict[str, np.ndarray]):
    """Predictions by name: columns `[rows]`, so that `pandas.DataFrame(predictions)` is a table.

    An output of several values a row is a column for each: `probability_<class>`, or `<name>_<number>`. Under its own
    name, such as `probabilities`, it is one array `[rows, ...]`, which is no column.
    """

    def __init__(self, outputs: Mapping[str, np.ndarray], classes: Sequence[str]) -> None:
        super().__init__()
        self._wide = {name: values for name, values in outputs.items() if values.ndim > 1}
        for name, values in outputs.items():
            if values.ndim == 1:
                self[name] = values
                continue
            rows = values.reshape(len(values), math.prod(values.shape[1:]))
            names = [f"{name}_{i}" for i in range(rows.shape[1])]
            if name == PROBABILITIES:
                names = [f"{PROBABILITY}{label}" for label in classes]
            self.update(zip(names, rows.T, strict=True))

    def __missing__(self, name: str) -> np.ndarray:
        if name in self._wide:
            return self._wide[name]
        raise KeyError(name)


ROWS, IMAGES = 4096, 64  # per batch


class Model:
    """An export that predicts; opened by `load_model`. Close it, or use it in a `with`.

    Attributes:
      export_dir: the export's folder.
      schema: of the data that it was trained on.
      classes: their names by class id; empty for a regression.
    """

    def __init__(self, export_dir: str, *, trust: bool = False) -> None:
        self.export_dir = export_dir.rstrip("/")
        self.schema: AnySchema
        self.schema, notes = read_notes(self.export_dir)
        self.classes: tuple[str, ...] = notes.classes
        self._served = ServedModel(self.export_dir, trust=trust)
        self._known_values = KnownValues(self.export_dir, self.schema) if isinstance(self.schema, Schema) else None

    def predict(self, data: Any) -> PredictedColumns:
        """Predicts on raw rows, or on images.

        Args:
          data: of a CSV model rows, as a list of dicts, a dict of columns, a pandas DataFrame or an Arrow table, with
            values as they stand in the file (strings, numbers or truth values; None, NaN and the schema's tokens are
            missing). Columns have the names of the schema's features, or those of the file that the features are read
            from; a feature of several columns is these columns, or one of lists. Other columns are not read. Of an
            image model a list of images, each a path or a file's bytes; of a pair model a list of pairs of them.

        Returns:
          By name, columns `[rows]` in the order of `data`: `class`, `class_id` and a `probability_<class>` for each
          class, or `value`; `key` if the schema has one; and `error`: why a row has no prediction, '' if it has one.
          The outputs of a row without a prediction are NaN, '' and -1. `probabilities` gives the probabilities
          together, `[rows, classes]`.

        Raises:
          UsageError: a column that the model needs is missing or ambiguous, columns have different lengths, or a value
            is none that a cell could hold.
          MillraceError: the model failed.

        Warns:
          UserWarning: columns are ignored, since the schema does not declare them; or how many rows have a value of a
            category that training never saw.
        """
        if isinstance(self.schema, Schema):
            request, at_once = row_request(data, self.schema), ROWS
        else:
            request, at_once = image_request(data, self.schema), IMAGES
        good = np.flatnonzero([not error for error in request.errors])
        signature = RAW if set(self._served.signatures[RAW].inputs) == set(request.inputs) else WITHOUT_KEY
        with failures_as(f"{self.export_dir}: the model failed"):
            outputs = self._served.predict_rows(request.inputs, good, at_once, signature=signature)
        answers = {ERROR: np.full(len(good), b"", object), **outputs}
        if self._known_values is not None and isinstance(self.schema, Schema):
            self._warn(self._known_values, self.schema, request.take(good), answers[ERROR] == b"")
        return PredictedColumns(_in_place(answers, good, request), self.classes)

    @staticmethod
    def _warn(
        known_values: KnownValues, schema: Schema, inputs: Mapping[str, np.ndarray], answered: np.ndarray
    ) -> None:
        """Warns of values that the model does not know."""
        words = {name: pa.array(values, pa.binary()) for name, values in inputs.items() if values.dtype == object}
        unknown = known_values.count(words, answered)
        for note in notes_of(unknown, int(np.count_nonzero(answered)), schema):
            warnings.warn(note, stacklevel=3)

    def close(self) -> None:
        """Frees the model."""
        self._served.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Model of {self.schema.name} in {self.export_dir}>"


def _in_place(answers: Mapping[str, np.ndarray], good: np.ndarray, request: Request) -> dict[str, np.ndarray]:
    """Puts the answers at their rows' places, and nothing predicted in the rows that were not sent."""
    everything = spread(answers, good, len(request.errors))
    columns = {name: _as_text(everything[name]) for name in sorted(everything, key=_place)}
    if KEY in columns and request.keys is not None:  # also of the rows that were not sent
        refused = {row: canonical(key) for row, key in enumerate(_as_text(request.keys)) if request.errors[row]}
        columns[KEY] = np.array([refused.get(row, key) for row, key in enumerate(columns[KEY])], object)
    error_pairs = zip(columns[ERROR], request.errors, strict=True)
    return {**columns, ERROR: np.array([answered or refused for answered, refused in error_pairs], object)}


def _place(name: str) -> tuple[int, str]:
    """Where an output stands: the usual ones first, `error` last."""
    usual = (KEY, "class", "class_id", "probabilities", "value")
    return (usual.index(name) if name in usual else 8 if name != ERROR else 9, name)


def _as_text(values: np.ndarray) -> np.ndarray:
    """Bytes as text; other values as they are."""
    if values.dtype.kind != "O" or not values.size:
        return values
    return np.vectorize(lambda v: v.decode("utf-8", "replace") if isinstance(v, bytes) else v, otypes=[object])(values)
