"""Reads corrected lines of `rejects-*.jsonl`, and chooses the lines to try again: their records must still be rejected.

A user copies `rejects-*.jsonl`, corrects the text under `raw`, and gives the copy to `--replay`.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
from collections.abc import Mapping, Sequence

from beam_jobs.core.source import Chosen, JobSource
from beam_jobs.images.source import correct_images
from beam_jobs.records.existing import Key, rejects_of
from beam_jobs.rows.source import correct_rows, known_inputs
from schemas import storage
from schemas.dataset import OpenDataset
from schemas.errors import UsageError
from schemas.rejects import Reject
from schemas.spec.table import Schema
from schemas.storage.json_files import parse_json


@dataclasses.dataclass(frozen=True)
class Correction:
    """A line of a file of corrected rejects.

    Attributes:
      source, offset: the file and the place of the record, as they were in the reject.
      raw: the corrected record: a string from the field `raw`, or bytes from the field `raw_base64`.
      place: where the line is, as `file:line`.
    """

    source: str
    offset: int
    raw: str | bytes
    place: str

    @property
    def key(self) -> Key:
        return self.source, self.offset

    def encoded(self, encoding: str) -> bytes:
        """Returns the record's bytes in the encoding of its file.

        Raises:
          UsageError: the text holds a character that the encoding lacks.
        """
        if isinstance(self.raw, bytes):
            return self.raw
        try:
            return self.raw.encode("latin-1" if encoding == "latin-1" else "utf-8")
        except UnicodeEncodeError as error:
            sign = self.raw[error.start]
            raise UsageError(
                f"{self.place}: raw holds {sign!r}, which {self.source} cannot: it is in {encoding}. "
                "Write another character, or its bytes as raw_base64."
            ) from error


@dataclasses.dataclass(frozen=True)
class Choice:
    """The corrected records to try again, and the number of lines that are not tried.

    Attributes:
      records: the records to try again, sorted by their place.
      gone: lines whose record the dataset does not reject, because it was replayed before or was never rejected.
      unchanged: lines whose record was not corrected.
      repeated: lines that correct a record in the same way as an earlier line.
    """

    records: tuple[Chosen, ...] = ()
    gone: int = 0
    unchanged: int = 0
    repeated: int = 0

    @property
    def rejects(self) -> tuple[Reject, ...]:
        """The rejects of the dataset that are tried again."""
        return tuple(record.was for record in self.records)


def choose_corrected(base: OpenDataset, patterns: Sequence[str]) -> tuple[Choice, JobSource | None]:
    """Reads files of corrected rejects, and chooses the records to try again.

    Args:
      base: the dataset that rejects the records.
      patterns: paths or glob patterns of the corrected files.

    Returns:
      The choice, and its records as the source of a job; None in place of the source if there is no record to try.

    Raises:
      UsageError: a file or a line cannot be read, or a correction is invalid (see `choose`).
    """
    corrections, schema = read_corrections(patterns), base.declared
    if isinstance(schema, Schema):
        inputs = known_inputs(base)
        choice = choose(corrections, rejects_of(base), {path: file.encoding for path, file in inputs.items()})
        return choice, correct_rows(schema, base, inputs, choice.records) if choice.records else None
    choice = choose(corrections, rejects_of(base), None)
    return choice, correct_images(schema, base, choice.records) if choice.records else None


def read_corrections(patterns: Sequence[str]) -> list[Correction]:
    """Reads files of corrected rejects: JSON lines in the format of `rejects-*.jsonl`. Skips empty lines.

    Raises:
      UsageError: a file or a line cannot be read; the message names the file and the line.
    """
    corrections = []
    for path in storage.expand(patterns):
        for number, line in enumerate(storage.read_bytes(path).split(b"\n"), start=1):
            if line.strip():
                corrections.append(_correction(line, f"{path}:{number}"))
    return corrections


def _correction(line: bytes, place: str) -> Correction:
    """Parses a line. Raises UsageError, with the line's place, if the line is not a corrected reject."""
    try:
        row = parse_json(line.decode())
    except UnicodeDecodeError as error:
        raise UsageError(f"{place}: is not UTF-8 at byte {error.start} of the line") from error
    except ValueError as error:
        raise UsageError(f"{place}: is not JSON: {error}; expected a line of rejects-*.jsonl") from error
    if not isinstance(row, dict):
        raise UsageError(f"{place}: found {str(row)[:40]!r}; expected an object, as in rejects-*.jsonl")
    for name, kind, expected in (("source", str, "a path"), ("offset", int, "a whole number")):
        if type(row.get(name)) is not kind:
            raise UsageError(
                f"{place}: {name} is {row.get(name, 'missing')!r}; expected {expected}, as it was in the reject"
            )
    if ("raw" in row) == ("raw_base64" in row):
        both = "both raw and raw_base64" if "raw" in row else "neither raw nor raw_base64"
        raise UsageError(f"{place}: holds {both}; expected the corrected record under one of them")
    name = "raw" if "raw" in row else "raw_base64"
    text = row[name]
    if not isinstance(text, str):
        raise UsageError(f"{place}: {name} is {str(text)[:40]!r}; expected text")
    try:
        raw = text if name == "raw" else base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UsageError(f"{place}: raw_base64 is not base64: {error}") from error
    return Correction(row["source"], row["offset"], raw, place)


def choose(
    corrections: Sequence[Correction], rejects: Mapping[Key, Reject], encodings: Mapping[str, str] | None
) -> Choice:
    """Chooses the corrections to try again: those of records that the dataset still rejects, if they changed.

    Corrections of images are tried even if the line is unchanged, because a user corrects the image file and not the
    line.

    Args:
      corrections: the lines of the corrected files.
      rejects: the rejects of the dataset's current run, by source and offset.
      encodings: for rows, the encoding of each input file by its path; None for images.

    Raises:
      UsageError: a source is not an input of the dataset, a text holds a character that its file's encoding lacks, or
        two lines correct one record differently.
    """
    chosen: dict[Key, tuple[Chosen, Correction]] = {}
    gone = unchanged = repeated = 0
    for line in corrections:
        if encodings is not None and line.source not in encodings:
            listed = ", ".join(list(encodings)[:5])
            raise UsageError(
                f"{line.place}: {line.source!r} is not an input of this dataset, which was read from {listed}"
            )
        was = rejects.get(line.key)
        if was is None:
            gone += 1
            continue
        raw = line.encoded("utf-8" if encodings is None else encodings[line.source])
        # Files in UTF-16 are read as UTF-8, so a reject's raw bytes are compared in both encodings.
        if encodings is not None and was.raw.rstrip(b"\r\n") in (
            raw.rstrip(b"\r\n"),
            line.encoded("utf-8").rstrip(b"\r\n"),
        ):
            unchanged += 1
            continue
        first, first_line = chosen.setdefault(line.key, (Chosen(was, raw), line))
        if first_line is line:
            continue
        if first.raw != raw:
            raise UsageError(
                f"{line.place}: corrects the record at {line.offset} of {line.source} in another way than "
                f"{first_line.place} does; give one of the two"
            )
        repeated += 1
    records = tuple(sorted((record for record, _ in chosen.values()), key=lambda record: record.key))
    return Choice(records, gone, unchanged, repeated)
