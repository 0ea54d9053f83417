"""Formats predictions on images: as JSON lines, and as text."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from schemas.images.items import Item
from schemas.images.listing import plain

FIELDS = ("class_id", "probabilities", "error")  # the model outputs that lines need
TOP = 5


@dataclasses.dataclass(frozen=True)
class Line:
    """One prediction as a JSON line, and as text."""

    json: str
    text: str


def encode_lines(items: Sequence[Item], outputs: Mapping[str, Any], classes: Sequence[str]) -> list[Line]:
    """Formats one line per item: its source, its class, and up to five most probable classes in order.

    Args:
      items: `[batch]`.
      outputs: `class_id` int64 `[batch]`, `probabilities` float32 `[batch, classes]`. NaN becomes null.
      classes: class names by id.
    """
    probabilities = outputs["probabilities"]
    order = np.argsort(-probabilities, axis=1, kind="stable")[:, :TOP]
    lines = []
    for item, class_id, ids, row in zip(items, outputs["class_id"], order, probabilities, strict=True):
        top = {classes[i]: float(f"{row[i]:.9g}") if np.isfinite(row[i]) else None for i in ids.tolist()}
        entry: dict[str, Any] = {"source": plain(item.source)}
        if item.names:
            entry |= {"line": item.place, **dict(zip(item.files, map(plain, item.names), strict=True))}
        entry |= {"class": classes[int(class_id)], "top_5": top}
        text = ", ".join(f"{name} {'?' if value is None else f'{value:.4f}'}" for name, value in top.items())
        lines.append(Line(f"{json.dumps(entry, ensure_ascii=False)}\n", f"{item.shown}: {text}\n"))
    return lines
