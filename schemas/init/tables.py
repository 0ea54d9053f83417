"""Writes a table's schema: a draft is tried on its files, and written anew from the records that a job would keep."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from schemas.csv.stream import MAX_INPUT_RATIO
from schemas.errors import MillraceError, UsageError, counted
from schemas.formats import row_format
from schemas.init.columns import ColumnFacts, missing_values
from schemas.init.declarations import declarations
from schemas.init.kinds import Declaration
from schemas.init.label import choose
from schemas.init.schema_text import TINY, feature_lines, notes_on_spelling, opening, unique_names
from schemas.init.survey import Progress, Survey, read_all, survey
from schemas.init.writing import comment, percent, plain_name, scalar
from schemas.reject_counts import RejectCounts, fraction_needed
from schemas.rows import Decoded
from schemas.spec.forms import MAX_COLUMNS
from schemas.spec.loader import MAX_BYTES, parse_schema
from schemas.spec.table import SPLIT, SPLITS, Schema

_FEW = 100  # records: of fewer, a split of a tenth may be empty
_MAX_REJECTS, _MAX_REJECT_FRACTION = 10, 0.001  # of a job, where no flag says otherwise
_RANGE_BYTES = 64 << 20
_ROUNDS = 4  # drafts at most
_NOTED = 5  # reasons for rejects that are named
_SMALL = 5_000  # records, of which the splits are counted
_THREE, _TWO = "train: 0.8, eval: 0.1, test: 0.1", "train: 0.8, eval: 0.2, test: 0"


@dataclasses.dataclass(frozen=True)
class Inferred:
    """A schema that was written from data.

    Attributes:
        text: the schema.
        notes: what a person should look at.
        rows: the number of records.
        label: its name.
        features: of each feature its name, kind and number of columns.
        flags: what the job needs to tolerate the rejects.
    """

    text: str
    notes: tuple[str, ...]
    rows: int
    label: str
    features: tuple[tuple[str, str, int], ...]
    flags: str = ""


@dataclasses.dataclass(frozen=True)
class _Draft:
    """A schema without its last lines, the split; `splits` has those to try, the best first."""

    lines: tuple[str, ...]
    splits: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    label: str
    features: tuple[tuple[str, str, int], ...]

    def text(self, split: Sequence[str], notes: Sequence[str] = ()) -> str:
        """Returns the schema with this split, and with notes as comments above the dataset's name."""
        place = next(i for i, line in enumerate(self.lines) if line.startswith("name: "))
        comments = [line for note in notes for line in comment(note)]
        return "\n".join([*self.lines[:place], *comments, *self.lines[place:], *split]) + "\n"


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
        draft = _draft(read, paths, label=label, name=name)
        schema, trial = _parsed(draft.text(draft.splits[0])), RejectCounts()
        for path, decoded in _decoded(schema, paths[:1] if sample else paths, sample=sample):
            trial.add_rows(path, decoded, schema)
        count = sum(map(len, rejected.values()))
        rejected = {
            path: np.unique(np.concatenate([*offsets, rejected.get(path, np.empty(0, np.int64))]))
            for path, offsets in trial.offsets.items()
        }
        if sum(map(len, rejected.values())) == count or trial.rejected == trial.read:
            break
        read = read_all(paths, read.form, sample=sample, progress=progress, without=rejected)
    notes, split = list(_reject_notes(trial)), draft.splits[0]
    if read.rows <= _SMALL:
        *splits, alone = draft.splits
        quality = {part: _split_quality(_parsed(draft.text(part)), paths) for part in splits}
        split = max(quality, key=lambda part: quality[part])
        if not quality[split]:
            split = alone
            notes.append(
                "all records are for training; `train` needs others to evaluate on, so add records to the files"
            )
    flags = reject_flag(trial.rejected, trial.read, complete=read.complete)
    return Inferred(
        draft.text(split, notes), (*draft.notes, *notes), read.rows, draft.label, draft.features, flags=flags
    )


def _decoded(
    schema: Schema, paths: Sequence[str], *, sample: bool = False, with_split: bool = False
) -> Iterator[tuple[str, Decoded]]:
    """The batches of files, as a job would read them, with their paths; with `sample`, the first batch of each."""
    form = row_format(schema)
    for path in paths:
        try:
            file = form.open_file(path, schema, label="required", max_input_ratio=MAX_INPUT_RATIO)
        except UsageError as error:
            raise _own_mistake(error) from error
        ranges = form.plan_ranges(file, range_bytes=_RANGE_BYTES)
        batches = (decoded for part in ranges for decoded in form.read_range(part, schema, with_split=with_split))
        yield from ((path, decoded) for decoded in itertools.islice(batches, 1 if sample else None))


