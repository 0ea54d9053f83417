"""The declarations of a table's columns: each by its kind, without what gives the label away or says nothing new."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from schemas.errors import UsageError, few
from schemas.init.columns import FEW_ROWS, Column, shown
from schemas.init.groups import joined, numbered_vectors, one_hot_groups
from schemas.init.kinds import WRITE_PLAINLY, Declaration, as_amounts, as_times, category, declare, merged, names_split
from schemas.init.label import LabelChoice
from schemas.init.leaks import TELLS, Leak, find_leaks
from schemas.init.survey import Survey


def declarations(
    read: Survey, columns: Sequence[Column], label: LabelChoice, path: str
) -> tuple[list[Declaration], list[str]]:
    """The declarations in the order of the columns, and notes for the person who asked.

    Raises:
        UsageError: nothing is left that a model could learn from.
    """
    place = label.position
    parts = (columns[:place], columns[place + 1 :])
    groups = [group for part in parts for group in one_hot_groups(part, read.rows, read.hashes)]
    groups += numbered_vectors(_outside(columns, groups, place))
    declared = [*groups, *(declare(column) for column in _outside(columns, groups, place))]
    declared.sort(key=lambda declaration: declaration.first)
    leaks = find_leaks(columns, label, read.sample, declared)
    notes: list[str] = []
    for i, declaration in enumerate(declared):
        same = columns[declaration.first].profile.signature == columns[place].profile.signature
        leak = leaks.get(declaration.first)
        if declaration.width == 1 and same and read.rows > 1:
            leak = Leak(f"{TELLS}: the same value in every record", certain=True)
        declared[i] = _without_leak(declaration, read, columns, leak, notes)
    declared = _one_key(_without_twins(declared, columns, read.rows), columns)
    if all(declaration.kind in ("ignore", "key") for declaration in declared):
        declared = _with_an_input(declared, read, columns, path, notes)
    notes += _notes_on_numbers(declared, read, columns)
    header, width = read.form.names is not None, read.form.width
    sides = ([d for d in declared if d.first < place], [d for d in declared if d.first > place])
    return [d for side in sides for d in joined(side, header=header, width=width)], notes


def _outside(columns: Sequence[Column], groups: Sequence[Declaration], label: int) -> list[Column]:
    """The columns in no group, without the label."""
    covered = {position for group in groups for position in range(group.first, group.last + 1)} | {label}
    return [column for column in columns if column.position not in covered]


def _without_leak(
    declared: Declaration, read: Survey, columns: Sequence[Column], leak: Leak | None, notes: list[str]
) -> Declaration:
    """The declaration, or `ignore` in its place where it tells the label."""
    column, called = columns[declared.first], read.called(declared.first)
    if declared.kind == "ignore" and declared.width == 1 and names_split(column):
        notes.append(
            f"{called} names the split of each record, and is ignored, since the schema splits anew. To keep these "
            "splits, write a file for each of them, and say split: {by: file, train: ..., eval: ..., test: ...}"
        )
    if leak is None or not column.present or column.constant:
        return declared
    if leak.certain:
        if declared.kind != "ignore":
            notes.append(
                f"{called} {leak.evidence}, and is ignored. If it is known before the label is, "
                f"give it `kind: {declared.kind}` in the schema"
            )
        return Declaration(declared.first, declared.last, "ignore", {}, leak.evidence)
    if declared.kind in ("ignore", "key"):
        return declared
    notes.append(f"{called}: {leak.evidence}")
    return dataclasses.replace(declared, evidence=f"{declared.evidence}; {leak.evidence}")


def _without_twins(declared: Sequence[Declaration], columns: Sequence[Column], rows: int) -> list[Declaration]:
    """The same without columns that hold what an earlier one holds in every record."""
    first: dict[int, Column] = {}

    def single(declaration: Declaration) -> Declaration:
        column = columns[declaration.first]
        alone = declaration.width == 1 and declaration.kind != "ignore" and rows >= FEW_ROWS
        twin = first.setdefault(column.profile.signature, column) if alone else column
        if twin is column:
            return declaration
        evidence = f"the same as {twin.name or f'column {twin.position}'!r} in every record"
        return Declaration(declaration.first, declaration.last, "ignore", {}, evidence)

    return list(map(single, declared))


def _one_key(declared: Sequence[Declaration], columns: Sequence[Column]) -> list[Declaration]:
    """One column names the record; the others of that kind are ignored."""
    keys = [columns[declaration.first] for declaration in declared if declaration.kind == "key"]
    best = max(keys, key=lambda column: (column.called_id, not column.numeric), default=None)
    return [
        dataclasses.replace(d, kind="ignore") if d.kind == "key" and columns[d.first] is not best else d
        for d in declared
    ]


def _with_an_input(
    declared: Sequence[Declaration], read: Survey, columns: Sequence[Column], path: str, notes: list[str]
) -> list[Declaration]:
    """The same with the column as a feature that may best serve, since a model needs something to read."""
    usable = [
        declaration
        for declaration in declared
        if declaration.width == 1 and not declaration.evidence.startswith(TELLS)
        if (column := columns[declaration.first]).present and (read.rows == 1 or not column.constant)
    ]
    if not usable:
        reasons = "; ".join(f"{read.called(d.first)} {d.evidence}" for d in declared[:5])
        raise UsageError(f"{path}: nothing is left that a model could learn from: {reasons}")
    best = next((declaration for declaration in usable if columns[declaration.first].numeric), usable[0])
    column = columns[best.first]
    kind, settings, evidence = category(column)
    if column.numeric:
        filling = {"missing": "mean"} if column.missing else {}
        kind, settings, evidence = "numeric", {"transform": "z_score", **filling}, best.evidence
    notes.append(f"{read.called(best.first)} is the only column that a model could learn from")
    new = Declaration(best.first, best.last, kind, settings, f"{evidence}; the only column to learn from")
    return [new if declaration is best else declaration for declaration in declared]


def _notes_on_numbers(declared: Sequence[Declaration], read: Survey, columns: Sequence[Column]) -> list[str]:
    """Notes on numbers that are not read as such, or not all digits of them."""
    notes, amounts = [], []
    for declaration in declared:
        column, called = columns[declaration.first], read.called(declaration.first)
        if declaration.kind == "ignore" and declaration.evidence == as_amounts(column):
            amounts.append(f"{called} ({shown(column.profile.amount)})")
        elif declaration.kind == "ignore" and declaration.evidence == as_times(column):
            notes.append(f"{called} is ignored: {declaration.evidence}")
        elif declaration.kind == "numeric" and not as_times(column):
            lost = merged(columns[declaration.first : declaration.last + 1])
            notes += [f"{called}{lost.replace(';', ':', 1)}"] if lost else []
    if amounts:
        are = "is ignored: its values" if len(amounts) == 1 else "are ignored: their values"
        notes.insert(0, f"{few(amounts, 8)} {are} are numbers with a unit, a currency or a comma; {WRITE_PLAINLY}")
    return notes
