"""What an export takes and gives, as its requests and answers see it: the same of all versions that one server has.

What a request is answered with when it gets no predictions.

What decoding the images of a request takes, known from their headers before anything is decoded.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from schemas.errors import MillraceError
from schemas.exports.model import RAW, WITHOUT_KEY, inputs_of
from schemas.images.header import BadImage, check_image, decoding_bytes
from schemas.spec.features import CategoryLabel
from schemas.spec.forms import RawColumn
from schemas.spec.images import ImageSchema
from schemas.spec.loader import AnySchema
from schemas.spec.table import Schema


class Refused(MillraceError):
    """A request that is answered with an error: an HTTP status, and a message for its client."""

    def __init__(self, status: int, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after  # seconds


def bad_request(message: str) -> Refused:
    """The request is wrong: its client must change it."""
    return Refused(400, message)


@dataclasses.dataclass(frozen=True)
class Input(RawColumn):
    """An input of the model. `image`: it takes files of images, which messages do not say again."""

    image: bool = False

    def __repr__(self) -> str:
        return repr(RawColumn(self.name, self.dtype, self.width))


@dataclasses.dataclass(frozen=True)
class Output:
    """An output of the model: its dtype's name, and its shape without the batch (None: not known)."""

    dtype: str
    shape: tuple[int | None, ...] | None


@dataclasses.dataclass(frozen=True)
class Interface:
    """What an export takes and gives.

    Attributes:
      schema: of the data that the model was trained on.
      columns: the inputs, with the key last where there is one.
      key: the key's name; None if there is none.
      classes: their names by id; empty for a regression.
      outputs: by name.
    """

    schema: AnySchema
    columns: tuple[Input, ...]
    key: str | None
    classes: tuple[str, ...]
    outputs: Mapping[str, Output]

    @property
    def images(self) -> bool:
        """Whether the inputs are files of images."""
        return isinstance(self.schema, ImageSchema)

    @property
    def missing(self) -> tuple[str, ...]:
        """The tokens of a missing value."""
        return self.schema.csv.missing if isinstance(self.schema, Schema) else ()

    @property
    def classifies(self) -> bool:
        """Whether the model answers with classes."""
        return self.images or (isinstance(self.schema, Schema) and isinstance(self.schema.label, CategoryLabel))

    @functools.cached_property
    def by_signature(self) -> dict[str, dict[str, Input]]:
        """The inputs of each signature that takes them by name."""
        everything = {column.name: column for column in self.columns}
        if self.key is None:
            return {RAW: everything}
        return {RAW: everything, WITHOUT_KEY: {n: column for n, column in everything.items() if n != self.key}}

    @functools.cached_property
    def not_read(self) -> frozenset[str]:
        """What else the schema declares, such as the label: a plain row may have it, and it is not read."""
        if not isinstance(self.schema, Schema):
            return frozenset()
        return frozenset(item.name for item in self.schema.items) - {column.name for column in self.columns}

    def no_rows(self) -> dict[str, np.ndarray]:
        """The outputs of a model that was given nothing, `[0, ...]`."""
        import tensorflow as tf

        return {
            name: np.empty((0, *(size or 0 for size in output.shape or ())), tf.as_dtype(output.dtype).as_numpy_dtype)
            for name, output in self.outputs.items()
        }

    def difference(self, other: Interface) -> str | None:
        """What a client of this interface would notice of the other one; None if nothing."""
        for name in ("columns", "key", "classes", "missing", "outputs"):
            mine, others = getattr(self, name), getattr(other, name)
            if mine != others:
                return f"its {name} are {_short(others)}, and those of the model in service {_short(mine)}"
        return None


def interface_of(schema: AnySchema, classes: tuple[str, ...], signature: Any) -> Interface:
    """The interface of an export. `signature`: its default one, as the SavedModel has it."""
    outputs = {name: _output(info) for name, info in sorted(signature.outputs.items())}
    key = schema.key.name if isinstance(schema, Schema) and schema.key else None
    images = isinstance(schema, ImageSchema)
    columns = tuple(Input(column.name, column.dtype, column.width, image=images) for column in inputs_of(schema))
    return Interface(schema, columns, key, classes, outputs)


def _output(info: Any) -> Output:
    import tensorflow as tf

    shape = info.tensor_shape
    sizes = None if shape.unknown_rank else tuple(None if d.size < 0 else d.size for d in shape.dim[1:])
    return Output(tf.as_dtype(info.dtype).name, sizes)


def _short(value: Any) -> str:
    text = str(list(value) if isinstance(value, tuple) else value)
    return text if len(text) <= 300 else f"{text[:300]}..."


def refuse_images(arrays: Mapping[str, np.ndarray], schema: ImageSchema) -> tuple[dict[int, str], np.ndarray]:
    """Finds the files that the preprocessing job would reject by their headers.

    Args:
      arrays: objects of `bytes` `[rows]` by input.
      schema: of the images.

    Returns:
      Why each of their rows gets no prediction; and for each row the bytes that decoding its images takes, int64
      `[rows]`.
    """
    errors: dict[int, str] = {}
    costs = np.zeros(len(next(iter(arrays.values()))), np.int64)
    for name, files in arrays.items():
        for row, data in enumerate(files.tolist()):
            try:
                if len(data) > schema.images.max_file_bytes:
                    raise BadImage("file_too_large", f"{len(data):,} bytes")
                costs[row] += decoding_bytes(check_image(data, schema.images), schema.images)
            except BadImage as bad:
                errors.setdefault(row, f"{name}: {bad.reason}")
    return errors, costs
