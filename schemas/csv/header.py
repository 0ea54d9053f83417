"""Finds the position of each raw column in a file: by its header, by `csv.columns`, or by number."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from schemas.errors import UsageError, few
from schemas.spec.features import Feature, Key, Label, Weight
from schemas.spec.forms import ColumnRef
from schemas.spec.naming import both_names, file_name, header_names, similar_name, undeclared
from schemas.spec.table import HashSplit, Schema

DELIMITERS = ",;\t|:^~ "  # that files in the wild have
Items = Sequence[Feature | Label]
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?")
_YAML_WORDS = frozenset({"true", "false", "null"})  # strings in YAML 1.2 only if quoted


@dataclasses.dataclass(frozen=True)
class ItemColumns:
    """The columns that one feature, or the label, is read from: positions in the file, and names for messages."""

    name: str
    positions: tuple[int, ...]
    labels: tuple[str, ...]


Layout = tuple[ItemColumns, ...]  # of all decoded items, in the schema's order, the label last


def is_header(path: str, fields: Sequence[str], schema: Schema, items: Items) -> bool:
    """Returns whether a file's first record is a header: as the schema says, or (auto) if it names the columns.

    More than half of the names are enough, so that a misspelt name is reported as such.
    """
    if schema.csv.header != "auto":
        return schema.csv.header == "present"
    by_item, there = header_names(schema), set(fields)
    columns = {names[0]: names for item in items for names in by_item[item.name] if names}
    needed = {name for item in items if item.raw is not None for ref in item.refs if (name := file_name(ref, schema))}
    if 2 * sum(not there.isdisjoint(names) for names in columns.values()) > len(columns):
        return True
    if needed and schema.csv.width is None:
        raise UsageError(
            f"{path}: the first line contains {_some(fields)}; expected a header with {_some(sorted(needed))}"
            + (
                _separated(fields, schema)
                or similar_name(needed, fields)
                or ". If the file has no header, name its columns in the schema: csv: {columns: [...]}"
            )
        )
    return False


def header_layout(
    path: str, header: Sequence[str], schema: Schema, items: Items, *, allow_unread: bool = False
) -> tuple[Layout, int]:
    """Finds columns by the names in a header, in any order, and counts them. `allow_unread`: there may be more.

    Raises:
      UsageError: a column is not there, is there twice or under two names, or no feature reads it.
    """
    twice = sorted(name for name, count in Counter(header).items() if count > 1 and name)
    if twice:
        raise UsageError(f"{path}: the header names {_some(twice)} more than once; expected each column's name once")
    places = {name: i for i, name in enumerate(header)}
    expected = {item.name for item in items}
    layout, read = [], set()
    lacking: list[tuple[str, Feature | Label]] = []
    names = header_names(schema)
    for item in schema.items:
        positions = [
            ref if isinstance(ref, int) and file_name(ref, schema) is None else _place(path, item, own, places, schema)
            for ref, own in zip(item.refs, names[item.name], strict=True)
        ]
        missing = [
            file_name(ref, schema) or str(ref)
            for ref, position in zip(item.refs, positions, strict=True)
            if not 0 <= position < len(header)
        ]
        read.update(positions)
        if item.name not in expected or not positions:
            continue
        if missing and _decoded(item, schema):
            lacking.extend((name, item) for name in missing)
        elif not missing and _decoded(item, schema):
            layout.append(ItemColumns(item.name, tuple(positions), tuple(header[p] or str(p) for p in positions)))
    if lacking:
        name, item = lacking[0]
        more = f" (and {len(lacking) - 1} more)" if len(lacking) > 1 else ""
        raise UsageError(
            f"{path}: the header lacks the column {name!r}, which {item.name!r} reads{more}; it has {_some(header)}"
            f"{_remedy(lacking, header, schema, open_schema=schema.label.name in expected)}"
        )
    unread = [i for i in range(len(header)) if i not in read]
    if unread and not allow_unread:
        lines = "\n".join(f"  - {ignore_line(header[i], i)}" for i in unread[:5])
        more = f"\n  ... and {len(unread) - 5} more" if len(unread) > 5 else ""
        raise UsageError(
            f"{path}: the header has columns that no feature reads: {_some([header[i] for i in unread])}. "
            f"Declare columns that are not features under features:\n{lines}{more}"
        )
    return tuple(layout), len(header)


def _place(path: str, item: Feature | Label, names: Sequence[str], places: Mapping[str, int], schema: Schema) -> int:
    """Where a header has a column, by what it may be called; -1 where it is not.

    Raises:
      UsageError: two columns have such a name, and the first is not that of another feature, too.
    """
    there = [name for name in names if name in places]
    if len(there) > 1 and all(there[0] != other.name for other in schema.items):
        raise UsageError(f"{path}: {both_names(item, there)}")
    return places[there[0]] if there else -1


def _remedy(
    lacking: Sequence[tuple[str, Feature | Label]], header: Sequence[str], schema: Schema, *, open_schema: bool
) -> str:
    """What to do about a header in which columns are not found; not every schema is open to changes."""
    spelt = similar_name([name for name, _ in lacking], header)
    if spelt:
        return spelt
    if not _names_in(schema).intersection(header):
        other = f". No column of the schema {schema.name} is in it: is this other data?"
        if any(_NUMBER.fullmatch(name) for name in header):
            other = ". It looks like a record: if the file has no header, write the names of its columns above it"
        return _separated(header, schema) or other
    items = [item for _, item in lacking]
    add = f". Add {'it' if len(lacking) == 1 else 'them'} to the file"
    if open_schema and schema.label not in items:
        return f"{add}, or, for a new dataset, take {few([*dict.fromkeys(i.name for i in items)])} out of the schema"
    empty = all("" in item.tokens(schema.csv.missing) and item.if_missing is None for item in items)
    return f"{add}; the cells may be empty" if empty else add


def _separated(header: Sequence[str], schema: Schema) -> str:
    """What to do about a header whose columns are there, but separated by another sign; else nothing."""
    line = schema.csv.delimiter.join(header)
    for other in DELIMITERS:
        if other != schema.csv.delimiter and _names_in(schema).intersection(line.split(other)):
            return f". Its columns are separated by {other!r}: declare csv: {{delimiter: {json.dumps(other)}}}"
    return ""


def _names_in(schema: Schema) -> set[str]:
    """What the columns that a schema reads may be called."""
    return {name for columns in header_names(schema).values() for names in columns for name in names}


def layout_by_names(
    path: str, fields: Sequence[str], schema: Schema, *, prediction: bool = False
) -> tuple[Layout, int] | None:
    """Finds the columns of a file that may have others, and lack those of the label, the weight and the key.

    Columns are found by their names, also if the schema's own files have no header. For prediction, label and weight
    are not read, and the key must be there.

    Returns:
      None if the first record is no header, or is one whose columns the schema has by their places.

    Raises:
      UsageError: a header lacks columns of features, or names one more than once or by two names.
    """
    own = schema.csv.header
    if own == "none" and not any(letter.isalpha() for field in fields for letter in field):
        return None  # numbers are data, also where columns are called "0" and "1"
    places = {name: i for i, name in reversed(list(enumerate(fields)))}
    layout: list[ItemColumns] = []
    lacking: list[tuple[str, Feature | Label]] = []
    there, named = 0, header_names(schema)
    for item in schema.items:
        if item.raw is None or (prediction and item in (schema.label, schema.weight)):
            continue
        columns = named[item.name]
        positions = [_place(path, item, names, places, schema) for names in columns]
        if min(positions) >= 0:
            labels = tuple(fields[position] for position in positions)
            layout.append(ItemColumns(item.name, tuple(positions), labels))
        elif not prediction and (isinstance(item, Key | Weight) or item is schema.label):
            continue
        else:
            lacking += [
                (names[0] if names else str(ref), item)
                for names, ref, place in zip(columns, item.refs, positions, strict=True)
                if place < 0
            ]
        there += sum(position >= 0 for position in positions)
    by_place = own != "none" and any(isinstance(ref, int) for item in schema.items for ref in item.refs)
    if lacking and (by_place or (own != "present" and there <= len(lacking))):
        return None
    if lacking:
        reader = "the model needs" if prediction else "the dataset's features read"
        raise UsageError(
            f"{path}: the header lacks {_some([name for name, _ in lacking])}, which {reader}; "
            f"it has {_some(fields)}{_remedy(lacking, fields, schema, open_schema=False)}"
        )
    read = {label for item in layout for label in item.labels}
    twice = [name for name, count in Counter(fields).items() if count > 1 and name in read]
    if twice:
        raise UsageError(f"{path}: the header names {_some(twice)} more than once; expected each column's name once")
    return tuple(layout), len(fields)


def ignored_columns(header: Sequence[str], schema: Schema, columns: Layout) -> tuple[str, ...]:
    """Returns the names of a header's columns that the schema does not declare, and of which no column is read."""
    read = {place for item in columns for place in item.positions}
    by_place = {ref for item in schema.items for ref in item.refs if isinstance(ref, int)}
    unknown = set(undeclared(header, schema))
    return tuple(n for i, n in enumerate(header) if n in unknown and i not in read and i not in by_place)


