"""Holds a written dataset to what the oracle expects of its input: nothing lost, doubled, changed or made up."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable
from typing import Any

from tools.attack.oracle_rows import Expected, Why
from tools.attack.oracle_values import check_values
from tools.attack.plans import Plan
from tools.attack.read_back import Rejected, Stored

TOLD = 5  # examples of one kind of difference


@dataclasses.dataclass
class Differences:
    """What differs from what is expected: titles, each with some examples and how many there are."""

    examples: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    counts: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)

    def add(self, title: str, example: str) -> None:
        """Notes one."""
        self.counts[title] += 1
        if self.counts[title] <= TOLD:
            self.examples.setdefault(title, []).append(example)


def matches(found: Why, why: Iterable[Why]) -> bool:
    """Whether a reject's stage, reason and column are among the expected ones."""
    stage, reason, column = found
    return any(
        s in ("*", stage) and r in (None, reason) and (c is None or c == column or column is None) for s, r, c in why
    )


def check_rejects(expected: list[Expected], rejected: Iterable[Rejected], differences: Differences) -> set[int]:
    """Holds rejects to the records that they stand for; returns the places in `expected` of the rejected ones."""
    places = {(e.source, e.offset): i for i, e in enumerate(expected)}
    found: set[int] = set()
    for reject in rejected:
        place = places.get((reject.source, reject.offset))
        if place is None:
            differences.add("a reject where no record begins", _shown(reject))
            continue
        record = expected[place]
        if place in found:
            differences.add("a record is rejected twice", _shown(reject))
        found.add(place)
        if reject.raw != record.raw:
            differences.add(
                "a reject's raw bytes are not the record's", f"{_shown(reject)}, record {record.raw[:80]!r}"
            )
        if not record.may_reject:
            differences.add(f"a good record is rejected as {reject.reason}", _shown(reject))
        elif not matches((reject.stage, reject.reason, reject.column), record.why):
            differences.add(
                "a reject has a reason that is not true of it", f"{_shown(reject)}; true: {set(record.why)}"
            )
    for i, record in enumerate(expected):
        if not record.may_write and i not in found:
            reasons = ", ".join(sorted({w[1] or "no finite result" for w in record.why}))
            differences.add(f"a bad record is no reject: {reasons}", f"{record.raw[:100]!r} at {record.offset}")
    return found


def check_dataset(
    plan: Plan, expected: list[Expected], told: dict[str, Any], stored: Iterable[Stored], rejected: Iterable[Rejected]
) -> Differences:
    """All that differs between a dataset and what its input says."""
    differences = Differences()
    gone = check_rejects(expected, rejected, differences)
    if told["read"] != len(expected):
        differences.add("the count of records is wrong", f"read {told['read']}, and there are {len(expected)}")
    if told["read"] != told["written"] + told["rejected"] or told["rejected"] != len(gone):
        sums = f"read {told['read']}, written {told['written']}, rejected {told['rejected']}; rejects {len(gone)}"
        differences.add("the manifest does not add up", sums)
    wanted: dict[bytes, list[Expected]] = collections.defaultdict(list)
    for i, record in enumerate(expected):
        if i not in gone and "id" in record.values:
            wanted[record.values["id"]].append(record)
    found: dict[bytes, list[Stored]] = collections.defaultdict(list)
    number = 0
    for row in stored:
        number += 1
        found[row.values["id"][0]].append(row)
    if number != told["written"]:
        differences.add("the shards hold another number of records", f"{number}, written {told['written']}")
    for key in wanted.keys() - found.keys():
        differences.add("a record is lost", f"{key[:60]!r}: {wanted[key][0].raw[:100]!r}")
    for key in found.keys() - wanted.keys():
        differences.add("a record is stored that nobody wrote", f"{key[:60]!r}: {str(found[key][0].values)[:200]}")
    pairs = []
    for key in wanted.keys() & found.keys():
        if len(wanted[key]) != len(found[key]):
            differences.add("a record is doubled or lost", f"{key[:60]!r}: {len(wanted[key])} became {len(found[key])}")
        elif len(wanted[key]) == 1:
            pairs.append((wanted[key][0], found[key][0]))
    # What the transform rejects was measured with the rest (docs/rejects.md); "*" is any stage, that one among them.
    measured = not any(w[0] in ("transform", "*") for i in gone for w in expected[i].why)
    check_values(plan, pairs, differences.add, measured=measured and len(pairs) == number == told["written"])
    _check_splits(plan, pairs, differences)
    return differences


def _check_splits(plan: Plan, pairs: list[tuple[Expected, Stored]], differences: Differences) -> None:
    """Records that share what the split is made by are in one split."""
    by = plan.split["by"]
    if by == "row" or any(name not in plan.reads for name in by):
        return
    splits: dict[tuple[Any, ...], str] = {}
    for record, found in pairs:
        if all(name in record.values for name in by):
            group = tuple(str(record.values[name]) for name in by)
            if splits.setdefault(group, found.split) != found.split:
                differences.add("one group is in two splits", f"{group}: {splits[group]}, {found.split}")


def _shown(reject: Rejected) -> str:
    where = f"{reject.source} at {reject.offset}"
    return f"{where}: {reject.stage}, {reject.reason}, {reject.column}: {reject.raw[:80]!r}"
