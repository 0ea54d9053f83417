"""An exported model: fetched from a bucket, checked against its notes, and its graph in a session."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from schemas import storage
from schemas.errors import MillraceError
from schemas.exports.notes import NOTES_PATH, ExportNotes, check_files, read_notes
from schemas.exports.session import plain_session, quiet_logs
from schemas.rows import NGRAM_BATCH_BYTES
from schemas.spec.forms import RawColumn
from schemas.spec.loader import AnySchema
from schemas.spec.table import Schema, serving_columns
from schemas.storage import folders
from schemas.storage.gcs_access import check_tensorflow

# An export's signatures, and the input of that which takes serialized `tf.Example`s; see `trainer.export.receivers`.
RAW, EXAMPLES, WITHOUT_KEY = "serving_default", "examples:serving_default", "without_key:serving_default"
EXAMPLES_INPUT = "examples"
# Its outputs; see `trainer.export.outputs`.
KEY, CLASS, CLASS_ID, PROBABILITIES, VALUE, ERROR = "key", "class", "class_id", "probabilities", "value", "error"
OUTPUTS = (CLASS_ID, PROBABILITIES, VALUE, ERROR)  # what predictions are written from, beside the key


def inputs_of(schema: AnySchema) -> tuple[RawColumn, ...]:
    """Returns the columns of a request to an export: raw features and the key, or for each image its file's bytes."""
    if isinstance(schema, Schema):
        return serving_columns(schema)
    return tuple(RawColumn(name, "string") for name in schema.image_names)


class NotFetched(MillraceError):
    """An export cannot be read, or is not whole yet: this says nothing about the export, so it is tried again."""


@contextlib.contextmanager
def on_local_disk(export_dir: str) -> Iterator[str]:
    """Gives the folder, or a copy of one in a bucket, which is removed at the end: a loaded model needs no files.

    Raises:
      NotFetched: a file is missing, the store does not answer, or the disk is full.
      MillraceError: what the block raises, with the export's own path in place of the copy's.
    """
    if storage.is_local(export_dir):
        yield export_dir
        return
    with contextlib.ExitStack() as stack:
        try:
            _check_whole(export_dir)
            with storage.wrap_errors(export_dir):
                copy = stack.enter_context(tempfile.TemporaryDirectory(prefix="millrace-export-"))
            with _named(export_dir, copy):
                folders.copy(export_dir, copy)
        except MillraceError as error:
            raise NotFetched(str(error)) from error
        with _named(export_dir, copy):
            yield copy


@contextlib.contextmanager
def _named(export_dir: str, copy: str) -> Iterator[None]:
    """Has errors name the export and not its copy."""
    try:
        yield
    except MillraceError as error:
        raise type(error)(str(error).replace(copy, export_dir)) from error


def _check_whole(export_dir: str) -> None:
    """Spares copying an export that is still being uploaded."""
    missing = set(read_notes(export_dir)[1].files) - set(folders.walk(export_dir))
    if missing:
        raise MillraceError(f"{storage.join(export_dir, min(missing))}: missing, but {NOTES_PATH} names it")


def check_export(export_dir: str, *, trust: bool = False) -> tuple[AnySchema, ExportNotes]:
    """Checks an export as far as that goes without loading it; returns its schema and notes.

    Its arguments and errors are those of `ServedModel`.
    """
    schema, notes = read_notes(export_dir)
    check_files(export_dir, notes)
    if not trust:
        from schemas.graphs.check import check_graph

        check_graph(export_dir)
    return schema, notes


