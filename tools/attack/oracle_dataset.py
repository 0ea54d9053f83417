"""Holds a written dataset to what the oracle expects of its input: nothing lost, doubled, changed or made up."""

from __future__ import annotations

import collections
from collections.abc import Iterable
from typing import Any

from tools.attack.oracle_rows import Expected, Why
from tools.attack.oracle_values import check_values
from tools.attack.plans import Plan
from tools.attack.read_back import Rejected, Stored
from tools.attack.rounds import Found


def matches(told: Why, why: Iterable[Why]) -> bool:
    """Whether a reject's stage, reason and column are among the expected ones."""
    stage, reason, column = told
    return any(
        s in ("*", stage) and r in (None, reason) and (c is None or c == column or column is None) for s, r, c in why
    )


def check_rejects(expected: list[Expected], rejected: Iterable[Rejected], found: Found) -> set[int]:
    """Holds rejects to the records that they stand for; returns the places in `expected` of the rejected ones."""
    places = {(e.source, e.offset): i for i, e in enumerate(expected)}
    gone: set[int] = set()
    for reject in rejected:
        shown = f"{reject.source} at {reject.offset}: {reject.stage}, {reject.reason}, {reject.column}: "
        shown += f"{reject.raw[:80]!r}"
        place = places.get((reject.source, reject.offset))
        if place is None:
            found.add("a reject where no record begins", shown)
            continue
        record = expected[place]
        if place in gone:
            found.add("a record is rejected twice", shown)
        gone.add(place)
        if reject.raw != record.raw:
            found.add("a reject's raw bytes are not the record's", f"{shown}, record {record.raw[:80]!r}")
        if not record.may_reject:
            found.add(f"a good record is rejected as {reject.reason}", shown)
        elif not matches((reject.stage, reject.reason, reject.column), record.why):
            found.add("a reject has a reason that is not true of it", f"{shown}; true: {set(record.why)}")
    for i, record in enumerate(expected):
        if not record.may_write and i not in gone:
            reasons = ", ".join(sorted({w[1] or "no finite result" for w in record.why}))
            found.add(f"a bad record is no reject: {reasons}", f"{record.raw[:100]!r} at {record.offset}")
    return gone


def check_dataset(
    plan: Plan,
    expected: list[Expected],
    told: dict[str, Any],
    stored: Iterable[Stored],
    rejected: Iterable[Rejected],
    found: Found,
) -> None:
    """Notes all that differs between a dataset and what its input says."""
    gone = check_rejects(expected, rejected, found)
    if told["read"] != len(expected):
        found.add("the count of records is wrong", f"read {told['read']}, and there are {len(expected)}")
    if told["read"] != told["written"] + told["rejected"] or told["rejected"] != len(gone):
        sums = f"read {told['read']}, written {told['written']}, rejected {told['rejected']}; rejects {len(gone)}"
        found.add("the manifest does not add up", sums)
    wanted: dict[bytes, list[Expected]] = collections.defaultdict(list)
    for i, record in enumerate(expected):
        if i not in gone and "id" in record.values:
            wanted[record.values["id"]].append(record)
    rows: dict[bytes, list[Stored]] = collections.defaultdict(list)
    for row in stored:
        rows[row.values["id"][0]].append(row)
    number = sum(map(len, rows.values()))
    if number != told["written"]:
        found.add("the shards hold another number of records", f"{number}, written {told['written']}")
    pairs = []
    for key in wanted.keys() | rows.keys():
        here, there = wanted[key], rows[key]
        if not there:
            found.add("a record is lost", f"{key[:60]!r}: {here[0].raw[:100]!r}")
        elif not here:
            found.add("a record is stored that nobody wrote", f"{key[:60]!r}: {str(there[0].values)[:200]}")
        elif len(here) != len(there):
            found.add("a record is doubled or lost", f"{key[:60]!r}: {len(here)} became {len(there)}")
        elif len(here) == 1:
            pairs.append((here[0], there[0]))
    # What the transform rejects was measured with the rest (docs/rejects.md); "*" is any stage, that one among them.
    measured = not any(w[0] in ("transform", "*") for i in gone for w in expected[i].why)
    check_values(plan, pairs, found.add, measured=measured and len(pairs) == number == told["written"])
    by = plan.split["by"]
    if by == "row" or any(name not in plan.reads for name in by):
        return
    splits: dict[tuple[Any, ...], str] = {}
    for record, row in pairs:  # records that share what the split is made by are in one split
        if all(name in record.values for name in by):
            group = tuple(str(record.values[name]) for name in by)
            if splits.setdefault(group, row.split) != row.split:
                found.add("one group is in two splits", f"{group}: {splits[group]}, {row.split}")
