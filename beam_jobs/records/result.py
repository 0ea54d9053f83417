"""The result of a pipeline: a JSON file. The pipeline writes it after all other steps, and the commit reads it."""

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

Place = tuple[int, int]  # the place of a record: the key of its input file, and its offset there


@dataclasses.dataclass(frozen=True)
class Result:
    """The files that a pipeline wrote to staging, and its counts."""

    shards: tuple[WrittenShard, ...]
    count_files: tuple[CountFile, ...]
    reject_files: tuple[RejectFile, ...]  # complete rejects, with raw bytes
    late_rejects: tuple[RejectFile, ...]  # rejects of the transform, without raw bytes; the commit reads these later
    parity_raw: dict[Place, bytes]
    parity_transformed: dict[Place, bytes]
    parity_files: tuple[ParityFiles, ...]
    content_files: tuple[str, ...] = ()  # files with the digests of the images, see `beam_jobs.records.existing`
    statistics: str | None = None  # the file with the statistics of the written records; None: not collected
    leakage: dict[str, Any] | None = None  # the findings of `schemas.profile.leakage`; None: not searched for

    def total(self, stage: str, *, reason: str | None = None) -> int:
        """Returns how many records a stage counted. `reason`: count only this reason (for WRITTEN: this split)."""
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
        """The counts that belong to no single input, such as NUMBERS_LEFT, by key."""
        return {key: n for file in self.count_files if file.part == OBSERVED for key, n in file.read()}

    @functools.cached_property
    def _totals(self) -> collections.Counter[tuple[str, str]]:
        """The counts by stage and reason, summed over all inputs."""
        totals: collections.Counter[tuple[str, str]] = collections.Counter()
        for file in self.count_files:
            for (_, stage, reason), n in file.read():
                if stage not in (DESCRIBED, DIGESTED):
                    totals[stage, reason] += n
        return totals


# The fields of Result that are tuples of dataclasses, and the class of their elements. The JSON file has dicts instead.
_FILES = {"shards": WrittenShard, "count_files": CountFile, "reject_files": RejectFile, "late_rejects": RejectFile}


def late_rejects(result: Result, raw_bytes: RawBytes) -> list[Reject]:
    """Reads the rejects of the transform, and then their raw bytes from the input with `raw_bytes`."""
    return with_raw_bytes([f.path for f in result.late_rejects], raw_bytes) if result.late_rejects else []


def check_counts(result: Result, inputs: StagedInputs, limit: RejectLimit) -> None:
    """Checks that every record was either written or rejected, and that the rejects are within the limit.

    Args:
      result: the result of the pipeline.
      inputs: the inputs that the pipeline has read.
      limit: how many records may be rejected.

    Raises:
      Unfit: a record is missing or counted twice, too many records were rejected, or no record was written.
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
    """Writes the result file atomically. Before that, writes the statistics to a file of their own, if there are any.

    The pipeline passes all arguments but `path` as side inputs, so Beam calls this function when all of them are
    complete. A side input is a list, also where there is at most one element.

    Args:
      path: the result file.
      shards, count_files, reject_files, late_rejects, parity_files, content_files: see `Result`.
      raw: the sampled raw records, by place.
      transformed: the same records after the transform, by place.
      statistics: the serialized statistics; empty if they were not collected.
      leakage: the findings as JSON; empty if leakage was not searched for.
      written: not used. The pipeline passes the steps that write other files of the run, so that Beam completes these
        files before the result file.

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
      MillraceError: the file cannot be read.
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
    """Adds the last steps of a dataset's pipeline: shuffles the records into shards, and writes the result file.

    Returns:
      A PCollection with one element, the path of the result file in the staging folder.
    """
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
    """Adds the step that writes the result file, which runs when all its side inputs are complete.

    Args:
      pipeline: the pipeline to extend.
      staging: the folder for the result file.
      inputs: the inputs of the job. Counts are written by the parts of these inputs.
      counts: pairs (CountKey, int), one PCollection for each step that counts.
      **parts: the other arguments of `write_result`, as PCollections.

    Returns:
      A PCollection with one element, the path of the result file.
    """
    summed = counts | "AllCounts" >> beam.Flatten() | "Counts" >> WriteCounts(inputs, staging)
    side_inputs = {name: beam.pvalue.AsList(part) for name, part in {**parts, "count_files": summed}.items()}
    path = layout.join(staging, RESULT)
    return pipeline | "Finally" >> beam.Create([path]) | "WriteResult" >> beam.Map(write_result, **side_inputs)
