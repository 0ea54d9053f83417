"""Finds the export that a path stands for, and reads its notes (`millrace.json`): its origin, its files' checksums."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, TypeAdapter

from schemas import storage
from schemas.dataset import layout
from schemas.dataset.layout import SCHEMA_YAML
from schemas.dataset.opening import checksums, difference
from schemas.errors import MillraceError, UsageError
from schemas.options import Options, option
from schemas.spec.loader import AnySchema, parse_schema
from schemas.storage import check_addresses
from schemas.storage.folders import links_to, refuse_links
from schemas.storage.json_files import parse_as, read_if_there

EXTRA = "assets.extra"
NOTES = "millrace.json"
NOTES_PATH = f"{EXTRA}/{NOTES}"
NOTES_FORMAT = 1
MARK = "best.json"  # in a folder of exports: which of them is the best
SAVED_MODEL = "saved_model.pb"
BEST, FINAL = "best", "final"  # the folders of a training's exports, below export/
EXPORT_HELP = "a training's directory, whose best export is taken; a folder of exports; or an export"


@dataclasses.dataclass(frozen=True)
class ExportNotes:
    """The content of `millrace.json`: where an export comes from."""

    __pydantic_config__: ClassVar[ConfigDict] = {"strict": True, "extra": "forbid"}

    dataset_run: str
    schema_fingerprint: str
    classes: tuple[str, ...]  # by class id; empty for a regression
    global_step: int
    checked_records: int
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)  # SHA-256 by path of all files except the notes
    format_version: Literal[1] = 1

    def to_json(self) -> bytes:
        """Returns the file's bytes."""
        return json.dumps(dataclasses.asdict(self), indent=1).encode() + b"\n"


_READER = TypeAdapter(ExportNotes)


def write_notes(export_dir: str, notes: ExportNotes, schema_yaml: bytes) -> None:
    """Writes the notes and the schema to the SavedModel's `assets.extra/`; fills in `Notes.files`."""
    storage.write_bytes(os.path.join(export_dir, EXTRA, SCHEMA_YAML), schema_yaml)
    notes = dataclasses.replace(notes, files=checksums(export_dir, exclude=[NOTES_PATH]))
    storage.write_bytes(os.path.join(export_dir, EXTRA, NOTES), notes.to_json())


def check_files(export_dir: str, notes: ExportNotes) -> None:
    """Compares an export's files with its notes.

    Raises:
      MillraceError: a file was changed, is missing, or is not named by the notes.
    """
    problem = difference(export_dir, notes.files, source=NOTES_PATH, exclude=[NOTES_PATH])
    if problem is not None:
        raise MillraceError(f"{problem}. It is not loaded, because loading a model runs its graph. Export it again.")


def read_notes(export_dir: str) -> tuple[AnySchema, ExportNotes]:
    """Reads the schema and the notes of an export.

    Raises:
      UsageError: the folder is not an export of Millrace.
      MillraceError: its notes cannot be read, or belong to another schema.
    """
    if not storage.exists(os.path.join(export_dir, SAVED_MODEL)):
        raise UsageError(
            f"{export_dir}: no saved_model.pb, so this is not an exported model; give a folder export/best/<number>"
        )
    schema_path, notes_path = (os.path.join(export_dir, EXTRA, name) for name in (SCHEMA_YAML, NOTES))
    for path in (schema_path, notes_path):
        if not storage.exists(path):
            raise UsageError(f"{export_dir}: no {EXTRA}/{os.path.basename(path)}: not exported by millrace train")
    refuse_links(export_dir, links_to(export_dir, [SAVED_MODEL, f"{EXTRA}/{SCHEMA_YAML}", NOTES_PATH]))
    schema = parse_schema(storage.read_bytes(schema_path), schema_path)
    data = storage.read_bytes(notes_path)
    notes = parse_as(
        _READER.validate_json, data, notes_path, NOTES_FORMAT, "the notes of an export", "export the model again"
    )
    if notes.schema_fingerprint != schema.fingerprint:
        raise MillraceError(f"{notes_path}: does not match {SCHEMA_YAML} next to it. Export the model again.")
    return schema, notes


