"""A schema as text: one line for each feature, with what the data shows behind it."""

from __future__ import annotations

import dataclasses
import os
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from schemas.errors import UsageError, counted
from schemas.init.declarations import declarations
from schemas.init.kinds import NA, Column, Declaration, feature_name, missing_values, na_is_a_code, unique
from schemas.init.label import LabelChoice, choose
from schemas.init.survey import Survey
from schemas.profile import spellings
from schemas.spec.forms import MAX_COLUMNS, NAME
from schemas.spec.loader import MAX_BYTES

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})  # some readers take these for others
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_LINE = 140


def scalar(value: Any) -> str:
    """A value as the schema's YAML: text in quotes where it would be read as something else."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {scalar(held)}" for key, held in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(map(scalar, value)) + "]"
    text = str(value)
    if _WHOLE.fullmatch(text) or (_PLAIN.fullmatch(text) and text.lower() not in _WORDS):
        return text
    return quoted(text)


def quoted(text: str) -> str:
    """Text in double quotes; what cannot be seen is escaped."""
    return '"' + "".join(_ESCAPES.get(c) or (c if c.isprintable() else _escape(ord(c))) for c in text) + '"'


def _escape(code: int) -> str:
    return f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"


def column_ref(name: str) -> str:
    """A header's name as `column:` takes it: always text."""
    return quoted(name) if _WHOLE.fullmatch(name) else scalar(name)


def comment(text: str) -> list[str]:
    """Text as lines of a comment."""
    clean = "".join(c if c.isprintable() else " " for c in text)
    return [f"# {line}" for line in textwrap.wrap(clean, _LINE - 2, break_long_words=False, break_on_hyphens=False)]


def feature_line(keys: Iterable[tuple[str, str]], evidence: str) -> list[str]:
    """A feature, with its evidence behind it, or above it where the line would be long."""
    line = "  - {" + ", ".join(f"{key}: {value}" for key, value in keys) + "}"
    clean = "".join(c if c.isprintable() else " " for c in evidence)
    if not clean:
        return [line]
    if len(line) + len(clean) + 4 <= _LINE:
        return [f"{line}  # {clean}"]
    return [*(f"  {wrapped}" for wrapped in comment(clean)), line]


_FEW, _TINY = 100, 50  # records: of fewer, a split of a tenth may be empty; of fewer still, any that is by a column
_COMMENTED = 1_000  # features, beyond which there is no evidence behind each


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


def draft(read: Survey, paths: Sequence[str], *, label: str | None, name: str | None) -> Inferred:
    """A schema for files of which all columns were read; `schemas.init.trial` tries it on them.

    Raises:
        UsageError: there is no such label, or it has one class.
    """
    if read.form.width > MAX_COLUMNS:
        raise UsageError(f"{paths[0]}: has {read.form.width:,} columns; a schema reads {MAX_COLUMNS:,} at most")
    missing = missing_values(read.columns)
    tokens = frozenset(missing)
    columns = [
        Column(i, read.name(i), profile, tokens - {NA} if na_is_a_code(profile) else tokens)
        for i, profile in enumerate(read.columns)
    ]
    chosen = choose(columns, label, paths[0])
    if not read.complete:
        chosen = dataclasses.replace(chosen, evidence=(*chosen.evidence, "Read the rest for classes that are rarer."))
    return _Writer(read, columns, chosen, missing, paths).write(name or _dataset_name(paths[0]))


def _dataset_name(path: str) -> str:
    stem = os.path.basename(path).removesuffix(".gz")
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", stem.rpartition(".")[0] or stem).strip("_.")
    return plain if NAME.fullmatch(plain) else f"data_{plain}".rstrip("_")


