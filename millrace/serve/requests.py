"""What a request asks for: its rows as arrays for the model, and how the answer is to look.

A row is an object of JSON values, a serialized `tf.Example`, which is read by the rules of `tf.io.parse_example`, or a
plain row, with values as they stand in a raw file. What of TensorFlow Serving's requests is not what the model takes
fails the request; a bad plain row gets an error of its own. All is read before requests are batched, so that a broken
one fails no other's.

The array of an input is float32 `[rows]` or `[rows, width]`, or objects of `bytes` `[rows]`. What is out of a float32's
range becomes infinite, which the model's own checks answer with an error of that row.
"""

from __future__ import annotations

import base64
import dataclasses
import itertools
import json
import math
from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import Any, Literal

import numpy as np

from millrace.serve.model import Input, Interface, bad_request
from schemas.csv.values import MissingTokens, missing_tokens, numbers
from schemas.errors import UsageError, did_you_mean, few
from schemas.exports.model import EXAMPLES, RAW, WITHOUT_KEY
from schemas.spec.naming import few_labels, file_labels, find_columns, similar_name, undeclared
from schemas.spec.table import Schema, served_features
from schemas.spec.words import word_of

_NUMBERS = frozenset({int, float})
_SCALARS = frozenset({int, float, bool})
_B64 = "b64"
_SHOWN = 60  # characters of a value in an error
_HINTED, _COMPARED = 100, 32  # wrong rows whose names are compared with one that is lacking, and how many, at most


def takes(column: Input) -> str:
    """What an input takes, for an error."""
    if column.image:
        return 'the bytes of an image file, as {"b64": "<base64>"}'
    if column.dtype == "string":
        return 'a string, or bytes as {"b64": "<base64>"} ("" where it is missing)'
    if column.width is None:
        return "a number (NaN where it is missing)"
    return f"a list of {column.width} numbers (NaN where one is missing)"


class _Wrong(Exception):
    """A value is not what its input takes: the text says why."""


def array_of(values: Sequence[Any], column: Input, place: str) -> np.ndarray:
    """The values of one input, one a row.

    Args:
      values: as JSON has them.
      column: the input.
      place: a row's name in an error, such as `instances[{}]`, in which its number is put.

    Raises:
      Refused: a value is not what the input takes.
    """
    found, problems = read_values(values, column)
    for row, problem in problems.items():
        raise bad_request(f"{place.format(row)}, {column.name!r}: {problem}")
    return found


def read_values(
    values: Sequence[Any], column: Input, tokens: MissingTokens | None = None
) -> tuple[np.ndarray, dict[int, str]]:
    """The values of one input, one a row, and those that it does not take.

    Args:
      values: as JSON has them.
      column: the input.
      tokens: of missing values, where a number may be text, as in a file; None: no text is a number.

    Returns:
      The array, NaN or b"" where a value is wrong; and by row what is wrong with it.
    """
    if column.dtype == "string":
        return _strings(values, column)
    size = column.width or 1
    try:
        if column.width is None:
            return _floats(values, len(values)), {}
        if set(map(type, values)) <= {list} and set(map(len, values)) <= {size}:
            parts = list(itertools.chain.from_iterable(values))
            return _floats(parts, len(values) * size).reshape(len(values), size), {}
    except (ValueError, OverflowError):
        pass
    found = np.full((len(values), size), np.nan, np.float32)
    problems: dict[int, str] = {}
    for row, value in enumerate(values):
        try:
            found[row] = _numbers(value, column, tokens)
        except _Wrong as wrong:
            problems[row] = str(wrong)
    return found if column.width is not None else found[:, 0], problems


def _strings(values: Sequence[Any], column: Input) -> tuple[np.ndarray, dict[int, str]]:
    """Objects of `bytes` `[rows]`, of strings and of base64."""
    found = np.full(len(values), b"", object)
    problems: dict[int, str] = {}
    for row, value in enumerate(values):
        try:
            if type(value) is str and not column.image:
                found[row] = value.encode()
            elif type(value) is dict and len(value) == 1 and type(value.get(_B64)) is str:
                found[row] = _base64(value[_B64])
            else:
                problems[row] = _mistyped(value, column)
        except UnicodeEncodeError:
            problems[row] = "holds half of a surrogate pair, which is no character"
        except ValueError:
            problems[row] = "found text that is not base64"
    return found, problems