def read_mark(folder: str) -> dict[str, Any] | None:
    """Reads a folder's `best.json`, which has by `export` the number of the best export. Returns None if there is none.

    Raises:
      MillraceError: it cannot be read, or names something else than a folder of this folder.
    """
    path = storage.join(folder, MARK)
    mark = read_if_there(path, "the number of the best export", advice="Remove it, or give the export itself")
    if mark is not None and not is_number(str(mark.get("export"))):
        raise MillraceError(
            f"{path}: names the export {str(mark.get('export'))[:80]!r}; expected the number of a folder beside it. "
            "Remove the file, or give the export itself."
        )
    return mark


@dataclasses.dataclass(frozen=True)
class ExportSource:
    """Where exports come from.

    Attributes:
      folder: of numbered exports; or the one export, where `single`.
      single: there is only this export, and no other will come.
    """

    folder: str
    single: bool

    def versions(self) -> list[str]:
        """Lists the versions, newest first; 1 where the name of a single one is not a number."""
        if self.single:
            name = self.folder.rpartition("/")[2]
            return [name if is_number(name) else "1"]
        return numbered(self.folder)[::-1]

    def path(self, version: str) -> str:
        """Returns the folder of a version."""
        return self.folder if self.single else storage.join(self.folder, version)


def find_source(path: str) -> ExportSource:
    """Finds what a path stands for: an export; a folder of exports whose names are numbers; or that of a training.

    Raises:
      UsageError: none of these.
    """
    path = path.rstrip("/") or path
    if any(storage.exists(storage.join(path, name)) for name in (SAVED_MODEL, NOTES_PATH)):  # even if one is lacking
        return ExportSource(path, single=True)
    folders = (storage.join(path, name) for name in (f"export/{BEST}", f"export/{FINAL}", BEST, FINAL, ""))
    folder = next(filter(numbered, folders), None)
    if folder is not None:
        return ExportSource(folder, single=False)
    expected = "expected a model directory, an export, or a folder of exports whose names are numbers"
    if not storage.exists(path):
        raise UsageError(f"{path}: no such folder; {expected}")
    holds = layout.described_by(storage.join(path, layout.MANIFEST))
    if not holds and storage.exists(storage.join(path, layout.MODEL_JSON)):
        raise UsageError(f"{path}: has no export; let the training end, or give another folder")
    raise UsageError(f"{path}: holds {holds or 'no export'}; {expected}")


def export_of(path: str) -> str:
    """Finds the export that a path stands for: itself; or of a folder of exports the best one, or else the newest.

    Raises:
      UsageError: there is none.
      MillraceError: see `read_mark`.
    """
    source = find_source(path)
    mark = None if source.single else read_mark(source.folder)
    return source.path(str(mark["export"]) if mark else source.versions()[0])


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportOptions(Options):
    """The export that predicts, of which a command is given one of two names."""

    model_dir: str | None = option(EXPORT_HELP, None, metavar="DIR", check=check_addresses)
    saved_model: str | None = option(
        "another name of --model_dir, as for an export: model/export/best/1700000000",
        None,
        metavar="DIR",
        check=check_addresses,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.model_dir) == bool(self.saved_model):
            raise UsageError("required: either --model_dir or --saved_model, for the export that predicts")

    @functools.cached_property
    def export(self) -> str:
        """The folder of the export.

        Raises:
          UsageError: there is none.
        """
        return export_of(self.saved_model or self.model_dir or "")


def numbered(folder: str) -> list[str]:
    """Lists the names in a folder that are numbers, as the names of exports are, in the order of the numbers."""
    names = (entry.rstrip("/") for entry in storage.listdir(folder))
    return sorted(filter(is_number, names), key=int)


def is_number(name: str) -> bool:
    """Returns whether a folder's name is a number, as an export's is."""
    return name.isascii() and name.isdecimal()
