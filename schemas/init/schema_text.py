"""Writes the text of a table's schema: how it begins, and a line for each feature with what the data shows."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from schemas.errors import counted
from schemas.init.columns import ColumnFacts
from schemas.init.kinds import Declaration
from schemas.init.survey import Survey
from schemas.init.writing import LINE, WHOLE, comment, printable, quoted, scalar
from schemas.profile import spellings
from schemas.spec.forms import NAME

_NAME_LENGTH = 100  # of a feature; a column's name may be longer
TINY = 50  # records: of fewer, no column shows what it is


def opening(read: Survey, paths: Sequence[str], name: str, missing: tuple[str, ...]) -> list[str]:
    """Writes how a schema begins: what was read, the dataset's name, and how its files are written."""
    files = paths[0] if len(paths) == 1 else f"{len(paths)} files, {paths[0]} first"
    how = f"{'all of its' if read.complete else 'the first'} {counted(read.read, 'record')}"
    lines = comment(f"Written by `millrace init` from {files}: {how}, {counted(read.form.width, 'columns')}.")
    for note in read.form.notes:
        lines += comment(note)
    if read.rows < TINY:
        lines += comment(f"{counted(read.rows, 'record')} cannot show what the columns are: look at every line.")
    options, keys = read.form.options, dict[str, Any](header=read.form.options.header)
    if read.form.names is None:
        keys["num_columns"] = read.form.width
    for key, usual in (("delimiter", ","), ("quote", '"'), ("quoted_newlines", False), ("encoding", "utf-8")):
        if (value := getattr(options, key)) != usual:
            keys[key] = value
    if missing != ("",):
        keys["missing"] = missing
    return [*lines, f"name: {scalar(name)}", "format: csv", f"csv: {scalar(keys)}"]


def unique_names(declared: Sequence[Declaration], columns: Sequence[ColumnFacts]) -> list[str]:
    """Returns a name for each declaration: no two of them, nor their indicators, have the same."""
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


def notes_on_spelling(name: str, column: ColumnFacts) -> Iterator[str]:
    """Yields notes on a category or label whose values are written in several ways."""
    if (described := spellings.described(dict(column.ranked()))) is not None:
        yield f"{name!r}: {described}; write them alike in the files"
    if count := column.cells.respelled:
        written, read = (value.decode(errors="replace") for value in column.cells.respelling)
        yield f"{name!r}: {count:,} of {column.present:,} values are spelled like {written!r} and read as {read!r}"


def feature_lines(
    names: Sequence[str], declared: Sequence[Declaration], columns: Sequence[ColumnFacts], missing: tuple[str, ...]
) -> Iterator[str]:
    """Yields the lines of the features, with the evidence behind each, and of the label, which is declared first."""
    yield "features:"
    for name, declaration in zip(names[1:], declared[1:], strict=True):
        line = f"  - {_mapping(name, declaration, columns, missing)}"
        evidence = printable(declaration.evidence)
        if not evidence or len(line) + len(evidence) + 4 <= LINE:
            yield f"{line}  # {evidence}".removesuffix("  # ")
        else:
            yield from (*(f"  {wrapped}" for wrapped in comment(evidence)), line)
    for sentences in declared[0].evidence.splitlines():
        yield from comment(sentences)
    yield f"label: {_mapping(names[0], declared[0], columns, missing)}"


def _mapping(name: str, declared: Declaration, columns: Sequence[ColumnFacts], missing: tuple[str, ...]) -> str:
    """The keys of a feature, or of the label."""
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
    keys |= {key: scalar(value) for key, value in declared.settings.items()}
    return "{" + ", ".join(f"{key}: {value}" for key, value in keys.items()) + "}"


def _column_ref(column: ColumnFacts) -> str:
    """A column as `column:` takes it: a header's name is always text."""
    if column.name is None:
        return str(column.position)
    return quoted(column.name) if WHOLE.fullmatch(column.name) else scalar(column.name)
