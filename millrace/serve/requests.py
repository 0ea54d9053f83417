"""Reads the rows of a request as arrays for the model, and says what is wrong with rows.

A row is an object with values as they stand in a raw file: a number may be text, a category may be a number or a truth
value, and null and NaN are missing. `/predict` gives a wrong row an error of its own; TensorFlow Serving's requests
fail for it. All is read before requests are batched, so that a broken one fails no other's.
"""

from __future__ import annotations

import base64
import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import orjson

from millrace.serve.model import Interface, RefusedRequest, bad_request
from millrace.values import column_array, described, takes
from schemas.errors import UsageError, did_you_mean, few
from schemas.exports.model import RAW, WITHOUT_KEY
from schemas.images.header import BadImage, check_image, decoding_bytes
from schemas.spec.forms import RawColumn
from schemas.spec.images import ImageSchema
from schemas.spec.naming import few_labels, file_labels, find_columns, similar_name, undeclared
from schemas.spec.table import served_features

INSTANCES, INPUTS, SIGNATURE = "instances", "inputs", "signature_name"
_B64 = "b64"
_SHOWN = 60  # characters of a value in an error
_HINTED, _COMPARED = 100, 32  # rows of different names that are compared with a lacking one, and how many names of each


@dataclasses.dataclass(frozen=True)
class RequestRows:
    """Rows for the model.

    Attributes:
      arrays: by input, a value for each row: float32 `[rows]` or `[rows, width]`, or objects of `bytes` `[rows]`. NaN
        and b"" in rows that are wrong. Infinite where a number is out of range, which the model answers with an error.
      count: how many rows the request has.
      form: how the answer looks.
      errors: why rows are wrong, by row.
      sent: those that could not be read as they were sent, in JSON.
      ignored: names that rows have and the schema does not declare.
      decoding: the bytes that decoding the images of each row takes, int64 `[rows]`; None where there are none.
    """

    arrays: Mapping[str, np.ndarray]
    count: int
    form: Literal["rows", "columns", "plain"]
    errors: Mapping[int, str] = dataclasses.field(default_factory=dict)
    sent: Mapping[int, bytes] = dataclasses.field(default_factory=dict)
    ignored: Sequence[str] = ()
    decoding: np.ndarray | None = None


def plain_rows(body: Any, interface: Interface, most: int) -> RequestRows:
    """Reads plain rows: a list of objects, or an object whose "rows" are one. A bad row gets an error of its own.

    Args:
      body: as JSON has it.
      interface: of the model.
      most: rows that are taken.

    Raises:
      RefusedRequest: it is neither, or has too many rows.
    """
    rows = body.get("rows") if type(body) is dict else body
    if type(rows) is not list or not rows:
        what = 'an object without "rows"' if type(body) is dict and "rows" not in body else described(rows)
        raise bad_request(f"found {what}; expected a list of rows, at least one, each an object: [{_form(interface)}]")
    _check_count(len(rows), most)
    arrays, errors, ignored = _read(rows, interface)
    sent = {row: _as_json(rows[row], row) for row in errors}
    return _with_images(RequestRows(arrays, len(rows), "plain", errors, sent, ignored), interface)


def predict_rows(body: Any, interface: Interface, most: int) -> RequestRows:
    """Reads TensorFlow Serving's predict request, by row (`instances`) or by column (`inputs`).

    Args: see `plain_rows`.

    Raises:
      RefusedRequest: it has too many rows, or one is wrong.
    """
    if type(body) is not dict or (INSTANCES in body) == (INPUTS in body):
        what = described(body) if type(body) is not dict else "both" if INPUTS in body else "neither"
        form = f'{{"{INSTANCES}": [{_form(interface)}]}}'
        raise bad_request(f'expected an object with "{INSTANCES}" (rows) or "{INPUTS}" (columns); found {what}: {form}')
    signature, signatures = body.get(SIGNATURE, RAW), [RAW] if interface.key is None else [RAW, WITHOUT_KEY]
    if signature not in signatures:
        raise bad_request(f"{SIGNATURE}: {described(signature)}; expected one of {', '.join(signatures)}")
    by_row = INSTANCES in body
    rows = _instances(body[INSTANCES], interface) if by_row else _rows_of_columns(body[INPUTS], interface, most)
    _check_count(len(rows), most)
    arrays, errors, ignored = _read(rows, interface)
    if errors:
        row = min(errors)
        place = f"{INSTANCES}[{row}]" if by_row else f'"{INPUTS}", row {row}'
        raise bad_request(f"{place}: {errors[row]}")
    return _with_images(RequestRows(arrays, len(rows), "rows" if by_row else "columns", ignored=ignored), interface)


