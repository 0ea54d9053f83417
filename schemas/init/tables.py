"""Writes a table's schema: a draft is tried on its files, and written anew from the records that a job would keep.

Each feature is a line, with what the data shows behind it.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from schemas.csv.stream import MAX_INPUT_RATIO
from schemas.errors import MillraceError, UsageError, counted
from schemas.formats import row_format
from schemas.init.columns import ColumnFacts, missing_values, percent, printable
from schemas.init.declarations import declarations
from schemas.init.kinds import Declaration
from schemas.init.label import choose
from schemas.init.survey import Progress, Survey, read_all, survey
from schemas.profile import spellings
from schemas.reject_counts import RejectCounts, fraction_needed
from schemas.rows import Decoded
from schemas.spec.forms import MAX_COLUMNS, NAME
from schemas.spec.loader import MAX_BYTES, parse_schema
from schemas.spec.table import SPLIT, SPLITS, Schema

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})  # some readers take these for others
_LINE = 140
_NAME_LENGTH = 100  # of a feature; a column's name may be longer
_FEW, _TINY = 100, 50  # records: of fewer, a split of a tenth may be empty; of fewer still, any that is by a column
_MAX_REJECTS, _MAX_REJECT_FRACTION = 10, 0.001  # of a job, where no flag says otherwise
_RANGE_BYTES = 64 << 20
_ROUNDS = 4  # drafts at most
_NOTED = 5  # reasons for rejects that are named
_SMALL = 5_000  # records, of which the splits are counted
_THREE, _TWO = "train: 0.8, eval: 0.1, test: 0.1", "train: 0.8, eval: 0.2, test: 0"


def scalar(value: Any) -> str:
    """A value as the schema's YAML: text in quotes where it would be read as something else."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {scalar(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(map(scalar, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    plain = _WHOLE.fullmatch(text) or (_PLAIN.fullmatch(text) and text.lower() not in _WORDS)
    return text if plain or not isinstance(value, str) else _quoted(text)


def _quoted(text: str) -> str:
    """Text in double quotes; what cannot be seen is escaped."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else _escape(ord(c)) for c in escaped) + '"'


def _escape(code: int) -> str:
    return f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"


def comment(text: str) -> list[str]:
    """Text as lines of a comment."""
    lines = textwrap.wrap(printable(text), _LINE - 2, break_long_words=False, break_on_hyphens=False)
    return [f"# {line}" for line in lines]


def plain_name(text: str, otherwise: str) -> str:
    """A dataset's name made from that of a file or folder."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", text).strip("_.")
    return plain if NAME.fullmatch(plain) else otherwise.format(plain).rstrip("_")


