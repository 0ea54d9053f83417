"""An exported model opened to predict: its graph in a session, and the notes that travel with it."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Any

from schemas import storage
from schemas.errors import MillraceError, UsageError
from schemas.layout import SCHEMA_YAML
from schemas.load import AnySchema, parse_schema

EXTRA = "assets.extra"
NOTES = "millrace.json"
NOTES_FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Notes:
    """What `millrace.json` says of an export: where it comes from."""

    dataset_run: str
    schema_fingerprint: str
    classes: tuple[str, ...]  # by class id; empty for a regression
    global_step: int
    checked_records: int
    format_version: int = NOTES_FORMAT

    def to_json(self) -> bytes:
        """The file's bytes."""
        return json.dumps(dataclasses.asdict(self), indent=1).encode() + b"\n"


def write_notes(export_dir: str, notes: Notes, schema_yaml: bytes) -> None:
    """Puts the notes and the schema beside the SavedModel, in `assets.extra/`."""
    storage.write_bytes(os.path.join(export_dir, EXTRA, SCHEMA_YAML), schema_yaml)
    storage.write_bytes(os.path.join(export_dir, EXTRA, NOTES), notes.to_json())


def read_notes(export_dir: str) -> tuple[AnySchema, Notes]:
    """The schema and the notes of an export.

    Raises:
      UsageError: the folder is no export of this project.
      MillraceError: its notes cannot be read, or belong to another schema.
    """
    if not storage.exists(os.path.join(export_dir, "saved_model.pb")):
        raise UsageError(f"{export_dir}: no saved_model.pb, so no exported model; give a folder export/best/<number>")
    schema_path, notes_path = (os.path.join(export_dir, EXTRA, name) for name in (SCHEMA_YAML, NOTES))
    for path in (schema_path, notes_path):
        if not storage.exists(path):
            raise UsageError(f"{export_dir}: no {EXTRA}/{os.path.basename(path)}: not exported by trainer.task")
    schema = parse_schema(storage.read_bytes(schema_path), schema_path)
    try:
        fields = json.loads(storage.read_bytes(notes_path))
        notes = Notes(**{**fields, "classes": tuple(fields["classes"])})
    except (ValueError, TypeError, KeyError) as error:
        raise MillraceError(f"{notes_path}: not notes of format version {NOTES_FORMAT}: {error}") from error
    if notes.format_version != NOTES_FORMAT or notes.schema_fingerprint != schema.fingerprint:
        raise MillraceError(f"{notes_path}: of another format version, or another schema than {SCHEMA_YAML} beside it")
    return schema, notes


class ServedModel:
    """A SavedModel's signatures, as a server runs them. Imports TensorFlow; close it, or use it in a `with`."""

    def __init__(self, export_dir: str) -> None:
        import tensorflow as tf

        self._graph = tf.Graph()
        self._session = tf.compat.v1.Session(
            graph=self._graph, config=tf.compat.v1.ConfigProto(gpu_options={"allow_growth": True})
        )
        with self._graph.as_default():
            # TensorFlow's own "deprecated" notice is about writing new code on sessions.
            meta_graph = tf.compat.v1.saved_model.load(self._session, ["serve"], export_dir)
        self.signatures: Mapping[str, Any] = meta_graph.signature_def

    def predict(
        self, inputs: Mapping[str, Any], *, signature: str = "serving_default", outputs: Collection[str] | None = None
    ) -> dict[str, Any]:
        """Runs one batch.

        Args:
          inputs: by the signature's input names, arrays with a leading batch dimension.
          signature: the signature's name.
          outputs: which of its outputs are wanted, where it has them; None: all.

        Returns:
          By the signature's output names, NumPy arrays (strings as objects of `bytes`).
        """
        entry = self.signatures[signature]
        feeds = {entry.inputs[name].name: value for name, value in inputs.items()}
        fetches = {name: info.name for name, info in entry.outputs.items() if outputs is None or name in outputs}
        return self._session.run(fetches, feeds)

    def close(self) -> None:
        """Frees the session."""
        self._session.close()

    def __enter__(self) -> ServedModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
