"""Columns that belong together: one-hot groups, numbered vectors, and neighbours that are treated alike."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from schemas.init.columns import FEW_ROWS, Column, number
from schemas.init.kinds import SKEWED, Declaration, merged
from schemas.profile.raw_columns import MASK
from schemas.spec.kinds.base import NUMBERED

VECTOR = 8  # numbered columns, from which on they are one vector
MANY = 100  # columns, from which on neighbours that are treated alike are declared together


def one_hot_groups(columns: Sequence[Column], rows: int, hashes: int) -> Iterator[Declaration]:
    """Runs of 0/1 columns of which exactly one is 1 in every record.

    Each column has a sum of the hashes of the records that hold a 1; where the sums of neighbours add up to `hashes`,
    that of all records, each record holds one 1 among them, but for a chance of 2^-64.
    """
    if rows < FEW_ROWS:
        return
    for indicators, run in itertools.groupby(columns, key=_is_indicator):
        members = list(run) if indicators else []
        sums = [0, *itertools.accumulate(column.profile.ones for column in members)]
        places: dict[int, list[int]] = {}
        for place, total in enumerate(sums):
            places.setdefault(total & MASK, []).append(place)
        start = 0
        while start < len(members):
            ends = places.get((sums[start] + hashes) & MASK, [])
            at = bisect.bisect_left(ends, start + 2)
            end = ends[at] if at < len(ends) else start
            if end == start:
                start += 1
                continue
            while end < len(members) and members[end].high == 0 and _alike(members[end - 1], members[end]):
                end += 1  # a value that no record has
            names = [column.name for column in members[start:end] if column.name]
            few = f"{names[0]} ... {names[-1]}" if len(names) > 2 else ", ".join(names)
            evidence = f"exactly one 1 in every record{': ' if names else ''}{few}"
            by_name = _numbered(members[start:end])
            yield Declaration(members[start].position, members[end - 1].position, "one_hot", {}, evidence, by_name)
            start = end


def _is_indicator(column: Column) -> bool:
    return column.profile.binary and not column.missing and column.low == 0


def _alike(before: Column, after: Column) -> bool:
    """Whether two names begin alike, or there are none."""
    if before.name is None or after.name is None:
        return True
    return after.name.startswith(before.name.rstrip("0123456789").rpartition("_")[0] or before.name[:3])


def _numbered(members: Sequence[Column]) -> bool:
    """Whether the names are one prefix and rising numbers without a gap."""
    matches = [NUMBERED.fullmatch(column.name or "") for column in members]
    parts = [(match[1], match[2]) for match in matches if match is not None]
    if len(parts) < len(members):
        return False
    prefix, first = parts[0]
    digits = len(first) if first[0] == "0" else 0
    return all(part == (prefix, f"{int(first) + i:0{digits}d}") for i, part in enumerate(parts))


def numbered_vectors(columns: Sequence[Column]) -> Iterator[Declaration]:
    """Runs of eight or more numeric columns whose names are numbered, such as pixel0 to pixel783."""
    start = 0
    for end in range(1, len(columns) + 1):
        before = columns[end - 1]
        if end < len(columns) and before.numeric and columns[end].numeric:
            neighbours = columns[end].position == before.position + 1
            if neighbours and _numbered((before, columns[end])):
                continue
        if end - start >= VECTOR:
            yield _vector(columns[start:end])
        start = end


def _vector(members: Sequence[Column]) -> Declaration:
    low, high = min(column.low for column in members), max(column.high for column in members)
    varied = [column for column in members if column.low < column.high]
    skewed = sum(column.low >= 0 and column.profile.numbers.skewness >= SKEWED for column in varied)
    settings: dict[str, Any] = {"transform": "z_score"}
    if (low, high) == (0, 255) and all(column.whole for column in members):
        settings["transform"] = {"scale": [0, 255]}
    elif low >= 0 and high <= 1:
        settings["transform"] = "none"
    elif low >= 0 and 2 * skewed > len(varied):
        settings["transform"] = "log"
    if any(column.missing for column in members):
        settings["missing"] = "mean"
    constant = len(members) - len(varied)
    evidence = f"{len(members)} numbers, {number(low)} to {number(high)}"
    evidence += (f"; {constant} of them are constant" if constant else "") + merged(members)
    return Declaration(members[0].position, members[-1].position, "numeric", settings, evidence, by_name=True)


def joined(declared: Sequence[Declaration], *, header: bool, width: int) -> Iterator[Declaration]:
    """The same, with neighbours together that are treated alike: those without names, and those of wide tables."""
    if header and width <= MANY:
        yield from declared
        return
    # In a wide table, a column of 0 and 1 can stand in a vector of numbers.
    prepared = [
        Declaration(d.first, d.last, "numeric", {"transform": "none"}, "0 or 1")
        if d.kind == "bool" and width > MANY
        else d
        for d in declared
    ]
    start = 0
    for end in range(1, len(declared) + 1):
        if end < len(declared) and _treated_alike(prepared[start], prepared[end]):
            continue
        if end - start >= (VECTOR if header else 2):
            yield _join(prepared[start:end])
        else:
            yield from declared[start:end]
        start = end


def _treated_alike(left: Declaration, right: Declaration) -> bool:
    single = left.width == right.width == 1 and not left.by_name and not right.by_name
    joinable = left.kind == right.kind and left.kind in ("numeric", "ignore") and "group" not in left.settings
    return single and joinable and left.settings == right.settings


def _join(members: Sequence[Declaration]) -> Declaration:
    first, last = members[0], members[-1]
    evidence = f"{len(members)} columns"
    if len({member.evidence for member in members}) == 1:
        evidence += f", each: {first.evidence}"
    elif len(members) <= 12 and first.kind == "numeric":
        evidence += f": {'; '.join(member.evidence.partition(', mean')[0] for member in members)}"
    elif first.kind == "ignore":
        evidence += f"; the first {first.evidence}"
    return Declaration(first.first, last.last, first.kind, first.settings, evidence)