@dataclasses.dataclass(frozen=True)
class Inferred:
    """A schema's text, and what to tell the person who asked for it.

    Attributes:
        text: the YAML file.
        notes: what should be looked at, a line each.
        rows: the number of records that were read.
        label: the label's name in the schema.
        features: name, kind and number of columns of each feature.
        fallbacks: the same schema with other splits, for data in which one of the first would be empty.
        flags: what the job needs besides, such as ` --max_reject_fraction 0.03`.
    """

    text: str
    notes: tuple[str, ...]
    rows: int
    label: str
    features: tuple[tuple[str, str, int], ...]
    fallbacks: tuple[str, ...] = ()
    flags: str = ""


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
        drafted = _draft(read, paths, label=label, name=name)
        schema, trial = _parsed(drafted.text), RejectCounts()
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
    notes, text = list(_reject_notes(trial)), drafted.text
    if drafted.rows <= _SMALL:
        *splits, alone = (drafted.text, *drafted.fallbacks)
        quality, text = max(((_split_quality(split, paths), split) for split in splits), key=lambda pair: pair[0])
        if not quality:
            text = alone
            notes.append(
                "all records are for training; `train` needs others to evaluate on, so add records to the files"
            )
    comments = "".join(f"{line}\n" for note in notes for line in comment(note))
    return dataclasses.replace(
        drafted,
        text=text.replace("\nname: ", f"\n{comments}name: ", 1),
        notes=(*drafted.notes, *notes),
        flags=reject_flag(trial.rejected, trial.read, complete=read.complete),
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
    """The flag that a job needs to tolerate its rejects: ` --max_reject_fraction 0.03`; empty if it needs none.

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


def _split_quality(text: str, paths: Sequence[str]) -> int:
    """How well a split suits a small table: 0 if one of its parts is empty, 1 if one has a single class, else 2."""
    schema = _parsed(text)
    labels: dict[int, set[object]] = {SPLITS.index(split): set() for split in schema.split.splits}
    for _, decoded in _decoded(schema, paths, with_split=True):
        values = decoded.batch.column(schema.label.name).flatten().to_pylist()
        for split, value in zip(decoded.batch.column(SPLIT).to_pylist(), values, strict=True):
            labels.setdefault(split, set()).add(value)
    return min(2, *map(len, labels.values()))


def _draft(read: Survey, paths: Sequence[str], *, label: str | None, name: str | None) -> Inferred:
    """A schema for files of which all columns were read.

    Raises:
        UsageError: there is no such label, or it has one class; or the schema would be too large.
    """
    if read.form.width > MAX_COLUMNS:
        raise UsageError(f"{paths[0]}: has {read.form.width:,} columns; a schema reads {MAX_COLUMNS:,} at most")
    missing = missing_values(read.columns)
    columns = [ColumnFacts(i, read.form.name(i), profile, frozenset(missing)) for i, profile in enumerate(read.columns)]
    chosen = choose(columns, label, paths[0])
    declared, notes = declarations(read, columns, chosen, paths[0])
    names = _names([chosen, *declared], columns)
    for name_in_schema, declaration in zip(names, [chosen, *declared], strict=True):
        if declaration.kind == "category":
            notes += _notes_on_spelling(name_in_schema, columns[declaration.first])
    if chosen.note:
        notes.append(f"{names[0]!r} {chosen.note}")
    stem = os.path.basename(paths[0]).removesuffix(".gz")
    top = [
        *_opening(read, paths),
        f"name: {scalar(name or plain_name(stem.rpartition('.')[0] or stem, 'data_{}'))}",
        "format: csv",
        f"csv: {scalar(_csv(read, missing))}",
    ]
    named = list(zip(names[1:], declared, strict=True))
    splits = list(_splits(read.rows, columns, named))
    for full in (True, False):
        lines = [*top, *_features(names, [chosen, *declared], columns, missing, full=full, complete=read.complete)]
        texts = ["\n".join([*lines, *split]) + "\n" for split in splits]
        size = max(len(text.encode()) for text in texts)
        if size <= MAX_BYTES:
            break
    else:
        raise UsageError(
            f"{paths[0]}: has {len(columns):,} columns of changing kinds, whose schema would have {size >> 10:,} KiB; "
            f"a schema file has {MAX_BYTES >> 10} at most. Leave out columns, or put columns of one kind beside each "
            "other, so that they can be declared together"
        )
    features = tuple((feature, declaration.kind, declaration.width) for feature, declaration in named)
    return Inferred(texts[0], (*read.form.notes, *notes), read.rows, names[0], features, tuple(texts[1:]))


def _names(declared: Sequence[Declaration], columns: Sequence[ColumnFacts]) -> list[str]:
    """A name for each declaration: no two of them, nor their indicators, have the same."""
    names, taken = [], set[str]()
    for declaration in declared:
        stem = _name(declaration, columns[declaration.first].name)
        for number in itertools.count(1):
            name = stem if number == 1 else f"{stem}_{number}"
            uses = {name, f"{name}_missing"} if declaration.settings.get("indicator") else {name}
            if not uses & taken:
                break
        taken |= uses
        names.append(name)
    return names


def _name(declared: Declaration, column: str | None) -> str:
    """A name that a schema takes, from that of the first column, or from the columns' positions."""
    if declared.width > 1:
        stem = (column or "").rstrip("0123456789").rstrip("_-. ") if declared.by_name else ""
        if not NAME.fullmatch(stem):
            return f"columns_{declared.first}_to_{declared.last}"
        column = f"{stem}s" if declared.kind == "numeric" and not stem.endswith("s") else stem
    if column is None:
        return f"column_{declared.first}"
    if NAME.fullmatch(column) and len(column) <= _NAME_LENGTH:
        return column
    plain = re.sub(r"[^A-Za-z0-9]+", "_", column).strip("_").lower()[:_NAME_LENGTH]
    return plain if NAME.fullmatch(plain) else f"column_{plain or declared.first}"


def _notes_on_spelling(name: str, column: ColumnFacts) -> Iterator[str]:
    """Notes on a category or label whose values are written in several ways."""
    if (described := spellings.described(dict(column.ranked()))) is not None:
        yield f"{name!r}: {described}; write them alike in the files"
    if count := column.profile.respelled:
        written, read = (value.decode(errors="replace") for value in column.profile.respelling)
        yield f"{name!r}: {count:,} of {column.present:,} values are spelled like {written!r} and read as {read!r}"


def _opening(read: Survey, paths: Sequence[str]) -> list[str]:
    files = paths[0] if len(paths) == 1 else f"{len(paths)} files, {paths[0]} first"
    how = f"{'all of its' if read.complete else 'the first'} {counted(read.read, 'record')}"
    lines = comment(f"Written by `millrace init` from {files}: {how}, {counted(read.form.width, 'columns')}.")
    for note in read.form.notes:
        lines += comment(note)
    if read.rows < _TINY:
        lines += comment(f"{counted(read.rows, 'record')} cannot show what the columns are: look at every line.")
    return lines


def _csv(read: Survey, missing: tuple[str, ...]) -> dict[str, Any]:
    form = read.form
    keys: dict[str, Any] = {"header": form.options.header}
    if form.names is None:
        keys["num_columns"] = form.width
    for key, usual in (("delimiter", ","), ("quote", '"'), ("quoted_newlines", False), ("encoding", "utf-8")):
        if (value := getattr(form.options, key)) != usual:
            keys[key] = value
    return keys if missing == ("",) else keys | {"missing": missing}


def _features(
    names: Sequence[str],
    declared: Sequence[Declaration],
    columns: Sequence[ColumnFacts],
    missing: tuple[str, ...],
    *,
    full: bool,
    complete: bool,
) -> Iterator[str]:
    """The lines of the features and of the label, which is the first; `full`: with what the schema could do without."""
    label, *features = (
        _keys(name, declaration, columns, missing, full=full or i == 0)
        for i, (name, declaration) in enumerate(zip(names, declared, strict=True))
    )
    yield "features:"
    for keys, declaration in zip(features, declared[1:], strict=True):
        line, evidence = f"  - {keys}", printable(declaration.evidence) if full else ""
        if not evidence or len(line) + len(evidence) + 4 <= _LINE:
            yield f"{line}  # {evidence}".removesuffix("  # ")
        else:
            yield from (*(f"  {wrapped}" for wrapped in comment(evidence)), line)
    rest = [] if complete else ["Read the rest for classes that are rarer."]
    for sentences in (*declared[0].evidence.splitlines(), *rest):
        yield from comment(sentences)
    yield f"label: {label}"


def _keys(
    name: str, declared: Declaration, columns: Sequence[ColumnFacts], missing: tuple[str, ...], *, full: bool
) -> str:
    """A feature's, or the label's mapping."""
    keys = {"name": scalar(name)}
    first = columns[declared.first]
    if declared.width > 1:
        ends = (declared.first, declared.last)
        refs = (_column_ref(columns[i]) if declared.by_name else str(i) for i in ends)
        keys["columns"] = f"[{', '.join(refs)}]"
    elif first.name != name:
        keys["column"] = _column_ref(first)
    keys["kind"] = declared.kind
    own = tuple(token for token in missing if token in first.tokens)
    if declared.width == 1 and declared.kind != "ignore" and own != missing:
        keys["missing_tokens"] = scalar(own)
    for key, value in declared.settings.items():
        if full or (key != "values" and (key, value) != ("transform", "z_score")):
            keys[key] = scalar(value)
    return "{" + ", ".join(f"{key}: {value}" for key, value in keys.items()) + "}"


def _column_ref(column: ColumnFacts) -> str:
    """A column as `column:` takes it: a header's name is always text."""
    if column.name is None:
        return str(column.position)
    return _quoted(column.name) if _WHOLE.fullmatch(column.name) else scalar(column.name)


def _splits(rows: int, columns: Sequence[ColumnFacts], named: Sequence[tuple[str, Declaration]]) -> Iterator[list[str]]:
    """The splits to try, the best first; the last has all records for training."""
    shares = _THREE if rows >= _FEW else _TWO
    together = [(name, columns[d.first]) for name, d in named if d.groups]
    if together and rows >= _TINY:
        name, column = together[0]
        lines = comment(
            f"Records that share {name} stay together, so that none is trained on and another evaluated: "
            f"{column.distinct:,} in {column.present:,} records."
        )
        yield [*lines, f"split: {{by: [{scalar(name)}], {shares}}}"]
    yield from ([f"split: {{by: row, {part}}}"] for part in (shares, _TWO))
    unread = [(columns[d.first].distinct, name) for name, d in named if d.kind in ("key", "ignore") and d.width == 1]
    distinct, name = max(unread, key=lambda pair: pair[0], default=(0, ""))
    if distinct > _TINY:
        lines = comment(f"By {name}, since the columns that a model reads are the same in too many records.")
        yield from ([*lines, f"split: {{by: [{scalar(name)}], {part}}}"] for part in (shares, _TWO))
    yield ["split: {by: row, train: 0.5, eval: 0.5, test: 0}"]
    lines = comment(f"{counted(rows, 'record')}: too few, or too often the same, to hold some back for evaluation.")
    yield [*lines, "split: {by: row, train: 1.0, eval: 0, test: 0}"]
