"""Declares the columns of a table: each by its kind, columns that belong together as one, and leaks as ignored.

A one-hot group, a vector of numbered columns, and neighbours that are treated alike belong together.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from schemas.errors import UsageError
from schemas.init.cells import MASK
from schemas.init.columns import FEW_ROWS, ColumnFacts
from schemas.init.kinds import SKEWED, Declaration, declare, lost_digits
from schemas.init.leaks import find_leaks
from schemas.init.survey import Survey
from schemas.init.writing import number
from schemas.spec.kinds.base import NUMBERED

_VECTOR = 8  # numbered columns, from which on they are one vector
_MANY = 100  # columns, from which on neighbours that are treated alike are declared together


def declarations(
    read: Survey, columns: Sequence[ColumnFacts], label: Declaration, path: str
) -> tuple[list[Declaration], list[str]]:
    """Returns the declarations in the order of the columns, and notes on them.

    Raises:
        UsageError: nothing is left that a model could learn from.
    """
    sides = columns[: label.first], columns[label.first + 1 :]
    declared = [d for side in sides for d in _one_hot_groups(side, read)]
    declared += [d for side in sides for d in _numbered_vectors(_outside(side, declared))]
    declared += [declare(column) for side in sides for column in _outside(side, declared)]
    declared.sort(key=lambda declaration: declaration.first)
    leaks = find_leaks(columns, label, read.sample, declared)
    for i, declaration in enumerate(declared):
        column, leak = columns[declaration.first], leaks.get(declaration.first)
        if leak and column.present and not column.constant:
            known_before = f"If it is known before the label is, give it `kind: {declaration.kind}` in the schema"
            note = f"{leak}, and is ignored. {known_before}"
            declared[i] = declaration.ignored(leak, declaration.note if declaration.kind == "ignore" else note)
    declared = _with_one_key(declared, columns)
    if all(declaration.kind in ("ignore", "key") for declaration in declared):
        reasons = "; ".join(f"{columns[d.first].described} {d.evidence}" for d in declared[:5])
        raise UsageError(
            f"{path}: nothing is left that a model could learn from: {reasons}. Add other columns, or declare one of "
            "these by hand"
        )
    notes = [f"{columns[d.first].described} {d.note}" for d in declared if d.note]
    if read.form.width > _MANY:
        before, after = ([d for d in declared if (d.first < label.first) == side] for side in (True, False))
        declared = [*_joined(before), *_joined(after)]
    return declared, notes


def _outside(columns: Sequence[ColumnFacts], groups: Sequence[Declaration]) -> list[ColumnFacts]:
    """The columns in no group."""
    covered = {position for group in groups for position in range(group.first, group.last + 1)}
    return [column for column in columns if column.position not in covered]


def _one_hot_groups(columns: Sequence[ColumnFacts], read: Survey) -> Iterator[Declaration]:
    """Runs of 0/1 columns of which exactly one is 1 in every record.

    Each column has a sum of the hashes of the records that hold a 1; where the sums of neighbours add up to that of all
    records, each record holds one 1 among them, but for a chance of 2^-64.
    """
    if read.rows < FEW_ROWS:
        return
    for indicators, run in itertools.groupby(columns, key=lambda c: c.cells.binary and not c.missing and c.low == 0):
        members = list(run) if indicators else []
        sums = [0, *itertools.accumulate(column.cells.ones for column in members)]
        places: dict[int, list[int]] = {}
        for place, total in enumerate(sums):
            places.setdefault(total & MASK, []).append(place)
        start = 0
        while start < len(members):
            ends = places.get((sums[start] + read.hashes) & MASK, [])
            at = bisect.bisect_left(ends, start + 2)
            if at == len(ends):
                start += 1
                continue
            end = ends[at]
            while end < len(members) and members[end].high == 0 and _named_alike(members[end - 1], members[end]):
                end += 1  # a value that no record has
            yield _one_hot(members[start:end])
            start = end


def _one_hot(members: Sequence[ColumnFacts]) -> Declaration:
    names = [column.name for column in members if column.name]
    few = f"{names[0]} ... {names[-1]}" if len(names) > 2 else ", ".join(names)
    evidence = f"exactly one 1 in every record{': ' if names else ''}{few}"
    first, last = members[0].position, members[-1].position
    return Declaration(first, last, "one_hot", {}, evidence, by_name=_numbered(members))


def _named_alike(before: ColumnFacts, after: ColumnFacts) -> bool:
    """Whether two names begin alike, or there are none."""
    if before.name is None or after.name is None:
        return True
    return after.name.startswith(before.name.rstrip("0123456789").rpartition("_")[0] or before.name[:3])


def _numbered(members: Sequence[ColumnFacts]) -> bool:
    """Whether the names are one prefix and rising numbers without a gap."""
    matches = [NUMBERED.fullmatch(column.name or "") for column in members]
    parts = [(match[1], match[2]) for match in matches if match is not None]
    if len(parts) < len(members):
        return False
    prefix, first = parts[0]
    digits = len(first) if first[0] == "0" else 0
    return all(part == (prefix, f"{int(first) + i:0{digits}d}") for i, part in enumerate(parts))


def _numbered_vectors(columns: Sequence[ColumnFacts]) -> Iterator[Declaration]:
    """Runs of eight or more numeric columns whose names are numbered, such as pixel0 to pixel783."""
    start = 0
    for end in range(1, len(columns) + 1):
        pair = columns[end - 1 : end + 1]
        neighbours = len(pair) == 2 and pair[1].position == pair[0].position + 1
        if neighbours and pair[0].numeric and pair[1].numeric and _numbered(pair):
            continue
        if end - start >= _VECTOR:
            yield _vector(columns[start:end])
        start = end


def _vector(members: Sequence[ColumnFacts]) -> Declaration:
    low, high = min(column.low for column in members), max(column.high for column in members)
    varied = [column for column in members if column.low < column.high]
    skewed = sum(column.low >= 0 and column.cells.numbers.skewness >= SKEWED for column in varied)
    settings: dict[str, Any] = {"transform": "z_score"}
    if (low, high) == (0, 255) and all(column.whole for column in members):
        settings["transform"] = {"scale": [0, 255]}
    elif low >= 0 and high <= 1:
        settings["transform"] = "none"
    elif low >= 0 and 2 * skewed > len(varied):
        settings["transform"] = "log"
    if any(column.missing for column in members):
        settings["missing"] = "mean"
    lost, constant = lost_digits(members), len(members) - len(varied)
    evidence = [f"{len(members)} numbers, {number(low)} to {number(high)}"]
    evidence += [*([f"{constant} of them are constant"] if constant else []), *([lost] if lost else [])]
    note = f"and those after it lose digits: {lost}" if lost else ""
    first, last = members[0].position, members[-1].position
    return Declaration(first, last, "numeric", settings, "; ".join(evidence), note, by_name=True)


def _with_one_key(declared: Sequence[Declaration], columns: Sequence[ColumnFacts]) -> list[Declaration]:
    """One column names the record; the others of that kind are ignored."""
    keys = [columns[declaration.first] for declaration in declared if declaration.kind == "key"]
    best = max(keys, key=lambda column: (column.called_id, not column.numeric), default=None)
    return [d.ignored(d.evidence) if d.kind == "key" and columns[d.first] is not best else d for d in declared]


def _joined(declared: Sequence[Declaration]) -> Iterator[Declaration]:
    """Declares neighbours together that are treated alike."""
    for alike, run in itertools.groupby(declared, key=_treatment):
        members = list(run)
        if alike is not None and len(members) >= _VECTOR:
            yield _as_one(members, alike[0])
        else:
            yield from members


def _treatment(declared: Declaration) -> tuple[str, tuple[tuple[str, Any], ...]] | None:
    """Kind and settings of a column that may be declared together with its neighbours; None of one that may not."""
    if declared.width > 1 or declared.by_name or declared.groups:
        return None
    if declared.kind == "bool":  # a column of 0 and 1 can stand in a vector of numbers
        return "numeric", (("transform", "none"),)
    return (declared.kind, tuple(declared.settings.items())) if declared.kind in ("numeric", "ignore") else None


def _as_one(members: Sequence[Declaration], kind: str) -> Declaration:
    texts = ["0 or 1" if member.kind == "bool" else member.evidence for member in members]
    settings = {"transform": "none"} if members[0].kind == "bool" else members[0].settings
    evidence = f"{len(members)} columns"
    if len(set(texts)) == 1:
        evidence += f", each: {texts[0]}"
    elif kind == "ignore":
        evidence += f"; the first {texts[0]}"
    return Declaration(members[0].first, members[-1].last, kind, settings, evidence)
