"""One version of a model, loaded: it answers batches, and is freed when the last of them is done."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from trainer.export.saved_model import Notes, ServedModel, read_notes
from trainer.serving.interface import RAW, Interface, interface_of


@dataclasses.dataclass(frozen=True)
class Loaded:
    """A version that answers.

    Attributes:
      version: the name of the export's folder.
      folder: the export.
      notes: its notes.
      interface: its inputs.
      model: the graph in its session.
    """

    version: str
    folder: str
    notes: Notes
    interface: Interface
    model: ServedModel

    def run(self, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs of a batch, by name, `[rows, ...]`."""
        return self.model.predict(columns, signature=RAW)

    def close(self) -> None:
        """Frees its memory."""
        self.model.close()


def load(folder: str, version: str, *, trust: bool = False) -> Loaded:
    """Loads an export, after its checksums and its ops are checked.

    Raises:
      UsageError: the folder is not an export.
      MillraceError: its files differ from its notes, or its graph can do more than compute.
    """
    schema, notes = read_notes(folder)
    return Loaded(version, folder, notes, interface_of(schema, notes.classes), ServedModel(folder, trust=trust))
