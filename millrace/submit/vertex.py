"""`millrace submit vertex`: stages the packages, submits a CustomJob, and follows its state and its log."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Literal

from millrace.submit.names import job_name
from millrace.submit.package import FOLDER, Packages, own_packages
from millrace.submit.pools import Pools, pairs
from millrace.submit.training import Training, check_own_model, check_strategy, read_training
from millrace.submit.vertex_job import ENDED, Unreachable, VertexJobs, anonymous, check_accelerators, console
from millrace.submit.vertex_log import VertexLog
from millrace.submit.vertex_request import JobSettings, custom_job
from schemas import command, storage
from schemas.errors import MillraceError, UsageError

POLL_SECONDS = 2.0
LAST_LOOKS = 10  # at the log of a job that has ended, as long as there are new lines
_GCS = "gs://"
_BUILD = "docker/worker of this project builds one (docs/submit.md)"


@dataclasses.dataclass(frozen=True)
class _Submitted:
    """A job that was submitted, and those who ask about it."""

    name: str
    url: str
    jobs: VertexJobs
    log: VertexLog


def submit(options: argparse.Namespace, given: Sequence[str] | None, prog: str) -> command.Report:
    """Submits a job, and with no --no_wait follows it to its end.

    Raises:
      UsageError: a flag, or an argument of the training, is wrong; nothing was staged.
      MillraceError: the job could not be submitted, or has failed.
      Interrupted: Ctrl-C was pressed; the job was cancelled, or goes on.
    """
    if not options.image:
        raise UsageError(f"--image: missing; the machines need an image with the pinned dependencies: {_BUILD}")
    _check_buckets({"--staging_bucket": options.staging_bucket, "--output_dir": options.output_dir})
    model_dir = None if options.output_dir is None else storage.join(options.output_dir, "model")
    training = read_training(given, prog, model_dir=model_dir)
    training.check_in_buckets("the machines of Vertex AI have disks of their own")
    own = own_packages(options.package)
    check_own_model(training, own)
    settings = _settings(options)
    check_strategy(training, settings.pools)
    check_accelerators(settings.accelerators)
    if not options.any_region:
        _check_regions(options, training)

    packages = Packages(storage.join(options.staging_bucket, FOLDER, settings.name), own)
    request = custom_job(settings, packages.command(training.args))
    packages.stage()
    try:
        submitted = _create(options, request)
    except MillraceError:
        packages.remove()
        raise
    if not options.quiet:
        print(f"job        {submitted.name}\npage       {submitted.url}", file=sys.stderr, flush=True)
    data = {"job": submitted.name, "url": submitted.url, "model_dir": training.options.model_dir}
    if options.no_wait:
        job = submitted.name.rpartition("/")[2]
        follow = f"gcloud ai custom-jobs stream-logs {job} --project {options.project} --region {options.region}"
        lines = [f"submitted  {submitted.name}", f"page       {submitted.url}", f"next       {follow}"]
        return command.Report("\n".join(lines), {**data, "state": "PENDING"})
    try:
        state, error = _follow(submitted, quiet=options.quiet)
    except KeyboardInterrupt:
        raise _interrupted(options, submitted) from None
    if state != "SUCCEEDED":
        raise MillraceError(f"{submitted.name}: ended in the state {state}{': ' if error else ''}{error}")
    return command.Report(
        f"done       {submitted.name}\nmodel      {training.options.model_dir}", {**data, "state": state}
    )


def _settings(options: argparse.Namespace) -> JobSettings:
    return JobSettings(
        name=job_name(options.job_name),
        pools=Pools(options.workers, options.ps, options.evaluator),
        image=options.image,
        machine_type=options.machine_type or (),
        accelerator=options.accelerator or (),
        disk_gb=options.disk_gb,
        spot=options.spot,
        restart_job=options.restart_job,
        timeout_hours=options.timeout_hours,
        variables=pairs(options.env, "--env"),
        labels=pairs(options.labels, "--labels"),
        service_account=options.service_account,
        network=options.network,
        tensorboard=options.tensorboard,
        output_dir=options.output_dir,
    )


def _check_buckets(paths: Mapping[str, str | None]) -> None:
    for flag, path in paths.items():
        if path is not None and not path.startswith(_GCS):
            raise UsageError(f"{flag} {path}: must be in a bucket, such as gs://my-bucket/folder")


def _check_regions(options: argparse.Namespace, training: Training) -> None:
    """Refuses buckets in another region, which is slow and billed by the byte."""
    from schemas.storage.gcs_location import location_of

    seen: set[str] = set()
    for flag, path in {**training.paths, "--staging_bucket": options.staging_bucket}.items():
        bucket = path[len(_GCS) :].partition("/")[0]
        location = None if bucket in seen else location_of(path)
        seen.add(bucket)
        if location is not None and not location.serves(options.region):
            raise UsageError(
                f"{flag} {path}: the bucket is in {location.name.lower()}, and the job would run in {options.region}; "
                "use a bucket in the job's region, run the job in the bucket's, or give --any_region"
            )


def _create(options: argparse.Namespace, request: Mapping[str, object]) -> _Submitted:
    credentials = anonymous() if options.no_auth else None
    jobs = VertexJobs(options.project, options.region, endpoint=options.endpoint, credentials=credentials)
    name = jobs.create(request)
    log = VertexLog(options.project, name.rpartition("/")[2], endpoint=options.endpoint, credentials=credentials)
    return _Submitted(name, console(options.project, options.region, name), jobs, log)


def _follow(submitted: _Submitted, *, quiet: bool) -> tuple[str, str]:
    """Prints each new state and line until the job has ended. Returns its last state, and its error."""
    told = ""
    show = (lambda: False) if quiet else _Shown(submitted).new_lines
    while told not in ENDED:
        if told:
            time.sleep(POLL_SECONDS)
        try:
            state, error = submitted.jobs.state(submitted.name)
        except Unreachable as why:
            raise MillraceError(f"{why}; the job goes on: {submitted.url}") from why
        if state != told and not quiet:
            print(f"state      {state}", file=sys.stderr, flush=True)
        told = state
        show()
    for _ in range(LAST_LOOKS):  # lines come some seconds late
        if quiet or not show():
            break
        time.sleep(POLL_SECONDS)
    return told, error


class _Shown:
    """The job's log on standard error."""

    def __init__(self, submitted: _Submitted) -> None:
        self._submitted = submitted
        self._readable = True

    def new_lines(self) -> bool:
        """Prints what has come since the last call. Returns whether there was any."""
        found = False
        try:
            for line in self._submitted.log.new_lines() if self._readable else ():
                found = True
                print(f"[{line.replica}] {line.text}", file=sys.stderr, flush=True)
        except MillraceError as why:
            self._readable = False
            print(f"{why}; the job's page has it: {self._submitted.url}", file=sys.stderr, flush=True)
        return found


def _interrupted(options: argparse.Namespace, submitted: _Submitted) -> command.Interrupted:
    """After Ctrl-C: cancels the job or leaves it, as the options or the user say, and returns what to raise."""
    what = options.on_interrupt
    if what == "ask":
        what = _answer(submitted) if sys.stdin.isatty() and sys.stderr.isatty() else "cancel"
    if what == "leave":
        return command.Interrupted(f"interrupted; {submitted.name} goes on: {submitted.url}")
    try:
        submitted.jobs.cancel(submitted.name)
    except MillraceError as error:
        return command.Interrupted(f"interrupted; the job was not cancelled: {error}")
    return command.Interrupted(f"interrupted; {submitted.name} is being cancelled")


def _answer(submitted: _Submitted) -> Literal["cancel", "leave"]:
    try:
        print(f"Cancel {submitted.name}? It goes on otherwise. [y/N] ", end="", file=sys.stderr, flush=True)
        return "cancel" if sys.stdin.readline().strip().lower() in ("y", "yes") else "leave"
    except KeyboardInterrupt:  # again: out of here, at once
        return "leave"
