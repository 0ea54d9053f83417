"""Writes a table's schema: a draft is tried on its files, and written anew from the records that a job would keep."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from schemas.csv.stream import MAX_INPUT_RATIO
from schemas.errors import MillraceError, UsageError, counted
from schemas.formats import row_format
from schemas.init.columns import percent
from schemas.init.survey import Progress, read_all, survey
from schemas.init.tables import Inferred, comment, draft
from schemas.reject_counts import RejectCounts, fraction_needed
from schemas.rows import Decoded
from schemas.spec.loader import parse_schema
from schemas.spec.table import SPLIT, SPLITS, Schema

_MAX_REJECTS, _MAX_REJECT_FRACTION = 10, 0.001  # of a job, where no flag says otherwise
_RANGE_BYTES = 64 << 20
_ROUNDS = 4  # drafts at most
_NOTED = 5  # reasons for rejects that are named
_SMALL = 5_000  # records, of which the splits are counted


def infer_table(
    paths: Sequence[str],
    *,
    label: str | None = None,
    sample: bool = False,
    name: str | None = None,
    progress: Progress = lambda rows, share: None,
) -> Inferred:
    """Writes a schema for CSV files of one form, from the records that a job with this schema would keep.

    Args:
        paths: the files.
        label: the label's column, by its name or by its position in a file without a header; None: guess it.
        sample: read the first megabytes only.
        name: the dataset's name; None: the first file's.
        progress: called after each batch of records.

    Raises:
        UsageError: the files are no CSV, or there is no such label, or it has one class.
        MillraceError: a file cannot be read, or the schema does not read its own data, which is a mistake of Millrace.
    """
    read = survey(paths, sample=sample, progress=progress)
    rejected: dict[str, np.ndarray] = {}
    for _ in range(_ROUNDS):
        drafted = draft(read, paths, label=label, name=name)
        trial = _try(drafted.text, paths[:1] if sample else paths, sample=sample)
        count = sum(map(len, rejected.values()))
        rejected = {
            path: np.unique(np.concatenate([*offsets, rejected.get(path, np.empty(0, np.int64))]))
            for path, offsets in trial.offsets.items()
        }
        if sum(map(len, rejected.values())) == count or trial.rejected == trial.read:
            break
        read = read_all(paths, read.form, sample=sample, progress=progress, without=rejected)
    notes = [*drafted.notes, *_reject_notes(trial)]
    text = drafted.text
    if drafted.rows <= _SMALL:
        *splits, alone = (drafted.text, *drafted.fallbacks)
        quality, text = max(((_split_quality(split, paths), split) for split in splits), key=lambda pair: pair[0])
        if not quality:
            text = alone
            notes.append(
                "all records are for training; `train` needs others to evaluate on, so add records to the files"
            )
    comments = "".join(f"{line}\n" for note in notes[len(drafted.notes) :] for line in comment(note))
    return dataclasses.replace(
        drafted,
        text=text.replace("\nname: ", f"\n{comments}name: ", 1),
        notes=tuple(notes),
        flags=reject_flag(trial.rejected, trial.read, complete=read.complete),
    )


def _decoded(schema: Schema, paths: Sequence[str], *, sample: bool, with_split: bool) -> Iterator[tuple[str, Decoded]]:
    """The batches of files, as a job would read them, with their paths; with `sample`, the first batch of each."""
    form = row_format(schema)
    for path in paths:
        try:
            file = form.open_file(path, schema, label="required", max_input_ratio=MAX_INPUT_RATIO)
        except UsageError as error:
            raise MillraceError(
                f"{error}; this is a mistake in the schema that was written from the file. Please report it, with the "
                "file's first lines"
            ) from error
        ranges = form.plan_ranges(file, range_bytes=_RANGE_BYTES)
        batches = (decoded for part in ranges for decoded in form.read_range(part, schema, with_split=with_split))
        yield from ((path, decoded) for decoded in itertools.islice(batches, 1 if sample else None))


def _try(text: str, paths: Sequence[str], *, sample: bool) -> RejectCounts:
    """What a job would reject; with `sample`, of the first megabytes of each file.

    Raises:
        MillraceError: a file cannot be read, or the schema does not fit it, which is a mistake of Millrace.
    """
    counts, schema = RejectCounts(), _parsed(text)
    for path, decoded in _decoded(schema, paths, sample=sample, with_split=False):
        counts.add_rows(path, decoded, schema)
    return counts


def reject_flag(rejected: int, read: int, *, complete: bool) -> str:
    """The flag that a job needs to tolerate its rejects: ` --max_reject_fraction 0.03`; empty if it needs none.

    Args:
        rejected: the number of records that were found to be rejected.
        read: the number of records that were read.
        complete: whether these are all records; of a sample, a margin is added.
    """
    if rejected <= max(_MAX_REJECTS if complete else 0, _MAX_REJECT_FRACTION * read):
        return ""
    return f" --max_reject_fraction {fraction_needed(rejected, read, complete=complete):.2g}"


def _reject_notes(trial: RejectCounts) -> Iterator[str]:
    """What a job would reject, the most frequent reasons first."""
    ranked = trial.by_reason.most_common()
    for (reason, column), count in ranked[:_NOTED]:
        lost = (
            f"{count:,} of {counted(trial.read, 'record')} ({percent(count, trial.read)}) will be rejected as {reason}"
        )
        yield f"{lost}{f' in {column!r}' if column else ''}; first {trial.examples[reason, column]}"
    if len(ranked) > _NOTED:
        rest = sum(count for _, count in ranked[_NOTED:])
        yield f"{counted(rest, 'more record')} will be rejected for {counted(len(ranked) - _NOTED, 'other reason')}"


def _parsed(text: str) -> Schema:
    try:
        schema = parse_schema(text.encode(), "the schema that was written")
    except UsageError as error:
        raise MillraceError(f"{error}\nThis is a mistake of `millrace init`. Please report it.") from error
    if not isinstance(schema, Schema):
        raise TypeError("the text says `format: csv`")
    return schema


def _split_quality(text: str, paths: Sequence[str]) -> int:
    """How well a split suits a small table: 0 if one of its parts is empty, 1 if one has a single class, else 2."""
    schema = _parsed(text)
    labels: dict[int, set[object]] = {SPLITS.index(split): set() for split in schema.split.splits}
    for _, decoded in _decoded(schema, paths, sample=False, with_split=True):
        values = decoded.batch.column(schema.label.name).flatten().to_pylist()
        for split, value in zip(decoded.batch.column(SPLIT).to_pylist(), values, strict=True):
            labels.setdefault(split, set()).add(value)
    return min(2, *map(len, labels.values()))
