"""Exports to serve: which there are; and one of them, checked, loaded, and compared with the trained model."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from millrace.serve.interface import Interface, interface_of
from schemas import storage
from schemas.errors import MillraceError, UsageError
from schemas.exports.model import RAW, ServedModel, check_export, failures_as, on_local_disk
from schemas.exports.notes import SAVED_MODEL, Notes, is_number, numbered, read_notes
from trainer.export.skew_check import first_difference
from trainer.export.warmup import read_warmup

_BEST = "export/best"


@dataclasses.dataclass(frozen=True)
class Source:
    """Where exports come from.

    Attributes:
      folder: of numbered exports; or the one export, where `single`.
      single: there is only this export, and no other will come.
    """

    folder: str
    single: bool

    def versions(self) -> list[str]:
        """The versions that there are, newest first; 1 where the name of a single one is no number."""
        if self.single:
            name = self.folder.rpartition("/")[2]
            return [name if is_number(name) else "1"]
        return numbered(self.folder)[::-1]

    def path(self, version: str) -> str:
        """The folder of a version."""
        return self.folder if self.single else storage.join(self.folder, version)


def find_source(path: str) -> Source:
    """What a path holds: an export, a model directory, or a folder of numbered exports.

    Raises:
      UsageError: none of these.
    """
    storage.check_scheme(path, "--model_dir ")
    path = path.rstrip("/")
    if storage.exists(storage.join(path, SAVED_MODEL)):
        return Source(path, single=True)
    best = storage.join(path, _BEST)
    source = Source(best if storage.exists(best) else path, single=False)
    if not storage.exists(source.folder):
        raise UsageError(f"{path}: no such folder; expected a model directory, an export, or a folder of exports")
    if not source.versions():
        raise UsageError(
            f"{source.folder}: no exports in it yet; expected folders whose names are numbers, as in {_BEST} of a "
            "model directory. Train a model first, or give another folder"
        )
    return source


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
                "serve it; check it with trainer.verify"
            )
        compared = max(compared, len(next(iter(found.values()))))
    return compared
