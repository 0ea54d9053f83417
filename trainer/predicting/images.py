"""Predicts image files with an exported model, batch by batch, and formats JSON lines or CSV.

The size of each file and the dimensions in its header are checked first. An image that the graph then rejects is a
reject, too, and does not affect the other images of its batch.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from schemas.concurrency import map_in_order, prefetch
from schemas.exports.images import predict_images
from schemas.exports.model import ServedModel
from schemas.exports.notes import Notes
from schemas.images.listing import Item, list_items, plain
from schemas.images.reading import BATCH_SIZE, READERS, batches, read_item
from schemas.predictions.encoding import PROBABILITY
from schemas.spec.images import ImageSchema
from trainer.predicting.options import SIGNATURES, Outcome, PredictOptions

TOP = 5


def open_images(
    options: PredictOptions, paths: Sequence[str], schema: ImageSchema, notes: Notes
) -> Callable[[ServedModel], Iterator[Outcome]]:
    """Opens images, or CSV files of pairs of images, for prediction.

    Returns:
      A function that reads the images and predicts them with a model.

    Raises:
      UsageError: a CSV file of pairs cannot be read, or the root is not a folder.
    """
    listed = list_items(schema, paths, options.root)
    batch_size = options.batch_size or BATCH_SIZE

    def outcomes(model: ServedModel) -> Iterator[Outcome]:
        read = functools.partial(read_item, images=schema.images)
        with ThreadPoolExecutor(READERS) as pool:
            everything = map_in_order(pool, read, listed.items, max_pending=2 * READERS)
            done, columns = 0, ""
            if options.as_csv:
                columns = _csv_header(schema, notes.classes)
            for batch in prefetch(batches(everything, batch_size)):
                found = predict_images(batch, model, signature=SIGNATURES[options.signature])
                items = [read.item for read in found.answered]
                lines = encode_lines(items, found.outputs, notes.classes)
                answered = iter(lines)
                written = "".join(line.json for line in lines)
                if options.as_csv:
                    written, columns = columns + _csv_lines(items, found.outputs, notes.classes), ""
                texts = [
                    f"{read.item.shown}: rejected, {found.rejects[place].reason} ({found.rejects[place].detail})\n"
                    if place in found.rejects
                    else next(answered).text
                    for place, read in enumerate(batch)
                ]
                done += len(batch)
                yield Outcome(
                    read=len(batch),
                    predicted=len(lines),
                    lines=written,
                    rejects=list(found.rejects.values()),
                    shown="".join(texts),
                    done=done / listed.count,
                )

    return outcomes


def _csv_header(schema: ImageSchema, classes: Sequence[str]) -> str:
    pair = ["line", *schema.image_names] if len(schema.image_names) > 1 else []
    return _csv([["source", *pair, "class", *(f"{PROBABILITY}{name}" for name in classes)]])


def _csv_lines(items: Sequence[Item], outputs: Mapping[str, Any], classes: Sequence[str]) -> str:
    """The same in CSV, with the probabilities of all classes; NaN is empty."""
    if not items:
        return ""
    rows = zip(items, outputs["class_id"].tolist(), outputs["probabilities"], strict=True)
    return _csv(
        [
            plain(item.source),
            *((item.place, *map(plain, item.names)) if item.names else ()),
            classes[class_id],
            *(f"{p:.9g}" if np.isfinite(p) else "" for p in probabilities),
        ]
        for item, class_id, probabilities in rows
    )


def _csv(rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


@dataclasses.dataclass(frozen=True)
class Line:
    """One prediction as a JSON line, and as text."""

    json: str
    text: str


def encode_lines(items: Sequence[Item], outputs: Mapping[str, Any], classes: Sequence[str]) -> list[Line]:
    """Formats one line per item: its source, its class, and up to five most probable classes in order.

    Args:
      items: `[batch]`.
      outputs: `class_id` int64 `[batch]`, `probabilities` float32 `[batch, classes]`; NaN becomes null. Without items,
        they may be left out.
      classes: class names by id.
    """
    if not items:
        return []
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
