"""Jobs that outlive their launcher: the last step of the pipeline commits the result, or refuses it, on a worker.

The launcher hands its lease over to the job before it submits it, and may end at any time after that. A refusal (counts
that do not add up, drift, a lost lease) is no exception, which the runner would have repeated: it is a file,
`failed/RUN/summary.json`, which whoever asks about the job reads.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import tempfile
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, NoReturn

from beam_jobs.core import progress
from beam_jobs.core.inputs import StagedInputs
from beam_jobs.core.options import JobOptions, RunnerOptions
from beam_jobs.core.progress import CountersDisplay
from beam_jobs.core.source import JobInput, JobSource, list_input
from beam_jobs.engines import jobs
from beam_jobs.engines.checks import can_leave, read_flags
from beam_jobs.runs.run import Committing, Kind, M, NewRun, Work, built, committed_run, keep_failed, names, open_source
from schemas import interrupts, storage
from schemas.dataset import layout
from schemas.dataset.holders import JobReference, RemoteHolder
from schemas.dataset.lease import LeaseError, hold, holder_of, lease_of_job
from schemas.errors import MillraceError, UsageError
from schemas.rejects import Reject
from schemas.spec.loader import AnySchema
from schemas.spec.table import Schema
from schemas.storage import folders
from schemas.storage.json_files import read_if_there

if TYPE_CHECKING:
    from beam_jobs.engines.remote_job import RemoteJob, State
    from beam_jobs.transform.rejects import RawBytes

POLL_SECONDS = 2.0
CANCEL_SECONDS = 600.0  # until a job that is cancelled must have ended


@dataclasses.dataclass(frozen=True)
class RecordedInput:
    """The input of a job without its listing. Implements `beam_jobs.core.source.Described`."""

    schema: AnySchema
    schema_text: bytes
    classes: tuple[str, ...]
    options: JobOptions
    inputs: StagedInputs

    def raw_bytes(self, rejects: Sequence[Reject]) -> list[bytes]:
        """The rejected records' raw bytes, from the input, which must not have changed.

        Raises:
          MillraceError: it has changed, or cannot be read.
        """
        again = self._open({reject.source for reject in rejects})
        with tempfile.TemporaryDirectory(prefix="millrace-") as folder:
            now = again.stage(folder)
            for file in (file for part in range(now.parts) for file in now.read(part)):
                for then in self.inputs.read(self.inputs.part_of(file.key)):
                    if then.key == file.key:
                        storage.check_version(file.path, then.version, file.version)
        return again.raw_bytes(rejects)

    def _open(self, paths: set[str]) -> JobSource:
        """The source once more: of rows only the files that are needed, of images the whole listing."""

        def report(_: Sequence[str]) -> None:
            """The notes were reported when the job was submitted."""

        duplicates: list[tuple[str, str]] = []
        if isinstance(self.schema, Schema):
            listing = storage.Listing((path, storage.stat(path)) for path in sorted(paths))
        else:
            listing, duplicates = list_input(self.options.input)
        return open_source(self.schema, JobInput(self.options, self.schema_text, listing, duplicates, report))


@dataclasses.dataclass(frozen=True)
class LastStep(Generic[M]):
    """The last step of a job on a cluster. A runner may repeat it, also while another attempt is at work.

    Attributes:
      work: what commits.
      inputs: the input, as it was staged.
      output: the folder that is written.
      run: the run.
      replaces: the manifest that was there when the job began.
      started: when the job began, in seconds since 1970.
    """

    work: Committing[M]
    inputs: StagedInputs
    output: str
    run: str
    replaces: folders.Snapshot
    started: float

    def __call__(self, result: str) -> None:
        """Commits the result, or refuses it; then cleans up and gives the lease back.

        Args:
          result: the path of the result file.

        Raises:
          MillraceError: a file cannot be read or written. Nothing has changed, and the step may be repeated.
        """
        from beam_jobs.records.accounts import Unfit
        from beam_jobs.records.result import read_result

        if is_committed(self.output, self.run):
            self._clean_up()
            return
        try:
            lease = lease_of_job(self.output, self.run)
            run = NewRun(self.output, self.run, lease, self.replaces, self.started, keeps_staging=True)
            if refusal(self.output, self.run) is None:  # else an earlier attempt was killed while it cleaned up
                self.work.commit(run, self.inputs, read_result(result))
        except MillraceError as error:
            if not is_committed(self.output, self.run):  # else another attempt has done so, and cleans up
                if not isinstance(error, Unfit | LeaseError):
                    raise
                keep_failed(self.output, self.run, error, self.work.source.raw_bytes, always=True)
        self._clean_up()

    def _clean_up(self) -> None:
        committed = is_committed(self.output, self.run)
        remove_run(self.output, self.run, only_staging=committed)
        with contextlib.suppress(LeaseError):
            lease = lease_of_job(self.output, self.run)
            if committed:
                self.work.kind.clear(self.output, lease)
            lease.release()


def is_committed(output: str, run: str) -> bool:
    """Whether the manifest names a run."""
    return names(folders.look(layout.join(output, layout.MANIFEST)).data, run)


def refusal(output: str, run: str) -> str | None:
    """Why a run was refused or has failed; None if it is not known to."""
    summary = _summary(output, run)
    return None if summary is None else str(summary["message"])


def _summary(output: str, run: str) -> dict[str, Any] | None:
    return read_if_there(layout.join(output, layout.FAILED, run, layout.SUMMARY), "why a run has failed")


def remove_run(output: str, run: str, *, only_staging: bool = False) -> None:
    """Removes the files of a run; first those that only its commit reads, without which it cannot be committed."""
    folders.remove(layout.join(output, run, layout.STAGING))
    if not only_staging:
        folders.remove(layout.join(output, run))


def complete(work: Work[M], run: NewRun) -> M:
    """Runs a job to its end. One that outlives this process commits by itself; of another one, this process does.

    Raises:
      Interrupted: Ctrl-C was pressed; a job that has been submitted goes on.
      MillraceError: the job failed, or its result was refused. If the runner does not answer, the job goes on.
    """
    options = work.options
    if not can_leave(options):
        return run.write(work)
    try:
        holder, job = submit(work, run)
        if job is None:
            raise MillraceError(f"{holder.job}: has not begun, so it cannot be waited for")
        return _wait(work, run, holder, job)
    except KeyboardInterrupt:
        submitted = _holder(run.output)
        if submitted is None or submitted.run != run.id:  # nothing was submitted, or the job has ended
            raise
    later = f"it goes on and commits by itself; `millrace job cancel --output {run.output}` ends it"
    raise interrupts.Interrupted(f"interrupted while it waited for {submitted.job}: {later}")


def submit(work: Work[M], run: NewRun) -> tuple[RemoteHolder, RemoteJob | None]:
    """Hands the lease over to the job, and submits it.

    Returns:
      The job as the holder of the lease; and to be asked about, None if a Flex Template's service begins it.

    Raises:
      MillraceError: the runner refused the pipeline. The run's files are removed, and the lease is given back.
    """
    from beam_jobs.engines import runner

    options = _named(work.options, run.id)
    now = dt.datetime.now(dt.UTC)
    reference = jobs.reference(options.runner, options.beam_args, "", "")
    holder = RemoteHolder(run=run.id, job=reference, since=now.isoformat(timespec="seconds"))
    try:
        run.begun.set()
        with interrupts.interruptible(), built(work, run) as (inputs, build):
            run.lease.hand_over(holder)
            last = LastStep(work.committing(inputs), inputs, run.output, run.id, run.replaces, now.timestamp())
            job = runner.start(options, build, last)
    except BaseException as error:
        try:
            run.after(error, work)
        finally:
            if run.lease.is_remote:
                run.lease.release()
        raise
    if job is not None:
        reference = jobs.reference(options.runner, options.beam_args, job.id, job.place)
        holder = holder.model_copy(update={"job": reference})
        with contextlib.suppress(LeaseError), interrupts.deferred():  # else the job has ended by now
            run.lease.hand_over(holder)
    return holder, job


def _named(options: RunnerOptions, run: str) -> RunnerOptions:
    """The options with a name for the job that no other has, by which it is found."""
    if read_flags(options.beam_args).job_name:
        return options
    return dataclasses.replace(options, beam_args=(*options.beam_args, "--job_name", f"millrace-{run.lower()}"))


def _wait(work: Work[M], run: NewRun, holder: RemoteHolder, job: RemoteJob) -> M:
    """Follows a job to its end, and reports how that was."""
    from beam_jobs.engines import remote_job

    options, total = work.options, work.source.total
    progress.reset(total=total)
    with CountersDisplay(quiet=options.quiet):
        try:
            with interrupts.interruptible():
                state = remote_job.follow(
                    job, staging=run.staging, total=total, start_seconds=options.start_timeout, quiet=options.quiet
                )
        except Exception as error:
            own = error if isinstance(error, MillraceError) else MillraceError(f"{holder.job}: {error}")
            _give_up(run.output, holder, own, work.source.raw_bytes)
    if state != "DONE" and not is_committed(run.output, run.id):
        failure = remote_job.failure(job, state, verbose=options.verbose)
        raise type(failure)(f"{failure}{abandon(run.output, holder, failure, work.source.raw_bytes)}")
    return outcome(run.output, run.id, work.kind)


def outcome(output: str, run: str, kind: Kind[M]) -> M:
    """The manifest that a job has committed.

    Raises:
      MillraceError: the job has refused to commit, or another job has taken its lease.
    """
    if is_committed(output, run):
        return kind.read(output)
    message = refusal(output, run)
    if message is None:
        raise LeaseError(f"{output}: the lease of run {run} was taken by another job, so nothing of it was committed")
    raise MillraceError(message)


def _give_up(output: str, holder: RemoteHolder, error: MillraceError, raw_bytes: RawBytes) -> NoReturn:
    """Cancels a job none of whose workers has begun. One whose runner does not answer is left: it may go on."""
    try:
        state = jobs.state(holder.job)
    except MillraceError:
        later = f"`millrace job status --output {output}` tells how it is doing"
        raise MillraceError(f"{error}\n{holder.job} may still be running: {later}") from error
    if state == "running":
        try:
            cancel(output, holder, raw_bytes)
        except MillraceError as why:
            raise MillraceError(f"{error}\nThe job was not cancelled: {why}") from error
    raise error


def abandon(output: str, holder: RemoteHolder, error: MillraceError, raw_bytes: RawBytes) -> str:
    """Keeps the rejects of a job that has ended without a commit, removes its other files, and ends its lease.

    Returns:
      The part of an error message about the rejects.

    Raises:
      LeaseError: the job has committed, or another job holds the lease; nothing was removed.
    """
    run = holder.run

    def has_ended(other: RemoteHolder) -> bool:
        return other.run == run or jobs.has_ended(other)

    with hold(output, run=run, has_ended=has_ended):  # whose fence fails a commit that is still under way
        if is_committed(output, run):
            raise LeaseError(f"{output}: run {run} is committed")
        if not storage.exists(layout.join(output, run)):
            return ""  # another process has done this
        rejected = keep_failed(output, run, error, raw_bytes)
        remove_run(output, run)
    return rejected


def cancel(output: str, holder: RemoteHolder, raw_bytes: RawBytes | None = None) -> str:
    """Cancels the job that holds the lease, waits until it has ended, and removes its run.

    Args:
      output: the folder that it writes.
      holder: the job.
      raw_bytes: reads the raw bytes of rejects from the input; None: they are left out.

    Returns:
      What became of it.

    Raises:
      LeaseError: the job has committed.
      MillraceError: the runner does not answer, or the job did not end in time; the lease stays.
    """
    before = jobs.state(holder.job)
    if before == "running":
        jobs.ask(holder.job, lambda job: job.cancel())
    state = _wait_for_end(holder.job)
    error = MillraceError(f"run {holder.run} was ended by `millrace job cancel`")
    rejected = abandon(output, holder, error, raw_bytes or (lambda rejects: [b""] * len(rejects)))
    became = {"cancelled": "has been cancelled", "done": "was done, without a commit"}.get(state, "had failed")
    return f"{holder.job} {became}; run {holder.run} was removed{rejected}"


def _wait_for_end(job: JobReference) -> State:
    until = time.monotonic() + CANCEL_SECONDS
    while (state := jobs.state(job)) == "running":
        if time.monotonic() > until:
            raise MillraceError(f"{job} has not ended {CANCEL_SECONDS:g} s after it was cancelled")
        time.sleep(POLL_SECONDS)
    return state


@dataclasses.dataclass(frozen=True)
class Status:
    """How the last job on a folder is doing, and what to do now. `job` is None if no job on a cluster holds it."""

    run: str
    state: str
    next: str
    job: JobReference | None = None


def status(output: str) -> Status:
    """Asks the runner about the job that holds the lease; else says what the last job has left.

    Raises:
      UsageError: there is no trace of a job.
      MillraceError: the runner does not answer.
    """
    holder = _holder(output)
    if holder is not None:
        state = jobs.state(holder.job)
        after = "the next job on this folder, or millrace job cancel, removes its files"
        return Status(holder.run, state, "millrace job cancel ends it" if state == "running" else after, holder.job)
    committed = committed_run(output)
    for run in sorted(storage.listdir(layout.join(output, layout.FAILED)), reverse=True):
        summary = _summary(output, run) if layout.RUN.fullmatch(run) else None
        if summary is not None and summary["dataset"] == committed:  # no other job has committed since
            return Status(run, "failed", f"correct what is wrong, and begin again: {summary['message']}")
    if committed is not None:
        return Status(committed, "committed", "nothing: what it has written is there")
    raise UsageError(f"{output}: no job was found here; `millrace preprocess --no_wait` submits one")


def holder_on_cluster(output: str) -> RemoteHolder:
    """The job on a cluster that holds the lease.

    Raises:
      UsageError: there is none.
    """
    holder = _holder(output)
    if holder is None:
        raise UsageError(f"{output}: no job on a cluster is writing to it, so there is nothing to cancel")
    return holder


def _holder(output: str) -> RemoteHolder | None:
    storage.check_scheme(output, "--output ")
    layout.check_directory(output)
    holder = holder_of(output)
    return holder if isinstance(holder, RemoteHolder) else None
