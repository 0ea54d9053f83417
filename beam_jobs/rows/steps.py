"""What children do of a job on rows (`beam_jobs.core.children`): they decode groups of ranges, and observe units.

Groups are decoded into the cache that both reads share; that begins while the parent still imports TensorFlow. Then
statistics and traces of leakage are collected of units, some groups each, from the cache. Children that have TensorFlow
also transform (`beam_jobs.rows.pipeline`).
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from beam_jobs.core.children import Children, Finding, Step, running
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
    """What is collected of accepted rows."""

    statistics: bool
    leakage: bool

    def nothing(self, schema: Schema) -> Profiles:
        """Profiles of no row yet."""
        from schemas.profile.columns import columns_of
        from schemas.profile.leakage import watched_rows
        from schemas.profile.profiles import Profiles

        return Profiles(columns_of(schema) if self.statistics else None, watched_rows(schema) if self.leakage else None)


@dataclasses.dataclass(frozen=True)
class Decode(Step):
    """The step that caches a group, in the file `path`.

    A compressed file, or another one that cannot be cut, is left to the parent.
    """

    group: Group

    def run(self, schema: Schema) -> None:
        digested: Digested = []
        for _ in write_through(self.path, decode(self.group, schema, digested), digested):
            interrupts.check()


@dataclasses.dataclass(frozen=True)
class Observe(Finding["Profiles"]):
    """The step that collects the profiles of a unit, but for some of its rows; a child writes them to `path`.

    Attributes:
      unit: the groups.
      folder: of the cache.
      collected: what is collected.
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
        self.find(schema).write(self.path)

    def find(self, schema: Schema) -> Profiles:
        found = self.collected.nothing(schema)
        for _ in observe(self.unit, schema, self.folder, self.without, found):
            interrupts.check()
        return found

    def read(self, answer: None) -> Profiles:
        from schemas.profile.profiles import Profiles

        found = Profiles.read(self.path)
        os.remove(self.path)
        return found


def steps_of(groups: Iterable[Group], units: Sequence[Unit], collected: Collected, folder: str) -> Iterator[Step]:
    """The steps of a job whose cache is in a folder."""
    for group in groups:
        if all(part.end is not None and storage.is_local(part.file.path) for part in group):
            yield Decode(cache_path(folder, group), group)
    yield from observations(units, collected, folder)


def observations(units: Sequence[Unit], collected: Collected, folder: str) -> list[Observe]:
    """The steps that collect the profiles of all units, in their order."""
    paths = (os.path.join(folder, f"observed-{number}") for number in range(len(units)))
    return [Observe(path, unit, folder, collected) for unit, path in zip(units, paths, strict=True)]


def wait_for(folder: str, group: Group) -> None:
    """Returns when no child of a job decodes a group, and none will: it is cached by then, or the caller's to decode.

    Raises:
      MillraceError: a child was killed.
    """
    children, path = running(folder), cache_path(folder, group)
    if children is not None:
        children.take(path)
        children.wait_for(path, Decode)


def profiles(
    schema: Schema, folder: str, units: Sequence[Unit], collected: Collected, rejected: Iterable[Place]
) -> Profiles | None:
    """The profiles of all units, merged in their order; None if there was no row.

    Args:
      schema: the schema of the rows.
      folder: of the cache.
      units: whose groups are cached.
      collected: what is collected.
      rejected: the rows that the transform has rejected.

    Raises:
      MillraceError: a child was killed, or the input cannot be read.
    """
    from schemas.profile.profiles import Profiles

    with contextlib.ExitStack() as stack:
        children = running(folder) or stack.enter_context(contextlib.closing(Children(schema, (), folder, children=0)))
        steps, starts = observations(units, collected, folder), unit_starts(units)
        without: dict[int, dict[int, list[int]]] = {}
        for key, offset in rejected:
            number = bisect.bisect(starts, (key, offset)) - 1
            without.setdefault(number, {}).setdefault(key, []).append(offset)
        for number, places in without.items():  # observed anew, whatever was found with these rows
            step = steps[number]
            children.take(step.path)
            steps[number] = dataclasses.replace(step, path=f"{step.path}-again", without=places)
        children.add(steps[number] for number in sorted(without))
        total: Profiles | None = None
        for step in steps:
            total = Profiles.joined(total, children.found(step, Observe))
    return total
