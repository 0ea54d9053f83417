"""The warm-up requests of an export: real records as requests, and what the trained model predicted for them.

TensorFlow Serving runs the requests of `assets.extra/tf_serving_warmup_requests` before a version takes traffic, so
that no client waits for what a graph does once. The file holds `PredictionLog`s in TFRecords. Each holds the response,
too, which TensorFlow Serving does not read: `millrace serve` compares it with what the loaded graph answers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from schemas import storage
from schemas.dataset import OpenDataset
from schemas.errors import MillraceError
from schemas.exports.session import plain_session
from schemas.graphs.saved_model import Messages, message_classes
from schemas.spec.forms import RawColumn
from schemas.spec.table import raw_columns


def strict_spec(columns: tuple[RawColumn, ...]) -> dict[str, Any]:
    """Returns the parsing spec of raw records. They contain every column, so a missing one is an error here."""
    import tensorflow as tf

    return {c.name: tf.io.FixedLenFeature(c.shape, tf.as_dtype(c.dtype)) for c in columns}


def graph_values(build: Callable[[Any], Mapping[str, Any]], records: Sequence[bytes]) -> dict[str, Any]:
    """Evaluates the tensors that `build` returns, in a new graph, since the caller may be inside another one.

    Args:
      build: string `[records]` -> tensors by name.
      records: the serialized records to feed.

    Returns:
      Arrays by name `[records, ...]`; for a sparse tensor, one array per record.
    """
    with opened_graph(build) as values:
        return values(records)


@contextlib.contextmanager
def opened_graph(build: Callable[[Any], Mapping[str, Any]]) -> Iterator[Callable[[Sequence[bytes]], dict[str, Any]]]:
    """Opens the graph of `graph_values`, to be fed more than once: yields a function from records to values by name."""
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        serialized = tf.compat.v1.placeholder(tf.string, [None])
        tensors = dict(build(serialized))
        begin = [tf.compat.v1.global_variables_initializer(), tf.compat.v1.tables_initializer()]
    with contextlib.closing(tf.compat.v1.Session(graph=graph, config=plain_session())) as session:
        session.run(begin)

        def values(records: Sequence[bytes]) -> dict[str, Any]:
            outputs = session.run(tensors, {serialized: list(records)})
            return {
                name: _records_of(value) if hasattr(value, "dense_shape") else value for name, value in outputs.items()
            }

        yield values


def raw_transform(dataset: OpenDataset) -> Callable[[Any], Mapping[str, Any]]:
    """Returns the function by which `graph_values` transforms raw records of rows."""

    def build(serialized: Any) -> Mapping[str, Any]:
        import tensorflow as tf

        from trainer.spec.transform_graph import row_transform

        return row_transform(dataset)(tf.io.parse_example(serialized, strict_spec(raw_columns(dataset.schema))))

    return build


def _records_of(sparse: Any) -> list[Any]:
    """A SparseTensorValue of rank 2 -> its values by record."""
    import numpy as np

    counts = np.bincount(sparse.indices[:, 0], minlength=int(sparse.dense_shape[0]))
    return np.split(sparse.values, np.cumsum(counts)[:-1])


FILE = os.path.join("assets.extra", "tf_serving_warmup_requests")
ROWS = 64  # of the larger request; the other one has a single row
MAX_BYTES = 8 << 20  # of the larger request: files of images may be large

# Of tensorflow_serving/apis; a TensorProto stays bytes, which TensorFlow itself reads.
_MESSAGES: Messages = {
    "PredictionLog": {"predict_log": (6, "PredictLog")},
    "PredictLog": {"request": (1, "PredictRequest"), "response": (2, "PredictResponse")},
    "PredictRequest": {"model_spec": (1, "ModelSpec"), "inputs": (2, "bytes{}")},
    "PredictResponse": {"outputs": (1, "bytes{}")},
    "ModelSpec": {"signature_name": (3, "string")},
}

Batch = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Recorded:
    """A request, and the answer that the trained model gave: arrays by name, `[rows, ...]`."""

    signature: str
    inputs: Batch
    outputs: Batch


def recorded(signature: str, inputs: Batch, outputs: Batch) -> Iterator[Recorded]:
    """Requests made of some records: one of a single row, and one of as many as fit.

    Args:
      signature: takes the inputs.
      inputs: by name, `[records, ...]`.
      outputs: what the trained model gave for them.
    """
    sizes = sum(_sizes(values) for values in inputs.values())
    fitting = int(np.searchsorted(np.cumsum(sizes), MAX_BYTES, side="right"))
    for rows in dict.fromkeys((1, max(1, min(fitting, ROWS)))):
        yield Recorded(signature, *({name: v[:rows] for name, v in batch.items()} for batch in (inputs, outputs)))


def write_warmup(export_dir: str, requests: Iterator[Recorded]) -> None:
    """Writes the requests to an export, which has not been published yet."""
    import tensorflow as tf

    path = os.path.join(export_dir, FILE)
    tf.io.gfile.makedirs(os.path.dirname(path))
    with tf.io.TFRecordWriter(path) as writer:
        for request in requests:
            log = _classes()["PredictionLog"]()
            predict = log.predict_log
            predict.request.model_spec.signature_name = request.signature
            for named, batch in ((predict.request.inputs, request.inputs), (predict.response.outputs, request.outputs)):
                for name, values in batch.items():
                    named[name] = tf.make_tensor_proto(values).SerializeToString()
            writer.write(log.SerializeToString())


def read_warmup(export_dir: str) -> list[Recorded]:
    """Reads the warm-up requests of an export; none where it has no such file.

    Raises:
      MillraceError: the file cannot be read.
    """
    import tensorflow as tf
    from google.protobuf.message import DecodeError
    from tensorflow.core.framework.tensor_pb2 import TensorProto

    path = os.path.join(export_dir, FILE)
    if not storage.exists(path):
        return []
    requests = []
    try:
        for record in tf.compat.v1.io.tf_record_iterator(path):
            predict = _classes()["PredictionLog"].FromString(record).predict_log
            inputs, outputs = (
                {name: tf.make_ndarray(TensorProto.FromString(data)) for name, data in named.items()}
                for named in (predict.request.inputs, predict.response.outputs)
            )
            requests.append(Recorded(predict.request.model_spec.signature_name, inputs, outputs))
    except (tf.errors.OpError, DecodeError, TypeError, ValueError) as error:
        raise MillraceError(f"{path}: cannot be read ({error}); export the model again") from error
    return requests


def _sizes(values: np.ndarray) -> np.ndarray:
    """The bytes of each record."""
    if values.dtype == object:
        return np.array([len(value) for value in values], np.int64)
    return np.full(len(values), values[:1].nbytes, np.int64)


@functools.cache
def _classes() -> dict[str, Any]:
    return message_classes(_MESSAGES)
