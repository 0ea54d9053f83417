"""How many processes a training has, by role."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence

from schemas.errors import UsageError
from trainer.replica.cluster import CHIEF, EVALUATOR, PS, ROLES, WORKER


@dataclasses.dataclass(frozen=True)
class Pools:
    """The processes beside the chief, of which there is one.

    Raises:
      UsageError: a number of processes is negative.
    """

    workers: int = 0
    ps: int = 0
    evaluator: bool = False

    def __post_init__(self) -> None:
        for flag, count in (("--workers", self.workers), ("--ps", self.ps)):
            if count < 0:
                raise UsageError(f"{flag} {count}: must be 0 or more")

    @property
    def sizes(self) -> dict[str, int]:
        """How many there are of each role, in the order of `ROLES`, without those of which there is none.

        A chief in a cluster neither evaluates nor exports, so an evaluator comes with it.
        """
        evaluators = int(self.evaluator or self.ps > 0 or self.workers > 0)
        counts = {CHIEF: 1, WORKER: self.workers, PS: self.ps, EVALUATOR: evaluators}
        return {role: count for role, count in counts.items() if count}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that say how many processes there are."""
    add = parser.add_argument
    add("--workers", type=int, default=0, metavar="N", help="workers beside the chief (default: 0)")
    add(
        "--ps",
        type=int,
        default=0,
        metavar="N",
        help="parameter servers; workers need one, or --strategy multi_worker (default: 0)",
    )
    add(
        "--evaluator",
        action="store_true",
        help="evaluate and export in a process of its own; the default where there are workers or parameter servers",
    )


def by_role(values: Sequence[str], flag: str, *, default_for: Sequence[str] = ROLES) -> dict[str, str]:
    """Values by role, of a flag whose values are VALUE for all roles or ROLE=VALUE.

    Args:
      values: as given.
      flag: the flag's name, for messages.
      default_for: the roles that a value without a role is for.

    Raises:
      UsageError: no such role, or two values for one.
    """
    found: dict[str, str] = {}
    named: dict[str, str] = {}
    for value in values:
        role, equals, own = value.partition("=")
        if equals and role not in ROLES:
            raise UsageError(f"{flag} {value}: {role} is no role; choose from {', '.join(ROLES)}")
        target = {role: own} if equals else dict.fromkeys(default_for, value)
        into = named if equals else found
        if target.keys() & into.keys():
            raise UsageError(f"{flag} {value}: given twice for {', '.join(sorted(target.keys() & into.keys()))}")
        into.update(target)
    return {**found, **named}


def pairs(values: Sequence[str], flag: str) -> dict[str, str]:
    """`KEY=VALUE` arguments as a dictionary.

    Raises:
      UsageError: no `=`, no key, or a key twice.
    """
    found: dict[str, str] = {}
    for value in values:
        key, equals, held = value.partition("=")
        if not equals or not key:
            raise UsageError(f"{flag} {value}: expected KEY=VALUE")
        if key in found:
            raise UsageError(f"{flag} {value}: {key} is given twice")
        found[key] = held
    return found
