"""The ranges that workers read: files are opened and cut into ranges inside the pipeline, however many they are."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import apache_beam as beam

from beam_jobs.core.accounting import COUNTS, COVERED, DESCRIBED, count, digested
from beam_jobs.core.inputs import InputFile, StagedInputs
from beam_jobs.rows.groups import GROUP_BYTES, Group, grouped
from schemas import storage
from schemas.formats import row_format
from schemas.rows import RowFile, RowRange
from schemas.spec.table import Schema
from schemas.storage.content import digest_blocks

FILES_AT_ONCE = 256  # opened by one worker in one go; small ones are read together
REMOTE_OPENERS = 16  # threads, where opening takes requests to the cloud


@dataclasses.dataclass(frozen=True)
class FileRanges:
    """Ranges of the staged inputs of a job, whose files are opened on the workers."""

    inputs: StagedInputs
    schema: Schema
    range_bytes: int
    max_input_ratio: float
    label: Literal["required", "optional"] = "required"
    group_bytes: int = GROUP_BYTES

    def create(self, pipeline: beam.Pipeline, label: str, *, count: bool) -> tuple[beam.PCollection, beam.PCollection]:
        """Groups of ranges, distributed over the workers; and (CountKey, int) about the files, if `count` is set."""
        groups = (
            pipeline
            | f"{label}Parts" >> beam.Create(list(range(self.inputs.parts)), reshuffle=False)
            | f"{label}Inputs" >> beam.FlatMap(read_inputs, inputs=self.inputs)
            | f"{label}SpreadInputs" >> beam.Reshuffle()
            | f"{label}Open" >> beam.ParDo(OpenFiles(self, count=count)).with_outputs(COUNTS, main="groups")
        )
        return groups.groups | f"{label}Spread" >> beam.Reshuffle(), groups[COUNTS]

    def open(self, file: InputFile) -> RowFile:
        """Opens an input, which must be the version that was listed.

        Raises:
          UsageError: it does not match the schema.
          MillraceError: it cannot be read, or has changed.
        """
        opened: RowFile = row_format(self.schema).open_file(
            file.path, self.schema, label=self.label, max_input_ratio=self.max_input_ratio
        )
        storage.check_version(file.path, file.version, opened.version)
        return opened


def read_inputs(part: int, inputs: StagedInputs) -> Iterator[tuple[InputFile, ...]]:
    """Yields the inputs of a part, some at a time."""
    files = inputs.read(part)
    for start in range(0, len(files), FILES_AT_ONCE):
        yield files[start : start + FILES_AT_ONCE]


class OpenFiles(beam.DoFn):
    """Some inputs -> groups of their ranges. Side output: counts of what is in no range, and descriptions."""

    def __init__(self, ranges: FileRanges, *, count: bool) -> None:
        self.ranges = ranges
        self.count = count

    def process(self, files: Sequence[InputFile]) -> Iterator[object]:
        opened = self.opened(files)
        if self.count:
            for listed, file in zip(files, opened, strict=True):
                # What a file has besides records, such as its header. It does not come from the ranges, which are
                # counted where they are read, so that a range that is missing is missed.
                yield count(listed.key, COVERED, "", listed.bytes - file.covers)
                yield count(listed.key, DESCRIBED, json.dumps([file.codec, file.header]), 1)
        plan = functools.partial(row_format(self.ranges.schema).plan_ranges, range_bytes=self.ranges.range_bytes)
        parts = [plan(file) for file in opened]
        for listed, planned in zip(files, parts, strict=True):
            if self.count and not planned:  # without records; all others are digested where they are read
                blocks = digest_blocks(listed.path, version=listed.version)
                yield from digested(listed.key, blocks)
        yield from grouped(itertools.chain.from_iterable(parts), group_bytes=self.ranges.group_bytes)

    def opened(self, files: Sequence[InputFile]) -> list[RowFile]:
        """Opens the files."""
        if storage.is_local(files[0].path):
            return [self.ranges.open(file) for file in files]
        with ThreadPoolExecutor(REMOTE_OPENERS, thread_name_prefix="open") as pool:
            return list(pool.map(self.ranges.open, files))


@dataclasses.dataclass(frozen=True)
class GivenRanges:
    """Ranges that are known when the pipeline is built, and few."""

    ranges: tuple[RowRange, ...]

    def create(self, pipeline: beam.Pipeline, label: str, *, count: bool) -> tuple[beam.PCollection, beam.PCollection]:
        """Creates groups of these ranges, about whose files nothing is counted."""
        groups: list[Group] = list(grouped(self.ranges))
        return (
            pipeline | f"{label}Groups" >> beam.Create(groups, reshuffle=True),
            pipeline | f"{label}NoCounts" >> beam.Create([], reshuffle=False),
        )


Ranges = FileRanges | GivenRanges
