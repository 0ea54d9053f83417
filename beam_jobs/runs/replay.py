"""A replay: corrected rejects through the dataset's own transform, into a new run beside the old shards."""

from __future__ import annotations

import dataclasses
import datetime as dt
import time
from typing import TYPE_CHECKING

from beam_jobs.core import progress
from beam_jobs.core.inputs import StagedInputs, stage_inputs
from beam_jobs.core.options import ReplayOptions
from beam_jobs.engines.checks import check_cluster
from beam_jobs.output.existing import copy_files, open_base, rejects_of, statistics_of
from beam_jobs.runs import merge
from beam_jobs.runs.corrections import Choice, Correction, choose, read_corrections
from beam_jobs.runs.run import NewRun, load_libraries, new_run, temporary_folder
from beam_jobs.runs.sources import open_replay
from schemas import storage
from schemas.dataset import Dataset, layout
from schemas.dataset.input_files import read_inputs, write_parts
from schemas.dataset.manifest import Manifest, Split
from schemas.errors import MillraceError
from schemas.rejects import Reject, read_rejects
from schemas.spec.table import SPLITS
from schemas.storage import folders

if TYPE_CHECKING:
    from beam_jobs.core.shuffle_plan import ShardOptions
    from beam_jobs.core.steps import Plan
    from beam_jobs.output.result import Result


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a replay: the manifest now, what was tried, and how many records the dataset has gained."""

    manifest: Manifest
    choice: Choice
    added: int

    @property
    def again(self) -> int:
        """How many were tried and are rejected still."""
        return len(self.choice.records) - self.added


def run_replay(options: ReplayOptions) -> Outcome:
    """Runs the replay to its end. Where no line is left to try, the dataset stays as it is.

    Raises:
      UsageError: invalid usage; nothing was done.
      MillraceError: it failed, or no corrected record could be written; the dataset is as it was.
    """
    check_cluster(options.job(), {"--append_to": (options.append_to,)})
    corrections = read_corrections(options.replay)
    base = open_base(options.append_to, trust=options.trust)
    choice = choose_from(base, corrections)
    if not choice.records:
        return Outcome(base.manifest, choice, 0)
    with new_run(options.append_to) as run:
        # Again: before the lease was ours, another job may have committed.
        base = open_base(options.append_to, trust=options.trust)
        choice = choose_from(base, corrections)
        if not choice.records:
            return Outcome(base.manifest, choice, 0)
        if not options.quiet:
            progress.say("starting TensorFlow and Beam")
        load_libraries(verbose=options.verbose)
        manifest = run.write(
            lambda: _run(options, base, choice, run),
            total=len(choice.records),
            quiet=options.quiet,
            raw_bytes=choice.raw_bytes,
        )
    return Outcome(manifest, choice, manifest.written - base.manifest.written)


def choose_from(base: Dataset, corrections: list[Correction]) -> Choice:
    """What of the corrections is to be tried again.

    Raises:
      UsageError: a correction is not as it must be.
    """
    source = open_replay(base)
    choice = choose(corrections, rejects_of(base), encodings=source.encodings)
    source.check(choice.records)
    return choice


def _run(options: ReplayOptions, base: Dataset, choice: Choice, run: NewRun) -> Manifest:
    from beam_jobs.engines import runner
    from beam_jobs.output import pipeline_end, result

    begun = time.monotonic()
    job = options.job()
    folders.make(run.staging)
    copy_files(base, run.folder)
    source = open_replay(base)
    files = source.inputs(choice.records)
    inputs = stage_inputs(run.staging, files, count=len(files))
    with temporary_folder(job, run.staging) as temp_dir:
        plan = _plan(options, base, choice, run, inputs, temp_dir=temp_dir)
        runner.run(
            job,
            lambda p: pipeline_end.finish(p, plan, source.steps(p, plan, choice.records)),
            staging=run.staging,
            total=len(choice.records),
        )
    progress.enter("committing")
    account = result.read_result(layout.join(run.staging, result.RESULT))
    again = [r for file in account.reject_files for r in read_rejects(storage.read_bytes(file.path))]
    again += result.late_rejects(account, choice.raw_bytes)
    if len(again) == len(choice.records):
        raise MillraceError(f"none of {len(again):,} corrected records could be written; the dataset is unchanged")
    return _commit(base, choice, again, account, run, inputs, begun=begun)


def _plan(
    options: ReplayOptions, base: Dataset, choice: Choice, run: NewRun, inputs: StagedInputs, *, temp_dir: str
) -> Plan:
    from beam_jobs.core.accounting import RejectLimit
    from beam_jobs.core.steps import Plan

    return Plan(
        run_dir=run.folder,
        temp_dir=temp_dir,
        inputs=inputs,
        total=len(choice.records),
        limit=RejectLimit(len(choice.records), 1.0),  # what is still wrong stays rejected, however much it is
        parity_threshold=None,  # the old run's are kept
        shards=_shards(options, base, choice, run.staging, temp_dir),
        preprocessing_fn=None,
        derived=base.manifest.preprocessing_fn is None,
        transform_from=base.graphs_dir,
        statistics=statistics_of(base) is not None,
        leakage=False,  # what was found is about the first job's records
    )


def _shards(options: ReplayOptions, base: Dataset, choice: Choice, staging: str, temp_dir: str) -> ShardOptions:
    """One shard for each split."""
    from beam_jobs.core.shuffle_plan import ShardOptions, plan_shuffle

    job = options.job()
    plan = plan_shuffle(
        dict.fromkeys(base.splits, 1.0),
        estimated_bytes=sum(len(record.raw) for record in choice.records),
        num_shards=1,
        shard_bytes=1.0,
        seed=base.manifest.seed,
        one_bucket_each=not job.is_local,
    )
    counts = tuple(1 if name in base.splits else None for name in SPLITS)
    return ShardOptions(
        plan,
        counts,
        1.0,
        base.manifest.compression,
        staging,
        fragments=temp_dir if job.is_local else None,
        spills=staging if job.shuffles_in_memory else None,
    )


def _commit(
    base: Dataset,
    choice: Choice,
    again: list[Reject],
    account: Result,
    run: NewRun,
    inputs: StagedInputs,
    *,
    begun: float,
) -> Manifest:
    from beam_jobs.core.accounting import READ, WRITTEN
    from beam_jobs.output import drift
    from beam_jobs.output.accounts import accounts
    from beam_jobs.output.data_report import place_report
    from beam_jobs.output.existing import place_contents
    from beam_jobs.runs import commit

    tried = len(choice.records)
    if account.total(READ) != tried or account.total(WRITTEN) != tried - len(again):
        raise MillraceError(
            f"{tried:,} records tried, {account.total(READ):,} read, {account.total(WRITTEN):,} written and "
            f"{len(again):,} rejected. This is a bug; nothing was committed."
        )
    output, run_id, old = base.path, run.id, base.manifest
    splits: dict[str, Split] = {
        name: commit.place_shards(account, name, output=output, run_id=run_id, compression=old.compression)
        for name in base.splits
    }
    rejects = merge.still_rejects(rejects_of(base), [record.key for record in choice.records], again)
    written = {
        (counted.file.path, split): rows
        for part in accounts(inputs, account.count_files)
        for counted in part
        for split, rows in counted.written.items()
    }
    added = merge.Added(splits, written, rejects)
    if rejects:
        lines = "".join(f"{reject.to_json()}\n" for reject in rejects)
        storage.write_bytes(layout.join(output, run_id, layout.rejects_name(0)), lines.encode())
    place_contents(run.folder, account.content_files, onto=base)
    place_statistics(base, account, run.folder)
    drift.place_splits(run.folder, base.declared)
    folders.remove(run.staging)
    shards = {shard.path for split in splits.values() for shard in split.shards}
    listed = write_parts(
        output,
        run_id,
        merge.appended_inputs(old, read_inputs(output, old), added),
        count=old.number_of_inputs,
    )
    manifest = merge.appended(old, listed, added).model_copy(
        update={
            "run": run_id,
            "created": dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
            "versions": commit.versions(),
            "files": (),
            "previous": commit.previous_runs(output),
            "previous_files": old.files,
            "transform_from": old.transform_from or old.run,
            "seconds": round(time.monotonic() - begun, 3),
        }
    )
    place_report(output, manifest)
    manifest = manifest.model_copy(update={"files": tuple(commit.list_files(output, run_id, except_for=shards))})
    commit.publish(output, manifest, held=run.lease, replaces=run.replaces)
    return manifest


def place_statistics(base: Dataset, account: Result, run_dir: str) -> None:
    """Writes the statistics of the dataset's records and the added ones, if the dataset has statistics."""
    from beam_jobs.runs import commit

    before = commit.described_before(base)
    if before is not None:
        commit.place_statistics(run_dir, account, more=before)
