"""Reads corrected lines of `rejects-*.jsonl`, and chooses those whose records are still rejected, to try them again."""

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
    """A line of a file of corrected rejects: text as it stands under `raw`, or the bytes of `raw_base64`."""

    source: str
    offset: int
    raw: str | bytes
    place: str  # file:line

    @property
    def key(self) -> Key:
        return self.source, self.offset

    def encoded(self, encoding: str) -> bytes:
        """Returns the record's bytes as its file would hold them.

        Raises:
          UsageError: the text has no bytes in that encoding.
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
    """What is tried again, and how many lines are not: no reject of the dataset, unchanged, or given before."""

    records: tuple[Chosen, ...] = ()
    gone: int = 0
    unchanged: int = 0
    repeated: int = 0

    @property
    def rejects(self) -> tuple[Reject, ...]:
        """The rejects of the dataset that are tried again."""
        return tuple(record.was for record in self.records)


def choose_corrected(base: OpenDataset, patterns: Sequence[str]) -> tuple[Choice, JobSource | None]:
    """Reads files of corrected rejects. Returns what is tried again, and as the raw data of a run; None if nothing is.

    Raises:
      UsageError: a file or a line cannot be read, or a correction is not as it must be.
    """
    corrections, schema = read_corrections(patterns), base.declared
    if isinstance(schema, Schema):
        inputs = known_inputs(base)
        choice = choose(corrections, rejects_of(base), {path: file.encoding for path, file in inputs.items()})
        return choice, correct_rows(schema, base, inputs, choice.records) if choice.records else None
    choice = choose(corrections, rejects_of(base), None)
    return choice, correct_images(schema, base, choice.records) if choice.records else None


def read_corrections(patterns: Sequence[str]) -> list[Correction]:
    """Reads files of JSON lines, as a run's `rejects-*.jsonl` are; empty lines do not count.

    Raises:
      UsageError: a file or a line cannot be read; it is named.
    """
    corrections = []
    for path in storage.expand(patterns):
        for number, line in enumerate(storage.read_bytes(path).split(b"\n"), start=1):
            if line.strip():
                corrections.append(_correction(line, f"{path}:{number}"))
    return corrections


def _correction(line: bytes, place: str) -> Correction:
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
    """Returns which of the corrections are tried again.

    Args:
      corrections: as they were read.
      rejects: what the dataset's current run still rejects.
      encodings: of rows, the encoding of each input file; None for images, where files are fixed and not lines.

    Raises:
      UsageError: a source is no input, a text has no bytes in its file's encoding, or two lines correct one record
        differently.
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
