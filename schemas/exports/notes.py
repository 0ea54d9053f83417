"""The notes of an exported model (`millrace.json`): where it comes from, and the checksums of its files."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping

from schemas import storage
from schemas.dataset.checksums import checksums, difference
from schemas.dataset.layout import SCHEMA_YAML
from schemas.errors import MillraceError, UsageError
from schemas.spec.loader import AnySchema, parse_schema

EXTRA = "assets.extra"
NOTES = "millrace.json"
_NOTES = f"{EXTRA}/{NOTES}"
NOTES_FORMAT = 3
_PREDICTS_ALL_ROWS = 2  # the format of exports that give predictions even for rows that the job would have rejected


@dataclasses.dataclass(frozen=True)
class Notes:
    """The content of `millrace.json`: where an export comes from."""

    dataset_run: str
    schema_fingerprint: str
    classes: tuple[str, ...]  # by class id; empty for a regression
    global_step: int
    checked_records: int
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)  # SHA-256 by path of all files except the notes
    format_version: int = NOTES_FORMAT

    @property
    def advice(self) -> str | None:
        """What an export of an earlier release lacks, and what to do; None for an export of this release."""
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
    """Writes the notes and the schema to the SavedModel's `assets.extra/`; fills in `Notes.files`."""
    storage.write_bytes(os.path.join(export_dir, EXTRA, SCHEMA_YAML), schema_yaml)
    notes = dataclasses.replace(notes, files=checksums(export_dir, exclude=[_NOTES]))
    storage.write_bytes(os.path.join(export_dir, EXTRA, NOTES), notes.to_json())


def check_files(export_dir: str, notes: Notes) -> None:
    """Compares an export's files with its notes.

    Raises:
      MillraceError: a file was changed, is missing, or is not named by the notes.
    """
    problem = difference(export_dir, notes.files, source=_NOTES, exclude=[_NOTES])
    if problem is not None:
        raise MillraceError(f"{problem}. It is not loaded, because loading a model runs its graph. Export it again.")


def read_notes(export_dir: str) -> tuple[AnySchema, Notes]:
    """Reads the schema and the notes of an export.

    Raises:
      UsageError: the folder is not an export of Millrace.
      MillraceError: its notes cannot be read, or belong to another schema.
    """
    if not storage.exists(os.path.join(export_dir, "saved_model.pb")):
        raise UsageError(f"{export_dir}: no saved_model.pb, so this is not an exported model; {_instead(export_dir)}")
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
    if notes.format_version not in (_PREDICTS_ALL_ROWS, NOTES_FORMAT) or notes.schema_fingerprint != schema.fingerprint:
        raise MillraceError(f"{notes_path}: has another format version, or does not match {SCHEMA_YAML} next to it")
    return schema, notes


def _instead(folder: str) -> str:
    """What to give instead of a folder that is no export: the newest export below it, if it is a model directory."""
    for below in ("export/best", "best", ""):
        place = storage.join(folder, below)
        found = [name for name in storage.listdir(place) if name.isdecimal()]
        found = [name for name in found if storage.exists(storage.join(place, name, "saved_model.pb"))]
        if found:
            return f"did you mean {storage.join(place, max(found, key=int))}?"
    return "give a folder export/best/<number>"
