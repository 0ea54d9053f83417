"""`millrace submit vertex`: stages the packages, submits a job or a study, and follows it to its end.

State, trials and the log of Cloud Logging are shown as they change, until the job has ended or Ctrl-C was pressed.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from millrace.submit.command import VertexOptions
from millrace.submit.training import (
    FOLDER,
    Packages,
    check_bucket,
    check_own_model,
    check_strategy,
    own_packages,
    read_training,
)
from millrace.submit.vertex_job import (
    CUSTOM,
    ENDED,
    TUNING,
    Unreachable,
    VertexJobs,
    anonymous,
    check_accelerators,
    check_job,
    console,
    custom_job,
    state_of,
    tuning_job,
)
from millrace.submit.vertex_study import Study, best_trial, check_trials_apart, model_dir, read_study, read_trials
from schemas import command, interrupts, storage
from schemas.errors import MillraceError, UsageError
from schemas.storage.store import redacted

ADDRESS = "https://logging.googleapis.com"
SCOPES = ("https://www.googleapis.com/auth/logging.read", "https://www.googleapis.com/auth/cloud-platform")
_TRIAL = "ml.googleapis.com/trial_id"  # the label of a trial's lines
_PAGE = 1000
_SECONDS = 30.0  # until an answer must have come


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of a replica, such as workerpool0-0 or trial 3 workerpool0-0, or of the service."""

    replica: str
    text: str


class VertexLog:
    """The lines of a job, each once.

    Args:
      project: the job's project.
      job_id: the last part of its resource name.
      endpoint: another address than Cloud Logging's; None: Cloud Logging's.
      credentials: None: those of the environment.
    """

    def __init__(self, project: str, job_id: str, *, endpoint: str | None = None, credentials: Any = None) -> None:
        self._project = project
        self._filter = f'resource.type="ml_job" resource.labels.job_id="{job_id}"'
        self._url = f"{endpoint or ADDRESS}/v2/entries:list"
        self._credentials = credentials
        self._session: Any = None
        self._since = ""  # the time of the latest line
        self._seen: set[str] = set()  # the ids of the lines of that time

    def new_lines(self) -> Iterator[Line]:
        """What has come since the last call, the oldest first.

        Raises:
          MillraceError: the log cannot be read.
        """
        asked: dict[str, Any] = {"resourceNames": [f"projects/{self._project}"], "orderBy": "timestamp asc"}
        since = f' timestamp>="{self._since}"' if self._since else ""
        asked |= {"filter": self._filter + since, "pageSize": _PAGE}
        while True:
            answer = self._ask(asked)
            for entry in answer.get("entries", ()):
                yield from self._line(entry)
            if not answer.get("nextPageToken"):
                return
            asked["pageToken"] = answer["nextPageToken"]

    def _line(self, entry: dict[str, Any]) -> Iterator[Line]:
        time, own = entry.get("timestamp", ""), entry.get("insertId", "")
        if time == self._since and own in self._seen:
            return
        if time > self._since:
            self._since, self._seen = time, set()
        self._seen.add(own)
        payload = entry.get("jsonPayload", {})
        text = entry.get("textPayload") or payload.get("message") or ""
        replica = entry.get("resource", {}).get("labels", {}).get("task_name", "")
        trial = entry.get("labels", {}).get(_TRIAL)
        replica = replica if trial is None else f"trial {trial} {replica}"
        yield from (Line(replica, line) for line in str(text).splitlines())

    def _ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        try:
            if self._session is None:
                import google.auth
                from google.auth.transport.requests import AuthorizedSession

                credentials = self._credentials or google.auth.default(scopes=SCOPES)[0]
                self._session = AuthorizedSession(credentials)
            answer = self._session.post(self._url, json=asked, timeout=_SECONDS)
            answer.raise_for_status()
            return dict(answer.json())
        except Exception as error:
            said = " ".join(redacted(str(error)).split())[:300]
            raise MillraceError(f"the log cannot be read ({type(error).__name__}: {said})") from error


POLL_SECONDS = 2.0
LAST_LOOKS = 10  # at the log of a job that has ended, as long as there are new lines


@dataclasses.dataclass(frozen=True)
class Submitted:
    """A job that was submitted, and those who ask about it.

    Attributes:
      name: its resource name.
      url: its page.
      jobs: the service.
      log: its log.
      metric: what trials are compared by; None for a job without trials.
    """

    name: str
    url: str
    jobs: VertexJobs
    log: VertexLog
    metric: str | None = None