def _check_count(rows: int, most: int) -> None:
    if rows > most:
        raise RefusedRequest(413, f"{rows:,} rows; at most {most:,} are taken in a request")


def _form(interface: Interface) -> str:
    """Shows what a row looks like."""
    return "{" + few([f'"{column.name}": ...' for column in interface.columns]) + "}"


def _instances(rows: Any, interface: Interface) -> list[Any]:
    if type(rows) is not list or not rows:
        raise bad_request(f'"{INSTANCES}": found {described(rows)}; expected a list of rows, at least one')
    if len(interface.columns) > 1:
        return rows
    name = interface.columns[0].name  # may be left out
    return [row if type(row) is dict and row.keys() != {_B64} else {name: row} for row in rows]


def _rows_of_columns(columns: Any, interface: Interface, most: int) -> list[Any]:
    if type(columns) is not dict and len(interface.columns) == 1:
        columns = {interface.columns[0].name: columns}
    sizes = {}
    for name, values in columns.items() if type(columns) is dict else ():
        if type(values) is not list or not values:
            what = f"found {described(values)}; expected a list with a value for each row"
            raise bad_request(f'"{INPUTS}", {name[:_SHOWN]!r}: {what}')
        sizes[name[:_SHOWN]] = len(values)
    _check_count(max(sizes.values(), default=0), most)
    if len(set(sizes.values())) != 1:
        what = ", ".join(f"{name} {size:,}" for name, size in sizes.items()) or described(columns)
        raise bad_request(f'"{INPUTS}": expected an object of columns of one length; found {what}')
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _as_json(row: Any, place: int) -> bytes:
    try:
        return orjson.dumps(row)
    except TypeError as error:
        if "surrogates" in str(error):
            return json.dumps(row).encode()
        raise bad_request(f"row {place}: is nested too deeply") from None  # it reads deeper lists than it writes


def _with_images(rows: RequestRows, interface: Interface) -> RequestRows:
    """Adds the errors of the image files that the preprocessing job would reject by their headers."""
    schema = interface.images
    if schema is None:
        return rows
    errors = dict(rows.errors)
    decoding = np.zeros(rows.count, np.int64)
    for name, files in rows.arrays.items():
        for row, data in enumerate(files.tolist()):
            try:
                decoding[row] += decoding_bytes(check_image(data, schema.images), schema.images)
            except BadImage as bad:
                errors.setdefault(row, f"{name}: {bad.reason}")
    return dataclasses.replace(rows, errors=errors, decoding=decoding)


class _Wrong(Exception):
    """A row or a value is not what the model takes: the text says why."""


def _read(rows: Sequence[Any], interface: Interface) -> tuple[dict[str, np.ndarray], dict[int, str], Sequence[str]]:
    """Returns the arrays of rows, what is wrong by row, and the names that are ignored."""
    names = _Names(interface)
    errors: dict[int, str] = {}
    named: list[Mapping[str, Any]] = []
    for i, row in enumerate(rows):
        try:
            named.append(names.renamed(row))
        except _Wrong as wrong:
            errors[i] = str(wrong)
            named.append({})
    arrays: dict[str, np.ndarray] = {}
    for column in interface.columns:
        values = [row.get(column.name) for row in named]
        arrays[column.name], problems = _column(values, column, interface)
        for i, problem in problems.items():
            errors.setdefault(i, f"{column.name}: {problem}")
    if errors:
        for array in arrays.values():
            array[list(errors)] = b"" if array.dtype == object else np.nan
    return arrays, errors, tuple(names.ignored)


