"""Commits the predictions of a finished pipeline: checks the counts, names the shards, writes the manifest last."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from collections.abc import Sequence
from typing import Any

from beam_jobs.core.accounting import READ, WRITTEN, RejectFile, RejectLimit, rejects
from beam_jobs.core.inputs import StagedInputs
from beam_jobs.predicting.shards import WrittenShard
from beam_jobs.records.accounts import CountFile, accounts, check_counts, input_part
from beam_jobs.runs.commit import list_files, publish, versions
from beam_jobs.runs.run import NewRun
from schemas import storage
from schemas.dataset import layout
from schemas.dataset.input_files import write_parts
from schemas.dataset.manifest import Shard
from schemas.errors import MillraceError
from schemas.predictions.manifest import Predictions, read_predictions
from schemas.storage import folders
from schemas.storage.json_files import parse_json

RESULT = "result.json"


@dataclasses.dataclass(frozen=True)
class Result:
    """What a pipeline wrote and counted."""

    shards: tuple[WrittenShard, ...]
    count_files: tuple[CountFile, ...]
    reject_files: tuple[RejectFile, ...]

    def total(self, stage: str) -> int:
        """The records that a stage counted."""
        return sum(n for file in self.count_files for (_, at, _), n in file.read() if at == stage)

    @property
    def rejected(self) -> int:
        """The records that were rejected in any stage."""
        return sum(n for file in self.count_files for (_, at, _), n in file.read() if rejects(at))


def write_result(
    path: str, shards: list[WrittenShard], count_files: list[CountFile], reject_files: list[RejectFile]
) -> None:
    """Hands the result to the launcher as a JSON file."""
    data = {
        "shards": [dataclasses.asdict(shard) for shard in shards],
        "count_files": [dataclasses.asdict(file) for file in count_files],
        "reject_files": [dataclasses.asdict(file) for file in reject_files],
    }
    storage.write_bytes(path, json.dumps(data).encode())


def read_result(path: str) -> Result:
    """Reads what `write_result` wrote."""
    data = parse_json(storage.read_bytes(path))
    return Result(
        tuple(WrittenShard(**{**shard, "first": tuple(shard["first"])}) for shard in data["shards"]),
        tuple(CountFile(**file) for file in data["count_files"]),
        tuple(RejectFile(**file) for file in data["reject_files"]),
    )


@dataclasses.dataclass(frozen=True)
class Run(NewRun):
    """The run to commit. `about`: the fields of the manifest that are known before the pipeline runs."""

    suffix: str
    inputs: StagedInputs
    limit: RejectLimit
    about: dict[str, Any]


def check(run: Run, result: Result) -> None:
    """Checks that a result may become predictions.

    Raises:
      Unfit: a record is unaccounted for, too many were rejected, or there is none.
    """
    check_counts(
        run.inputs,
        result.count_files,
        run.limit,
        read=result.total(READ),
        written=result.total(WRITTEN),
        rejected=result.rejected,
        in_shards=sum(shard.rows for shard in result.shards),
    )


def commit(run: Run, result: Result, *, seconds: float) -> Predictions:
    """Gives all files their final names, and swaps the manifest.

    Raises:
      LeaseError: another job has taken the lease; the manifest has not changed.
    """
    shards = place_shards(run, result.shards)
    for number, file in enumerate(result.reject_files):
        folders.move(file.path, layout.join(run.folder, layout.rejects_name(number)))
    listed = write_parts(
        run.output,
        run.id,
        (input_part(part) for part in accounts(run.inputs, result.count_files)),
        count=run.inputs.files,
    )
    read, predicted, rejected = result.total(READ), result.total(WRITTEN), result.rejected
    folders.remove(run.staging)
    manifest = Predictions(
        run=run.id,
        created=dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
        shards=shards,
        files=tuple(list_files(run.output, run.id, except_for={shard.path for shard in shards})),
        inputs=listed.inputs,
        headers=listed.headers,
        input_files=listed.files,
        input_count=listed.count,
        totals=listed.totals,
        counts=listed.counts,
        read=read,
        predicted=predicted,
        rejected=rejected,
        previous=previous(run.output),
        versions=versions(),
        seconds=round(seconds, 3),
        **run.about,
    )
    publish(run.output, manifest, held=run.lease, replaces=run.replaces)
    return manifest


def place_shards(run: Run, written: Sequence[WrittenShard]) -> tuple[Shard, ...]:
    """The shards under their final names, in the order of their first records."""
    ordered = sorted(written, key=lambda shard: shard.first)

    def place(numbered: tuple[int, WrittenShard]) -> Shard:
        number, shard = numbered
        name = layout.join(run.id, f"predictions-{number:05d}-of-{len(ordered):05d}.{run.suffix}")
        folders.move(shard.path, layout.join(run.output, name))
        return Shard(path=name, rows=shard.rows, bytes=shard.bytes, crc32c=shard.crc32c)

    return tuple(storage.for_each(run.output, place, enumerate(ordered)))


def previous(output: str) -> tuple[str, ...]:
    """The run that is replaced, if there is one."""
    if not storage.exists(layout.join(output, layout.MANIFEST)):
        return ()
    try:
        return (read_predictions(output).run,)
    except MillraceError:  # of another format version, which --overwrite replaces
        return ()
