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
from schemas.images.file import ERRORS, ImageFile, Refusal, decoder_says, undecodable
from schemas.images.header import ImageHeader, ends_early
from schemas.images.limits import decoding_bytes
from schemas.images.paths import plain
from schemas.rejects import Reject
from schemas.spec.image_options import ImageOptions
from schemas.spec.images import ImageSchema
from trainer.export.saved_model import ServedModel
from trainer.predicting.image_items import Item, list_items
from trainer.predicting.image_lines import FIELDS, encode_lines
from trainer.predicting.options import SIGNATURES, Outcome, PredictOptions

BATCH_SIZE = 64
BATCH_BYTES = 64 << 20  # maximum size of the files in a batch; a larger file is a batch of its own
DECODING_BYTES = 1 << 30  # maximum memory to decode all images of a batch
READERS = 4  # threads, since reading is mostly waiting, especially on a network disk


@dataclasses.dataclass(frozen=True)
class _File:
    """A file that passed the checks."""

    data: bytes
    header: ImageHeader
    decoding: int
    read: ImageFile


@dataclasses.dataclass(frozen=True)
class _Read:
    """An item and its files by input, or its reject."""

    item: Item
    files: Mapping[str, _File]
    reject: Reject | None = None

    @property
    def size(self) -> int:
        return sum(len(file.data) for file in self.files.values())

    @property
    def decoding(self) -> int:
        return sum(file.decoding for file in self.files.values())


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
        def read(item: Item) -> _Read:
            return _read(item, schema.images)

        with ThreadPoolExecutor(READERS) as pool:
            everything = map_in_order(pool, read, listed.items, max_pending=2 * READERS)
            done = 0
            for batch in prefetch(_batches(everything, batch_size)):
                outcome = _predicted(batch, model, SIGNATURES[options.signature], notes.classes)
                done += outcome.read
                yield dataclasses.replace(outcome, done=done / listed.count)

    return outcomes


def _read(item: Item, images: ImageOptions) -> _Read:
    files: dict[str, _File] = {}
    if item.problem is not None:
        return _Read(item, {}, _refused(item, "", Refusal("list", item.problem.reason, item.problem.detail)))
    for name, path in item.files.items():
        file = ImageFile(path, images)
        try:
            file.measure()
            data, header = file.read()
            files[name] = _File(data, header, decoding_bytes(header, images), file)
        except ERRORS as error:
            return _Read(item, {}, _refused(item, name, file.refusal(error)))
    return _Read(item, files)


def _batches(everything: Iterator[_Read], batch_size: int) -> Iterator[list[_Read]]:
    """Batches in order, rejects included, within the limits on images, bytes and decoding memory."""
    batch: list[_Read] = []
    size = decoding = 0
    for read in everything:
        size, decoding = size + read.size, decoding + read.decoding
        if batch and (len(batch) >= batch_size or size > BATCH_BYTES or decoding > DECODING_BYTES):
            yield batch
            batch, size, decoding = [], read.size, read.decoding
        batch.append(read)
    if batch:
        yield batch


def _predicted(batch: list[_Read], model: ServedModel, signature: str, classes: Sequence[str]) -> Outcome:
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
    model: ServedModel, signature: str, sent: list[_Read]
) -> tuple[list[tuple[list[_Read], Mapping[str, Any]]], list[tuple[_Read, Reject]]]:
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
    sent: list[_Read], outputs: Mapping[str, Any]
) -> tuple[list[tuple[list[_Read], Mapping[str, Any]]], list[tuple[_Read, Reject]]]:
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
            refused.append((read, _refused(read.item, name, file.read.refusal(bad))))
    return [([sent[i] for i in good], {name: values[good] for name, values in outputs.items()})], refused


def _run(model: ServedModel, signature: str, reads: Sequence[_Read]) -> Mapping[str, Any]:
    if signature == SIGNATURES["predict"]:
        names = reads[0].files
        inputs = {name: [read.files[name].data for read in reads] for name in names}
        return model.predict(inputs, signature=signature, outputs=FIELDS)
    return model.predict({"examples": [_example(read) for read in reads]}, signature=signature, outputs=FIELDS)


def _example(read: _Read) -> bytes:
    import tensorflow as tf

    features = {
        name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[file.data])) for name, file in read.files.items()
    }
    return bytes(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def _decoder_error(file: _File) -> Exception:
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


def _undecodable(read: _Read, error: Exception) -> Reject:
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
    return _refused(read.item, ", ".join(names), refusal)


def _refused(item: Item, name: str, refusal: Refusal) -> Reject:
    several = len(item.files) > 1
    detail = f"{plain(item.files[name])}: {refusal.detail}" if several and name in item.files else refusal.detail
    column = name or None if several else None
    return Reject(plain(item.source), item.place, refusal.stage, refusal.reason, column, detail, item.raw)


def _rejected_text(read: _Read, reject: Reject) -> str:
    return f"{read.item.shown}: rejected, {reject.reason} ({reject.detail})\n"
