"""`millrace submit vertex`: stages the packages, submits a job or a study, and follows it to its end."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from millrace.submit.flags import settings_of
from millrace.submit.package import FOLDER, Packages, own_packages
from millrace.submit.training import Training, check_own_model, check_strategy, read_training
from millrace.submit.vertex_follow import Submitted, follow, interrupted
from millrace.submit.vertex_job import CUSTOM, TUNING, VertexJobs, anonymous, check_accelerators, console, state_of
from millrace.submit.vertex_log import VertexLog
from millrace.submit.vertex_request import JobSettings, custom_job, tuning_job
from millrace.submit.vertex_study import Study, check_trials_apart, read_study
from millrace.submit.vertex_trials import best_trial, model_dir, read_trials
from schemas import command, storage
from schemas.errors import MillraceError, UsageError

_GCS = "gs://"
_FIRST = "1"  # trial, whose folder stands for those of all
_BUILD = "docker/worker of this project builds one (docs/submit.md)"


def submit(options: argparse.Namespace, given: Sequence[str] | None, prog: str) -> command.Report:
    """Submits a job or a study, and without --no_wait follows it to its end.

    Raises:
      UsageError: a flag, or an argument of the training, is wrong; nothing was staged.
      MillraceError: the job could not be submitted, or has failed.
      Interrupted: Ctrl-C was pressed; the job was cancelled, or goes on.
    """
    if not options.image:
        raise UsageError(f"--image: missing; the machines need an image with the pinned dependencies: {_BUILD}")
    _check_buckets({"--staging_bucket": options.staging_bucket, "--output_dir": options.output_dir})
    if options.tune:
        check_trials_apart(options, given)
    training = read_training(given, prog, model_dir=_default_model_dir(options))
    training.check_in_buckets("the machines of Vertex AI have disks of their own")
    own = own_packages(options.package)
    check_own_model(training, own)
    settings = settings_of(JobSettings, options)
    check_strategy(training, settings.pools)
    study = read_study(options, training, prog)
    check_accelerators(settings.accelerators)
    if not options.any_region:
        _check_regions(options, training)

    packages = Packages(storage.join(options.staging_bucket, FOLDER, settings.name), own)
    run = packages.command(training.args)
    request = custom_job(settings, run) if study is None else tuning_job(settings, run, study)
    packages.stage()
    try:
        submitted = _create(options, request, study)
    except MillraceError:
        packages.remove()
        raise
    if not options.quiet:
        print(f"job        {submitted.name}\npage       {submitted.url}", file=sys.stderr, flush=True)
    data: dict[str, Any] = {"job": submitted.name, "url": submitted.url}
    if study is None:
        data["model_dir"] = training.options.model_dir
    if options.no_wait:
        return _report_pending(options, submitted, data)
    try:
        job = follow(submitted, quiet=options.quiet)
    except KeyboardInterrupt:
        raise interrupted(options.on_interrupt, submitted) from None
    data["state"] = state_of(job)
    if study is not None:
        return _report_study(job, study, options.output_dir, data)
    _check_succeeded(job)
    return command.Report(f"done       {submitted.name}\nmodel      {training.options.model_dir}", data)


def _default_model_dir(options: argparse.Namespace) -> str | None:
    """The folder that AIP_MODEL_DIR will name; None where nothing does."""
    if options.output_dir is None:
        return None
    return model_dir(options.output_dir, _FIRST) if options.tune else storage.join(options.output_dir, "model")


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


def _create(options: argparse.Namespace, request: Mapping[str, object], study: Study | None) -> Submitted:
    credentials = anonymous() if options.no_auth else None
    kind = CUSTOM if study is None else TUNING
    jobs = VertexJobs(kind, options.project, options.region, endpoint=options.endpoint, credentials=credentials)
    name = jobs.create(request)
    log = VertexLog(options.project, name.rpartition("/")[2], endpoint=options.endpoint, credentials=credentials)
    url = console(options.project, options.region, name)
    return Submitted(name, url, jobs, log, None if study is None else study.metric)


def _report_pending(options: argparse.Namespace, submitted: Submitted, data: dict[str, Any]) -> command.Report:
    job, kind = submitted.name.rpartition("/")[2], submitted.jobs.kind.gcloud
    follow = f"gcloud ai {kind} stream-logs {job} --project {options.project} --region {options.region}"
    lines = [f"submitted  {submitted.name}", f"page       {submitted.url}", f"next       {follow}"]
    return command.Report("\n".join(lines), {**data, "state": "PENDING"})


def _report_study(job: Any, study: Study, output_dir: str, data: dict[str, Any]) -> command.Report:
    """The best trial, and all others with --json.

    Raises:
      MillraceError: the study failed, or no trial reported a value.
    """
    trials = read_trials(job, study.metric)
    best = best_trial(trials, study)
    _check_succeeded(job, "" if best is None else f"; the best trial so far is{best.told(study.metric)}")
    if best is None:
        raise MillraceError(f"{job.name}: no trial has reported {study.metric}; the log says why")
    folder = model_dir(output_dir, best.id)
    told = [f"done       {job.name}", f"best       trial {best.told(study.metric).strip()}", f"model      {folder}"]
    found = {"best": dataclasses.asdict(best), "trials": [dataclasses.asdict(trial) for trial in trials]}
    return command.Report("\n".join(told), {**data, "model_dir": folder, "metric": study.metric, **found})


def _check_succeeded(job: Any, more: str = "") -> None:
    if state_of(job) != "SUCCEEDED":
        why = f": {job.error.message}" if job.error.message else ""
        raise MillraceError(f"{job.name}: ended in the state {state_of(job)}{why}{more}")