class ServedModel:
    """Runs a SavedModel's signatures like a server. Imports TensorFlow; a context manager; threads may share it.

    Its graph runs as it is, without Grappler: see `plain_session`.

    Args:
      export_dir: the export.
      checked: skip the checks, since they were just made or this process has just written the export.
      trust: load the graph even if it can do more than compute; the files are still compared with the notes.
      in_callers_thread: run a batch in the thread that asks for it, and not in several: several batches at once then
        keep the cores busy, with less work than one batch that is divided among threads.

    Raises:
      MillraceError: the files differ from the notes, or the graph can do more than compute.
    """

    def __init__(
        self, export_dir: str, *, checked: bool = False, trust: bool = False, in_callers_thread: bool = False
    ) -> None:
        check_tensorflow(export_dir)
        if not checked:
            check_export(export_dir, trust=trust)
        with quiet_logs():  # else with a notice of deprecation, which is about writing new code with sessions
            import tensorflow as tf

            config = plain_session(threads=1 if in_callers_thread else 0)
            self._options = tf.compat.v1.RunOptions(inter_op_thread_pool=-1) if in_callers_thread else None
            self._graph = tf.Graph()
            self._session = tf.compat.v1.Session(graph=self._graph, config=config)
            with self._graph.as_default():
                meta_graph = tf.compat.v1.saved_model.load(self._session, ["serve"], export_dir)
        self.signatures: Mapping[str, Any] = meta_graph.signature_def
        graph = meta_graph.graph_def
        nodes = itertools.chain(graph.node, *(function.node_def for function in graph.library.function))
        self._takes_ngrams = any(node.op == "StringNGrams" for node in nodes)

    def predict(
        self, inputs: Mapping[str, Any], *, signature: str = RAW, outputs: Collection[str] | None = None
    ) -> dict[str, Any]:
        """Runs one batch; in several pieces, where the n-grams of all its texts would take too much memory.

        Args:
          inputs: arrays with a leading batch dimension, by the signature's input names.
          signature: the signature's name.
          outputs: the outputs to compute, of those that the signature has; None: all.

        Returns:
          NumPy arrays by output name (strings as objects of `bytes`).
        """
        entry = self.signatures[signature]
        feeds = {entry.inputs[name].name: value for name, value in inputs.items()}
        fetches = {name: info.name for name, info in entry.outputs.items() if outputs is None or name in outputs}
        pieces = _pieces([np.asarray(x) for x in feeds.values()]) if self._takes_ngrams else []
        if len(pieces) < 2:
            return self._session.run(fetches, feeds, options=self._options)
        parts = [
            self._session.run(fetches, {name: x[piece] for name, x in feeds.items()}, options=self._options)
            for piece in pieces
        ]
        return {name: _joined([part[name] for part in parts], pieces) for name in fetches}

    def predict_rows(
        self, inputs: Mapping[str, np.ndarray], places: np.ndarray, at_once: int, *, signature: str = RAW
    ) -> dict[str, np.ndarray]:
        """Runs the rows at some places, in batches of at most `at_once`. Returns their outputs, `[places, ...]`."""
        batches = [places[start : start + at_once] for start in range(0, len(places), at_once)]
        parts = [
            self.predict({name: values[batch] for name, values in inputs.items()}, signature=signature)
            for batch in batches
        ] or [self.no_rows()]
        return parts[0] if len(parts) == 1 else {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}

    def no_rows(self) -> dict[str, np.ndarray]:
        """Returns the outputs of no rows, `[0, ...]`, without running the graph, which may fail on them."""
        import tensorflow as tf

        return {
            name: np.empty(
                (0, *(max(0, dim.size) for dim in info.tensor_shape.dim[1:])), tf.as_dtype(info.dtype).as_numpy_dtype
            )
            for name, info in sorted(self.signatures[RAW].outputs.items())
        }

    def close(self) -> None:
        """Frees the `tf.Session`."""
        self._session.close()

    def __enter__(self) -> ServedModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _pieces(columns: Sequence[np.ndarray]) -> list[slice]:
    """Cuts a batch's rows into pieces of about `NGRAM_BATCH_BYTES` of strings; a row of more is a piece of its own."""
    strings = [column for column in columns if column.dtype == object]
    if not strings or len({len(column) for column in columns}) != 1:  # the graph explains columns that do not fit
        return []
    lengths = [np.fromiter(map(len, column), np.int64, len(column)) for column in strings]
    blocks = np.cumsum(np.sum(lengths, axis=0)) // NGRAM_BATCH_BYTES
    starts = [0, *(np.flatnonzero(np.diff(blocks)) + 1).tolist(), len(blocks)]
    return [slice(start, end) for start, end in itertools.pairwise(starts)]


def _joined(parts: Sequence[np.ndarray], pieces: Sequence[slice]) -> np.ndarray:
    """Joins an output of all pieces; where it is not by row, as a custom model's may be, the first piece's is taken."""
    by_row = all(np.ndim(x) and len(x) == piece.stop - piece.start for x, piece in zip(parts, pieces, strict=True))
    return np.concatenate(parts) if by_row else parts[0]


@contextlib.contextmanager
def failures_as(what: str) -> Iterator[None]:
    """Raises a MillraceError, which begins with `what`, where TensorFlow fails in the block."""
    import tensorflow as tf

    try:
        yield
    except tf.errors.OpError as error:
        raise MillraceError(f"{what}: {error.message}") from error


def nothing(dtype: np.dtype) -> Any:
    """Returns the value of an output that stands for no prediction; see `trainer.export.outputs.withheld`."""
    return {"f": np.nan, "c": np.nan, "i": -1, "O": b"", "S": b""}.get(dtype.kind, 0)


def spread(outputs: Mapping[str, np.ndarray], places: np.ndarray, rows: int) -> dict[str, np.ndarray]:
    """Puts the outputs of some rows at their places among all rows, and no prediction in the others.

    An output that is not by row, as a custom model may give it, stays as it is.
    """
    full_outputs = {}
    for name, values in outputs.items():
        full_outputs[name] = values
        if len(values) == len(places):
            full_outputs[name] = np.full((rows, *values.shape[1:]), nothing(values.dtype), values.dtype)
            full_outputs[name][places] = values
    return full_outputs
