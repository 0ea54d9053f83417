"""Columns that belong together: one-hot groups, numbered vectors, and neighbours that are treated alike."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from schemas.errors import UsageError, few
from schemas.init.kinds import (
    FEW_ROWS,
    SKEWED,
    WRITE_PLAINLY,
    Column,
    Declaration,
    as_amounts,
    as_times,
    category,
    declare,
    merged,
    names_split,
    number,
    shown,
)
from schemas.init.label import LabelChoice
from schemas.init.leaks import Leak, find_leaks
from schemas.init.survey import Survey
from schemas.spec.kinds.base import NUMBERED
from schemas.spec.split_hash import splitmix64

VECTOR = 8  # numbered columns, from which on they are one vector
MANY = 100  # columns, from which on neighbours that are treated alike are declared together
_MASK = 0xFFFFFFFFFFFFFFFF


def one_hot_groups(columns: Sequence[Column], rows: int) -> Iterator[Declaration]:
    """Runs of 0/1 columns of which exactly one is 1 in every record.

    Each column has a sum of random numbers, one for each record, over the records that hold a 1; where the sums of
    neighbours add up to that over all records, each record holds one 1 among them, but for a chance of 2^-64.
    """
    if rows < FEW_ROWS:
        return
    whole = int(splitmix64(0, rows).sum(dtype=np.uint64)) if rows < 1 << 24 else _sum_of_hashes(rows)
    for _, run in itertools.groupby(columns, key=_is_indicator):
        members = list(run)
        if _is_indicator(members[0]):
            yield from _groups_of(members, whole)


def _sum_of_hashes(rows: int) -> int:
    step = 1 << 22
    return sum(int(splitmix64(at, min(step, rows - at)).sum(dtype=np.uint64)) for at in range(0, rows, step)) & _MASK


def _is_indicator(column: Column) -> bool:
    return column.profile.binary and not column.missing and column.profile.low == 0


def _groups_of(members: Sequence[Column], whole: int) -> Iterator[Declaration]:
    sums = list(
        itertools.accumulate((column.profile.ones for column in members), lambda a, b: (a + b) & _MASK, initial=0)
    )
    places: dict[int, list[int]] = {}
    for place, total in enumerate(sums):
        places.setdefault(total, []).append(place)
    start = 0
    while start < len(members):
        ends = places.get((sums[start] + whole) & _MASK, [])
        at = bisect.bisect_left(ends, start + 2)
        if at == len(ends):
            start += 1
            continue
        end = ends[at]
        while end < len(members) and members[end].profile.high == 0 and _alike(members[end - 1], members[end]):
            end += 1  # a value that no record has
        names = [column.name for column in members[start:end] if column.name]
        evidence = "exactly one 1 in every record"
        if names:
            evidence += f": {names[0]} ... {names[-1]}" if len(names) > 2 else f": {', '.join(names)}"
        numbered = _numbered(members[start:end])
        yield Declaration(members[start].position, members[end - 1].position, "one_hot", {}, evidence, numbered)
        start = end


def _alike(before: Column, after: Column) -> bool:
    """Whether two names begin alike, or there are none."""
    if before.name is None or after.name is None:
        return True
    stem = before.name.rstrip("0123456789").rpartition("_")[0] or before.name[:3]
    return after.name.startswith(stem)


def _numbered(members: Sequence[Column]) -> bool:
    """Whether the names are one prefix and rising numbers without a gap."""
    matches = [NUMBERED.fullmatch(column.name) if column.name else None for column in members]
    if any(match is None for match in matches):
        return False
    parts = [(match[1], match[2]) for match in matches if match is not None]
    first = int(parts[0][1])
    digits = len(parts[0][1]) if parts[0][1][0] == "0" else 0
    return all(part == (parts[0][0], f"{first + i:0{digits}d}") for i, part in enumerate(parts))


def numbered_vectors(columns: Sequence[Column]) -> Iterator[Declaration]:
    """Runs of eight or more numeric columns whose names are numbered, such as pixel0 to pixel783."""
    start = 0
    while start < len(columns):
        end = start + 1
        while (
            end < len(columns)
            and columns[end].numeric
            and columns[start].numeric
            and columns[end].position == columns[end - 1].position + 1
            and _numbered((columns[end - 1], columns[end]))
        ):
            end += 1
        if end - start >= VECTOR:
            yield _vector(columns[start:end])
        start = end


def _vector(members: Sequence[Column]) -> Declaration:
    profiles = [column.profile for column in members]
    low, high = min(p.low for p in profiles), max(p.high for p in profiles)
    varied = [p for p in profiles if p.low < p.high]
    skewed = sum(p.low >= 0 and p.numbers.skewness >= SKEWED for p in varied)
    settings: dict[str, object] = {"transform": "z_score"}
    if low == 0 and high == 255 and all(p.whole for p in profiles):
        settings["transform"] = {"scale": (0, 255)}
    elif low >= 0 and high <= 1:
        settings["transform"] = "none"
    elif low >= 0 and 2 * skewed > len(varied):
        settings["transform"] = "log"
    if any(column.missing for column in members):
        settings["missing"] = "mean"
    evidence = f"{len(members)} numbers, {number(low)} to {number(high)}"
    constant = len(profiles) - len(varied)
    if constant:
        evidence += f"; {constant} of them are constant"
    evidence += merged(members)
    return Declaration(members[0].position, members[-1].position, "numeric", settings, evidence, by_name=True)


def joined(declared: Sequence[Declaration], *, header: bool, width: int) -> Iterator[Declaration]:
    """The same, with neighbours together that are treated alike: those without names, and those of wide tables."""
    least = 2 if not header else VECTOR
    if header and width <= MANY:
        yield from declared
        return
    prepared = [_as_vector(each) if width > MANY else each for each in declared]
    start = 0
    while start < len(declared):
        end = start + 1
        while end < len(declared) and _joins(prepared[start], prepared[end]):
            end += 1
        if end - start >= least:
            yield _join(prepared[start:end])
        else:
            yield from declared[start:end]
        start = end


def _as_vector(declared: Declaration) -> Declaration:
    """A 0/1 column as a number, which can stand in a vector."""
    if declared.kind != "bool":
        return declared
    return Declaration(declared.first, declared.last, "numeric", {"transform": "none"}, "0 or 1")


def _joins(one: Declaration, other: Declaration) -> bool:
    if one.kind not in ("numeric", "ignore") or one.kind != other.kind or one.by_name or other.by_name:
        return False
    same = {k: v for k, v in one.settings.items() if k != "group"} == {
        k: v for k, v in other.settings.items() if k != "group"
    }
    return same and not one.settings.get("group") and not other.settings.get("group") and one.width == other.width == 1


def _join(members: Sequence[Declaration]) -> Declaration:
    first, last = members[0], members[-1]
    evidence = f"{len(members)} columns"
    reasons = {each.evidence for each in members}
    if len(reasons) == 1:
        evidence += f", each: {first.evidence}"
    elif len(members) <= 12 and first.kind == "numeric":
        evidence += f": {'; '.join(each.evidence.partition(', mean')[0] for each in members)}"
    elif first.kind == "ignore":
        evidence += f"; the first {first.evidence}"
    return Declaration(first.first, last.last, first.kind, first.settings, evidence)


_TELLS = "tells the label"


def declarations(
    read: Survey, columns: Sequence[Column], label: LabelChoice, path: str
) -> tuple[list[Declaration], list[str]]:
    """The declarations in the order of the columns, and notes for the person who asked.

    Raises:
        UsageError: nothing is left that a model could learn from.
    """
    place = label.position
    groups = [g for part in (columns[:place], columns[place + 1 :]) for g in one_hot_groups(part, read.rows)]
    groups += numbered_vectors(_outside(columns, groups, place))
    single = [declare(column) for column in _outside(columns, groups, place)]
    notes: list[str] = []
    leaks = find_leaks(columns, label, read.sample, [*groups, *single])
    checked = [_without_leak(each, read, columns, place, leaks.get(each.first), notes) for each in [*groups, *single]]
    checked = _one_key(_without_twins(checked, columns, read.rows), columns)
    checked = _with_an_input(sorted(checked, key=lambda each: each.first), read, columns, path, notes)
    amounts = [each for each in checked if each.evidence == as_amounts(columns[each.first])]
    if amounts:
        told = [f"{read.called(d.first)} ({shown(columns[d.first].profile.amount)})" for d in amounts]
        are = "is ignored: its values" if len(told) == 1 else "are ignored: their values"
        notes.append(f"{few(told, 8)} {are} are numbers with a unit, a currency or a comma; {WRITE_PLAINLY}")
    for each in checked:
        if times := as_times(columns[each.first]):
            notes += [f"{read.called(each.first)} is ignored: {times}"] if each.evidence == times else []
        elif each.kind == "numeric" and (lost := merged(columns[each.first : each.last + 1])):
            notes.append(f"{read.called(each.first)}{lost.replace(';', ':', 1)}")
    parts = ([d for d in checked if d.first < place], [d for d in checked if d.first > place])
    header, width = read.form.names is not None, read.form.width
    return [d for part in parts for d in joined(part, header=header, width=width)], notes


def _outside(columns: Sequence[Column], groups: Sequence[Declaration], label: int) -> list[Column]:
    """The columns in no group, without the label."""
    covered = {position for group in groups for position in range(group.first, group.last + 1)} | {label}
    return [column for column in columns if column.position not in covered]


def _without_leak(
    declared: Declaration,
    read: Survey,
    columns: Sequence[Column],
    label: int,
    leak: Leak | None,
    notes: list[str],
) -> Declaration:
    """The declaration, or `ignore` in its place where it tells the label."""
    column, called = columns[declared.first], read.called(declared.first)
    same = column.profile.signature == columns[label].profile.signature
    if declared.width == 1 and same and read.rows > 1 and column.present and not column.constant:
        notes.append(f"{called} has the label's value in every record, and is ignored")
        evidence = f"{_TELLS}: the same value in every record"
        return Declaration(declared.first, declared.last, "ignore", {}, evidence)
    if declared.kind == "ignore" and declared.width == 1 and names_split(column):
        notes.append(
            f"{called} names the split of each record, and is ignored, since the schema splits anew. To keep these "
            "splits, write a file for each of them, and say split: {by: file, train: ..., eval: ..., test: ...}"
        )
    if leak is not None and leak.certain:
        if declared.kind != "ignore":
            notes.append(
                f"{called} {leak.evidence}, and is ignored. If it is known before the label is, "
                f"give it `kind: {declared.kind}` in the schema"
            )
        return Declaration(declared.first, declared.last, "ignore", {}, leak.evidence)
    if leak is not None and declared.kind not in ("ignore", "key"):
        notes.append(f"{called}: {leak.evidence}")
        return dataclasses.replace(declared, evidence=f"{declared.evidence}; {leak.evidence}")
    return declared


def _without_twins(declared: Sequence[Declaration], columns: Sequence[Column], rows: int) -> list[Declaration]:
    """The same without columns that hold what an earlier one holds in every record."""
    first: dict[int, Column] = {}
    result = []
    for each in declared:
        column = columns[each.first]
        alone = each.width == 1 and each.kind != "ignore" and rows >= FEW_ROWS
        twin = first.setdefault(column.profile.signature, column) if alone else column
        if twin is not column:
            evidence = f"the same as {twin.name or f'column {twin.position}'!r} in every record"
            result.append(Declaration(each.first, each.last, "ignore", {}, evidence))
        else:
            result.append(each)
    return result


def _one_key(declared: Sequence[Declaration], columns: Sequence[Column]) -> list[Declaration]:
    """One column names the record; the others of that kind are ignored."""
    keys = [each for each in declared if each.kind == "key"]

    def names_best(each: Declaration) -> tuple[bool, bool]:
        column = columns[each.first]
        return column.called_id, not column.numeric

    best = max(keys, key=names_best, default=None)
    return [dataclasses.replace(d, kind="ignore") if d.kind == "key" and d is not best else d for d in declared]


def _with_an_input(
    declared: list[Declaration], read: Survey, columns: Sequence[Column], path: str, notes: list[str]
) -> list[Declaration]:
    """A model needs something to read: where nothing is left, the column that may best serve."""
    if any(each.kind not in ("ignore", "key") for each in declared):
        return declared
    usable = [d for d in declared if d.width == 1 and not d.evidence.startswith(_TELLS)]
    usable = [d for d in usable if columns[d.first].present and (read.rows == 1 or not columns[d.first].constant)]
    if not usable:
        reasons = "; ".join(f"{read.called(d.first)} {d.evidence}" for d in declared[:5])
        raise UsageError(f"{path}: nothing is left that a model could learn from: {reasons}")
    best = next((d for d in usable if columns[d.first].numeric), usable[0])
    column = columns[best.first]
    kind, settings, evidence = category(column)
    if column.numeric:
        filling: dict[str, Any] = {"missing": "mean"} if column.missing else {}
        kind, settings, evidence = "numeric", {"transform": "z_score", **filling}, best.evidence
    notes.append(f"{read.called(best.first)} is the only column that a model could learn from")
    new = Declaration(best.first, best.last, kind, settings, f"{evidence}; the only column to learn from")
    return [new if each is best else each for each in declared]
