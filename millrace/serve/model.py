"""Loads an export to serve, checks it, and compares its answers with those of the trained model.

All versions that a server has in service, one after the other, have the same inputs and outputs: its interface.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from schemas.errors import MillraceError
from schemas.exports.model import RAW, ServedModel, check_export, failures_as, inputs_of, on_local_disk
from schemas.exports.notes import ExportNotes, read_notes
from schemas.spec.forms import RawColumn
from schemas.spec.images import ImageSchema
from schemas.spec.loader import AnySchema
from schemas.spec.table import NOT_FINITE, Schema, hints_of
from trainer.export.skew_check import first_difference
from trainer.export.warmup import read_warmup


class RefusedRequest(MillraceError):
    """A request that is answered with an error: an HTTP status, and a message for its client."""

    def __init__(self, status: int, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after  # seconds


def bad_request(message: str) -> RefusedRequest:
    """Returns the refusal of a request that its client must change."""
    return RefusedRequest(400, message)


def not_in_service(version: str, current: str) -> RefusedRequest:
    """Returns the refusal of a request for another version, in the words of TensorFlow Serving."""
    return RefusedRequest(404, f"Servable not found for request: version {version}; version {current} is in service")


@dataclasses.dataclass(frozen=True)
class Interface:
    """The inputs and outputs of an export.

    Attributes:
      schema: the schema of the data that the model was trained on.
      columns: the inputs, with the key last where there is one.
      classes: their names by id; empty for a regression.
      outputs: names, dtypes and shapes without the batch, as text.
    """

    schema: AnySchema
    columns: tuple[RawColumn, ...]
    classes: tuple[str, ...]
    outputs: tuple[str, ...]

    @functools.cached_property
    def images(self) -> ImageSchema | None:
        """The schema, if the inputs are the files of images."""
        return self.schema if isinstance(self.schema, ImageSchema) else None

    @functools.cached_property
    def key(self) -> str | None:
        """The key's name; None if there is none."""
        return self.schema.key.name if isinstance(self.schema, Schema) and self.schema.key else None

    @functools.cached_property
    def missing(self) -> dict[str, tuple[str, ...]]:
        """The tokens of a missing value, by column."""
        tokens = self.schema.missing_tokens if isinstance(self.schema, Schema) else {}
        return {column.name: tokens.get(column.name, ()) for column in self.columns}

    @functools.cached_property
    def declared(self) -> frozenset[str]:
        """The names that a row may have: of inputs, and of what else the schema declares and a server does not read."""
        items = self.schema.items if isinstance(self.schema, Schema) else ()
        return frozenset(item.name for item in (*self.columns, *items))

    @functools.cached_property
    def hints(self) -> dict[str, str]:
        """The likely causes of values that are not finite, by the error that the model answers."""
        hints = hints_of(self.schema) if isinstance(self.schema, Schema) else {}
        return {f"{name}: {NOT_FINITE}": hint for name, hint in hints.items()}

    def difference(self, other: Interface) -> str | None:
        """Says what a client of this interface would notice of another one; None if nothing."""
        for name in ("columns", "key", "classes", "missing", "outputs"):
            here, there = getattr(self, name), getattr(other, name)
            if here != there:
                return f"its {name} are {_short(there)}, and those of the model in service {_short(here)}"
        return None


def _short(value: Any) -> str:
    text = str(list(value) if isinstance(value, tuple) else value)
    return text if len(text) <= 300 else f"{text[:300]}..."


@dataclasses.dataclass(frozen=True, eq=False)
class ServedVersion:
    """A version that answers.

    Attributes:
      version: its number.
      folder: the export.
      notes: its notes.
      interface: its inputs and outputs.
      model: the graph in its session.
      compared: how many records it was compared on with the model as it was trained.
    """

    version: str
    folder: str
    notes: ExportNotes
    interface: Interface
    model: ServedModel
    compared: int

    def run(self, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Runs a batch. Returns its outputs, sorted by name, `[rows, ...]`."""
        return dict(sorted(self.model.predict(columns).items()))


def load(
    folder: str,
    version: str,
    *,
    like: Interface | None = None,
    trust: bool = False,
    trial: Callable[[str], None] | None = None,
) -> ServedVersion:
    """Loads an export, checks it, and runs its warm-up requests.

    Args:
      folder: the export.
      version: its number.
      like: what it must take and give; None: whatever it does.
      trust: load a graph that can do more than compute.
      trial: called with the export on local disk before it is loaded, once its files and its graph are checked.

    Raises:
      UsageError: the folder is not an export.
      NotFetched: it is in a bucket and cannot be read, or is not whole yet.
      MillraceError: its files differ from its notes, its graph can do more than compute, it takes or gives something
        else, or its answers differ from those of the model as it was trained.
    """
    with on_local_disk(folder) as here, contextlib.ExitStack() as unless_good:
        schema, notes = read_notes(here)
        if trial is not None:
            check_export(here, trust=trust)
            trial(here)  # it takes seconds, after which all is checked again
        model = unless_good.enter_context(ServedModel(here, trust=trust))
        outputs = tuple(_described(name, info) for name, info in sorted(model.signatures[RAW].outputs.items()))
        interface = Interface(schema, inputs_of(schema), notes.classes, outputs)
        if like is not None and (problem := like.difference(interface)) is not None:
            raise MillraceError(f"{folder}: {problem}; serve it by a server of its own")
        with failures_as(f"{folder}: fails on its warm-up requests"):
            compared = _compare(model, here)
        unless_good.pop_all()
        return ServedVersion(version, folder, notes, interface, model, compared)


def _described(name: str, info: Any) -> str:
    import tensorflow as tf

    shape = tf.TensorShape(info.tensor_shape)
    return f"{name}: {tf.as_dtype(info.dtype).name} {shape if shape.rank is None else shape[1:]}"


def _compare(model: ServedModel, folder: str) -> int:
    """Runs the warm-up requests, and compares the answers; returns how many records there were."""
    compared = 0
    for request in read_warmup(folder):
        outputs = model.predict(request.inputs, signature=request.signature)
        difference = first_difference(request.outputs, outputs)
        if difference is not None:
            raise MillraceError(
                f"{folder}: answers its warm-up requests otherwise than the trained model did: {difference}. Do not "
                "serve it; check it with millrace verify"
            )
        compared = max(compared, len(next(iter(outputs.values()))))
    return compared
