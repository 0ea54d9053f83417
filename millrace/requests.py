"""What a user hands to `Model.predict`, as the inputs of a served model, and why some rows are not sent."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from millrace.columns import feature_values
from schemas.csv.numbers import MissingTokens, missing_tokens, numbers
from schemas.errors import UsageError
from schemas.images.file import ERRORS, ImageFile
from schemas.images.header import BadImage
from schemas.images.limits import check_image
from schemas.spec.forms import RawColumn
from schemas.spec.images import ImageSchema
from schemas.spec.raw_columns import serving_columns
from schemas.spec.table import Schema

_ABSENT = frozenset({"NoneType", "NAType", "NaTType"})  # None, and what pandas has for it


@dataclasses.dataclass(frozen=True)
class Request:
    """Inputs by name, arrays `[rows, ...]`; for each row why it is not sent ("" where it is), and its key if any."""

    inputs: Mapping[str, np.ndarray]
    errors: Sequence[str]
    keys: np.ndarray | None = None

    def take(self, places: np.ndarray) -> dict[str, np.ndarray]:
        """The inputs of some rows."""
        return {name: values[places] for name, values in self.inputs.items()}


def row_request(data: Any, schema: Schema) -> Request:
    """Rows of a CSV model.

    Raises:
      UsageError: a column is missing or ambiguous, or columns are of different lengths.
    """
    columns, key = feature_values(data, schema), schema.key
    errors = [""] * len(next(iter(columns.values())))
    missing = missing_tokens(schema.csv.missing)
    inputs = {}
    for column in serving_columns(schema):
        if column.name in columns:
            inputs[column.name], problems = _values(columns[column.name], column, missing)
            for row, reason in problems.items():
                errors[row] = errors[row] or f"{column.name}: {reason}"
    return Request(inputs, errors, None if key is None else inputs.get(key.name))


def _values(values: Sequence[Any], column: RawColumn, missing: MissingTokens) -> tuple[np.ndarray, dict[int, str]]:
    """One input, and why some of its rows are not sent."""
    if column.dtype == "string":
        return np.array([_bytes(value) for value in values] or np.empty(0), object), {}
    if column.width is None:
        return _floats(values, missing)
    found = np.full((len(values), column.width), np.nan, np.float32)
    problems: dict[int, str] = {}
    for row, vector in enumerate(values):
        parts = [] if vector is None or isinstance(vector, str | bytes) else list(vector)
        if len(parts) != column.width:
            problems[row] = f"wrong_number_of_values ({len(parts)}, expected {column.width})"
            continue
        found[row], wrong = _floats(parts, missing)
        if wrong:
            problems[row] = next(iter(wrong.values()))
    return found, problems


def _floats(values: Sequence[Any], missing: MissingTokens) -> tuple[np.ndarray, dict[int, str]]:
    """float32 `[n]`; text is read as the CSV reader reads it."""
    texts = {i: _bytes(value) for i, value in enumerate(values) if isinstance(value, str | bytes)}
    found = np.array(
        [math.nan if i in texts or _absent(value) else value for i, value in enumerate(values)], np.float64
    ).astype(np.float32)
    if not texts:
        return found, {}
    read, problems = numbers(pa.array(texts.values(), pa.binary()), missing, if_absent=None)
    places = list(texts)
    found[places] = read
    return found, {places[i]: problem.reason for i, problem in problems.items()}


def _absent(value: Any) -> bool:
    return type(value).__name__ in _ABSENT or (isinstance(value, float) and math.isnan(value))


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return b"" if _absent(value) else str(value).encode()


def image_request(data: Any, schema: ImageSchema) -> Request:
    """Images, or pairs of them, each a path or a file's bytes.

    Raises:
      UsageError: an element is neither.
    """
    names = schema.image_names
    if isinstance(data, str | bytes | os.PathLike):
        raise UsageError("images are a list, of one image too")
    files: dict[str, list[bytes]] = {name: [] for name in names}
    errors = []
    for element in data:
        images = (element,) if len(names) == 1 else element
        if isinstance(images, str | bytes) or len(images) != len(names):
            raise UsageError(f"a pair is two images, each a path or bytes; found {type(element).__name__}")
        error = ""
        for name, image in zip(names, images, strict=True):
            found, reason = _read_image(image, schema)
            files[name].append(found)
            error = error or (f"{name}: {reason}" if reason else "")
        errors.append(error)
    return Request({name: np.array(found or np.empty(0), object) for name, found in files.items()}, errors)


def _read_image(image: Any, schema: ImageSchema) -> tuple[bytes, str]:
    """A file's bytes; or none, and the reason why it is not taken."""
    if isinstance(image, bytes):
        try:
            check_image(image, schema.images)
        except BadImage as bad:
            return b"", bad.reason
        return image, ""
    if not isinstance(image, str | os.PathLike):
        raise UsageError(f"an image is a path or a file's bytes; found {type(image).__name__}")
    file = ImageFile(os.fspath(image), schema.images)
    try:
        file.measure()
        return file.read()[0], ""
    except ERRORS as error:
        return b"", file.refusal(error).reason
