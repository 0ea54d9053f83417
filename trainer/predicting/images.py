"""Predicts image files with an exported model, batch by batch, and formats JSON lines.

The size of each file and the dimensions in its header are checked first. An image that the graph then rejects is a
reject, too, and does not affect the other images of its batch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from schemas.concurrency import map_in_order, prefetch
from schemas.exports.notes import Notes
from schemas.images.header import ends_early
from schemas.images.items import Item, list_items
from schemas.images.reading import (
    BATCH_SIZE,
    READERS,
    CheckedFile,
    ReadItem,
    Refusal,
    batches,
    decoder_says,
    read_item,
    reject_of,
    undecodable,
)
from schemas.rejects import Reject
from schemas.spec.images import ImageSchema
from trainer.export.saved_model import ServedModel
from trainer.predicting.image_lines import FIELDS, encode_lines
from trainer.predicting.options import SIGNATURES, Outcome, PredictOptions


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
        def read(item: Item) -> ReadItem:
            return read_item(item, schema.images)

        with ThreadPoolExecutor(READERS) as pool:
            everything = map_in_order(pool, read, listed.items, max_pending=2 * READERS)
            done = 0
            for batch in prefetch(batches(everything, batch_size)):
                outcome = _predicted(batch, model, SIGNATURES[options.signature], notes.classes)
                done += outcome.read
                yield dataclasses.replace(outcome, done=done / listed.count)

    return outcomes


def _predicted(batch: list[ReadItem], model: ServedModel, signature: str, classes: Sequence[str]) -> Outcome:
    sent = [read for read in batch if read.reject is None]
    rejects = {id(read): read.reject for read in batch if read.reject is not None}
    parts, refused = _run_parts(model, signature, sent)
    rejects |= {id(read): reject for read, reject in refused}
    lines = [line for reads, outputs in parts for line in encode_lines([r.item for r in reads], outputs, classes)]
    texts = dict(zip((id(read) for reads, _ in parts for read in reads), (line.text for line in lines), strict=True))
    texts |= {id(read): _rejected_text(read, rejects[id(read)]) for read in batch if id(read) in rejects}
    return Outcome(
        read=len(batch),
        predicted=len(lines),
        lines="".join(line.json for line in lines),
        rejects=[rejects[id(read)] for read in batch if id(read) in rejects],
        shown="".join(texts[id(read)] for read in batch),
    )


def _run_parts(
    model: ServedModel, signature: str, sent: list[ReadItem]
) -> tuple[list[tuple[list[ReadItem], Mapping[str, Any]]], list[tuple[ReadItem, Reject]]]:
    """Predicts all at once; returns the predictions, and the images that the model rejects.

    In an export of an earlier release, one bad image fails the batch: then each image is predicted alone to find it.
    """
    import tensorflow as tf

    if not sent:
        return [], []
    try:
        return _answered(sent, _run(model, signature, sent))
    except (tf.errors.OpError, UnicodeDecodeError):  # the latter: a message that contains bytes of a file
        parts, refused = [], []
    for read in sent:
        try:
            parts.append(([read], _run(model, signature, [read])))
        except (tf.errors.OpError, UnicodeDecodeError) as error:
            refused.append((read, _undecodable(read, error)))
    return parts, refused


def _answered(
    sent: list[ReadItem], outputs: Mapping[str, Any]
) -> tuple[list[tuple[list[ReadItem], Mapping[str, Any]]], list[tuple[ReadItem, Reject]]]:
    """The predictions of a batch, and rejects for the images that have none."""
    errors = outputs.get("error")
    if errors is None or not errors.any():
        return [(sent, outputs)], []
    good = np.flatnonzero(errors == b"")
    refused = []
    for read, error in zip(sent, errors, strict=True):
        if error:
            name = error.decode().partition(": ")[0]
            file = read.files[name]
            bad = undecodable(file.header, file.data, _decoder_error(file))
            refused.append((read, reject_of(read.item, name, file.read.refusal(bad))))
    return [([sent[i] for i in good], {name: values[good] for name, values in outputs.items()})], refused


def _run(model: ServedModel, signature: str, reads: Sequence[ReadItem]) -> Mapping[str, Any]:
    if signature == SIGNATURES["predict"]:
        names = reads[0].files
        inputs = {name: [read.files[name].data for read in reads] for name in names}
        return model.predict(inputs, signature=signature, outputs=FIELDS)
    return model.predict({"examples": [_example(read) for read in reads]}, signature=signature, outputs=FIELDS)


def _example(read: ReadItem) -> bytes:
    import tensorflow as tf

    features = {
        name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[file.data])) for name, file in read.files.items()
    }
    return bytes(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def _decoder_error(file: CheckedFile) -> Exception:
    """The error of TensorFlow's decoder for a file that the model rejects, since the model's output has no message."""
    import tensorflow as tf

    decoders: dict[str, Callable[[bytes], Any]] = {
        "jpeg": lambda data: tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE"),
        "png": lambda data: tf.io.decode_png(data, channels=3),
        "gif": tf.io.decode_gif,
        "bmp": tf.io.decode_bmp,
    }
    try:
        decoders[file.header.format](file.data)
    except (tf.errors.OpError, UnicodeDecodeError) as error:
        return error
    return ValueError("the model does not accept it")


def _undecodable(read: ReadItem, error: Exception) -> Reject:
    """The reject for an item that an export of an earlier release fails on; it does not say which image is bad."""
    import tensorflow as tf

    cut = [name for name, file in read.files.items() if ends_early(file.header, file.data)]
    names = cut[:1] or list(read.files)
    file = read.files[names[0]]
    if isinstance(error, tf.errors.ResourceExhaustedError):
        refusal = file.read.refusal(MemoryError())
    elif len(names) == 1:
        refusal = file.read.refusal(undecodable(file.header, file.data, error))
    else:
        refusal = Refusal("ingest", "undecodable_image", decoder_says(error))
    return reject_of(read.item, ", ".join(names), refusal)


def _rejected_text(read: ReadItem, reject: Reject) -> str:
    return f"{read.item.shown}: rejected, {reject.reason} ({reject.detail})\n"
