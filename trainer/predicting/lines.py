"""Formats predictions on rows as JSON lines, batch by batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.predictions import encoding
from schemas.predictions.encoding import Piece

FIELDS = ("key", "class_id", "probabilities", "value", "error")  # the model outputs that lines need


def encode_lines(
    outputs: Mapping[str, Any], *, source: str, offsets: np.ndarray, rows: np.ndarray, classes: Sequence[str]
) -> str:
    """Formats one JSON object per row: source, offset, row, key if any; class and probabilities, or value.

    Args:
      outputs: the outputs in `trainer.export.outputs`, NumPy arrays `[batch]` and `[batch, classes]`.
      source: the file of the rows.
      offsets: int64 `[batch]`, the offset of each row's first byte in the file.
      rows: int64 `[batch]`, the index of each row among the file's records, from 0.
      classes: class names by id; empty for a regression.

    Returns:
      The lines, with line ends. NaN and infinity, which JSON cannot represent, are null.
    """
    pieces: list[Piece] = [f'{{"source": {encoding.quoted(source)}, "offset": ', encoding.integers(offsets)]
    pieces += [', "row": ', encoding.integers(rows)]
    if "key" in outputs:
        keys = pa.array([key.decode("utf-8", "replace") for key in outputs["key"]], pa.string())
        pieces += [', "key": ', encoding.strings(keys)]
    if classes:
        ids = pa.array(outputs["class_id"].astype(np.int32))
        named = pa.DictionaryArray.from_arrays(ids, pa.array(classes, pa.string()))
        pieces += [', "class": ', encoding.named(named), ', "probabilities": ']
        pieces += encoding.objects(outputs["probabilities"], classes)
    else:
        pieces += [', "value": ', encoding.floats(outputs["value"])]
    return encoding.lines([*pieces, "}\n"]).to_pybytes().decode()
