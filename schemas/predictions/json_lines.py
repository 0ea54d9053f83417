"""JSON lines from the columns of predictions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from schemas.predictions.columns import INPUT, probabilities
from schemas.predictions.json_text import Piece, floats, integers, lines, named, objects, quoted, strings

_AT_ONCE = 1 << 19  # probabilities, whose text is in memory at once


def encode(batch: pa.RecordBatch, classes: Sequence[str]) -> list[pa.Buffer]:
    """One JSON object a row. NaN and infinity, which JSON does not know, are null.

    What is passed through is an object `input`, by the columns' names.
    """
    rows = max(1, _AT_ONCE // max(1, len(classes)))
    return [_encode(batch.slice(start, rows), classes) for start in range(0, batch.num_rows, rows)]


def _encode(batch: pa.RecordBatch, classes: Sequence[str]) -> pa.Buffer:
    passed = [name for name in batch.schema.names if name.startswith(INPUT)]
    pieces: list[Piece] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        pieces.append(", " if pieces else "{")
        if name in passed:
            opening = '"input": {' if name == passed[0] else ""
            closing = "}" if name == passed[-1] else ""
            pieces += [f"{opening}{quoted(name.removeprefix(INPUT))}: ", strings(column), closing]
            continue
        pieces.append(f'"{name}": ')
        match name:
            case "source" | "class":
                pieces.append(named(column))
            case "offset":
                pieces.append(integers(np.asarray(column)))
            case "probabilities":
                pieces += objects(probabilities(batch), classes)
            case "value":
                pieces.append(floats(np.asarray(column)))
            case _:
                pieces.append(strings(column))
    return lines([*pieces, "}\n"])
