"""Runs a job: starts the pipeline, waits until it ends, and checks whether its last step has committed.

The launcher is the process that starts the job. Some jobs on a cluster can go on without their launcher: the launcher
hands the lease on the output folder over to the job, and may then end at any time. Every other job ends with its
launcher, which keeps the lease.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic

from beam_jobs.core import progress
from beam_jobs.core.options import RunnerOptions
from beam_jobs.core.progress import CountersDisplay
from beam_jobs.engines import jobs
from beam_jobs.engines.checks import can_leave, read_flags
from beam_jobs.engines.remote_job import RemoteJob, Unreachable, end, failure, follow
from beam_jobs.runs.failed import keep_rejects, reason_of_failure
from beam_jobs.runs.last_step import LastStep, clean_up
from beam_jobs.runs.run import M, NewRun, PipelineJob, temporary_folder
from schemas import interrupts, retries
from schemas.dataset.holders import RemoteHolder
from schemas.dataset.lease import Lease, LeaseError, hold, lease_of_job
from schemas.errors import MillraceError
from schemas.storage import folders
from schemas.storage.local import refused_by_disk

if TYPE_CHECKING:
    from beam_jobs.transform.rejects import RawBytes


def execute(job: PipelineJob[M], run: NewRun) -> M:
    """Runs a job to its end, and returns the manifest that its last step has committed.

    Args:
      job: the job.
      run: the run that it writes, with the lease held.

    Raises:
      Interrupted: Ctrl-C was pressed. A job that can go on without this process goes on.
      MillraceError: the job failed, or its result was refused. Nothing was committed, and the rejects are kept under
        `failed/`. If the runner does not answer, the job may still be running.
      LeaseError: another job took the lease, so nothing of this run was committed.
    """
    launch = Launch(job, run)
    progress.JOB.launch(total=job.source.total)
    with CountersDisplay(quiet=job.options.quiet):
        try:
            with interrupts.interruptible(), launch.begun():
                launch.wait()
        except BaseException as error:
            launch.end(error)
    if run.is_committed():
        return job.kind.read(run.output)
    reason = reason_of_failure(run.output, run.id)
    if reason is None:
        raise LeaseError(
            f"{run.output}: the lease of run {run.id} was taken by another job, so nothing of it was committed"
        )
    raise MillraceError(reason)


def submit(job: PipelineJob[Any], run: NewRun) -> RemoteHolder:
    """Submits a job to a cluster, where it goes on without this process.

    Returns:
      The job's reference, as it stands in the lease, which the job holds from now on.

    Raises:
      MillraceError: the runner refused the pipeline. The run's files are removed, and the lease is given back.
    """
    launch = Launch(job, run)
    try:
        with interrupts.interruptible(), launch.begun():
            return launch.handed_over()
    except BaseException as error:
        launch.end(error)
        raise


class Launch(Generic[M]):
    """Starts a job and follows it to its end, in the launcher: `begun`, then `wait`, and `end` after an error.

    Attributes:
      remote: the job that runs in other processes; None until it is submitted, and for a job in this process.
      holder: the job as the holder of the lease; None until the lease is handed over, which happens only if the job
        can go on without this process.
    """

    def __init__(self, job: PipelineJob[M], run: NewRun) -> None:
        self._job, self._run = job, run
        self._options: RunnerOptions = job.options
        self._raw_bytes: RawBytes = no_raw_bytes
        self.remote: RemoteJob | None = None
        self.holder: RemoteHolder | None = None
        self._goes_on = False

    @contextlib.contextmanager
    def begun(self) -> Iterator[None]:
        """Stages the input and starts the pipeline. A job in other processes runs on while the block runs.

        A job in this process runs to its end, with its last step, before the block begins.
        """
        from beam_jobs.engines import runner

        job, run = self._job, dataclasses.replace(self._run, started=time.time())
        folders.make(run.staging)
        with temporary_folder(run.staging, here=self._options.is_local) as temp_dir:
            inputs = job.source.stage(run.staging)
            build = job.pipeline(run, inputs, temp_dir)
            committer = job.committer(inputs)
            self._raw_bytes = committer.raw_bytes
            if can_leave(self._options):
                self._options = _named(self._options, run.id)
                self._hand_over()
            with runner.started(self._options, build, LastStep(committer, inputs, run)) as self.remote:
                try:
                    if self.remote is not None and self.holder is not None:
                        # Adds the runner's id of the job to the lease. LeaseError: the job has ended by now.
                        with contextlib.suppress(LeaseError), interrupts.deferred():
                            self._hand_over(self.remote.id, self.remote.place)
                    yield
                except BaseException as error:
                    if self.remote is not None:  # here, since the job service may end with the block
                        self._end_remote(self.remote, error)
                    raise

    def _hand_over(self, job_id: str = "", place: str | None = None) -> None:
        """Hands the lease over to the job. Before the job is submitted, it is known only by its name (`job_id` '')."""
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        reference = jobs.reference(self._options, job_id, place)
        self.holder = RemoteHolder(run=self._run.id, job=reference, since=now)
        lease_of_job(self._run.output, self._run.id).hand_over(self.holder)

    def handed_over(self) -> RemoteHolder:
        """Returns the job as the holder of the lease. Raises MillraceError if the job would end with this process."""
        if self.holder is None:
            raise MillraceError(f"--no_wait: the job of {self._options.runner} ends with this process")
        return self.holder

    def wait(self) -> None:
        """Waits until a job in other processes has ended. Raises MillraceError if the job failed or was cancelled."""
        if self.remote is None:
            return
        options = self._options
        state = follow(
            self.remote,
            staging=self._run.staging,
            total=self._job.source.total,
            start_seconds=options.start_timeout,
            quiet=options.quiet,
        )
        if state != "DONE":
            raise failure(self.remote, state, verbose=options.verbose)

    def end(self, error: BaseException) -> None:
        """Cleans up after an error: keeps the rejects of the run under `failed/`, and removes its other files.

        If the job was committed in spite of the error, returns, and the run stays. If the job goes on without this
        process, changes nothing and raises the error.

        Raises:
          MillraceError: `error` is a MillraceError or a full disk; the message says where the rejects are.
          BaseException: any other `error`, unchanged.
        """
        run = self._run
        if self._goes_on:
            raise error
        with retries.ending():
            note = ""
            try:
                with self._last_to_commit():
                    committed = run.is_committed()
                    note = "" if committed else discard(run, error, self._raw_bytes)
            except MillraceError as problem:
                committed, note = False, f"\nWhether it was committed could not be found out, so {_left(run, problem)}"
            if committed:
                with contextlib.suppress(MillraceError):  # the next job, or prune, removes the files that remain
                    clean_up(run, self._job.kind)
                return
        _raise_again(error, note, run.output)

    def _end_remote(self, remote: RemoteJob, error: BaseException) -> None:
        """Cancels a job in other processes, unless the error is Ctrl-C and the job can go on."""
        output, holder = self._run.output, self.holder
        if holder is not None and isinstance(error, KeyboardInterrupt):
            self._goes_on = True
            raise interrupts.Interrupted(
                f"interrupted while it waited for {holder.job}: it goes on and commits by itself; "
                f"`millrace job cancel --output {output}` ends it"
            )
        try:
            end(remote, quiet=self._options.quiet)
        except (MillraceError, Unreachable) as problem:
            if holder is not None:  # else the job ends with this process, and cannot commit any more
                self._goes_on = True
                later = f"`millrace job status --output {output}` tells how it is doing"
                raise MillraceError(f"{error}\n{holder.job} may still be running ({problem}): {later}") from error

    def _last_to_commit(self) -> contextlib.AbstractContextManager[Lease | None]:
        """Prevents workers from committing the run while the block runs."""
        if self.remote is None and self.holder is None:
            return contextlib.nullcontext()  # only this process could commit the run
        return given_up(self._run)


def given_up(run: NewRun) -> contextlib.AbstractContextManager[Lease]:
    """Takes the lease away from a run while the block runs, so that the run's last step cannot commit any more."""
    return hold(run.output, run=f"{run.id} (given up)", instead_of=run.id)


