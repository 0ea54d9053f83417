"""Formats predictions on rows as JSON lines, batch by batch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from json.encoder import encode_basestring
from typing import Any

import numpy as np

FIELDS = ("key", "class_id", "probabilities", "value", "error")  # the model outputs that lines need

_NUMBER = "%.9g"  # enough digits to restore any float32 exactly


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
    fields = [('"offset": %d', offsets.tolist()), ('"row": %d', rows.tolist())]
    if "key" in outputs:
        fields.append(('"key": %s', [encode_basestring(key.decode("utf-8", "replace")) for key in outputs["key"]]))
    if classes:
        names = [encode_basestring(name) for name in classes]
        fields.append(('"class": %s', [names[i] for i in outputs["class_id"].tolist()]))
        fields += _numbers(outputs["probabilities"], names)
    else:
        fields += _numbers(outputs["value"][:, np.newaxis], None)
    parts = [part for part, _ in fields]
    template = "{" + ", ".join([f'"source": {_literal(json.dumps(source, ensure_ascii=False))}', *parts]) + "}\n"
    values: Iterable[tuple[Any, ...]] = zip(*(column for _, column in fields), strict=True)
    return "".join([template % row for row in values])


def _numbers(values: np.ndarray, names: Sequence[str] | None) -> list[tuple[str, list[Any]]]:
    """The part of the template and the values, for each column of `[batch, n]`."""
    finite = np.isfinite(values)
    columns: list[list[Any]] = values.T.tolist()
    number = _NUMBER
    if not finite.all():
        columns = [[_NUMBER % v if np.isfinite(v) else "null" for v in column] for column in columns]
        number = "%s"
    if names is None:
        return [(f'"value": {number}', columns[0])]
    parts = [f"{_literal(name)}: {number}" for name in names]
    parts[0] = f'"probabilities": {{{parts[0]}'
    parts[-1] += "}"
    return list(zip(parts, columns, strict=True))


def _literal(text: str) -> str:
    return text.replace("%", "%%")
