"""Runs a job: starts its pipeline, waits for it, and reports whether its last step has committed.

The launcher of a job that a cluster can run without it hands its lease over to the job, and may end at any time. Every
other job ends with its launcher, whose lease it uses.
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

    Raises:
      Interrupted: Ctrl-C was pressed; a job that a cluster runs without this process goes on.
      MillraceError: the job failed, or its result was refused; nothing was committed, and the rejects are kept under
        `failed/`. If the runner does not answer, the job may go on.
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
    """Submits a job that a cluster runs without this process. Returns it as the holder of the lease.

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
    """A job as its launcher sees it, from the staging of its input to its end.

    Attributes:
      remote: what the runner works on in other processes; None until then, and for a job in this process.
      holder: the job as the holder of the lease, once it may go on without this process.
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
        """Stages the input and starts the pipeline. A job in this process has ended, with its last step, then."""
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
                        with contextlib.suppress(LeaseError), interrupts.deferred():  # else the job has ended by now
                            self._hand_over(self.remote.id, self.remote.place)
                    yield
                except BaseException as error:
                    if self.remote is not None:  # while its service is there, which may end with the block
                        self._end_remote(self.remote, error)
                    raise

    def _hand_over(self, job_id: str = "", place: str | None = None) -> None:
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        reference = jobs.reference(self._options, job_id, place)
        self.holder = RemoteHolder(run=self._run.id, job=reference, since=now)
        lease_of_job(self._run.output, self._run.id).hand_over(self.holder)

    def handed_over(self) -> RemoteHolder:
        """Returns the job as the holder of the lease. Raises MillraceError if it ends with this process."""
        if self.holder is None:
            raise MillraceError(f"--no_wait: the job of {self._options.runner} ends with this process")
        return self.holder

    def wait(self) -> None:
        """Follows a job in other processes to its end. Raises MillraceError if that is not its last step's."""
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
        """Ends a job after an error; returns if it is committed all the same.

        Keeps the rejects of its run, and removes its other files.

        Raises:
          MillraceError: the error is one, or is a full disk.
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
                with contextlib.suppress(MillraceError):  # the next job, or prune, removes what stays
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
            if holder is not None:  # else it ends with this process, and cannot commit any more
                self._goes_on = True
                later = f"`millrace job status --output {output}` tells how it is doing"
                raise MillraceError(f"{error}\n{holder.job} may still be running ({problem}): {later}") from error

    def _last_to_commit(self) -> contextlib.AbstractContextManager[Lease | None]:
        """While the block runs, no worker commits the run."""
        if self.remote is None and self.holder is None:
            return contextlib.nullcontext()  # nobody but this process would
        return given_up(self._run)


def given_up(run: NewRun) -> contextlib.AbstractContextManager[Lease]:
    """Takes the lease of a run while the block runs. Its last step cannot commit any more, even if it is at work."""
    return hold(run.output, run=f"{run.id} (given up)", instead_of=run.id)


def discard(run: NewRun, error: BaseException, raw_bytes: RawBytes) -> str:
    """Keeps the rejects of a run that is not committed, and removes its other files.

    Returns:
      The part of an error message about the rejects, and about files that could not be removed.
    """
    try:
        note = keep_rejects(run, error, raw_bytes)
    except (MillraceError, OSError) as problem:  # the disk that is full, or the server that failed
        note = f"\nIts rejects could not be kept: {problem}"
    try:
        run.remove_files()
    except MillraceError as problem:
        note += f"\n{_left(run, problem)}"
    return note


def no_raw_bytes(rejects: Any) -> list[bytes]:
    """Stands in for the raw bytes of rejects where the input is not at hand."""
    return [b""] * len(rejects)


def _left(run: NewRun, problem: MillraceError) -> str:
    return (
        f"{run.folder} stays until the next job there, or `millrace dataset prune {run.output}`, removes it: {problem}"
    )


def _raise_again(error: BaseException, note: str, output: str) -> None:
    """Raises an error with the note in its message, or prints the note."""
    refused = refused_by_disk(str(error))
    if refused is not None:
        raise MillraceError(f"{refused}. Free some space, or use another disk.{note}") from error
    if isinstance(error, MillraceError):
        raise type(error)(f"{error}{note}") from error
    if note:
        print(f"{output}: the job failed{note}", file=sys.stderr)
    raise error


def _named(options: RunnerOptions, run: str) -> RunnerOptions:
    """The options with a name for the job that no other has, by which it is found."""
    if read_flags(options.beam_args).job_name:
        return options
    return dataclasses.replace(options, beam_args=(*options.beam_args, "--job_name", f"millrace-{run.lower()}"))