class _Names:
    """The names of a request's rows, which are those of the inputs or those of the raw file's columns.

    Attributes:
      ignored: those that the schema does not declare.
    """

    def __init__(self, interface: Interface) -> None:
        self._interface = interface
        self._columns = {column.name: column for column in interface.columns}
        self._needed = self._columns.keys() - {interface.key}
        # Most rows of a request have the same names, which are looked up once: why they are wrong, or the names of the
        # file's columns by input, where these are others.
        self._sources: dict[tuple[str, ...], str | dict[str, Sequence[Any]]] = {}
        self.ignored: dict[str, None] = {}

    def renamed(self, row: Any) -> dict[str, Any]:
        """Returns a row under the names of the inputs.

        Raises:
          _Wrong: it is not an object, or lacks an input.
        """
        if type(row) is not dict:
            raise _Wrong(f"found {described(row)}; expected an object with {few(list(self._columns))}")
        names = tuple(row)
        sources = self._sources.get(names)
        if sources is None:
            sources = self._sources[names] = self._sources_of(row)
        if isinstance(sources, str):
            raise _Wrong(sources)
        if not sources:
            return row
        values = {name: [row[label] for label in labels] for name, labels in sources.items()}
        return {**row, **{n: parts[0] if self._columns[n].width is None else parts for n, parts in values.items()}}

    def _sources_of(self, row: Mapping[str, Any]) -> str | dict[str, Sequence[Any]]:
        if self._needed <= row.keys() <= self._interface.declared:
            return {}
        schema = self._interface.schema
        if isinstance(schema, ImageSchema):
            self.ignored.update(dict.fromkeys(row.keys() - self._needed))
            return next((self._lacks(name, row) for name in self._columns if name not in row), {})
        sources: dict[str, Sequence[Any]] = {}
        for feature in served_features(schema):
            try:
                labels = find_columns(feature, schema, row)
            except UsageError as error:
                return str(error)
            if labels is None and feature.name in self._needed:
                return self._lacks(feature.name, row, file_labels(feature, schema)[0])
            if labels is not None and labels != (feature.name,):
                sources[feature.name] = labels
        self.ignored.update(dict.fromkeys(undeclared(row, schema)))
        return sources

    def _lacks(self, name: str, row: Mapping[str, Any], in_file: Sequence[Any] = ()) -> str:
        problem = f"{name}: is not in the row; takes {_takes(self._columns[name], self._interface)}"
        if similar := similar_name((name, *in_file), row):
            return problem + similar
        undeclared_names = (other[:_SHOWN] for other in row if other not in self._interface.declared)
        compared = itertools.islice(undeclared_names, _COMPARED if len(self._sources) < _HINTED else 0)
        hints = (f"; it has {other!r}{near}" for other in compared if (near := did_you_mean(other, [name])))
        usual = f"; the file calls it {few_labels(in_file)}" if tuple(in_file) not in ((), (name,)) else ""
        return problem + next(hints, usual)


def _column(values: Sequence[Any], column: RawColumn, interface: Interface) -> tuple[np.ndarray, dict[int, str]]:
    """Returns the array of one input, NaN or b"" where a value is wrong; and by row what is wrong."""
    errors: dict[int, str] = {}
    if interface.images or (column.dtype == "string" and dict in map(type, values)):
        values = list(values)
        for row, value in enumerate(values):
            if type(value) is dict and value.keys() == {_B64} and type(value[_B64]) is str:
                try:  # TensorFlow Serving needs no padding
                    values[row] = base64.b64decode(value[_B64] + "=" * (-len(value[_B64]) % 4), validate=True)
                except ValueError:
                    values[row], errors[row] = None, "found text that is not base64"
            elif interface.images:
                values[row], errors[row] = None, f"found {described(value)}; takes {_takes(column, interface)}"
    array, problems = column_array(values, column, interface.missing[column.name])
    return array, {**{row: problem.text for row, problem in problems.items()}, **errors}


def _takes(column: RawColumn, interface: Interface) -> str:
    return 'the bytes of an image file, as {"b64": "<base64>"}' if interface.images else takes(column)
