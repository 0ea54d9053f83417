"""Images, or pairs of them, through an export: the outputs of a batch, and rejects of those that it refuses."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from schemas.errors import MillraceError
from schemas.exports.model import ERROR, EXAMPLES, EXAMPLES_INPUT, OUTPUTS, RAW, ServedModel
from schemas.images.reading import CheckedFile, ReadItem, reject_of, undecodable
from schemas.rejects import Reject


@dataclasses.dataclass(frozen=True)
class PredictedImages:
    """The items of a batch that have predictions, with the model's outputs `[answered, ...]`; and the others' rejects.

    `rejects` are by the item's place in the batch, rising.
    """

    answered: list[ReadItem]
    outputs: Mapping[str, np.ndarray]
    rejects: Mapping[int, Reject]


def predict_images(batch: Sequence[ReadItem], model: ServedModel, *, signature: str = RAW) -> PredictedImages:
    """Predicts a batch of items, some of which may be rejected already.

    Args:
      batch: the items.
      model: an export of their schema.
      signature: one of the export's.

    Raises:
      MillraceError: the model failed.
    """
    import tensorflow as tf

    rejects = {place: read.reject for place, read in enumerate(batch) if read.reject is not None}
    sent = [place for place in range(len(batch)) if place not in rejects]
    if not sent:
        return PredictedImages([], {}, rejects)
    try:
        outputs = _run(model, signature, [batch[place] for place in sent])
    except (tf.errors.OpError, UnicodeDecodeError) as error:  # the latter: a message that contains bytes of a file
        raise MillraceError(f"the model failed: {getattr(error, 'message', error)}") from error
    errors = outputs[ERROR]
    rejects |= {place: _refused(batch[place], e.decode()) for place, e in zip(sent, errors, strict=True) if e}
    good = np.flatnonzero(errors == b"")
    answered = [batch[sent[row]] for row in good.tolist()]
    return PredictedImages(
        answered, {name: values[good] for name, values in outputs.items()}, dict(sorted(rejects.items()))
    )


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

    try:
        if file.header.format == "jpeg":
            tf.io.decode_jpeg(file.data, channels=3, dct_method="INTEGER_ACCURATE")
        else:
            tf.io.decode_png(file.data, channels=3)
    except (tf.errors.OpError, UnicodeDecodeError) as error:
        return error
    return ValueError("the model does not accept it")
