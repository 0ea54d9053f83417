"""An exported model opened to predict: its graph in a session, and the notes that travel with it."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Any

from schemas import storage
from schemas.dataset.checksums import checksums, difference
from schemas.dataset.layout import SCHEMA_YAML
from schemas.errors import MillraceError, UsageError
from schemas.spec.loader import AnySchema, parse_schema

EXTRA = "assets.extra"
NOTES = "millrace.json"
_NOTES = f"{EXTRA}/{NOTES}"
NOTES_FORMAT = 3
_ANSWERS_ALL = 2  # the format of exports that answer rows which the job would have rejected


@dataclasses.dataclass(frozen=True)
class Notes:
    """What `millrace.json` says of an export: where it comes from."""

    dataset_run: str
    schema_fingerprint: str
    classes: tuple[str, ...]  # by class id; empty for a regression
    global_step: int
    checked_records: int
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)  # SHA-256 by path, of all but the notes
    format_version: int = NOTES_FORMAT

    @property
    def advice(self) -> str | None:
        """What an export of an earlier release does not promise, and what to do; None for one of this release."""
        if self.format_version >= NOTES_FORMAT:
            return None
        return (
            "exported by an earlier release: it may give predictions for rows that the preprocessing job would reject, "
            "and has no output 'error'; export the model again with trainer.task"
        )

    def to_json(self) -> bytes:
        """The file's bytes."""
        return json.dumps(dataclasses.asdict(self), indent=1).encode() + b"\n"


def write_notes(export_dir: str, notes: Notes, schema_yaml: bytes) -> None:
    """Puts the notes and the schema beside the SavedModel, in `assets.extra/`; `files` of the notes is filled in."""
    storage.write_bytes(os.path.join(export_dir, EXTRA, SCHEMA_YAML), schema_yaml)
    notes = dataclasses.replace(notes, files=checksums(export_dir, exclude=[_NOTES]))
    storage.write_bytes(os.path.join(export_dir, EXTRA, NOTES), notes.to_json())


def check_files(export_dir: str, notes: Notes) -> None:
    """Compares an export's files with its notes.

    Raises:
      MillraceError: one was changed, is missing, or is not named by the notes.
    """
    problem = difference(export_dir, notes.files, source=_NOTES, exclude=[_NOTES])
    if problem is not None:
        raise MillraceError(f"{problem}. It is not loaded, because loading a model runs its graph. Export it again.")


def read_notes(export_dir: str) -> tuple[AnySchema, Notes]:
    """The schema and the notes of an export.

    Raises:
      UsageError: the folder is no export of this project.
      MillraceError: its notes cannot be read, or belong to another schema.
    """
    if not storage.exists(os.path.join(export_dir, "saved_model.pb")):
        raise UsageError(
            f"{export_dir}: no saved_model.pb, so this is not an exported model; give a folder export/best/<number>"
        )
    schema_path, notes_path = (os.path.join(export_dir, EXTRA, name) for name in (SCHEMA_YAML, NOTES))
    for path in (schema_path, notes_path):
        if not storage.exists(path):
            raise UsageError(f"{export_dir}: no {EXTRA}/{os.path.basename(path)}: not exported by trainer.task")
    schema = parse_schema(storage.read_bytes(schema_path), schema_path)
    try:
        fields = json.loads(storage.read_bytes(notes_path))
        notes = Notes(**{**fields, "classes": tuple(fields["classes"])})
    except (ValueError, TypeError, KeyError) as error:
        raise MillraceError(
            f"{notes_path}: expected format version {NOTES_FORMAT}: {error}. Export the model again."
        ) from error
    if notes.format_version not in (_ANSWERS_ALL, NOTES_FORMAT) or notes.schema_fingerprint != schema.fingerprint:
        raise MillraceError(f"{notes_path}: has another format version, or does not match {SCHEMA_YAML} next to it")
    return schema, notes


class ServedModel:
    """A SavedModel's signatures, as a server runs them. Imports TensorFlow; close it, or use it in a `with`.

    Its graph runs as it is, without Grappler: see `graph_values.plain_session`.

    Args:
      export_dir: the export.
      checked: it was compared with its notes and its graph was checked just now, or this process has just written it.
      trust: its graph may do whatever it does; its files are compared with its notes all the same.

    Raises:
      MillraceError: its files are not those that its notes name, or its graph could do more than compute.
    """

    def __init__(self, export_dir: str, *, checked: bool = False, trust: bool = False) -> None:
        if not checked:
            check_files(export_dir, read_notes(export_dir)[1])
            if not trust:
                from schemas.graphs.check import check_graph

                check_graph(export_dir)
        import tensorflow as tf

        from trainer.export.graph_values import plain_session

        self._graph = tf.Graph()
        self._session = tf.compat.v1.Session(graph=self._graph, config=plain_session())
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