def _floats(values: Sequence[Any], size: int) -> np.ndarray:
    """float32 `[size]`; ValueError where one is no number."""
    if not set(map(type, values)) <= _NUMBERS:
        raise ValueError
    with np.errstate(over="ignore"):
        return np.fromiter(values, np.float32, size)


def _numbers(value: Any, column: Input, tokens: MissingTokens | None) -> np.ndarray:
    """The numbers of one row.

    Raises:
      _Wrong: they are not what the input takes.
    """
    if tokens is not None:
        value = [_of_text(each, tokens) for each in value] if type(value) is list else _of_text(value, tokens)
    parts = [value] if column.width is None else value
    try:
        if type(parts) is list and len(parts) == (column.width or 1):
            return _floats(parts, len(parts))
    except (ValueError, OverflowError):
        pass
    raise _Wrong(_mistyped(value, column))


def _of_text(value: Any, tokens: MissingTokens) -> Any:
    """The number of a text, read as the preprocessing job reads it; other values as they are.

    Raises:
      _Wrong: a text is not a number.
    """
    if type(value) is not str:
        return value
    import pyarrow as pa

    try:
        read, problems = numbers(pa.array([value.encode()], pa.binary()), tokens, if_absent=None)
    except UnicodeEncodeError:
        raise _Wrong("is not text") from None
    if problems:
        raise _Wrong(f"{problems[0].reason} ({problems[0].detail})")
    return float(read[0])


def _is_number(value: Any) -> bool:
    try:
        return type(value) in _NUMBERS and float(value) is not None
    except OverflowError:  # an integer of more than 300 digits
        return False


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:  # without padding, as TensorFlow Serving takes it, too
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)


def _mistyped(value: Any, column: Input) -> str:
    return f"found {described(value, column)}; takes {takes(column)}"