def _needed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without those that a schema can do without."""
    return {k: v for k, v in settings.items() if k != "values" and (k, v) != ("transform", "z_score")}


def spelling_notes(name: str, column: Column) -> Iterator[str]:
    """Notes on a category or label whose values are written in several ways."""
    if (described := spellings.described(dict(column.ranked()))) is not None:
        yield f"{name!r}: {described}; write them alike in the files"
    if count := column.profile.respelled:
        written, read = (value.decode(errors="replace") for value in column.profile.respelling)
        of = f"{count:,} of {column.present:,} values"
        yield f"{name!r}: {of} are spelled like {written!r} and read as {read!r}"


class _Writer:
    """The declarations of one survey, and their text."""

    def __init__(
        self,
        read: Survey,
        columns: Sequence[Column],
        label: LabelChoice,
        missing: tuple[str, ...],
        paths: Sequence[str],
    ) -> None:
        self._read, self._columns, self._label, self._missing, self._paths = read, columns, label, missing, paths
        self._notes: list[str] = list(read.form.notes)
        if read.header_again is not None:
            path, offset = read.header_again
            self._notes.append(f"the header is repeated in {path} at byte {offset:,}; this line is not a record")

    def write(self, name: str) -> Inferred:
        declared, notes = declarations(self._read, self._columns, self._label, self._paths[0])
        self._notes += notes
        taken: set[str] = set()
        label_column = self._columns[self._label.position]
        label_name = unique(
            feature_name(label_column.name, Declaration(label_column.position, label_column.position, "")), taken
        )
        named = [(self._name(each, taken), each) for each in declared]
        if self._label.kind == "category":
            self._notes += spelling_notes(label_name, label_column)
        for feature, each in named:
            if each.kind == "category":
                self._notes += spelling_notes(feature, self._columns[each.first])
        text = self._text(name, label_name, named, evidence=len(named) <= _COMMENTED)
        if len(text.encode()) > MAX_BYTES:  # without values and what is the default anyway
            named = [(n, dataclasses.replace(d, settings=_needed(d.settings))) for n, d in named]
            text = self._text(name, label_name, named, evidence=False)
        if len(text.encode()) > MAX_BYTES:
            raise UsageError(
                f"{self._paths[0]}: has {len(self._columns):,} columns of changing kinds, whose schema would have "
                f"{len(text.encode()) >> 10:,} KiB; a schema file has {MAX_BYTES >> 10} at most. Leave out columns, or "
                "put columns of one kind beside each other, so that they can be declared together"
            )
        if label_column.distinct == 1 and self._read.rows > 1:
            self._notes.append(
                f"the label {label_name!r} has one class, so that there is nothing to learn; --label names another"
            )
        features = tuple((n, each.kind, each.width) for n, each in named)
        first, *others = self._splits(named)
        fallbacks = tuple("\n".join([text, *lines]) + "\n" for lines in others)
        text = "\n".join([text, *first]) + "\n"
        return Inferred(text, tuple(self._notes), self._read.rows, label_name, features, fallbacks)

    def _name(self, declared: Declaration, taken: set[str]) -> str:
        if declared.width == 1:
            name = feature_name(self._columns[declared.first].name, declared)
        elif declared.by_name:
            stem = (self._columns[declared.first].name or "").rstrip("0123456789").rstrip("_-. ")
            name = feature_name(stem if NAME.fullmatch(stem) else None, declared)
            name = f"{name}s" if declared.kind == "numeric" and not name.endswith("s") else name
        else:
            name = feature_name(None, declared)
        return unique(name, taken, indicator=bool(declared.settings.get("indicator")))

    def _text(self, name: str, label: str, named: list[tuple[str, Declaration]], *, evidence: bool) -> str:
        lines = [*self._opening(), f"name: {scalar(name)}", "format: csv", self._csv(), "features:"]
        for feature, declared in named:
            lines += feature_line(self._keys(feature, declared), declared.evidence if evidence else "")
        for said in self._label.evidence:
            lines += comment(said)
        keys = [("name", scalar(label)), *self._reference(label, self._label.position), ("kind", self._label.kind)]
        keys += self._tokens(self._label.position)
        keys += [(key, scalar(value)) for key, value in self._label.settings.items()]
        lines.append("label: {" + ", ".join(f"{key}: {value}" for key, value in keys) + "}")
        return "\n".join(lines)

    def _opening(self) -> list[str]:
        read = self._read
        files = self._paths[0] if len(self._paths) == 1 else f"{len(self._paths)} files, {self._paths[0]} first"
        how = f"{'all of its' if read.complete else 'the first'} {counted(read.read, 'record')}"
        lines = comment(f"Written by `millrace init` from {files}: {how}, {counted(read.form.width, 'columns')}.")
        for note in read.form.notes:
            lines += comment(note)
        if read.sample.table.num_rows and read.rows < _TINY:
            lines += comment(f"{counted(read.rows, 'record')} cannot show what the columns are: look at every line.")
        return lines

    def _csv(self) -> str:
        options = self._read.form.options
        keys: dict[str, Any] = {"header": options.header}
        if options.header == "none":
            keys["num_columns"] = self._read.form.width
        if options.delimiter != ",":
            keys["delimiter"] = options.delimiter
        if options.quote != '"':
            keys["quote"] = options.quote
        if options.quoted_newlines:
            keys["quoted_newlines"] = True
        if options.encoding != "utf-8":
            keys["encoding"] = options.encoding
        if self._missing != ("",):
            keys["missing"] = self._missing
        return "csv: " + scalar(keys)

    def _keys(self, name: str, declared: Declaration) -> list[tuple[str, str]]:
        keys = [("name", scalar(name))]
        if declared.width == 1:
            keys += self._reference(name, declared.first)
        elif declared.by_name:
            ends = [column_ref(self._columns[i].name or "") for i in (declared.first, declared.last)]
            keys.append(("columns", f"[{', '.join(ends)}]"))
        else:
            keys.append(("columns", f"[{declared.first}, {declared.last}]"))
        keys.append(("kind", declared.kind))
        if declared.width == 1 and declared.kind != "ignore":
            keys += self._tokens(declared.first)
        return keys + [(key, scalar(value)) for key, value in declared.settings.items() if key != "group"]

    def _tokens(self, position: int) -> list[tuple[str, str]]:
        """`missing_tokens:`, where not all tokens of the files mean missing in the column."""
        own = tuple(token for token in self._missing if token in self._columns[position].tokens)
        return [] if own == self._missing else [("missing_tokens", scalar(own))]

    def _reference(self, name: str, position: int) -> list[tuple[str, str]]:
        """`column:`, where the column is not called like the feature."""
        column = self._columns[position].name
        if column == name:
            return []
        return [("column", str(position) if column is None else column_ref(column))]

    def _splits(self, named: list[tuple[str, Declaration]]) -> Iterator[list[str]]:
        """The splits to try, the best first."""
        rows = self._read.rows
        two = "train: 0.8, eval: 0.2, test: 0"
        shares = "train: 0.8, eval: 0.1, test: 0.1" if rows >= _FEW else two
        group = next(((name, d) for name, d in named if d.settings.get("group")), None)
        if group is not None and rows >= _TINY:
            name, column = group[0], self._columns[group[1].first]
            lines = comment(
                f"Records that share {name} stay together, so that none is trained on and another evaluated: "
                f"{column.distinct:,} in {column.present:,} records."
            )
            yield [*lines, f"split: {{by: [{scalar(name)}], {shares}}}"]
        yield from ([f"split: {{by: row, {part}}}"] for part in (shares, two))
        unread = [(name, self._columns[d.first]) for name, d in named if d.kind in ("key", "ignore") and d.width == 1]
        unread = [(name, column) for name, column in unread if column.distinct > _TINY]
        if unread:
            name, column = max(unread, key=lambda pair: pair[1].distinct)
            lines = comment(f"By {name}, since the columns that a model reads are the same in too many records.")
            yield from ([*lines, f"split: {{by: [{scalar(name)}], {part}}}"] for part in (shares, two))
        yield ["split: {by: row, train: 0.5, eval: 0.5, test: 0}"]
        said = comment(f"{counted(rows, 'record')}: too few, or too often the same, to hold some back for evaluation.")
        yield [*said, "split: {by: row, train: 1.0, eval: 0, test: 0}"]
