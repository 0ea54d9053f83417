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
from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import Any, Literal

import numpy as np

from millrace.serve.model import Input, Interface, bad_request
from schemas.csv.values import MissingTokens, missing_tokens, numbers
from schemas.errors import did_you_mean, few
from schemas.exports.model import EXAMPLES, RAW, WITHOUT_KEY

_NUMBERS = frozenset({int, float})
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
    """

    arrays: Mapping[str, np.ndarray]
    count: int
    form: Form
    errors: Mapping[int, str] = dataclasses.field(default_factory=dict)
    sent: Mapping[int, bytes] = dataclasses.field(default_factory=dict)


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
        return _from_instances(values, inputs)
    return _from_columns(values, inputs)


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
    rows = [_unwrapped({**shared, **example}, inputs) for example in examples]
    arrays = _arrays_of_rows(rows, inputs, "examples")
    return Rows(arrays, len(rows), form)


def _unwrapped(example: dict[str, Any], inputs: Mapping[str, Input]) -> dict[str, Any]:
    """A list of one value is this value, as in a `tf.Example`; only where the input is no vector."""
    return {
        name: value[0]
        if type(value) is list and len(value) == 1 and name in inputs and not inputs[name].width
        else value
        for name, value in example.items()
    }


def _from_instances(rows: Any, inputs: Mapping[str, Input]) -> Rows:
    if type(rows) is not list or not rows:
        raise bad_request(f'"{INSTANCES}": found {described(rows)}; expected a list of rows, at least one')
    if len(inputs) == 1:
        name = next(iter(inputs))
        rows = [row if type(row) is dict and name in row else {name: row} for row in rows]
    return Rows(_arrays_of_rows(rows, inputs, INSTANCES), len(rows), "rows")


def _arrays_of_rows(rows: Sequence[Any], inputs: Mapping[str, Input], where: str) -> dict[str, np.ndarray]:
    """The arrays of rows, each an object of exactly the inputs."""

    place = f"{where}[{{}}]"
    try:
        if set(map(type, rows)) == {dict} and set(map(len, rows)) == {len(inputs)}:
            return _arrays({name: list(map(itemgetter(name), rows)) for name in inputs}, inputs, place)
    except KeyError:
        pass
    for i, row in enumerate(rows):
        _check_names(row, inputs, place.format(i))
    raise AssertionError(where)


def _check_names(row: Any, inputs: Mapping[str, Input], where: str) -> None:
    """Refuses a row that does not have exactly the inputs."""
    if type(row) is not dict:
        raise bad_request(f"{where}: found {described(row)}; expected an object with {', '.join(inputs)}")
    for name, column in inputs.items():
        if name not in row:
            raise bad_request(f"{where}: lacks {name!r}, which takes {takes(column)}{_misnamed(name, row, inputs)}")
    for name in row:
        if name not in inputs:
            raise bad_request(
                f"{where}: has {name[:60]!r}, which the model does not take; it takes {', '.join(inputs)}"
            )


def _misnamed(name: str, row: Mapping[str, Any], known: Collection[str]) -> str:
    """What of a row may be an input that it lacks, under another name."""
    given = itertools.islice((each[:_SHOWN] for each in row if each not in known), _COMPARED)
    return next((f"; it has {each!r}{hint}" for each in given if (hint := did_you_mean(each, [name]))), "")


def _form(interface: Interface) -> str:
    """How a row looks."""
    return "{" + few([f'"{column.name}": ...' for column in interface.columns]) + "}"


def _from_columns(columns: Any, inputs: Mapping[str, Input]) -> Rows:
    if len(inputs) == 1 and not (type(columns) is dict and columns.keys() == inputs.keys()):
        columns = {next(iter(inputs)): columns}
    _check_names(columns, inputs, f'"{INPUTS}"')
    for name, values in columns.items():
        if type(values) is not list or not values:
            raise bad_request(f'"{INPUTS}", {name!r}: {described(values)}; expected a list with a value for each row')
    sizes = {name: len(values) for name, values in columns.items()}
    if len(set(sizes.values())) > 1:
        found = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
        raise bad_request(f'"{INPUTS}": columns of different lengths: {found}')
    return Rows(_arrays(columns, inputs, f'"{INPUTS}", row {{}}'), next(iter(sizes.values())), "columns")


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

    A number may be text, which is read as the preprocessing job reads it; null is missing; the key may be left out.
    What else the schema declares, such as the label, may be there and is not read.

    Raises:
      Refused: it is neither.
    """
    rows = body.get("rows") if type(body) is dict else body
    if type(rows) is not list or not rows:
        what = 'an object without "rows"' if type(body) is dict and "rows" not in body else described(rows)
        raise bad_request(f"found {what}; expected a list of rows, at least one, each an object: [{_form(interface)}]")
    errors: dict[int, str] = {}
    for i, row in enumerate(rows):
        if problem := _names_problem(row, interface, hint=len(errors) < _HINTED):
            errors[i] = problem
    nothing = {column.name: [np.nan] * column.width for column in interface.columns if column.width is not None}
    read = [nothing if i in errors else row for i, row in enumerate(rows)]
    arrays: dict[str, np.ndarray] = {}
    for column in interface.columns:
        values = [_value(row.get(column.name), column) for row in read]
        arrays[column.name], problems = read_values(values, column, missing_tokens(interface.missing))
        for i, problem in problems.items():
            errors.setdefault(i, f"{column.name}: {problem}")
    for found in arrays.values():
        found[list(errors)] = b"" if found.dtype == object else np.nan
    return Rows(arrays, len(rows), "plain", errors, {i: _as_json(rows[i], i) for i in errors})


def _as_json(row: Any, place: int) -> bytes:
    import orjson

    try:
        return orjson.dumps(row)
    except TypeError:  # it reads deeper lists than it writes
        raise bad_request(f"row {place}: is nested too deeply") from None


def _names_problem(row: Any, interface: Interface, *, hint: bool) -> str:
    if type(row) is not dict:
        return f"found {described(row)}; a row is an object with {', '.join(c.name for c in interface.columns)}"
    known = {column.name for column in interface.columns} | interface.not_read
    for column in interface.columns:
        if column.name not in row and column.name != interface.key:
            near = _misnamed(column.name, row, known) if hint else ""
            return f"{column.name}: is not in the row; takes {takes(column)}{near}"
    for name in row:
        if name not in known:
            return (
                f"{name[:60]}: the model takes no such feature; it takes {', '.join(c.name for c in interface.columns)}"
            )
    return ""


def _value(value: Any, column: Input) -> Any:
    """A value in the form that other requests send; what it does not mean is left for the error."""
    if column.dtype == "string":
        if value is None:
            return "" if not column.image else value
        return str(value) if type(value) is int and not column.image else value
    if column.width is not None:
        return [np.nan if each is None else each for each in value] if type(value) is list else value
    return np.nan if value is None else value
