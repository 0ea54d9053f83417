"""Exports in name only: the files and notes of one, and no graph; for what copies and counts them."""

from __future__ import annotations

from pathlib import Path

from schemas.exports.notes import NOTES_FORMAT, Notes, write_notes
from schemas.spec.loader import parse_schema
from tests.support.csv_datasets import LATE


def write_export(folder: Path, content: str, *, files: int = 3) -> str:
    """Writes one; exports of other content have other checksums."""
    (folder / "variables").mkdir(parents=True)
    (folder / "saved_model.pb").write_text(content)
    for i in range(files):
        (folder / "variables" / str(i)).write_text(content * 1000)
    schema = LATE.encode()
    fingerprint = parse_schema(schema, "late.yaml").fingerprint
    notes = Notes("run", fingerprint, ("no", "yes"), 1, 1, format_version=NOTES_FORMAT)
    write_notes(str(folder), notes, schema)
    return str(folder)
