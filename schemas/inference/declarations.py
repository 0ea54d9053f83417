"""What is declared of a table's columns: groups first, then single columns, without those that tell the label."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from schemas.errors import UsageError
from schemas.inference.declaration import Declaration
from schemas.inference.groups import joined, numbered_vectors, one_hot_groups
from schemas.inference.kinds import FEW_ROWS, Column, category, declare, names_split
from schemas.inference.label import LabelChoice
from schemas.inference.leaks import Leak, find_leaks
from schemas.inference.survey import Survey

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
    leaks = {leak.position: leak for leak in find_leaks(columns, label, read.sample, [*groups, *single])}
    checked = [_without_leak(each, read, columns, place, leaks.get(each.first), notes) for each in [*groups, *single]]
    checked = _one_key(_without_twins(checked, columns, read.rows), columns)
    checked = _with_an_input(sorted(checked, key=lambda each: each.first), read, columns, path, notes)
    parts = ([d for d in checked if d.first < place], [d for d in checked if d.first > place])
    header, width = read.found.names is not None, read.found.width
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
            f"{called} names the split of each record, and is ignored: the schema splits anew. To keep them, "
            "write a file for each of them, and say split: {by: file, train: ..., eval: ..., test: ...}"
        )
    if leak is not None and leak.certain:
        if declared.kind != "ignore":
            notes.append(f"{called} {leak.evidence}; it is ignored: declare it if it is known beforehand")
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
