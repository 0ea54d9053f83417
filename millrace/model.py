"""An exported model from Python: rows or images in, predictions by name out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from millrace.columns import Request, image_request, row_request
from schemas.errors import MillraceError
from schemas.exports.notes import read_notes
from schemas.spec.loader import AnySchema
from schemas.spec.table import Schema
from trainer.export.saved_model import ServedModel

KEY, ERROR = "key", "error"
ROWS, IMAGES = 4096, 64  # per batch


class Model:
    """An export that predicts; opened by `load_model`. Close it, or use it in a `with`.

    Attributes:
      export_dir: the export's folder.
      schema: of the data that it was trained on.
      classes: their names by class id; empty for a regression.
    """

    def __init__(self, export_dir: str, *, trust: bool = False) -> None:
        self.export_dir = export_dir.rstrip("/")
        self.schema: AnySchema
        self.schema, notes = read_notes(self.export_dir)
        self.classes: tuple[str, ...] = notes.classes
        self._served = ServedModel(self.export_dir, trust=trust)

    def predict(self, data: Any) -> dict[str, np.ndarray]:
        """Predicts on raw rows, or on images.

        Args:
          data: of a CSV model rows, as a list of dicts, a dict of columns or a pandas DataFrame, with values as they
            stand in the file (strings or numbers; None, NaN and the schema's tokens are missing). Columns have the
            names of the schema's features, or those of the file that the features are read from; a feature of several
            columns is these columns, or one of lists. Other columns are not read. Of an image model a list of images,
            each a path or a file's bytes; of a pair model a list of pairs of them.

        Returns:
          By name, arrays `[rows, ...]` in the order of `data`: `class`, `class_id` and `probabilities`, or `value`;
          `key` if the schema has one; and `error`: why a row has no prediction, '' if it has one. The outputs of a row
          without a prediction are NaN, '' and -1.

        Raises:
          UsageError: a column that the model needs is missing or ambiguous, or columns have different lengths.
          MillraceError: the model failed.
        """
        if isinstance(self.schema, Schema):
            request, at_once = row_request(data, self.schema), ROWS
        else:
            request, at_once = image_request(data, self.schema), IMAGES
        good = np.flatnonzero([not error for error in request.errors])
        parts = [self._run(request.take(good[start : start + at_once])) for start in range(0, len(good), at_once)]
        if not parts:
            parts = [self._run(request.take(good))]
        answers = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return _in_place(answers, good, request)

    def _run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        import tensorflow as tf

        from trainer.export.receivers import RAW, WITHOUT_KEY

        known = self._served.signatures[RAW].inputs
        signature = RAW if set(known) == set(inputs) else WITHOUT_KEY
        try:
            outputs = self._served.predict(inputs, signature=signature)
        except tf.errors.OpError as error:
            raise MillraceError(f"{self.export_dir}: the model failed: {error.message}") from error
        rows = len(next(iter(inputs.values())))
        return {ERROR: np.full(rows, b"", object), **outputs}

    def close(self) -> None:
        """Frees the model."""
        self._served.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Model of {self.schema.name} in {self.export_dir}>"


def _in_place(answers: Mapping[str, np.ndarray], good: np.ndarray, request: Request) -> dict[str, np.ndarray]:
    """The answers at their rows' places, and nothing predicted for the rows that were not sent."""
    found = {}
    for name in sorted(answers, key=_place):
        values = answers[name]
        if values.dtype.kind == "O" and values.size:
            values = np.vectorize(_text, otypes=[object])(values)
        if len(values) == len(good):  # else a model of one's own gives something that is not by row
            everything = np.full((len(request.errors), *values.shape[1:]), _nothing(values.dtype), values.dtype)
            everything[good] = values
            values = everything
        found[name] = values
    if KEY in found and request.keys is not None:
        found[KEY] = np.array([_text(key) for key in request.keys], object)
    said = zip(found[ERROR], request.errors, strict=True)
    return {**found, ERROR: np.array([answered or refused for answered, refused in said], object)}


def _place(name: str) -> tuple[int, str]:
    """Where an output stands: the usual ones first, `error` last."""
    usual = (KEY, "class", "class_id", "probabilities", "value")
    return (usual.index(name) if name in usual else 8 if name != ERROR else 9, name)


def _nothing(dtype: np.dtype) -> Any:
    """What stands for no answer, as in an export's own answers."""
    return {"f": np.nan, "c": np.nan, "i": -1, "O": ""}.get(dtype.kind, 0)


def _text(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
