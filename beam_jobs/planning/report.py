"""What a job would need, for people and programs; and what it costs, by prices that users replace by their own."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator

from beam_jobs.planning.estimate import Needs
from schemas import storage
from schemas.command import duration, size
from schemas.errors import UsageError, counted
from schemas.spec.forms import Strict, first_mistake
from schemas.spec.loader import parse_plain

SHIPPED = Path(__file__).parent / "prices.yaml"

# GB of memory for each vCPU, from https://cloud.google.com/compute/docs/machine-resource (read on 2026-11-22).
_MEMORY = {
    "n1": {"standard": 3.75, "highmem": 6.5, "highcpu": 0.9},
    "n2": {"standard": 4.0, "highmem": 8.0, "highcpu": 1.0},
    "n2d": {"standard": 4.0, "highmem": 8.0, "highcpu": 1.0},
    "e2": {"standard": 4.0, "highmem": 8.0, "highcpu": 1.0},
    "c3": {"standard": 4.0, "highmem": 8.0, "highcpu": 2.0},
    "n4": {"standard": 4.0, "highmem": 8.0, "highcpu": 2.0},
    "t2d": {"standard": 4.0},
}

# Assumptions about a cluster, since none was measured. Its cores may be slower, and gs:// and TLS cost CPU time, so the
# work takes from one to three times the CPU time that was measured here. Its machines take minutes to start.
SLOWER = (1.0, 3.0)
START_SECONDS = (120.0, 360.0)
SHUFFLE_OVERHEAD = 4  # bytes with each record
READS_PER_IMAGE = 2  # its size, and its bytes

Price = Annotated[tuple[Annotated[float, Field(ge=0)], Annotated[float, Field(ge=0)]], Field()]


class Prices(Strict):
    """Prices, each from the least to the most."""

    currency: str = "USD"
    vcpu_hour: Price
    memory_gb_hour: Price
    shuffled_gb: Price
    ten_thousand_reads: Price

    @model_validator(mode="after")
    def _in_order(self) -> Prices:
        for name, price in self:
            if isinstance(price, tuple) and price[0] > price[1]:
                raise ValueError(f"{name}: [{price[0]:g}, {price[1]:g}] is not from the least to the most")
        return self


def read_prices(path: str | None) -> Prices:
    """A table of prices; None: the one that ships.

    Raises:
      UsageError: the file cannot be read, or is not such a table.
    """
    place = path or str(SHIPPED)
    if not storage.exists(place):
        raise UsageError(f"--prices {place}: no such file; {SHIPPED} is an example")
    try:
        return Prices.model_validate(parse_plain(storage.read_bytes(place), place))
    except UsageError as error:
        raise UsageError(f"--prices {error}") from None
    except ValidationError as error:
        raise UsageError(f"--prices {place}: {first_mistake(error)}; {SHIPPED} is an example") from None


@dataclasses.dataclass(frozen=True)
class Machine:
    """A type of machine. `memory_gb` is all of its memory."""

    name: str
    vcpus: int
    memory_gb: float


def machine(name: str) -> Machine:
    """A machine by the name of its type, such as n2-standard-4.

    Raises:
      UsageError: the type is not known here.
    """
    found = re.fullmatch(r"([a-z0-9]+)-(standard|highmem|highcpu)-([0-9]+)", name)
    per_vcpu = _MEMORY.get(found[1], {}).get(found[2]) if found else None
    if not found or per_vcpu is None or not int(found[3]):
        raise UsageError(
            f"--machine_type {name}: unknown; expected FAMILY-standard-N, FAMILY-highmem-N or FAMILY-highcpu-N of "
            f"{', '.join(_MEMORY)}, such as n2-standard-4"
        )
    return Machine(name, int(found[3]), int(found[3]) * per_vcpu)


@dataclasses.dataclass(frozen=True)
class Fleet:
    """The job on some machines: seconds and cost, each from the least to the most."""

    workers: int
    seconds: tuple[float, float]
    cost: tuple[float, float]


def fleet(found: Needs, workers: int, kind: Machine, prices: Prices, *, images: bool) -> Fleet:
    """The job on `workers` machines of a kind, by the assumptions above. `images`: each record is a file of its own."""
    cores = workers * kind.vcpus
    both = (0, 1)
    seconds = [START_SECONDS[i] + SLOWER[i] * found.cpu_seconds / cores for i in both]
    shuffled = (found.bytes + SHUFFLE_OVERHEAD * (found.read - found.rejected)) / 1e9
    reads = found.read * READS_PER_IMAGE / 10_000 if images else 0.0
    cost = [
        workers * seconds[i] / 3600 * (kind.vcpus * prices.vcpu_hour[i] + kind.memory_gb * prices.memory_gb_hour[i])
        + shuffled * prices.shuffled_gb[i]
        + reads * prices.ten_thousand_reads[i]
        for i in both
    ]
    return Fleet(workers, (seconds[0], seconds[1]), (cost[0], cost[1]))


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
      boosting_memory: what `boosted_trees` takes to train on the dataset, in bytes; None of images.
    """

    needs: Needs
    records: str
    input_files: int
    input_bytes: int
    machine: Machine | None
    currency: str
    fleets: Sequence[Fleet]
    limit: float
    boosting_memory: int | None = None


def as_text(plan: Plan) -> str:
    """The plan, line by line."""
    needs, records = plan.needs, plan.records
    lines = [
        f"input      {counted(plan.input_files, 'files')}, {size(plan.input_bytes)}; planned from "
        f"{percent(needs.share)} of it",
        f"read       {about(needs.read, records)}",
        f"rejected   {about(needs.rejected, records)}",
    ]
    for name, rows in needs.split_rows.items():
        written = f"{size(needs.split_bytes[name])} in {counted(needs.split_shards[name], 'shards')}"
        lines.append(f"{name:<10} {about(rows, records)}, {written}")
    lines += [
        f"dataset    {size(needs.bytes)}",
        f"disk       {size(needs.disk)} at once on this machine, the dataset included",
        f"memory     {size(needs.memory)} at its peak; it does not grow with the input",
        f"time       {duration(needs.seconds)} on this machine ({' to '.join(map(duration, needs.seconds_between))}), "
        f"{duration(needs.start)} of it to start; {duration(needs.cpu_seconds)} of CPU",
    ]
    if plan.boosting_memory is not None:
        lines.append(f"training   {size(plan.boosting_memory)} of memory for boosted_trees; it grows with the dataset")
    if needs.rejected > plan.limit:
        lines.append(
            f"warning    the job would fail: it allows {counted(round(plan.limit), 'rejects')}. Look at those of a job "
            "on a part of the input, or raise --max_rejects and --max_reject_fraction."
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
        "boosting_memory": plan.boosting_memory,
        "currency": plan.currency,
        "workers": [dataclasses.asdict(fleet) for fleet in plan.fleets],
    }


def about(count: int, what: str) -> str:
    """A count with three digits that mean something, and its noun."""
    return f"about {counted(round(count, min(0, 3 - len(str(count)))), what)}"


def percent(share: float) -> str:
    """A share: `all`, or `8.3 %`."""
    return "all" if share >= 1 else f"{100 * share:.2g} %"
