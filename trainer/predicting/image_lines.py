"""Predictions on images: as JSON lines, and as lines for people."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from schemas.images.paths import plain
from schemas.spec.cell_error import CellError

FIELDS = ("class_id", "probabilities", "error")  # the outputs that lines are made of
TOP = 5


@dataclasses.dataclass(frozen=True)
class Item:
    """An image to be predicted, or a pair of them.

    Attributes:
      source: the image's path, or the CSV file that names the pair.
      place: its number among the images, from 0; or the line in the CSV file, from 1.
      files: the images' paths by input.
      names: the pair's images as the CSV file calls them.
      problem: where there is nothing to predict on.
      raw: what the listing says of it, which its reject keeps: a line of the CSV file; of an image, its path.
    """

    source: str
    place: int
    files: Mapping[str, str]
    names: tuple[str, ...] = ()
    problem: CellError | None = None
    raw: bytes = b""

    @property
    def shown(self) -> str:
        """What it is called on a terminal."""
        return plain(" ".join(self.names or (self.source,)))


@dataclasses.dataclass(frozen=True)
class Line:
    """One prediction: a JSON line, and the same for people."""

    json: str
    text: str


def encode_lines(items: Sequence[Item], outputs: Mapping[str, Any], classes: Sequence[str]) -> list[Line]:
    """One line for each item: what it is, its class, and the most probable classes, at most five, in order.

    Args:
      items: `[batch]`.
      outputs: `class_id` int64 `[batch]`, `probabilities` float32 `[batch, classes]`. NaN becomes null.
      classes: their names by id.
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
        told = ", ".join(f"{name} {'?' if value is None else f'{value:.4f}'}" for name, value in top.items())
        lines.append(Line(f"{json.dumps(entry, ensure_ascii=False)}\n", f"{item.shown}: {told}\n"))
    return lines
