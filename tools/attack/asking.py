"""Asks an exported model: a file of requests in, a file of answers out."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Model = Callable[[str, dict[str, Any]], dict[str, Any]]  # a signature and its inputs -> its outputs
WAYS = ("plain", "served")  # by plain TensorFlow, or in a session as a server does


def main(argv: Sequence[str]) -> int:
    """Takes the export's folder, one of WAYS, the file of requests, and the file to write.

    A request is `{"signature": name, "inputs": {name: values}}`. Strings travel as base64.
    """
    export, way, asked, answered = argv
    answers = []
    with {"plain": plain, "served": served}[way](export) as model:
        for request in json.loads(Path(asked).read_text()):
            outputs = model(request["signature"], {name: _array(v) for name, v in request["inputs"].items()})
            answers.append({name: written(value) for name, value in outputs.items()})
    Path(answered).write_text(json.dumps(answers))
    return 0


@contextlib.contextmanager
def plain(export: str) -> Iterator[Model]:
    """The model in plain TensorFlow, without a line of this project."""
    import tensorflow as tf

    signatures = tf.saved_model.load(export).signatures

    def ask(signature: str, inputs: dict[str, Any]) -> dict[str, Any]:
        outputs = signatures[signature](**{name: tf.constant(value) for name, value in inputs.items()})
        return {name: value.numpy() for name, value in outputs.items()}

    yield ask


@contextlib.contextmanager
def served(export: str) -> Iterator[Model]:
    """The model as this project's users open it."""
    from schemas.exports.model import ServedModel

    with ServedModel(export) as model:
        yield lambda signature, inputs: model.predict(inputs, signature=signature)


def _array(values: list[Any]) -> np.ndarray:
    """Strings (also where there are none: no batch of numbers is empty), or numbers."""
    if all(isinstance(value, str) for value in values):
        return np.array([base64.b64decode(value) for value in values], object)
    return np.array(values, np.float32)


def written(array: np.ndarray) -> Any:
    """Numbers as the hexadecimal of their bits where they are floats, so that bits can be compared."""
    if array.dtype.kind == "f":
        return {"bits": [row.tobytes().hex() for row in array], "nan": [bool(np.isnan(row).all()) for row in array]}
    if array.dtype.kind == "O":
        return {"text": [[base64.b64encode(value).decode() for value in np.ravel(row).tolist()] for row in array]}
    return {"ids": [np.ravel(row).tolist() for row in array]}
