"""A table's schema as text: one line for each feature, with what the data shows behind it."""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from schemas.errors import UsageError, counted
from schemas.init.columns import NA, Column, missing_values, na_is_a_code
from schemas.init.declarations import declarations
from schemas.init.kinds import Declaration
from schemas.init.label import LabelChoice, choose
from schemas.init.survey import Survey
from schemas.profile import spellings
from schemas.spec.forms import MAX_COLUMNS, NAME
from schemas.spec.loader import MAX_BYTES

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})  # some readers take these for others
_LINE = 140
_FEW, _TINY = 100, 50  # records: of fewer, a split of a tenth may be empty; of fewer still, any that is by a column
_COMMENTED = 1_000  # features, beyond which there is no evidence behind each


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
    return text if plain or not isinstance(value, str) else quoted(text)


def quoted(text: str) -> str:
    """Text in double quotes; what cannot be seen is escaped."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else _escape(ord(c)) for c in escaped) + '"'


def _escape(code: int) -> str:
    return f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"


def comment(text: str) -> list[str]:
    """Text as lines of a comment."""
    lines = textwrap.wrap(_printable(text), _LINE - 2, break_long_words=False, break_on_hyphens=False)
    return [f"# {line}" for line in lines]


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


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
        UsageError: there is no such label, or it has one class; or the schema would be too large.
    """
    if read.form.width > MAX_COLUMNS:
        raise UsageError(f"{paths[0]}: has {read.form.width:,} columns; a schema reads {MAX_COLUMNS:,} at most")
    missing = missing_values(read.columns)
    tokens = frozenset(missing)
    columns = [
        Column(i, read.form.name(i), profile, tokens - {NA} if na_is_a_code(profile) else tokens)
        for i, profile in enumerate(read.columns)
    ]
    chosen = choose(columns, label, paths[0])
    declared, notes = declarations(read, columns, chosen, paths[0])
    taken: set[str] = set()
    place = Declaration(chosen.position, chosen.position, chosen.kind, chosen.settings)
    label_name = _name(place, columns, taken)
    named = [(_name(declaration, columns, taken), declaration) for declaration in declared]
    for feature, declaration in [(label_name, place), *named]:
        if declaration.kind == "category":
            notes += _notes_on_spelling(feature, columns[declaration.first])
    if columns[chosen.position].distinct == 1 and read.rows > 1:
        notes.append(
            f"the label {label_name!r} has one class, so that there is nothing to learn; --label names another"
        )
    text = _Text(read, columns, missing, paths)
    body = text.of(name or _dataset_name(paths[0]), (label_name, place), chosen, named, full=len(named) <= _COMMENTED)
    if len(body.encode()) > MAX_BYTES:
        body = text.of(name or _dataset_name(paths[0]), (label_name, place), chosen, named, full=False)
    if len(body.encode()) > MAX_BYTES:
        raise UsageError(
            f"{paths[0]}: has {len(columns):,} columns of changing kinds, whose schema would have "
            f"{len(body.encode()) >> 10:,} KiB; a schema file has {MAX_BYTES >> 10} at most. Leave out columns, or "
            "put columns of one kind beside each other, so that they can be declared together"
        )
    first, *fallbacks = ("\n".join([body, *lines]) + "\n" for lines in _splits(read.rows, columns, named))
    features = tuple((feature, declaration.kind, declaration.width) for feature, declaration in named)
    return Inferred(first, (*read.form.notes, *notes), read.rows, label_name, features, tuple(fallbacks))


def _dataset_name(path: str) -> str:
    stem = os.path.basename(path).removesuffix(".gz")
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", stem.rpartition(".")[0] or stem).strip("_.")
    return plain if NAME.fullmatch(plain) else f"data_{plain}".rstrip("_")


_NAME_LENGTH = 100  # of a name; a file's may be longer


def _feature_name(name: str | None, declared: Declaration) -> str:
    """A name that a schema takes, from the header's, or from the columns' positions."""
    if name is None:
        places = f"{declared.first}" if declared.width == 1 else f"{declared.first}_to_{declared.last}"
        return f"column{'' if declared.width == 1 else 's'}_{places}"
    if NAME.fullmatch(name) and len(name) <= _NAME_LENGTH:
        return name
    plain = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").lower()[:_NAME_LENGTH]
    return plain if NAME.fullmatch(plain) else f"column_{plain or declared.first}"


def _unique(name: str, taken: set[str], *, indicator: bool = False) -> str:
    """The name, with a number behind it where it is taken; the name, and that of its indicator, are then taken."""
    for number in itertools.count(1):
        numbered = name if number == 1 else f"{name}_{number}"
        uses = {numbered, f"{numbered}_missing"} if indicator else {numbered}
        if not uses & taken:
            break
    taken |= uses
    return numbered


def _name(declared: Declaration, columns: Sequence[Column], taken: set[str]) -> str:
    """A name for a feature, which is then taken."""
    column = columns[declared.first].name
    if declared.width == 1:
        name = _feature_name(column, declared)
    else:
        stem = (column or "").rstrip("0123456789").rstrip("_-. ") if declared.by_name else ""
        name = _feature_name(stem if NAME.fullmatch(stem) else None, declared)
        if declared.by_name and declared.kind == "numeric" and not name.endswith("s"):
            name = f"{name}s"
    return _unique(name, taken, indicator=bool(declared.settings.get("indicator")))


