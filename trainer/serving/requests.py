"""The bodies of TensorFlow Serving's REST API: rows (`instances`) and columns (`inputs`), as arrays for the model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from schemas.spec.raw_columns import RawColumn
from trainer.serving.errors import bad_request
from trainer.serving.interface import RAW, WITHOUT_KEY, Interface
from trainer.serving.values import array_of, described

INSTANCES, INPUTS, SIGNATURE = "instances", "inputs", "signature_name"


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows for the model: arrays by input, of one length. `columnar`: the answer is by column, as the request was."""

    arrays: Mapping[str, np.ndarray]
    count: int
    columnar: bool = False


def predict_rows(body: Any, interface: Interface) -> Rows:
    """The rows of a predict request.

    Raises:
      Refused: it lacks an input, has another, or a value is not what its input takes.
    """
    if type(body) is not dict:
        raise bad_request(f'the body is {described(body)}; expected an object with "{INSTANCES}" or "{INPUTS}"')
    signature = body.get(SIGNATURE, RAW)
    if signature not in ((RAW, WITHOUT_KEY) if interface.key else (RAW,)):
        raise bad_request(f"{SIGNATURE}: {described(signature)}; expected {RAW}")
    inputs = interface.inputs(signature)
    if (INSTANCES in body) == (INPUTS in body):
        raise bad_request(f'expected one of "{INSTANCES}" (rows) and "{INPUTS}" (columns)')
    if INSTANCES in body:
        return _from_instances(body[INSTANCES], inputs, interface)
    return _from_columns(body[INPUTS], inputs, interface)


def _from_instances(rows: Any, inputs: Mapping[str, RawColumn], interface: Interface) -> Rows:
    if type(rows) is not list or not rows:
        raise bad_request(f'"{INSTANCES}": {described(rows)}; expected a list of rows, at least one')
    if len(inputs) == 1 and not _is_named(rows[0], inputs):
        name = next(iter(inputs))
        rows = [{name: value} for value in rows]
    columns = [_column(rows, name, inputs) for name in inputs]

    def place(row: int) -> str:
        return f"{INSTANCES}[{row}]"

    arrays = {
        name: array_of(values, column, place, image=interface.images)
        for (name, column), values in zip(inputs.items(), columns, strict=True)
    }
    return Rows(arrays, len(rows))


def _is_named(row: Any, inputs: Mapping[str, RawColumn]) -> bool:
    return type(row) is dict and row.keys() == inputs.keys()


def _column(rows: Sequence[Any], name: str, inputs: Mapping[str, RawColumn]) -> list[Any]:
    """The values of one input; each row is an object of exactly the inputs."""
    try:
        if set(map(len, rows)) == {len(inputs)}:
            return list(map(itemgetter(name), rows))
    except (TypeError, KeyError, IndexError):
        pass
    for i, row in enumerate(rows):
        check_names(row, inputs, f"{INSTANCES}[{i}]")
    raise AssertionError(name)


def check_names(row: Any, inputs: Mapping[str, RawColumn], where: str) -> None:
    """Refuses a row that does not have exactly the inputs."""
    from trainer.serving.values import takes

    if type(row) is not dict:
        raise bad_request(f"{where}: found {described(row)}; expected an object with {', '.join(inputs)}")
    for name, column in inputs.items():
        if name not in row:
            raise bad_request(f"{where}: lacks {name!r}, which takes {takes(column)}")
    for name in row:
        if name not in inputs:
            raise bad_request(
                f"{where}: has {name[:60]!r}, which the model does not take; it takes {', '.join(inputs)}"
            )


def _from_columns(columns: Any, inputs: Mapping[str, RawColumn], interface: Interface) -> Rows:
    if len(inputs) == 1 and not _is_named(columns, inputs):
        columns = {next(iter(inputs)): columns}
    check_names(columns, inputs, f'"{INPUTS}"')
    for name, values in columns.items():
        if type(values) is not list or not values:
            raise bad_request(f'"{INPUTS}", {name!r}: {described(values)}; expected a list with a value for each row')
    sizes = {name: len(values) for name, values in columns.items()}
    if len(set(sizes.values())) > 1:
        found = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
        raise bad_request(f'"{INPUTS}": columns of different lengths: {found}')

    def place(row: int) -> str:
        return f'"{INPUTS}", row {row}'

    arrays = {name: array_of(columns[name], c, place, image=interface.images) for name, c in inputs.items()}
    return Rows(arrays, next(iter(sizes.values())), columnar=True)