def reject_flag(rejected: int, read: int, *, complete: bool) -> str:
    """Returns the flag that a job needs to tolerate its rejects: ` --max_reject_fraction 0.03`; empty if it needs none.

    Args:
        rejected: the number of records that will be rejected.
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
        of_all = f"{count:,} of {counted(trial.read, 'record')} ({percent(count, trial.read)})"
        place = f" in {column!r}" if column else ""
        yield f"{of_all} will be rejected as {reason}{place}; first {trial.examples[reason, column]}"
    if len(ranked) > _NOTED:
        rest = sum(count for _, count in ranked[_NOTED:])
        yield f"{counted(rest, 'more record')} will be rejected for {counted(len(ranked) - _NOTED, 'other reason')}"


def _parsed(text: str) -> Schema:
    try:
        schema = parse_schema(text.encode(), "the schema that was written")
    except UsageError as error:
        raise _own_mistake(error) from error
    if not isinstance(schema, Schema):
        raise TypeError("the text says `format: csv`")
    return schema


def _own_mistake(error: UsageError) -> MillraceError:
    return MillraceError(f"{error}\nThis is a mistake of `millrace init`. Please report it, with the file's beginning.")


def _split_quality(schema: Schema, paths: Sequence[str]) -> int:
    """How well a split suits a small table: 0 if one of its parts is empty, 1 if one has a single class, else 2."""
    labels: dict[int, set[object]] = {SPLITS.index(split): set() for split in schema.split.splits}
    for _, decoded in _decoded(schema, paths, with_split=True):
        values = decoded.batch.column(schema.label.name).flatten().to_pylist()
        for split, value in zip(decoded.batch.column(SPLIT).to_pylist(), values, strict=True):
            labels.setdefault(split, set()).add(value)
    return min(2, *map(len, labels.values()))


def _draft(read: Survey, paths: Sequence[str], *, label: str | None, name: str | None) -> _Draft:
    """A schema for files of which all columns were read.

    Raises:
        UsageError: there is no such label, or it has one class; or the schema would be too large.
    """
    if read.form.width > MAX_COLUMNS:
        raise UsageError(f"{paths[0]}: has {read.form.width:,} columns; a schema reads {MAX_COLUMNS:,} at most")
    missing = missing_values(read.columns)
    columns = [ColumnFacts(i, read.form.name(i), cells, frozenset(missing)) for i, cells in enumerate(read.columns)]
    chosen = choose(columns, label, paths[0])
    if not read.complete:
        rest = "Read the rest for classes that are rarer."
        chosen = dataclasses.replace(chosen, evidence=f"{chosen.evidence}\n{rest}")
    features, notes = declarations(read, columns, chosen, paths[0])
    declared = [chosen, *features]
    names = unique_names(declared, columns)
    for name_in_schema, declaration in zip(names, declared, strict=True):
        if declaration.kind == "category":
            notes += notes_on_spelling(name_in_schema, columns[declaration.first])
    if chosen.note:
        notes.append(f"{names[0]!r} {chosen.note}")
    stem = os.path.basename(paths[0]).removesuffix(".gz")
    top = opening(read, paths, name or plain_name(stem.rpartition(".")[0] or stem, "data_{}"), missing)
    named = dict(zip(names[1:], features, strict=True))
    splits = tuple(_splits(read.rows, columns, named))
    for shown in (declared, [chosen, *(declaration.shortened() for declaration in features)]):
        lines = [*top, *feature_lines(names, shown, columns, missing)]
        size = len("\n".join([*lines, *max(splits, key=lambda split: len("\n".join(split)))]).encode()) + 1
        if size <= MAX_BYTES:
            break
    else:
        raise UsageError(
            f"{paths[0]}: has {len(columns):,} columns of changing kinds, whose schema would have {size >> 10:,} KiB; "
            f"a schema file has {MAX_BYTES >> 10} at most. Leave out columns, or put columns of one kind beside each "
            "other, so that they can be declared together"
        )
    of_features = tuple((feature, declaration.kind, declaration.width) for feature, declaration in named.items())
    return _Draft(tuple(lines), splits, (*read.form.notes, *notes), names[0], of_features)


def _splits(rows: int, columns: Sequence[ColumnFacts], named: Mapping[str, Declaration]) -> Iterator[tuple[str, ...]]:
    """The splits to try, the best first; the last has all records for training."""
    shares = _THREE if rows >= _FEW else _TWO
    together = [(name, columns[d.first]) for name, d in named.items() if d.groups]
    if together and rows >= TINY:
        name, column = together[0]
        lines = comment(
            f"Records that share {name} stay together, so that none is trained on and another evaluated: "
            f"{column.distinct:,} in {column.present:,} records."
        )
        yield *lines, f"split: {{by: [{scalar(name)}], {shares}}}"
    yield from ((f"split: {{by: row, {part}}}",) for part in (shares, _TWO))
    unread = [(columns[d.first].distinct, n) for n, d in named.items() if d.kind in ("key", "ignore") and d.width == 1]
    distinct, name = max(unread, key=lambda pair: pair[0], default=(0, ""))
    if distinct > TINY:
        lines = comment(f"By {name}, since the columns that a model reads are the same in too many records.")
        yield from ((*lines, f"split: {{by: [{scalar(name)}], {part}}}") for part in (shares, _TWO))
    yield ("split: {by: row, train: 0.5, eval: 0.5, test: 0}",)
    lines = comment(f"{counted(rows, 'record')}: too few, or too often the same, to hold some back for evaluation.")
    yield *lines, "split: {by: row, train: 1.0, eval: 0, test: 0}"