def described(value: Any, column: Input | None = None) -> str:
    """A JSON value in an error: its type, and a short one itself."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return f"the string {value[:_SHOWN]!r}{'...' if len(value) > _SHOWN else ''}"
        case dict():
            return "an object"
        case int() | float():
            text = "an integer of too many digits" if isinstance(value, int) and abs(value) > 10**300 else str(value)
            return f"the number {text}" if text[0] != "a" else text
        case list() if column is not None and column.width is not None and len(value) == column.width:
            bad = next((each for each in value if not _is_number(each)), None)
            return f"{described(bad)} among its values"
        case list():
            return f"a list of {len(value):,}"
        case _:
            return type(value).__name__


_KINDS = {"float32": "float_list", "string": "bytes_list"}


def example_columns(values: Sequence[Any], interface: Interface) -> dict[str, np.ndarray]:
    """The columns of examples; what an example leaves out is missing.

    Args:
      values: as JSON has them, each {"b64": ...}.
      interface: its inputs.

    Raises:
      Refused: one is not an example, or holds another kind or number of values than an input takes.
    """
    from google.protobuf.message import DecodeError
    from tensorflow.core.example.example_pb2 import Example

    place = f"{EXAMPLES}[{{}}]"
    rows = []
    for i, data in enumerate(array_of(values, Input("examples", "string"), place).tolist()):
        try:
            rows.append(Example.FromString(data).features.feature)
        except DecodeError:
            raise bad_request(f"{place.format(i)}: found bytes that are not a serialized tf.Example") from None
    return {column.name: _column(rows, column, place) for column in interface.columns}


def _column(rows: Sequence[Any], column: Input, place: str) -> np.ndarray:
    text = column.dtype == "string"
    size = column.width or 1
    found: Any = np.full((len(rows), size), b"" if text else np.nan, object if text else np.float32)
    kind = _KINDS[column.dtype]
    for i, features in enumerate(rows):
        if column.name not in features:
            continue
        feature = features[column.name]
        given = feature.WhichOneof("kind")
        if given is None:
            continue
        if given != kind:
            raise bad_request(f"{place.format(i)}, {column.name!r}: found a {given}; expected a {kind}")
        held = getattr(feature, kind).value
        if len(held) != size:
            raise bad_request(f"{place.format(i)}, {column.name!r}: found {len(held)} values; expected {size}")
        found[i] = held
    return found if column.width is not None else found[:, 0]


INSTANCES, INPUTS, SIGNATURE = "instances", "inputs", "signature_name"
Form = Literal["rows", "columns", "classify", "regress", "plain"]


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows for the model.

    Attributes:
      arrays: by input, a value for each row; NaN and b"" in rows that are wrong.
      count: how many rows the request has.
      form: how the answer looks.
      errors: why rows are wrong, by row.
      sent: these rows as they were sent, in JSON.
      ignored: names that rows have and the schema does not declare.
    """

    arrays: Mapping[str, np.ndarray]
    count: int
    form: Form
    errors: Mapping[int, str] = dataclasses.field(default_factory=dict)
    sent: Mapping[int, bytes] = dataclasses.field(default_factory=dict)
    ignored: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class _Naming:
    """How rows that have the same names are read.

    Attributes:
      renamed: inputs that are under the names of the file's columns, with these.
      lacking: the first input that is not there; None if all are.
      in_file: for an error, what the raw file calls that input; "" if the same.
      similar: for an error, a name that looks like that; "" if there is none.
      problem: why the names are ambiguous; "" if they are not.
      ignored: the names that the schema does not declare.
    """

    renamed: Mapping[Input, Sequence[Any]] = dataclasses.field(default_factory=dict)
    lacking: Input | None = None
    in_file: str = ""
    similar: str = ""
    problem: str = ""
    ignored: Sequence[str] = ()

    def applied(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row, or columns, under the names of the inputs."""
        if not self.renamed:
            return row
        parts = {column: [row[label] for label in labels] for column, labels in self.renamed.items()}
        return {**row, **{c.name: values[0] if c.width is None else values for c, values in parts.items()}}


class _Names:
    """The names of a request's rows, which are those of the inputs or those of the raw file's columns.

    Args:
      inputs: of the signature.
      interface: of the model.
      optional: an input that may lack.
    """

    def __init__(self, inputs: Mapping[str, Input], interface: Interface, optional: str | None = None) -> None:
        self._inputs, self._schema = inputs, interface.schema
        self._needed = inputs.keys() - {optional}
        self._usual = {column.name for column in interface.columns} | interface.not_read
        self._read: dict[tuple[str, ...], _Naming] = {}
        self.ignored: dict[str, None] = {}

    def of(self, row: Mapping[str, Any]) -> _Naming:
        """How a row is read. Most rows of a request have the same names, which are compared once."""
        names = tuple(row)
        if names not in self._read:
            self._read[names] = naming = self._naming(row)
            self.ignored.update(dict.fromkeys(naming.ignored))
        return self._read[names]

    def _naming(self, row: Mapping[str, Any]) -> _Naming:
        if self._needed <= row.keys() <= self._usual:
            return _Naming()
        if not isinstance(self._schema, Schema):
            lacking = next((self._inputs[name] for name in self._inputs if name not in row), None)
            return _Naming(lacking=lacking, ignored=[name for name in row if name not in self._usual])
        renamed: dict[Input, Sequence[Any]] = {}
        for feature in served_features(self._schema):
            if feature.name not in self._inputs:
                continue
            try:
                labels = find_columns(feature, self._schema, row)
            except UsageError as error:
                return _Naming(problem=str(error))
            if labels is None and feature.name in self._needed:
                expected = file_labels(feature, self._schema)[0]
                in_file = "" if expected == (feature.name,) else f"; the file calls it {few_labels(expected)}"
                similar = similar_name((feature.name, *expected), row)
                return _Naming(lacking=self._inputs[feature.name], in_file=in_file, similar=similar)
            if labels is not None and labels != (feature.name,):
                renamed[self._inputs[feature.name]] = labels
        return _Naming(renamed, ignored=undeclared(row, self._schema))


def count_rows(body: Any) -> int:
    """How many rows a body has, by its longest list of rows or values, before any of them is read."""
    lists = [body]
    if type(body) is dict:
        columns = body.get(INPUTS)
        lists = [body.get(name) for name in ("rows", INSTANCES, "examples")]
        lists += columns.values() if type(columns) is dict else [columns]
    return max((len(rows) for rows in lists if type(rows) is list), default=0)


def predict_rows(body: Any, interface: Interface) -> Rows:
    """The rows of TensorFlow Serving's predict request, by row (`instances`) or by column (`inputs`).

    Raises:
      Refused: it lacks an input, has another, or a value is not what its input takes.
    """
    if type(body) is not dict:
        raise bad_request(f'the body is {described(body)}; expected an object with "{INSTANCES}" or "{INPUTS}"')
    signature = body.get(SIGNATURE, RAW)
    known = interface.by_signature
    if (INSTANCES in body) == (INPUTS in body):
        found = "both" if INSTANCES in body else "neither"
        form = f'{{"{INSTANCES}": [{_form(interface)}]}}'
        raise bad_request(
            f'found an object with {found}; expected one of "{INSTANCES}" (rows) and "{INPUTS}" (columns): {form}'
        )
    by_row = INSTANCES in body
    values = body[INSTANCES] if by_row else body[INPUTS]
    if signature == EXAMPLES:
        return _from_examples(values, interface, by_row=by_row)
    if type(signature) is not str or signature not in known:
        raise bad_request(f"{SIGNATURE}: {described(signature)}; expected one of {', '.join([*known, EXAMPLES])}")
    inputs = known[signature]
    if by_row:
        return _from_instances(values, inputs, interface)
    return _from_columns(values, inputs, interface)


def label_rows(body: Any, interface: Interface, form: Literal["classify", "regress"]) -> Rows:
    """The rows of a classify or regress request: `examples`, each an object, and the features that all share.

    Raises:
      Refused: as `predict_rows`, or the model does not do this.
    """
    if interface.classifies != (form == "classify"):
        other = "classify" if interface.classifies else "regress"
        raise bad_request(f"the model does not {form}; use :{other} or :predict")
    if type(body) is not dict or type(body.get("examples")) is not list or not body["examples"]:
        raise bad_request('expected an object with "examples", a list of objects, at least one')
    signature = body.get(SIGNATURE, RAW)
    if type(signature) is not str or signature not in interface.by_signature:
        raise bad_request(f"{SIGNATURE}: {described(signature)}; expected {RAW}")
    shared = body.get("context", {})
    if type(shared) is not dict:
        raise bad_request(f'"context": found {described(shared)}; expected an object')
    examples = body["examples"]
    for i, example in enumerate(examples):
        if type(example) is not dict:
            raise bad_request(f"examples[{i}]: found {described(example)}; expected an object")
        if twice := shared.keys() & example.keys():
            raise bad_request(f'examples[{i}]: has {min(twice)!r}, which "context" has, too')
    inputs = interface.by_signature[signature]
    if signature == RAW and interface.key is not None and not any(interface.key in e for e in (shared, *examples)):
        inputs = interface.by_signature[WITHOUT_KEY]
    rows, ignored = _named_rows([{**shared, **example} for example in examples], inputs, interface, "examples")
    arrays = _arrays({n: [_unwrapped(row[n], c) for row in rows] for n, c in inputs.items()}, inputs, "examples[{}]")
    return Rows(arrays, len(rows), form, ignored=ignored)


def _unwrapped(value: Any, column: Input) -> Any:
    """A list of one value is this value, as in a `tf.Example`; only where the input is no vector."""
    return value[0] if type(value) is list and len(value) == 1 and not column.width else value


def _from_instances(rows: Any, inputs: Mapping[str, Input], interface: Interface) -> Rows:
    if type(rows) is not list or not rows:
        raise bad_request(f'"{INSTANCES}": found {described(rows)}; expected a list of rows, at least one')
    if len(inputs) == 1:
        name = next(iter(inputs))
        rows = [row if type(row) is dict and row.keys() != {_B64} else {name: row} for row in rows]
    rows, ignored = _named_rows(rows, inputs, interface, INSTANCES)
    arrays = _arrays({name: list(map(itemgetter(name), rows)) for name in inputs}, inputs, f"{INSTANCES}[{{}}]")
    return Rows(arrays, len(rows), "rows", ignored=ignored)


def _named_rows(
    rows: Sequence[Any], inputs: Mapping[str, Input], interface: Interface, where: str
) -> tuple[Sequence[dict[str, Any]], Sequence[str]]:
    """Rows under the names of the inputs, and the names that are ignored.

    Raises:
      Refused: a row is no object, or lacks an input.
    """
    if set(map(type, rows)) == {dict} and all(row.keys() == inputs.keys() for row in rows):
        return rows, ()
    names = _Names(inputs, interface)
    return [_named(row, inputs, names, f"{where}[{i}]") for i, row in enumerate(rows)], tuple(names.ignored)


def _named(row: Any, inputs: Mapping[str, Input], names: _Names, where: str) -> dict[str, Any]:
    """A row, or columns, under the names of the inputs.

    Raises:
      Refused: it is no object, or lacks an input.
    """
    if type(row) is not dict:
        raise bad_request(f"{where}: found {described(row)}; expected an object with {', '.join(inputs)}")
    naming = names.of(row)
    if naming.problem:
        raise bad_request(f"{where}: {naming.problem}")
    if naming.lacking is not None:
        name = naming.lacking.name
        hint = naming.similar or _misnamed(name, row, inputs) or naming.in_file
        raise bad_request(f"{where}: lacks {name!r}, which takes {takes(naming.lacking)}{hint}")
    return naming.applied(row)


def _misnamed(name: str, row: Mapping[str, Any], known: Collection[str]) -> str:
    """What of a row may be an input that it lacks, under another name."""
    given = itertools.islice((each[:_SHOWN] for each in row if each not in known), _COMPARED)
    return next((f"; it has {each!r}{hint}" for each in given if (hint := did_you_mean(each, [name]))), "")


def _form(interface: Interface) -> str:
    """How a row looks."""
    return "{" + few([f'"{column.name}": ...' for column in interface.columns]) + "}"


def _from_columns(columns: Any, inputs: Mapping[str, Input], interface: Interface) -> Rows:
    if len(inputs) == 1 and type(columns) is not dict:
        columns = {next(iter(inputs)): columns}
    names = _Names(inputs, interface)
    named = _named(columns, inputs, names, f'"{INPUTS}"')
    wide = {column.name for column in names.of(columns).renamed if column.width is not None}
    read = {name: _side_by_side(named[name], name) if name in wide else named[name] for name in inputs}
    for name, values in read.items():
        if type(values) is not list or not values:
            raise bad_request(f'"{INPUTS}", {name!r}: {described(values)}; expected a list with a value for each row')
    sizes = {name: len(values) for name, values in read.items()}
    if len(set(sizes.values())) > 1:
        found = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
        raise bad_request(f'"{INPUTS}": columns of different lengths: {found}')
    arrays = _arrays(read, inputs, f'"{INPUTS}", row {{}}')
    return Rows(arrays, next(iter(sizes.values())), "columns", ignored=tuple(names.ignored))


def _side_by_side(columns: Sequence[Any], name: str) -> list[list[Any]]:
    """Columns of numbers as the vectors of an input."""
    if any(type(values) is not list or len(values) != len(columns[0]) for values in columns):
        raise bad_request(f'"{INPUTS}", {name!r}: expected columns that are lists of one length')
    return [list(row) for row in zip(*columns, strict=True)]


def _arrays(columns: Mapping[str, Sequence[Any]], inputs: Mapping[str, Input], place: str) -> dict[str, np.ndarray]:
    return {name: array_of(columns[name], column, place) for name, column in inputs.items()}


def _from_examples(values: Any, interface: Interface, *, by_row: bool) -> Rows:
    """Rows that are serialized `tf.Example`s."""
    if by_row and type(values) is list:
        values = [v["examples"] if type(v) is dict and v.keys() == {"examples"} else v for v in values]
    elif type(values) is dict and values.keys() == {"examples"}:
        values = values["examples"]
    if type(values) is not list or not values:
        raise bad_request(f"{EXAMPLES}: found {described(values)}; expected a list of tf.Examples, at least one")
    arrays = example_columns(values, interface)
    return Rows(arrays, len(values), "rows" if by_row else "columns")


def plain_rows(body: Any, interface: Interface) -> Rows:
    """The rows of a body: a list of objects, or an object whose "rows" are one. A bad row gets an error of its own.

    A number may be text, which is read as the preprocessing job reads it; null and NaN are missing; the key may be left
    out. What else is there, such as the label, is not read.

    Raises:
      Refused: it is neither.
    """
    rows = body.get("rows") if type(body) is dict else body
    if type(rows) is not list or not rows:
        what = 'an object without "rows"' if type(body) is dict and "rows" not in body else described(rows)
        raise bad_request(f"found {what}; expected a list of rows, at least one, each an object: [{_form(interface)}]")
    inputs = {column.name: column for column in interface.columns}
    names = _Names(inputs, interface, optional=interface.key)
    errors: dict[int, str] = {}
    nothing = {column.name: [np.nan] * column.width for column in interface.columns if column.width is not None}
    read: list[dict[str, Any]] = []
    for i, row in enumerate(rows):
        if problem := _names_problem(row, interface, names, hint=len(errors) < _HINTED):
            errors[i] = problem
        read.append(nothing if problem else names.of(row).applied(row))
    arrays: dict[str, np.ndarray] = {}
    for column in interface.columns:
        values = [_value(row.get(column.name), column) for row in read]
        arrays[column.name], problems = read_values(values, column, missing_tokens(interface.missing[column.name]))
        for i, problem in problems.items():
            errors.setdefault(i, f"{column.name}: {problem}")
    for found in arrays.values():
        found[list(errors)] = b"" if found.dtype == object else np.nan
    sent = {i: _as_json(rows[i], i) for i in errors}
    return Rows(arrays, len(rows), "plain", errors, sent, tuple(names.ignored))


def _as_json(row: Any, place: int) -> bytes:
    import orjson

    try:
        return orjson.dumps(row)
    except TypeError as error:
        if "surrogates" in str(error):
            return json.dumps(row).encode()
        raise bad_request(f"row {place}: is nested too deeply") from None  # it reads deeper lists than it writes


def _names_problem(row: Any, interface: Interface, names: _Names, *, hint: bool) -> str:
    if type(row) is not dict:
        return f"found {described(row)}; a row is an object with {', '.join(c.name for c in interface.columns)}"
    naming = names.of(row)
    if naming.lacking is None:
        return naming.problem
    known = {column.name for column in interface.columns} | interface.not_read
    near = naming.similar or (_misnamed(naming.lacking.name, row, known) if hint else "") or naming.in_file
    return f"{naming.lacking.name}: is not in the row; takes {takes(naming.lacking)}{near}"


def _value(value: Any, column: Input) -> Any:
    """A value in the form that other requests send; what it does not mean is left for the error."""
    if column.dtype == "string":
        if column.image:
            return value
        if value is None or (
            type(value) is float and math.isnan(value)
        ):  # NaN, as Python's json writes a missing value of pandas
            return ""
        return word_of(value) if type(value) in _SCALARS else value
    if column.width is not None:
        return [np.nan if each is None else each for each in value] if type(value) is list else value
    return np.nan if value is None else value
