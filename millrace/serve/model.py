"""An export to serve: checked, loaded, and compared with the trained model.

What an export takes and gives, as requests and answers see it, is its interface: the same of all versions that one
server has. A request that it does not take is refused.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from schemas.errors import MillraceError
from schemas.exports.model import RAW, WITHOUT_KEY, ServedModel, check_export, failures_as, inputs_of, on_local_disk
from schemas.exports.notes import SAVED_MODEL, Notes, read_notes
from schemas.images.header import BadImage, check_image, decoding_bytes
from schemas.spec.features import CategoryLabel
from schemas.spec.forms import RawColumn
from schemas.spec.images import ImageSchema
from schemas.spec.loader import AnySchema
from schemas.spec.table import NOT_FINITE, Schema, hints_of
from trainer.export.skew_check import first_difference
from trainer.export.warmup import read_warmup


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

    @functools.cached_property
    def missing(self) -> dict[str, tuple[str, ...]]:
        """The tokens of a missing value, by column."""
        tokens = self.schema.missing_tokens if isinstance(self.schema, Schema) else {}
        return {column.name: tokens.get(column.name, ()) for column in self.columns}

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

    @functools.cached_property
    def hints(self) -> dict[str, str]:
        """The likely causes of values that are not finite, by the error that the model answers."""
        hints = hints_of(self.schema) if isinstance(self.schema, Schema) else {}
        return {f"{name}: {NOT_FINITE}": hint for name, hint in hints.items()}

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
                costs[row] += decoding_bytes(check_image(data, schema.images), schema.images)
            except BadImage as bad:
                errors.setdefault(row, f"{name}: {bad.reason}")
    return errors, costs


@dataclasses.dataclass(frozen=True, eq=False)
class Loaded:
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
    notes: Notes
    interface: Interface
    model: ServedModel
    compared: int

    def run(self, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs of a batch, sorted by name, `[rows, ...]`."""
        found = self.model.predict(columns, signature=RAW)
        return {name: found[name] for name in self.interface.outputs}

    def close(self) -> None:
        """Frees its memory."""
        self.model.close()


def load(
    folder: str,
    version: str,
    *,
    like: Interface | None = None,
    trust: bool = False,
    first: Callable[[str], None] | None = None,
) -> Loaded:
    """Loads an export, checks it, and runs its warm-up requests.

    Args:
      folder: the export.
      version: its number.
      like: what it must take and give; None: whatever it does.
      trust: load a graph that can do more than compute.
      first: called with the export on local disk, once its files and its graph are checked, and before it is loaded.

    Raises:
      UsageError: the folder is not an export.
      NotFetched: it is in a bucket and cannot be read, or is not whole yet.
      MillraceError: its files differ from its notes, its graph can do more than compute, it takes or gives something
        else, or its answers differ from those of the model as it was trained.
    """
    with on_local_disk(folder) as here:
        schema, notes = read_notes(here)
        if first is not None:
            check_export(here, trust=trust)
            _check_interface(folder, interface_of(schema, notes.classes, _signature(here)), like)
            first(here)  # what takes seconds, so all is checked again
        with contextlib.ExitStack() as unless_good:
            model = unless_good.enter_context(ServedModel(here, trust=trust))
            interface = interface_of(schema, notes.classes, model.signatures[RAW])
            _check_interface(folder, interface, like)
            with failures_as(f"{folder}: fails on its warm-up requests"):
                compared = _compare(model, here)
            unless_good.pop_all()
            return Loaded(version, folder, notes, interface, model, compared)


def _check_interface(folder: str, interface: Interface, like: Interface | None) -> None:
    if like is not None and (problem := like.difference(interface)) is not None:
        raise MillraceError(f"{folder}: {problem}; serve it by a server of its own")


def _signature(folder: str) -> Any:
    """The default signature of an export that is not loaded."""
    from tensorflow.core.protobuf import saved_model_pb2

    (meta_graph,) = saved_model_pb2.SavedModel.FromString(Path(folder, SAVED_MODEL).read_bytes()).meta_graphs
    return meta_graph.signature_def[RAW]


def _compare(model: ServedModel, folder: str) -> int:
    """Runs the warm-up requests, and compares the answers; returns how many records there were."""
    compared = 0
    for request in read_warmup(folder):
        found = model.predict(request.inputs, signature=request.signature)
        difference = first_difference(request.outputs, found)
        if difference is not None:
            raise MillraceError(
                f"{folder}: answers its warm-up requests otherwise than the trained model did: {difference}. Do not "
                "serve it; check it with millrace verify"
            )
        compared = max(compared, len(next(iter(found.values()))))
    return compared