def _notes_on_spelling(name: str, column: Column) -> Iterator[str]:
    """Notes on a category or label whose values are written in several ways."""
    if (described := spellings.described(dict(column.ranked()))) is not None:
        yield f"{name!r}: {described}; write them alike in the files"
    if count := column.profile.respelled:
        written, read = (value.decode(errors="replace") for value in column.profile.respelling)
        yield f"{name!r}: {count:,} of {column.present:,} values are spelled like {written!r} and read as {read!r}"


@dataclasses.dataclass(frozen=True)
class _Text:
    """Writes what was read as a schema."""

    read: Survey
    columns: Sequence[Column]
    missing: tuple[str, ...]
    paths: Sequence[str]

    def of(
        self,
        name: str,
        label: tuple[str, Declaration],
        chosen: LabelChoice,
        named: Sequence[tuple[str, Declaration]],
        *,
        full: bool,
    ) -> str:
        """The schema without its split; `full`: with the evidence, and with what it could do without."""
        lines = [*self._opening(), f"name: {scalar(name)}", "format: csv", f"csv: {scalar(self._csv())}", "features:"]
        for feature, declared in named:
            line, evidence = f"  - {self._keys(feature, declared, full=full)}", _printable(declared.evidence)
            if not full or not evidence:
                lines.append(line)
            elif len(line) + len(evidence) + 4 <= _LINE:
                lines.append(f"{line}  # {evidence}")
            else:
                lines += [*(f"  {wrapped}" for wrapped in comment(evidence)), line]
        for evidence in chosen.evidence:
            lines += comment(evidence)
        if not self.read.complete:
            lines += comment("Read the rest for classes that are rarer.")
        lines.append(f"label: {self._keys(*label, full=True)}")
        return "\n".join(lines)

    def _opening(self) -> list[str]:
        read = self.read
        files = self.paths[0] if len(self.paths) == 1 else f"{len(self.paths)} files, {self.paths[0]} first"
        how = f"{'all of its' if read.complete else 'the first'} {counted(read.read, 'record')}"
        lines = comment(f"Written by `millrace init` from {files}: {how}, {counted(read.form.width, 'columns')}.")
        for note in read.form.notes:
            lines += comment(note)
        if read.rows < _TINY:
            lines += comment(f"{counted(read.rows, 'record')} cannot show what the columns are: look at every line.")
        return lines

    def _csv(self) -> dict[str, Any]:
        form = self.read.form
        keys: dict[str, Any] = {"header": form.options.header}
        if form.names is None:
            keys["num_columns"] = form.width
        for key, usual in (("delimiter", ","), ("quote", '"'), ("quoted_newlines", False), ("encoding", "utf-8")):
            if (value := getattr(form.options, key)) != usual:
                keys[key] = value
        return keys if self.missing == ("",) else keys | {"missing": self.missing}

    def _keys(self, name: str, declared: Declaration, *, full: bool) -> str:
        """A feature's, or the label's mapping."""
        keys = {"name": scalar(name)}
        first = self.columns[declared.first]
        if declared.width > 1:
            ends = (declared.first, declared.last)
            refs = (_column_ref(self.columns[i]) if declared.by_name else str(i) for i in ends)
            keys["columns"] = f"[{', '.join(refs)}]"
        elif first.name != name:
            keys["column"] = _column_ref(first)
        keys["kind"] = declared.kind
        own = tuple(token for token in self.missing if token in first.tokens)
        if declared.width == 1 and declared.kind != "ignore" and own != self.missing:
            keys["missing_tokens"] = scalar(own)
        for key, value in declared.settings.items():
            if key != "group" and (full or (key != "values" and (key, value) != ("transform", "z_score"))):
                keys[key] = scalar(value)
        return "{" + ", ".join(f"{key}: {value}" for key, value in keys.items()) + "}"


def _column_ref(column: Column) -> str:
    """A column as `column:` takes it: a header's name is always text."""
    if column.name is None:
        return str(column.position)
    return quoted(column.name) if _WHOLE.fullmatch(column.name) else scalar(column.name)


def _splits(rows: int, columns: Sequence[Column], named: Sequence[tuple[str, Declaration]]) -> Iterator[list[str]]:
    """The splits to try, the best first."""
    two = "train: 0.8, eval: 0.2, test: 0"
    shares = "train: 0.8, eval: 0.1, test: 0.1" if rows >= _FEW else two
    groups = [(name, columns[d.first]) for name, d in named if d.settings.get("group")]
    if groups and rows >= _TINY:
        name, column = groups[0]
        lines = comment(
            f"Records that share {name} stay together, so that none is trained on and another evaluated: "
            f"{column.distinct:,} in {column.present:,} records."
        )
        yield [*lines, f"split: {{by: [{scalar(name)}], {shares}}}"]
    yield from ([f"split: {{by: row, {part}}}"] for part in (shares, two))
    unread = [(columns[d.first].distinct, name) for name, d in named if d.kind in ("key", "ignore") and d.width == 1]
    distinct, name = max(unread, key=lambda pair: pair[0], default=(0, ""))
    if distinct > _TINY:
        lines = comment(f"By {name}, since the columns that a model reads are the same in too many records.")
        yield from ([*lines, f"split: {{by: [{scalar(name)}], {part}}}"] for part in (shares, two))
    yield ["split: {by: row, train: 0.5, eval: 0.5, test: 0}"]
    lines = comment(f"{counted(rows, 'record')}: too few, or too often the same, to hold some back for evaluation.")
    yield [*lines, "split: {by: row, train: 1.0, eval: 0, test: 0}"]
