"""A plan as text for a person, or as data."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from beam_jobs.planning.estimate import Needs
from beam_jobs.planning.prices import Fleet, Machine
from schemas.command import duration


@dataclasses.dataclass(frozen=True)
class Plan:
    """What was planned.

    Attributes:
      needs: of the whole input.
      records: what a record is called: rows or images.
      input_files, input_bytes: the whole input.
      machine: the type of a worker; None: only this machine was asked about.
      currency: of the fleets' costs.
      fleets: one for each number of workers.
      limit: how many rejects the job would allow.
    """

    needs: Needs
    records: str
    input_files: int
    input_bytes: int
    machine: Machine | None
    currency: str
    fleets: Sequence[Fleet]
    limit: float


def as_text(plan: Plan) -> str:
    """The plan, line by line."""
    needs, records = plan.needs, plan.records
    lines = [
        f"input      {plan.input_files:,} file(s), {size(plan.input_bytes)}; planned from {percent(needs.share)} of it",
        f"read       about {about(needs.read)} {records}",
        f"rejected   about {about(needs.rejected)} {records}",
    ]
    for name, rows in needs.split_rows.items():
        written = f"{size(needs.split_bytes[name])} in {needs.split_shards[name]:,} shard(s)"
        lines.append(f"{name:<10} about {about(rows)} {records}, {written}")
    lines += [
        f"dataset    {size(needs.bytes)}",
        f"disk       {size(needs.disk)} at once on this machine, the dataset included",
        f"memory     {size(needs.memory)} at its peak; it does not grow with the input",
        f"time       {duration(needs.seconds)} on this machine, {duration(needs.start)} of it to start; "
        f"{duration(needs.cpu_seconds)} of CPU",
    ]
    if needs.rejected > plan.limit:
        lines.append(
            f"warning    the job would fail: it allows {about(round(plan.limit))} rejects. Look at those of a job on a "
            "part of the input, or raise --max_rejects and --max_reject_fraction."
        )
    if plan.machine is not None:
        lines += ["", f"on Dataflow with {plan.machine.name} (assumed; see docs/plan.md)"]
        lines.append(f"{'workers':>9}  {'time':<32}  cost, {plan.currency}")
        for fleet in plan.fleets:
            time, cost = (f"{duration(s)}" for s in fleet.seconds), (f"{c:,.2f}" for c in fleet.cost)
            lines.append(f"{fleet.workers:>9,}  {' to '.join(time):<32}  {' to '.join(cost)}")
    return "\n".join(lines)


def as_data(plan: Plan) -> dict[str, Any]:
    """The plan with all of its numbers, in records, bytes and seconds."""
    needs = dataclasses.asdict(plan.needs)
    return {
        "input": {"files": plan.input_files, "bytes": plan.input_bytes},
        "sample": needs.pop("share"),
        **needs,
        "machine_type": plan.machine.name if plan.machine else None,
        "currency": plan.currency,
        "workers": [dataclasses.asdict(fleet) for fleet in plan.fleets],
    }


def size(count: float) -> str:
    """Bytes as a person reads them: `775 MB`."""
    units = ["bytes", "kB", "MB", "GB", "TB"]
    while count >= 999.5 and len(units) > 1:
        count /= 1000
        units.pop(0)
    unit = units[0]
    return f"{count:,.0f} {unit}" if count >= 99.95 or unit == "bytes" else f"{count:.3g} {unit}"


def about(count: int) -> str:
    """A count with three digits that mean something."""
    digits = len(str(count)) - 3
    return f"{round(count, -digits) if digits > 0 else count:,}"


def percent(share: float) -> str:
    """A share: `all`, or `8.3 %`."""
    return "all" if share >= 1 else f"{100 * share:.2g} %"
