"""Whether a schema that was just written reads its data: tried on the first records, by the job's own reader."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from schemas.csv.stream import MAX_INPUT_RATIO
from schemas.errors import MillraceError, UsageError
from schemas.formats import row_format
from schemas.inference.check import check_table
from schemas.inference.declaration import counted, percent
from schemas.inference.tables import Inferred
from schemas.spec.loader import parse_schema
from schemas.spec.table import SPLIT, SPLITS, Schema

MAX_REJECTS, MAX_REJECT_FRACTION = 10, 0.001  # of a job, unless it is told otherwise
_MARGIN = 1.5  # times the share that was found
_SMALL = 5_000  # records, of which the splits are counted


@dataclasses.dataclass(frozen=True)
class Tried:
    """The schema's text, whose splits all have records, what was noticed, and flags that the job needs."""

    text: str
    notes: tuple[str, ...]
    flags: str


def try_out(inferred: Inferred, paths: Sequence[str]) -> Tried:
    """Reads the first megabytes with the schema.

    Raises:
        MillraceError: the schema does not read its own data, which is a mistake of Millrace.
    """
    text = inferred.text
    schema = _parsed(text)
    if inferred.rows <= _SMALL:
        for text in (inferred.text, *inferred.fallbacks):
            schema = _parsed(text)
            if not _empty_splits(schema, paths):
                break
    found = check_table(schema, paths[:1], sample=True)
    if found.refused:
        raise MillraceError(
            f"{next(iter(found.refused.values()))}; this is a mistake in the schema that was written from the file. "
            "Please report it, with the file's first lines"
        )
    notes: list[str] = []
    flags = ""
    if found.lost:
        (reason, column), _ = found.rejected.most_common(1)[0]
        share = found.lost / found.read
        if not any(reason in note for note in inferred.notes):
            lost = f"{found.lost:,} of the first {counted(found.read, 'record')} ({percent(found.lost, found.read)})"
            where = f"{reason}{f' in {column!r}' if column else ''}: {found.examples[reason, column]}"
            notes.append(f"{lost} will be rejected, most of them as {where}")
        if share * inferred.rows * _MARGIN > max(MAX_REJECTS, MAX_REJECT_FRACTION * inferred.rows):
            flags = f" --max_reject_fraction {min(1.0, float(f'{share * _MARGIN:.2g}')):g}"
    return Tried(text, tuple(notes), flags)


def _parsed(text: str) -> Schema:
    try:
        schema = parse_schema(text.encode(), "the schema that was written", for_job=True)
    except UsageError as error:
        raise MillraceError(f"{error}\nThis is a mistake of `millrace init`. Please report it.") from error
    assert isinstance(schema, Schema)  # noqa: S101 - the text says `format: csv`
    return schema


def _empty_splits(schema: Schema, paths: Sequence[str]) -> bool:
    """Whether a split of a small table has no records."""
    counts = np.zeros(len(SPLITS), np.int64)
    form = row_format(schema)
    for path in paths:
        file = form.open_file(path, schema, label="required", max_input_ratio=MAX_INPUT_RATIO)
        for part in form.plan_ranges(file, range_bytes=1 << 30):
            for decoded in form.read_range(part, schema, with_split=True):
                counts += np.bincount(decoded.batch.column(SPLIT).to_numpy(), minlength=len(SPLITS))
    return any(counts[SPLITS.index(split)] == 0 for split in schema.split.splits)