def discard(run: NewRun, error: BaseException, raw_bytes: RawBytes) -> str:
    """Gives up a run that is not committed: keeps its rejects under `failed/`, and removes its other files.

    Args:
      run: the run.
      error: the error that ended the run.
      raw_bytes: reads the raw bytes of rejects from the input.

    Returns:
      Text to add to the error message: where the rejects are, and which files could not be removed; '' if neither.
    """
    try:
        note = keep_rejects(run, error, raw_bytes)
    except (MillraceError, OSError) as problem:  # such as the full disk that also ended the run
        note = f"\nIts rejects could not be kept: {problem}"
    try:
        run.remove_files()
    except MillraceError as problem:
        note += f"\n{_left(run, problem)}"
    return note


def no_raw_bytes(rejects: Any) -> list[bytes]:
    """Returns empty raw bytes for each reject, where the input cannot be read."""
    return [b""] * len(rejects)


def _left(run: NewRun, problem: MillraceError) -> str:
    """The part of an error message that says that the run's files could not be removed."""
    return (
        f"{run.folder} stays until the next job there, or `millrace dataset prune {run.output}`, removes it: {problem}"
    )


def _raise_again(error: BaseException, note: str, output: str) -> None:
    """Raises the error again, with the note added to its message; for errors that are not ours, prints the note."""
    refused = refused_by_disk(str(error))
    if refused is not None:
        raise MillraceError(f"{refused}. Free some space, or use another disk.{note}") from error
    if isinstance(error, MillraceError):
        raise type(error)(f"{error}{note}") from error
    if note:
        print(f"{output}: the job failed{note}", file=sys.stderr)
    raise error


def _named(options: RunnerOptions, run: str) -> RunnerOptions:
    """Returns the options with a unique --job_name, by which the job is found later; a name of the user's stays."""
    if read_flags(options.beam_args).job_name:
        return options
    return dataclasses.replace(options, beam_args=(*options.beam_args, "--job_name", f"millrace-{run.lower()}"))
