"""Reattaches to a submitted job: asks about it, waits for it, commits or cancels it."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn

from beam_jobs.core.inputs import InputFile, StagedInputs
from beam_jobs.core.options import JobOptions
from beam_jobs.core.source import RawFiles, Source, list_input
from beam_jobs.engines.jobs import State, SubmittedJob, failure, has_ended_in, job_of
from beam_jobs.runs.run import DATASET, NewRun, OtherTransform, Records, keep_failed, open_source
from schemas import storage
from schemas.dataset import layout
from schemas.dataset.holders import RemoteHolder, Submitted, may_be_committed, read_submitted
from schemas.dataset.lease import Lease, LeaseError, act_for, hold, holder_of
from schemas.dataset.manifest import Manifest, read_manifest
from schemas.errors import MillraceError, UsageError
from schemas.rejects import Reject
from schemas.spec.loader import AnySchema, load_schema
from schemas.spec.table import Schema
from schemas.storage import folders


@dataclasses.dataclass(frozen=True)
class RecordedInput:
    """Implements `beam_jobs.core.source.Described`."""

    schema: AnySchema
    schema_text: bytes
    inputs: StagedInputs
    classes: tuple[str, ...]
    options: JobOptions

    def raw_bytes(self, rejects: Sequence[Reject]) -> list[bytes]:
        """The rejected records' raw bytes, from the input, which must not have changed.

        Raises:
          MillraceError: it has changed, or cannot be read.
        """
        again = self._open({reject.source for reject in rejects})
        with tempfile.TemporaryDirectory(prefix="millrace-") as folder:
            now = again.stage(folder)
            for part in range(now.parts):
                self._check_unchanged(now.read(part))
        return again.raw_bytes(rejects)

    def _check_unchanged(self, files: Iterable[InputFile]) -> None:
        recorded: dict[str, str] = {}
        for file in files:
            if file.path not in recorded:
                recorded |= {then.path: then.version for then in self.inputs.read(self.inputs.part_of(file.key))}
            if recorded.get(file.path, file.version) != file.version:
                raise MillraceError(
                    f"{file.path}: has changed since the job was submitted (version {file.version}, expected "
                    f"{recorded[file.path]}), so the raw bytes of its rejects cannot be read; start again"
                )

    def _open(self, paths: set[str]) -> Source:
        """The source once more: of rows only the files that are needed, of images the whole listing."""

        def report(_: Sequence[str]) -> None:
            """The notes were reported when the job was submitted."""

        duplicates: list[tuple[str, str]] = []
        if isinstance(self.schema, Schema):
            listing = storage.Listing((path, storage.stat(path)) for path in sorted(paths))
        else:
            listing, duplicates = list_input(self.options.input)
        return open_source(self.schema, RawFiles.of(self.options, self.schema_text, listing, duplicates, report))


def recorded_input(data_dir: str, submitted: Submitted) -> RecordedInput:
    """Reads what was recorded.

    Raises:
      MillraceError: a file of the run is missing or cannot be read.
    """
    folder = layout.join(data_dir, submitted.run)
    path = layout.join(folder, layout.SCHEMA_YAML)
    return RecordedInput(
        load_schema(path),
        storage.read_bytes(path),
        StagedInputs(layout.join(folder, layout.STAGING), submitted.input_parts, submitted.input_files),
        submitted.classes,
        recorded_options(submitted),
    )


def options_to_record(options: JobOptions) -> dict[str, object]:
    """The job's options as JSON has them, without Beam's."""
    return {**dataclasses.asdict(options), "input": list(options.input), "beam_args": []}


def recorded_options(submitted: Submitted) -> JobOptions:
    """The options of a submitted job."""
    given = submitted.options
    return JobOptions(**{**given, "input": tuple(given["input"]), "beam_args": ()})


POLL_SECONDS = 5.0
CANCEL_SECONDS = 600.0  # until a job that is cancelled must have ended


@dataclasses.dataclass(frozen=True)
class Status:
    """How a submitted job is doing."""

    submitted: Submitted
    state: State
    committed: bool  # the manifest names its run
    superseded: bool  # another job has committed, so this one cannot any more

    @property
    def next(self) -> str:
        """What to do now."""
        if self.committed:
            return "nothing: the dataset is written"
        if self.superseded:
            return "millrace job cancel: another job has committed, so this one cannot"
        return {
            "running": "millrace job wait, or millrace job cancel",
            "done": "millrace job commit",
            "failed": "millrace job commit, which keeps the rejects and removes the rest",
            "cancelled": "millrace job commit, which keeps the rejects and removes the rest",
        }[self.state]


def find(output: str, run: str | None = None) -> Submitted:
    """The submitted job of an output folder: the one that holds its lease, else one that may be committed.

    Args:
      output: the dataset directory.
      run: the job's run, where there are several.

    Raises:
      UsageError: there is none, or there are several and `run` is not given.
      MillraceError: another job has committed since, and removed the run.
    """
    storage.check_scheme(output, "--output ")
    layout.check_directory(output)
    if run is None:
        holder = holder_of(output)
        run = holder.run if isinstance(holder, RemoteHolder) else _only_run(output)
    if not layout.RUN.fullmatch(run):
        raise UsageError(f"--run {run}: is not the name of a run, such as 20260131T120000Z-3f2a")
    found = read_submitted(output, run)
    if found is not None:
        return found
    if storage.exists(layout.join(output, layout.MANIFEST)) and (latest := read_manifest(output).run) > run:
        raise MillraceError(
            f"{output}: another job has committed run {latest} since, so run {run} cannot be committed; its files have "
            "been removed"
        )
    path = layout.join(output, run, layout.JOB)
    raise UsageError(f"{path}: no such file, so run {run} was not submitted with --no_wait, or it has been removed")


def _only_run(output: str) -> str:
    manifest = _manifest(output).data
    runs = [name for name in storage.listdir(output) if layout.RUN.fullmatch(name)]
    open_runs = [run for run in runs if may_be_committed(output, run, manifest)]
    if len(open_runs) > 1:
        raise UsageError(
            f"{output}: several submitted jobs may be committed; give --run, one of {', '.join(open_runs)}"
        )
    if open_runs:
        return open_runs[0]
    there = ""
    if manifest is not None:
        committed = read_manifest(output).run
        if read_submitted(output, committed) is not None:
            return committed
        there = f", and the dataset in it is that of run {committed}, which was not submitted"
    raise UsageError(f"{output}: no submitted job was found here{there}; `millrace preprocess --no_wait` submits one")


def status(output: str, submitted: Submitted) -> Status:
    """Asks the runner, unless the run is committed.

    Raises:
      MillraceError: the runner does not answer.
    """
    manifest = _manifest(output).data
    if _names(manifest, submitted.run):
        return Status(submitted, "done", committed=True, superseded=False)
    superseded = not submitted.replaces.is_still(manifest)
    return Status(submitted, job_of(submitted.job).state(), committed=False, superseded=superseded)


Told = Callable[[State, Mapping[str, int]], None]


def wait(output: str, submitted: Submitted, *, told: Told = lambda *_: None) -> Manifest:
    """Waits until the job has ended, then commits it. See `commit` for errors.

    `told` is called with each answer of the runner: the state, and the counters of `beam_jobs.core.workers`.
    """
    if status(output, submitted).committed:
        return commit(output, submitted)
    asked = job_of(submitted.job)
    while True:
        state = asked.state()
        told(state, asked.counters() if state == "running" else {})
        if state != "running":
            return commit(output, submitted)
        time.sleep(POLL_SECONDS)


def commit(output: str, submitted: Submitted) -> Manifest:
    """Commits a job that is done, or cleans up after one that is not; does nothing if it is committed.

    Returns:
      The manifest, which this process or another one wrote.

    Raises:
      LeaseError: another job is writing to the folder, or has committed.
      MillraceError: the job is still running, has failed or was cancelled; or its result cannot be committed.
    """
    found = status(output, submitted)
    if found.committed and holder_of(output) != submitted.holder:
        return read_manifest(output)
    if found.state == "running":
        raise MillraceError(f"{submitted.job} is still running; `millrace job wait --output {output}` waits for it")
    if found.state != "done":
        abandon(output, submitted, failure(submitted.job, found.state))
    return finish(output, submitted, act_for(output, submitted.holder, has_ended_in(output)))


def finish(output: str, submitted: Submitted, lease: Lease) -> Manifest:
    """Checks and commits the result of a job that is done, then cleans up and gives the lease back.

    Raises:
      LeaseError: another job has taken the lease, or has committed.
      MillraceError: the result is incomplete, or has too many rejects; or a file cannot be read or written, and nothing
        has changed.
    """
    from beam_jobs.records import result
    from beam_jobs.records.accounts import Unfit
    from beam_jobs.runs import commit as committing

    run, replaces = submitted.run, _manifest(output)
    folder = layout.join(output, run)
    try:
        if not _names(replaces.data, run):
            if not submitted.replaces.is_still(replaces.data):
                raise superseded(output, run)
            source, taken = recorded_input(output, submitted), NewRun(output, run, lease, replaces)
            transform = OtherTransform("", submitted.transform_from, submitted.preprocessing_fn)
            work = Records(source.options, source, transform, keeps_staging=True)
            account = result.read_result(layout.join(taken.staging, result.RESULT), inside=folder)
            seconds = account.ended - submitted.submitted  # it may be committed days later
            try:
                committing.commit(work, taken, source.inputs, account, seconds=lambda: seconds)
            except Unfit as error:
                abandon(output, submitted, error)
    except MillraceError as error:
        now = _manifest(output).data
        if not _names(now, run):
            if not submitted.replaces.is_still(now):
                lease.release()
                raise superseded(output, run) from error
            raise
        # Another process has committed this run, and is cleaning up.
    manifest = read_manifest(output)
    if not lease.is_lost():
        if manifest.run == run:
            DATASET.clear(output, lease)
        lease.release()
    return manifest


def superseded(output: str, run: str) -> LeaseError:
    """The error of a run that cannot be committed any more."""
    return LeaseError(
        f"{output}: another job has committed since run {run} was submitted, so this one cannot; `prune` removes its "
        "files. Run it again."
    )


def abandon(output: str, submitted: Submitted, error: MillraceError) -> NoReturn:
    """Cleans up after a job that cannot be committed.

    Raises:
      LeaseError: another process has committed or is removing the run, or holds the lease; nothing was removed.
      MillraceError: the error, with a summary of the rejects.
    """
    raise type(error)(f"{error}{_remove(output, submitted, error)}") from error


def _remove(output: str, submitted: Submitted, error: MillraceError) -> str:
    """Keeps the rejects of a run, removes its other files, and ends its lease.

    Returns:
      The part of an error message about the rejects.
    """
    run = submitted.run
    folder, ended = layout.join(output, run), has_ended_in(output)
    # With the lease in its own name: nobody commits the run while it is being removed.
    with hold(output, run=run, has_ended=lambda holder: holder == submitted.holder or ended(holder)) as held:
        if _names(_manifest(output).data, run):
            raise LeaseError(f"{output}: another process has committed run {run}")
        if not storage.exists(folder):
            return ""  # another process has done this
        try:
            raw_bytes = recorded_input(output, submitted).raw_bytes
            rejected = keep_failed(output, run, layout.join(folder, layout.STAGING), error, raw_bytes)
        except BaseException:
            held.hand_over(submitted.holder)
            raise
        folders.remove(layout.join(folder, layout.STAGING))  # first: what is half removed has no result to commit
        folders.remove(folder)
    return rejected


def cancel(output: str, submitted: Submitted, *, force: bool = False) -> str:
    """Cancels the job, waits until it has ended, removes its run and gives the lease back.

    Args:
      output: the dataset directory.
      submitted: the job.
      force: also where the runner cannot be asked, or the job is done and only its commit is missing.

    Returns:
      What became of it.

    Raises:
      UsageError: the job is committed, or done and may be committed.
      MillraceError: the runner does not answer, or the job did not end in time; the lease stays.
    """
    if _names(_manifest(output).data, submitted.run):
        raise UsageError(f"{output}: run {submitted.run} is committed, so there is nothing to cancel")
    try:
        state = _cancelled(output, submitted, force=force)
        told = {
            "done": f"is done; its result, run {submitted.run}, was removed",
            "cancelled": f"has been cancelled; run {submitted.run} was removed",
        }.get(state, f"had failed; run {submitted.run} was removed")
    except UsageError:
        raise
    except MillraceError as error:
        if not force:
            raise MillraceError(
                f"{error}. Its lease stays; if you know that the job has ended, give --force to end it"
            ) from error
        told = (
            f"was not cancelled, and may still run at {submitted.job.place}: cancel it there. Its lease was ended and "
            f"run {submitted.run} removed, although the runner could not be asked: {error}"
        )
    rejected = _remove(output, submitted, MillraceError(f"run {submitted.run} was ended by `millrace job cancel`"))
    return f"{submitted.job} {told}{rejected}"


def _cancelled(output: str, submitted: Submitted, *, force: bool) -> State:
    """Cancels the job and returns the state in which it ended."""
    asked = job_of(submitted.job)
    state = asked.state()
    if state == "done" and not force and submitted.replaces.is_still(_manifest(output).data):  # it may be committed
        raise UsageError(
            f"{submitted.job} is done; `millrace job commit --output {output}` commits it. Give --force to throw "
            "its result away."
        )
    asked.cancel()
    return _wait_for_end(asked, submitted)


def _wait_for_end(asked: SubmittedJob, submitted: Submitted) -> State:
    until = time.monotonic() + CANCEL_SECONDS
    while (state := asked.state()) == "running":
        if time.monotonic() > until:
            raise MillraceError(f"{submitted.job} has not ended {CANCEL_SECONDS:g} s after it was cancelled")
        time.sleep(POLL_SECONDS)
    return state


def _manifest(output: str) -> folders.Seen:
    return folders.look(layout.join(output, layout.MANIFEST))


def _names(manifest: bytes | None, run: str) -> bool:
    """Whether a manifest names a run."""
    return manifest is not None and run.encode() in manifest
