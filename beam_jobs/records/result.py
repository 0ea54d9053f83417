"""The result of a pipeline, handed to the commit as a JSON file when all else is done."""

from __future__ import annotations

import base64
import collections
import dataclasses
import functools
import json
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam

from beam_jobs.core.accounting import (
    DESCRIBED,
    DIGESTED,
    READ,
    WRITTEN,
    CountKey,
    RejectFile,
    rejects,
)
from beam_jobs.core.inputs import StagedInputs
from beam_jobs.core.options import RejectLimit
from beam_jobs.core.parity import ParityFiles
from beam_jobs.core.source import PipelinePlan, SourceOutputs
from beam_jobs.records.accounts import OBSERVED, CountFile, Unfit, WriteCounts, accounts
from beam_jobs.records.fragments import WrittenShard
from beam_jobs.records.shards import ShuffleIntoShards
from beam_jobs.transform.rejects import RawBytes, with_raw_bytes
from schemas import storage
from schemas.dataset import layout
from schemas.errors import counted
from schemas.rejects import Reject
from schemas.storage.json_files import read_object

RESULT = "result.json"

Place = tuple[int, int]  # (input's key, offset)


@dataclasses.dataclass(frozen=True)
class Result:
    """What a pipeline wrote and counted."""

    shards: tuple[WrittenShard, ...]
    count_files: tuple[CountFile, ...]
    reject_files: tuple[RejectFile, ...]
    late_rejects: tuple[RejectFile, ...]  # from the transform, still without raw bytes
    parity_raw: dict[Place, bytes]
    parity_transformed: dict[Place, bytes]
    parity_files: tuple[ParityFiles, ...]
    content_files: tuple[str, ...] = ()  # what images hold, see `beam_jobs.records.existing`
    statistics: str | None = None  # the file of the statistics of all written records, if they were collected
    leakage: dict[str, Any] | None = None  # what `schemas.profile.leakage` found, if it was looked for

    def total(self, stage: str, *, reason: str | None = None) -> int:
        """Returns how many records a stage counted, for one reason (for WRITTEN: split) or all."""
        return sum(n for (at, why), n in self._totals.items() if at == stage and reason in (None, why))

    @property
    def rejected(self) -> int:
        """The records rejected in any stage."""
        return sum(n for (at, _), n in self._totals.items() if rejects(at))

    def totals(self) -> Iterator[tuple[str, str, int]]:
        """Yields (stage, reason or split, records) of all written and rejected records, sorted."""
        for (stage, reason), n in sorted(self._totals.items()):
            if stage == WRITTEN or rejects(stage):
                yield stage, reason, n

    @functools.cached_property
    def observed(self) -> dict[CountKey, int]:
        """The counts that belong to no input (such as NUMBERS_LEFT)."""
        return {key: n for file in self.count_files if file.part == OBSERVED for key, n in file.read()}

    @functools.cached_property
    def _totals(self) -> collections.Counter[tuple[str, str]]:
        """By stage and reason, over all inputs."""
        totals: collections.Counter[tuple[str, str]] = collections.Counter()
        for file in self.count_files:
            for (_, stage, reason), n in file.read():
                if stage not in (DESCRIBED, DIGESTED):
                    totals[stage, reason] += n
        return totals


# Fields of a result that are files with what is known of them, and their classes.
_FILES = {"shards": WrittenShard, "count_files": CountFile, "reject_files": RejectFile, "late_rejects": RejectFile}


def late_rejects(result: Result, raw_bytes: RawBytes) -> list[Reject]:
    """Reads the transform's rejects, and their raw bytes from the input."""
    return with_raw_bytes([f.path for f in result.late_rejects], raw_bytes) if result.late_rejects else []


def check_counts(result: Result, inputs: StagedInputs, limit: RejectLimit) -> None:
    """Checks that every record is accounted for, and that not too many were rejected.

    Args:
      result: what was written and counted.
      inputs: what was read.
      limit: how many records may be rejected.

    Raises:
      Unfit: a record is unaccounted for, too many were rejected, or there is none.
    """
    for part in accounts(inputs, result.count_files):
        for account in part:
            account.check()
    read, written, in_shards = result.total(READ), result.total(WRITTEN), sum(shard.rows for shard in result.shards)
    if in_shards != written:
        raise Unfit(f"{in_shards:,} records in the shards, {written:,} encoded. This is a bug; nothing was committed.")
    if not limit.allows(result.rejected, read):
        raise Unfit(
            f"rejected {result.rejected:,} of {counted(read, 'records')}, which is more than --max_rejects "
            f"{limit.rows} and --max_reject_fraction {limit.fraction:g} allow"
        )
    if not read:
        first = [file.path for file in inputs.read(0)[:5]] if inputs.parts == 1 else ["all input files"]
        raise Unfit(f"{', '.join(first)}: the input contains no records; expected at least one")
    if not written:
        raise Unfit(f"rejected {read:,} of {counted(read, 'records')}, so there is nothing to write")