def follow(submitted: Submitted, *, quiet: bool) -> Any:
    """Prints each new state, trial and line until the job has ended. Returns it as it is then: its message.

    Raises:
      MillraceError: Vertex AI does not answer any more; the job goes on.
    """
    told = ""
    shown = _Shown(submitted)
    job: Any = None
    while told not in ENDED:
        if told:
            time.sleep(POLL_SECONDS)
        try:
            job = submitted.jobs.get(submitted.name)
        except Unreachable as why:
            raise MillraceError(f"{why}; the job goes on: {submitted.url}") from why
        if state_of(job) != told and not quiet:
            _say(f"state      {state_of(job)}")
        told = state_of(job)
        if not quiet:
            shown.new_trials(job)
            shown.new_lines()
    for _ in range(LAST_LOOKS):  # lines come some seconds late
        if quiet or not shown.new_lines():
            break
        time.sleep(POLL_SECONDS)
    return job


class _Shown:
    """The job's trials and its log on standard error."""

    def __init__(self, submitted: Submitted) -> None:
        self._submitted = submitted
        self._readable = True
        self._trials: dict[str, str] = {}  # the last line about each

    def new_trials(self, job: Any) -> None:
        """Prints the trials whose state or value is new."""
        if self._submitted.metric is None:
            return
        for trial in read_trials(job, self._submitted.metric):
            line = trial.told(self._submitted.metric)
            if self._trials.get(trial.id) != line:
                self._trials[trial.id] = line
                _say(f"trial    {line}")

    def new_lines(self) -> bool:
        """Prints what has come since the last call. Returns whether there was any."""
        found = False
        try:
            for line in self._submitted.log.new_lines() if self._readable else ():
                found = True
                _say(f"[{line.replica}] {line.text}")
        except MillraceError as why:
            self._readable = False
            _say(f"{why}; the job's page has it: {self._submitted.url}")
        return found


def interrupted(what: command.OnInterrupt, submitted: Submitted) -> interrupts.Interrupted:
    """After Ctrl-C: cancels the job or leaves it, as the options or the user say, and returns what to raise."""
    if command.cancel_or_leave(what, submitted.name) == "leave":
        return interrupts.Interrupted(f"interrupted; {submitted.name} goes on: {submitted.url}")
    try:
        submitted.jobs.cancel(submitted.name)
    except MillraceError as error:
        return interrupts.Interrupted(f"interrupted; the job was not cancelled: {error}")
    return interrupts.Interrupted(f"interrupted; {submitted.name} is being cancelled")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


_FIRST = "1"  # trial, whose folder stands for those of all
_BUILD = "docker/worker of this project builds one (docs/submit.md)"


def submit(options: VertexOptions, given: Sequence[str] | None, prog: str) -> command.Report:
    """Submits a job or a study, and without --no_wait follows it to its end.

    Raises:
      UsageError: a flag, or an argument of the training, is wrong; nothing was staged.
      MillraceError: the job could not be submitted, or has failed.
      Interrupted: Ctrl-C was pressed; the job was cancelled, or goes on.
    """
    if not options.image:
        raise UsageError(f"--image: missing; the machines need an image with the pinned dependencies: {_BUILD}")
    check_bucket("--staging_bucket", options.staging_bucket)
    check_bucket("--output_dir", options.output_dir)
    if options.tune:
        check_trials_apart(options, given)
    training = read_training(given, prog, model_dir=_default_model_dir(options), trial=bool(options.tune))
    training.check_in_buckets("the machines of Vertex AI have disks of their own")
    own = own_packages(options.package)
    check_own_model(training, own)
    check_job(options)
    check_strategy(training, options.pools)
    study = read_study(options, training, prog)
    check_accelerators(options)
    if not options.any_region:
        from schemas.storage.gcs_access import check_regions

        check_regions([*training.paths.items(), ("--staging_bucket", options.staging_bucket)], options.region)

    packages = Packages(storage.join(options.staging_bucket, FOLDER, options.name), own, training.extras)
    run = packages.command(training.args)
    request = custom_job(options, run) if study is None else tuning_job(options, run, study)
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
        return _report_study(job, study, options.output_dir or "", data)
    _check_succeeded(job)
    return command.Report(f"done       {submitted.name}\nmodel      {training.options.model_dir}", data)


def _default_model_dir(options: VertexOptions) -> str | None:
    """The folder that AIP_MODEL_DIR will name; None where nothing does."""
    if options.output_dir is None:
        return None
    return model_dir(options.output_dir, _FIRST) if options.tune else storage.join(options.output_dir, "model")


def _create(options: VertexOptions, request: Mapping[str, object], study: Study | None) -> Submitted:
    credentials = anonymous() if options.no_auth else None
    kind = CUSTOM if study is None else TUNING
    jobs = VertexJobs(kind, options.project, options.region, endpoint=options.endpoint, credentials=credentials)
    name = jobs.create(request)
    log = VertexLog(options.project, name.rpartition("/")[2], endpoint=options.endpoint, credentials=credentials)
    url = console(options.project, options.region, name)
    return Submitted(name, url, jobs, log, None if study is None else study.metric)


def _report_pending(options: VertexOptions, submitted: Submitted, data: dict[str, Any]) -> command.Report:
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
