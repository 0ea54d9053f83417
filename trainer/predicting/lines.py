"""Predictions as JSON lines, a batch at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from json.encoder import encode_basestring
from typing import Any

import numpy as np

FIELDS = ("key", "class_id", "probabilities", "value", "error")  # the outputs that lines are made of

_NUMBER = "%.9g"  # float32 in decimal and back is the same number


def encode_lines(
    outputs: Mapping[str, Any], *, source: str, offsets: np.ndarray, rows: np.ndarray, classes: Sequence[str]
) -> str:
    """One JSON object a line: source, offset, row; key where there is one; class and probabilities, or value.

    Args:
      outputs: what `trainer.export.outputs` names, NumPy arrays `[batch]` and `[batch, classes]`.
      source: the file that the rows come from.
      offsets: int64 `[batch]`, each row's first byte in the file.
      rows: int64 `[batch]`, each row's place among the file's records, counted from 0.
      classes: the classes' names by id; empty for a regression.

    Returns:
      The lines, each with its line end. A number that JSON has no word for (NaN, infinity) is null.
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
    """A template's part and its values for each column of `[batch, n]`."""
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