def write_result(
    path: str,
    shards: list[WrittenShard],
    count_files: list[CountFile],
    reject_files: list[RejectFile],
    late_rejects: Sequence[RejectFile] = (),
    raw: Sequence[tuple[Place, bytes]] = (),
    transformed: Sequence[tuple[Place, bytes]] = (),
    parity_files: Sequence[ParityFiles] = (),
    content_files: Sequence[str] = (),
    statistics: Sequence[bytes] = (),
    leakage: Sequence[bytes] = (),
    written: Sequence[None] = (),
) -> str:
    """Writes the result file atomically, and before it the file of the statistics, of which there is one at most.

    It is written when all arguments are there, `written` too, which only says that other files of the run are complete.

    Returns:
      The path.
    """

    def places(records: Sequence[tuple[Place, bytes]]) -> list[list[object]]:
        return [[*place, base64.b64encode(record).decode()] for place, record in records]

    files = shards, count_files, reject_files, late_rejects, parity_files
    account: dict[str, Any] = {
        **dict(zip((*_FILES, "parity_files"), ([*map(dataclasses.asdict, entries)] for entries in files), strict=True)),
        "parity_raw": places(raw),
        "parity_transformed": places(transformed),
        "content_files": list(content_files),
        "statistics": None,
        "leakage": next(map(json.loads, leakage), None),
    }
    for data in statistics:
        account["statistics"] = layout.join(path.rpartition("/")[0], f"statistics-{uuid.uuid4().hex}.arrow")
        storage.write_bytes(account["statistics"], data)
    storage.write_bytes(path, json.dumps(account).encode())
    return path


def read_result(path: str) -> Result:
    """Reads the result file that `write_result` wrote.

    Raises:
      MillraceError: it cannot be read.
    """
    account = read_object(path, "the result of a job")

    def places(name: str) -> dict[Place, bytes]:
        return {(file, offset): base64.b64decode(record) for file, offset, record in account[name]}

    return Result(
        **{name: tuple(kind(**file) for file in account[name]) for name, kind in _FILES.items()},
        parity_raw=places("parity_raw"),
        parity_transformed=places("parity_transformed"),
        parity_files=tuple(ParityFiles.from_json(record) for record in account["parity_files"]),
        content_files=tuple(account["content_files"]),
        statistics=account["statistics"],
        leakage=account["leakage"],
    )


def finish(pipeline: beam.Pipeline, plan: PipelinePlan, steps: SourceOutputs) -> beam.PCollection:
    """Shuffles the records into shards, and writes the result file in the staging folder. Returns its path."""
    return write_at_end(
        pipeline,
        plan.staging,
        plan.inputs,
        steps.counts,
        shards=steps.encoded | ShuffleIntoShards(plan.shards),
        reject_files=steps.reject_files,
        late_rejects=steps.late_rejects,
        **steps.watched,
    )


def write_at_end(
    pipeline: beam.Pipeline,
    staging: str,
    inputs: StagedInputs,
    counts: Sequence[beam.PCollection],
    **parts: beam.PCollection,
) -> beam.PCollection:
    """Writes the result file when all of it is there. Returns its path.

    Args:
      pipeline: the pipeline to extend.
      staging: the folder of the file.
      inputs: what is counted.
      counts: (CountKey, int) of all steps.
      **parts: the other arguments of `write_result`.
    """
    summed = counts | "AllCounts" >> beam.Flatten() | "Counts" >> WriteCounts(inputs, staging)
    side_inputs = {name: beam.pvalue.AsList(part) for name, part in {**parts, "count_files": summed}.items()}
    path = layout.join(staging, RESULT)
    return pipeline | "Finally" >> beam.Create([path]) | "WriteResult" >> beam.Map(write_result, **side_inputs)
