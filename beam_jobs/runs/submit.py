"""The launcher's side of a job that goes on without it: submit it, wait for it, and what Ctrl-C does with it."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from typing import TYPE_CHECKING, NoReturn

from beam_jobs.core import progress
from beam_jobs.core.options import JobOptions
from beam_jobs.core.progress import CountersDisplay
from beam_jobs.engines import jobs, runner
from beam_jobs.engines.checks import is_dataflow, read_flags
from beam_jobs.runs import reattach
from beam_jobs.runs.reattach import options_to_record
from beam_jobs.runs.run import NewRun, built
from beam_jobs.runs.write import WriteDataset
from schemas import command, interrupts, storage
from schemas.dataset import layout
from schemas.dataset.holders import Replaced, Submitted, read_submitted
from schemas.dataset.lease import Lease
from schemas.dataset.manifest import Manifest
from schemas.errors import MillraceError

if TYPE_CHECKING:
    from beam_jobs.engines.remote_job import RemoteJob


@dataclasses.dataclass(frozen=True)
class Begun:
    """A job that was submitted, and how its launcher asks about it; None if a Flex Template's service begins it."""

    submitted: Submitted
    job: RemoteJob | None


def named(options: JobOptions, run: str) -> JobOptions:
    """The options with a name for the job that no other has: job services count their jobs from 1 whenever they start.

    Dataflow's ids are unique.
    """
    if is_dataflow(options.runner) or read_flags(options.beam_args).job_name:
        return options
    return dataclasses.replace(options, beam_args=(*options.beam_args, "--job_name", f"millrace-{run.lower()}"))


def submit(work: WriteDataset, run: NewRun) -> Begun:
    """Submits the pipeline, records the job in its run, and hands the lease over to it.

    Raises:
      MillraceError: the runner refused the pipeline; or the job could not be recorded, and was cancelled.
    """
    source, options = work.source, named(work.options, run.id)
    with run.cleaned_up(source.raw_bytes), built(work, run) as (inputs, build):
        storage.write_bytes(layout.join(run.folder, layout.SCHEMA_YAML), source.schema_text)
        job = runner.start(options, build)
        with interrupts.deferred():
            try:
                submitted = Submitted(
                    run=run.id,
                    job=jobs.reference(options.runner, options.beam_args, *((job.id, job.place) if job else ("", ""))),
                    submitted=time.time(),
                    options=options_to_record(options),
                    replaces=Replaced.of(run.replaces),
                    input_files=inputs.files,
                    input_parts=inputs.parts,
                    classes=source.classes,
                    transform_from=work.transform_from,
                    preprocessing_fn=work.own_function,
                )
                storage.write_bytes(layout.join(run.folder, layout.JOB), submitted.to_json())
                run.lease.hand_over(submitted.holder)
            except BaseException:
                with contextlib.suppress(Exception):
                    if job is not None:
                        job.cancel()
                raise
    return Begun(submitted, job)


def launch(work: WriteDataset, run: NewRun) -> Manifest:
    """Submits the job, waits for it and commits it, as any process could that takes it up.

    Raises:
      Interrupted: Ctrl-C was pressed; the job was cancelled, or goes on.
      MillraceError: the job failed, or its result cannot be committed. If the runner does not answer, the job goes on.
    """
    options = work.options
    try:
        begun = submit(work, run)
        if begun.job is None:
            raise MillraceError(f"{begun.submitted.job}: has not begun, so it cannot be waited for")
        return _wait(options, begun.submitted, begun.job, run.lease, total=work.source.total)
    except KeyboardInterrupt:
        if not run.lease.is_remote:
            raise
        submitted = read_submitted(options.output, run.id)
        if submitted is None:  # it is committed, and another job has come since
            raise
    raise interrupted(options, submitted)  # here, where no display writes over the question


def _wait(options: JobOptions, submitted: Submitted, job: RemoteJob, lease: Lease, *, total: int) -> Manifest:
    progress.reset(total=total)
    with CountersDisplay(quiet=options.quiet):
        try:
            with interrupts.interruptible():
                staging = layout.join(options.output, submitted.run, layout.STAGING)
                runner.follow(options, job, staging=staging, total=total, cancel=False)
        except Exception as error:
            own = error if isinstance(error, MillraceError) else MillraceError(f"{submitted.job}: {error}")
            _end(options.output, submitted, own)
        progress.enter("committing")
        try:
            return reattach.finish(options.output, submitted, lease)
        except KeyboardInterrupt:
            how = f"`millrace job commit --output {options.output}` commits it"
            raise interrupts.Interrupted(f"interrupted; {submitted.job} is done, and {how}") from None


def _end(output: str, submitted: Submitted, error: MillraceError) -> NoReturn:
    """Cleans up after a job that has failed, or that is cancelled here because no worker has begun.

    A job whose runner does not answer is left: it may go on, and its launcher alone may have lost sight of it.
    """
    try:
        state = jobs.job_of(submitted.job).state()
    except MillraceError:
        state = "done"  # unknown; in both cases there may be a result to commit
    if state == "done":
        later = f"`millrace job wait --output {output}` takes it up"
        raise MillraceError(f"{error}\n{submitted.job} may still be running, or be done: {later}") from error
    if state != "running":
        reattach.abandon(output, submitted, error)
    try:
        reattach.cancel(output, submitted)
    except MillraceError as why:
        raise MillraceError(f"{error}\nThe job was not cancelled: {why}") from error
    raise error


def interrupted(options: JobOptions, submitted: Submitted) -> interrupts.Interrupted:
    """After Ctrl-C: cancels the job or leaves it, as the options or the user say, and returns what to raise."""
    if command.cancel_or_leave(options.on_interrupt, str(submitted.job)) == "leave":
        return interrupts.Interrupted(
            f"interrupted; {submitted.job} goes on, and `millrace job wait --output {options.output}` takes it up"
        )
    if not options.quiet:
        print(f"cancelling {submitted.job}", file=sys.stderr, flush=True)
    try:
        how = reattach.cancel(options.output, submitted)
        return interrupts.Interrupted(f"interrupted; {how}; nothing was committed")
    except MillraceError as error:
        return interrupts.Interrupted(f"interrupted; the job was not cancelled: {error}")
    except KeyboardInterrupt:
        return interrupts.Interrupted(
            f"interrupted while {submitted.job} was being cancelled; `millrace job status --output {options.output}` "
            "tells how it is doing"
        )
