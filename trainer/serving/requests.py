"""What a request asks for: its rows as arrays for the model, and how the answer is to look."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, Literal

import numpy as np

from schemas.spec.forms import RawColumn
from trainer.serving.errors import bad_request
from trainer.serving.examples import example_columns
from trainer.serving.interface import EXAMPLES, RAW, WITHOUT_KEY, Interface
from trainer.serving.values import Place, array_of, described, takes

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
        raise bad_request(f'expected one of "{INSTANCES}" (rows) and "{INPUTS}" (columns)')
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
    rows = [_unwrapped({**shared, **example}, inputs) for example in examples]
    arrays = _arrays_of_rows(rows, inputs, "examples", interface)
    return Rows(arrays, len(rows), form)


def _unwrapped(example: dict[str, Any], inputs: Mapping[str, RawColumn]) -> dict[str, Any]:
    """A list of one value is this value, as in a `tf.Example`; only where the input is no vector."""
    return {
        name: value[0]
        if type(value) is list and len(value) == 1 and name in inputs and not inputs[name].width
        else value
        for name, value in example.items()
    }


def _from_instances(rows: Any, inputs: Mapping[str, RawColumn], interface: Interface) -> Rows:
    if type(rows) is not list or not rows:
        raise bad_request(f'"{INSTANCES}": found {described(rows)}; expected a list of rows, at least one')
    if len(inputs) == 1:
        name = next(iter(inputs))
        rows = [row if type(row) is dict and name in row else {name: row} for row in rows]
    return Rows(_arrays_of_rows(rows, inputs, INSTANCES, interface), len(rows), "rows")


def _arrays_of_rows(
    rows: Sequence[Any], inputs: Mapping[str, RawColumn], where: str, interface: Interface
) -> dict[str, np.ndarray]:
    """The arrays of rows, each an object of exactly the inputs."""

    def place(row: int) -> str:
        return f"{where}[{row}]"

    try:
        if set(map(type, rows)) == {dict} and set(map(len, rows)) == {len(inputs)}:
            columns = [list(map(itemgetter(name), rows)) for name in inputs]
            return _arrays(dict(zip(inputs, columns, strict=True)), inputs, place, interface)
    except KeyError:
        pass
    for i, row in enumerate(rows):
        _check_names(row, inputs, place(i), interface)
    raise AssertionError(where)


def _check_names(row: Any, inputs: Mapping[str, RawColumn], where: str, interface: Interface) -> None:
    """Refuses a row that does not have exactly the inputs."""
    if type(row) is not dict:
        raise bad_request(f"{where}: found {described(row)}; expected an object with {', '.join(inputs)}")
    for name, column in inputs.items():
        if name not in row:
            raise bad_request(f"{where}: lacks {name!r}, which takes {takes(column, image=interface.images)}")
    for name in row:
        if name not in inputs:
            raise bad_request(
                f"{where}: has {name[:60]!r}, which the model does not take; it takes {', '.join(inputs)}"
            )


def _from_columns(columns: Any, inputs: Mapping[str, RawColumn], interface: Interface) -> Rows:
    if len(inputs) == 1 and not (type(columns) is dict and columns.keys() == inputs.keys()):
        columns = {next(iter(inputs)): columns}
    _check_names(columns, inputs, f'"{INPUTS}"', interface)
    for name, values in columns.items():
        if type(values) is not list or not values:
            raise bad_request(f'"{INPUTS}", {name!r}: {described(values)}; expected a list with a value for each row')
    sizes = {name: len(values) for name, values in columns.items()}
    if len(set(sizes.values())) > 1:
        found = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
        raise bad_request(f'"{INPUTS}": columns of different lengths: {found}')

    def place(row: int) -> str:
        return f'"{INPUTS}", row {row}'

    return Rows(_arrays(columns, inputs, place, interface), next(iter(sizes.values())), "columns")


def _arrays(
    columns: Mapping[str, Sequence[Any]], inputs: Mapping[str, RawColumn], place: Place, interface: Interface
) -> dict[str, np.ndarray]:
    return {name: array_of(columns[name], column, place, image=interface.images) for name, column in inputs.items()}


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
