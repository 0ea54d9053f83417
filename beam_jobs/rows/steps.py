"""The steps of a job on rows that child processes do: they decode groups of ranges, and collect profiles of units.

Groups are decoded into the cache that both reads share, which begins while the parent still imports TensorFlow. Then
profiles (statistics, and what the leakage guard compares) are collected from the cache, unit by unit.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from beam_jobs.core.children import Children, Step, running
from beam_jobs.rows.groups import (
    Digested,
    Group,
    Place,
    Unit,
    cache_path,
    decode,
    observe,
    unit_starts,
    write_through,
)
from schemas import interrupts, storage
from schemas.spec.table import Schema

if TYPE_CHECKING:
    from schemas.profile.profiles import Profiles


@dataclasses.dataclass(frozen=True)
class Collected:
    """Which profiles of the accepted rows are collected."""

    statistics: bool
    leakage: bool

    def new_profiles(self, schema: Schema) -> Profiles:
        """Profiles without any row."""
        from schemas.profile.columns import columns_of
        from schemas.profile.leakage import watched_rows
        from schemas.profile.profiles import Profiles

        return Profiles(columns_of(schema) if self.statistics else None, watched_rows(schema) if self.leakage else None)


@dataclasses.dataclass(frozen=True)
class Decode(Step):
    """Decodes a group into its cache file."""

    group: Group

    def run(self, schema: Schema) -> None:
        digested: Digested = []
        for _ in write_through(self.path, decode(self.group, schema, digested), digested):
            interrupts.check()


@dataclasses.dataclass(frozen=True)
class Observe(Step):
    """Writes the profiles of the rows of a unit to a file.

    Attributes:
      unit: the groups of the unit.
      folder: the folder of the cache.
      collected: which profiles are collected.
      without: the offsets of rows that the transform has rejected, by the key of their file.
    """

    unit: Unit
    folder: str
    collected: Collected
    without: Mapping[int, Sequence[int]] = dataclasses.field(default_factory=dict)

    @property
    def ready(self) -> bool:
        """Whether all groups are cached."""
        return all(os.path.exists(cache_path(self.folder, group)) for group in self.unit)

    def run(self, schema: Schema) -> None:
        self.collect(schema).write(self.path)

    def collect(self, schema: Schema) -> Profiles:
        """Collects the profiles in this process."""
        collected = self.collected.new_profiles(schema)
        for _ in observe(self.unit, schema, self.folder, self.without, collected):
            interrupts.check()
        return collected

    def take(self) -> Profiles:
        """Reads the file that another process has written, and removes it.

        Raises:
          OSError: there is none.
        """
        from schemas.profile.profiles import Profiles

        profiles = Profiles.read(self.path)
        os.remove(self.path)
        return profiles


def steps_of(groups: Iterable[Group], units: Sequence[Unit], collected: Collected, folder: str) -> Iterator[Step]:
    """The steps of a job whose cache is in a folder. Files that cannot be cut, such as compressed ones, have none."""
    for group in groups:
        if all(part.end is not None and storage.is_local(part.file.path) for part in group):
            yield Decode(cache_path(folder, group), group)
    yield from observations(units, collected, folder)


def observations(units: Sequence[Unit], collected: Collected, folder: str) -> list[Observe]:
    """The steps that collect the profiles of all units, in the order of the units."""
    paths = (os.path.join(folder, f"observed-{number}") for number in range(len(units)))
    return [Observe(path, unit, folder, collected) for unit, path in zip(units, paths, strict=True)]


def wait_for(folder: str, group: Group) -> None:
    """Returns when a group is either cached, or not begun by any child and left to the caller to decode.

    Raises:
      MillraceError: a child was killed.
    """
    children, path = running(folder), cache_path(folder, group)
    if children is not None:
        children.withdraw(path)
        children.wait_for(path, Decode)


def collect_profiles(
    schema: Schema, folder: str, units: Sequence[Unit], collected: Collected, rejected: Iterable[Place]
) -> Profiles:
    """Collects the profiles of all units, and merges them in the order of the units.

    Args:
      schema: the schema of the rows.
      folder: the folder of the cache.
      units: the units, whose groups are all cached.
      collected: which profiles are collected.
      rejected: the rows that the transform has rejected.

    Raises:
      MillraceError: a child was killed, or the input cannot be read.
    """
    with contextlib.ExitStack() as stack:
        children = running(folder) or stack.enter_context(contextlib.closing(Children(schema, (), folder, children=0)))
        steps, starts = observations(units, collected, folder), unit_starts(units)
        rejected_by_unit: dict[int, dict[int, list[int]]] = {}
        for key, offset in rejected:
            number = bisect.bisect(starts, (key, offset)) - 1
            rejected_by_unit.setdefault(number, {}).setdefault(key, []).append(offset)
        for number, without in rejected_by_unit.items():  # what was collected with the rejected rows is not used
            children.withdraw(steps[number].path)
            steps[number] = dataclasses.replace(steps[number], path=f"{steps[number].path}-again", without=without)
        children.add(steps[number] for number in sorted(rejected_by_unit))
        total = collected.new_profiles(schema)
        for step in steps:
            children.withdraw(step.path)
            children.wait_for(step.path, Observe)
            try:
                profiles = step.take()
            except OSError:  # nobody has collected them, or a child met an error or a full disk
                profiles = step.collect(schema)
            total.merge(profiles)
    return total
