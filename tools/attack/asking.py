"""Asks an exported model, by plain TensorFlow: a file of batches in, a file of answers out."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np


def main(argv: Sequence[str]) -> int:
    """Takes the export's folder, the file of batches, and the file to write. Strings travel as base64."""
    import tensorflow as tf

    export, asked, answered = argv
    signature = tf.saved_model.load(export).signatures["serving_default"]
    answers = []
    for batch in json.loads(Path(asked).read_text()):
        outputs = signature(**{name: _tensor(tf, values) for name, values in batch.items()})
        answers.append({name: _plain(value.numpy()) for name, value in outputs.items()})
    Path(answered).write_text(json.dumps(answers))
    return 0


def _tensor(tf: Any, values: list[Any]) -> Any:
    if isinstance(values[0], str):
        return tf.constant([base64.b64decode(value) for value in values])
    return tf.constant(values, tf.float32)


def _plain(array: Any) -> Any:
    """Numbers as the hexadecimal of their bits where they are floats, so that bits can be compared."""
    if array.dtype.kind == "f":
        return {"bits": [row.tobytes().hex() for row in array], "nan": [bool(np.isnan(row).all()) for row in array]}
    if array.dtype.kind == "O":
        flat = array.reshape(array.shape[0], -1).tolist()
        return {"text": [[base64.b64encode(value).decode() for value in row] for row in flat]}
    return {"ids": [row.reshape(-1).tolist() for row in array]}