def positional_layout(path: str, width: int, schema: Schema, items: Items, *, prediction: bool) -> tuple[Layout, int]:
    """Finds the columns of a file without a header, whose first record has `width` fields, and counts them.

    For prediction, a file may lack the label's column; the columns after it then move one position to the left.
    """
    expected = schema.csv.width
    if expected is None:
        raise UsageError(
            f"{path}: no header, and the schema does not say how many columns there are (the first line has {width}); "
            "expected csv: {columns: [...]} or csv: {num_columns: " + str(width) + "}"
        )
    named = None if schema.csv.columns is None else {name: i for i, name in enumerate(schema.csv.columns)}
    label = _position(path, schema.label.refs[0], named)
    shifted = prediction and width == expected - 1
    layout = []
    for item in items:
        positions = [_position(path, ref, named) for ref in item.refs]
        names = [schema.csv.columns[p] if schema.csv.columns else str(p) for p in positions]
        if _decoded(item, schema):
            places = tuple(p - 1 if shifted and p > label else p for p in positions)
            layout.append(ItemColumns(item.name, places, tuple(names)))
    return tuple(layout), expected - 1 if shifted else expected


def _decoded(item: Feature | Label, schema: Schema) -> bool:
    by = schema.split.by if isinstance(schema.split, HashSplit) else "row"
    return item.raw is not None or (by != "row" and item.name in by)


def _position(path: str, ref: ColumnRef, places: Mapping[str, int] | None) -> int:
    if isinstance(ref, int):
        return ref
    if places is None:
        raise UsageError(
            f"{path}: no header, so the column {ref!r} cannot be found; name the columns: csv: {{columns: [...]}}"
        )
    return places[ref]


def ignore_line(name: str, position: int) -> str:
    """Returns the line of a schema that leaves a file's column out."""
    plain = name.isidentifier() and name.isascii() and name[0] != "_" and name.lower() not in _YAML_WORDS
    feature = name if plain else f"column_{position}"
    column = (
        ""
        if feature == name
        else f", column: {json.dumps(name, ensure_ascii=False)}"
        if name
        else f", column: {position}"
    )
    return f"{{name: {feature}, kind: ignore{column}}}"


def _some(names: Sequence[str]) -> str:
    """The names, or the first few if there are many."""
    shown = ", ".join(repr(n if len(n) <= 40 else n[:40] + "...") for n in names[:8])
    return f"{len(names)} columns, {shown}, ..." if len(names) > 8 else shown
