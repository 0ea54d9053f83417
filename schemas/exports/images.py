"""Images, or pairs of them, through an export: the outputs of a batch, and rejects of those that it refuses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from schemas.errors import MillraceError
from schemas.exports.model import ERROR, EXAMPLES, EXAMPLES_INPUT, OUTPUTS, RAW, ServedModel
from schemas.images.header import ends_early
from schemas.images.reading import CheckedFile, ReadItem, Refusal, decoder_says, reject_of, undecodable
from schemas.rejects import Reject


@dataclasses.dataclass(frozen=True)
class PredictedImages:
    """The items of a batch that have predictions, with the model's outputs `[answered, ...]`; and the others' rejects.

    `rejects` are by the item's place in the batch, rising.
    """

    answered: list[ReadItem]
    outputs: Mapping[str, np.ndarray]
    rejects: Mapping[int, Reject]


def predict_images(
    batch: Sequence[ReadItem], model: ServedModel, *, signature: str = RAW, isolate: bool = False
) -> PredictedImages:
    """Predicts a batch of items, some of which may be rejected already.

    Args:
      batch: the items.
      model: an export of their schema.
      signature: one of the export's.
      isolate: where the model fails, predict each item alone to find out which it fails on: one bad image fails the
        batch in an export of an earlier release.

    Raises:
      MillraceError: the model failed, and `isolate` is not given.
    """
    import tensorflow as tf

    rejects = {place: read.reject for place, read in enumerate(batch) if read.reject is not None}
    sent = [place for place in range(len(batch)) if place not in rejects]
    parts: list[tuple[list[int], Mapping[str, np.ndarray]]] = []
    try:
        if sent:
            parts.append((sent, _run(model, signature, [batch[place] for place in sent])))
    except (tf.errors.OpError, UnicodeDecodeError) as failure:  # the latter: a message that contains bytes of a file
        if not isolate:
            raise MillraceError(f"the model failed: {getattr(failure, 'message', failure)}") from failure
        for place in sent:
            try:
                parts.append(([place], _run(model, signature, [batch[place]])))
            except (tf.errors.OpError, UnicodeDecodeError) as error:
                rejects[place] = _failed(batch[place], error)
    answered: list[int] = []
    outputs: list[Mapping[str, np.ndarray]] = []
    for places, found in parts:
        errors = found.get(ERROR, np.full(len(places), b"", object))
        rejects |= {place: _refused(batch[place], e.decode()) for place, e in zip(places, errors, strict=True) if e}
        good = np.flatnonzero(errors == b"")
        answered += [places[row] for row in good.tolist()]
        outputs.append({name: values[good] for name, values in found.items()})
    joined = {name: np.concatenate([part[name] for part in outputs]) for name in outputs[0]} if outputs else {}
    return PredictedImages([batch[place] for place in answered], joined, dict(sorted(rejects.items())))


def _run(model: ServedModel, signature: str, reads: Sequence[ReadItem]) -> Mapping[str, np.ndarray]:
    if signature == EXAMPLES:
        return model.predict({EXAMPLES_INPUT: list(map(_example, reads))}, signature=signature, outputs=OUTPUTS)
    inputs = {name: [read.files[name].data for read in reads] for name in reads[0].files}
    return model.predict(inputs, signature=signature, outputs=OUTPUTS)


def _example(read: ReadItem) -> bytes:
    import tensorflow as tf

    features = {
        name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[file.data])) for name, file in read.files.items()
    }
    return bytes(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def _refused(read: ReadItem, error: str) -> Reject:
    """The reject for an item with an `error`, which is `<input>: <reason>`; the decoder's own message says more."""
    name = error.partition(": ")[0]
    file = read.files[name]
    return reject_of(read.item, name, file.read.refusal(undecodable(file.header, file.data, _decoder_error(file))))


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


def _failed(read: ReadItem, error: Exception) -> Reject:
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
