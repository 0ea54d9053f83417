"""The jobs and studies of the tests' Vertex AI. A job's replicas are processes, with the variables that Vertex AI sets.

A study's trials are jobs that really run, with values that lie evenly in their ranges. Each trial's container is
started with `--NAME=VALUE` behind its arguments and with CLOUD_ML_TRIAL_ID, and its metric is read from the file that
Google's cloudml-hypertune writes.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import datetime as dt
import itertools
import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support import loopback_service, processes
from tests.support.loopback_service import JobService, JsonHandler, WorkerEnvironment, serving

PROJECT = "tests"
ROLES = ("chief", "worker", "ps", "evaluator")


@dataclasses.dataclass(frozen=True)
class LogLine:
    """A line of a log: when, of which trial (None: of none) and replica, and the text."""

    time: str
    trial: str | None
    replica: str
    text: str


@dataclasses.dataclass
class Job:
    """A submitted job.

    Attributes:
      submitted: the request, a `google.cloud.aiplatform_v1.CustomJob`.
      name: its resource name.
      state: the name of its state.
      error: why it has failed.
      lines: its log; the trials of a study share one.
      trial: the trial of a study that it is; None for a job of its own.
      metrics: the file that a trial writes its metric to.
      environments: the variables that each replica was started with, by the replica's name.
    """

    submitted: Any
    name: str
    state: str = "JOB_STATE_PENDING"
    error: str = ""
    lines: list[LogLine] = dataclasses.field(default_factory=list)
    trial: str | None = None
    metrics: Path | None = None
    environments: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    processes: dict[str, subprocess.Popen[str]] = dataclasses.field(default_factory=dict)

    @property
    def id(self) -> str:
        return self.name.rpartition("/")[2]

    def tell(self, replica: str, text: str) -> None:
        """Adds a line to the log."""
        now = dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        self.lines.append(LogLine(now, self.trial, replica, text))

    def described(self) -> dict[str, Any]:
        """What the service answers about it, beside its name and state."""
        return {}

    def run(self, folder: Path, python: Path) -> tuple[str, str]:
        """Runs it to its end; see `run`."""
        return run(self, folder, python)

    def end(self) -> None:
        """Ends all replicas."""
        for process in self.processes.values():
            processes.end_group(process)


def run(job: Job, folder: Path, python: Path) -> tuple[str, str]:
    """Runs a job's replicas until it has ended, and ends those that are left.

    Args:
      job: the job.
      folder: an empty one, in which they run.
      python: the interpreter of their environment.

    Returns:
      The state in which the job ends, and its error.
    """
    start(job, folder, python)
    job.state = "JOB_STATE_RUNNING"
    job.tell("service", "Job is running.")
    readers = [threading.Thread(target=_read, args=(job, name)) for name in job.processes]
    for reader in readers:
        reader.start()
    ended = _wait(job)
    job.end()
    for reader in readers:
        reader.join()
    return ended


def start(job: Job, folder: Path, python: Path) -> None:
    """Starts a process for each replica."""
    pools = {
        f"workerpool{i}": pool for i, pool in enumerate(job.submitted.job_spec.worker_pool_specs) if pool.replica_count
    }
    hosts = {
        name: [f"127.0.0.1:{processes.free_port()}" for _ in range(pool.replica_count)] for name, pool in pools.items()
    }
    for name, pool in pools.items():
        for index in range(pool.replica_count):
            container = pool.container_spec
            environment = {
                **{key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
                **{each.name: each.value for each in container.env},
                **_variables(job, hosts, name, index),
                "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
                "TMPDIR": str(folder),
            }
            job.environments[f"{name}-{index}"] = environment
            job.processes[f"{name}-{index}"] = subprocess.Popen(
                [*container.command, *container.args],
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )


def _variables(job: Job, hosts: dict[str, list[str]], pool: str, index: int) -> dict[str, str]:
    """What Vertex AI sets for a replica; TF_CONFIG only where there are several, and without evaluators."""
    role = dict(zip((f"workerpool{i}" for i in range(4)), ROLES, strict=True))
    spec = {"cluster": hosts, "environment": "cloud", "task": {"type": pool, "index": index}, "job": {}}
    found = {"CLUSTER_SPEC": json.dumps(spec), "CLOUD_ML_JOB_ID": job.id, "CLOUD_ML_PROJECT_ID": PROJECT}
    if sum(map(len, hosts.values())) > 1:
        cluster = {role[name]: addresses for name, addresses in hosts.items() if role[name] != "evaluator"}
        own = {"type": role[pool], "index": index, "cloud": job.id}
        found["TF_CONFIG"] = json.dumps({"cluster": cluster, "environment": "cloud", "task": own, "job": {}})
    if job.trial is not None:
        found |= {"CLOUD_ML_TRIAL_ID": job.trial, "CLOUD_ML_HP_METRIC_FILE": str(job.metrics)}
    output = job.submitted.job_spec.base_output_directory.output_uri_prefix
    if output:
        parts = {"MODEL_DIR": "model", "CHECKPOINT_DIR": "checkpoints", "TENSORBOARD_LOG_DIR": "logs"}
        found |= {f"AIP_{name}": f"{output.rstrip('/')}/{part}/" for name, part in parts.items()}
    return found


def _read(job: Job, replica: str) -> None:
    output = job.processes[replica].stdout
    assert output is not None
    with output:
        for line in output:
            job.tell(replica, line.rstrip("\n"))


def _wait(job: Job) -> tuple[str, str]:
    """The state that a job ends in, and its error."""
    tick = threading.Event()
    while True:
        codes = {name: process.poll() for name, process in job.processes.items()}
        for name, code in codes.items():
            if code not in (0, None):
                return "JOB_STATE_FAILED", f"The replica {name} exited with a non-zero status of {code}."
        if codes["workerpool0-0"] == 0:
            return "JOB_STATE_SUCCEEDED", ""
        tick.wait(0.1)


class Refused(Exception):
    """The request is not what Vertex AI documents."""


@dataclasses.dataclass
class TuningJob:
    """A submitted study; see `Job` for what both have.

    Attributes:
      submitted: the request, a `google.cloud.aiplatform_v1.HyperparameterTuningJob`.
      trials: of each trial its `Trial`, in order, once it has begun.
      trial_jobs: the job of each of them.
    """

    submitted: Any
    name: str
    state: str = "JOB_STATE_PENDING"
    error: str = ""
    lines: list[LogLine] = dataclasses.field(default_factory=list)
    trials: list[Any] = dataclasses.field(default_factory=list)
    trial_jobs: list[Job] = dataclasses.field(default_factory=list)

    @property
    def id(self) -> str:
        return self.name.rpartition("/")[2]

    def described(self) -> dict[str, Any]:
        """What the service answers about it, beside its name and state."""
        return {"trials": list(self.trials)}

    def run(self, folder: Path, python: Path) -> tuple[str, str]:
        """Runs all trials, some at a time. Returns the state in which the study ends, and its error."""
        self.state = "JOB_STATE_RUNNING"
        count = self.submitted.max_trial_count
        with concurrent.futures.ThreadPoolExecutor(self.submitted.parallel_trial_count) as pool:
            list(pool.map(lambda i: self._run_trial(i, folder, python), range(count)))
        failed = sum(trial.state.name == "INFEASIBLE" for trial in self.trials)
        if failed >= (self.submitted.max_failed_trial_count or count):
            return "JOB_STATE_FAILED", f"{failed} trials have failed."
        return "JOB_STATE_SUCCEEDED", ""

    def end(self) -> None:
        """Ends the replicas of all trials."""
        for job in self.trial_jobs:
            job.end()

    def _run_trial(self, place: int, folder: Path, python: Path) -> None:
        from google.cloud import aiplatform_v1

        if self.state != "JOB_STATE_RUNNING":
            return
        study, own = self.submitted.study_spec, str(place + 1)
        share = place / max(1, self.submitted.max_trial_count - 1)
        chosen = {spec.parameter_id: _value(spec, share) for spec in study.parameters}
        trial = aiplatform_v1.Trial(name=f"{self.name}/trials/{own}", id=own, state="ACTIVE")
        trial.parameters = [{"parameter_id": name, "value": value} for name, value in chosen.items()]

        spec = aiplatform_v1.CustomJobSpec(self.submitted.trial_job_spec)
        spec.base_output_directory.output_uri_prefix = f"{spec.base_output_directory.output_uri_prefix}/{own}"
        for each in spec.worker_pool_specs:
            each.container_spec.args = [f"--{name}={_typed(value)}" for name, value in chosen.items()]
        custom = aiplatform_v1.CustomJob(display_name=f"{self.submitted.display_name}-{own}", job_spec=spec)
        (folder / own).mkdir()
        metrics = folder / own / "output.metrics"
        job = Job(custom, f"{self.name}-{own}", lines=self.lines, trial=own, metrics=metrics)
        self.trials.append(trial)
        self.trial_jobs.append(job)

        state, error = job.run(folder / own, python)
        trial.final_measurement = _best(metrics, study)
        trial.infeasible_reason = error
        trial.state = "SUCCEEDED" if state == "JOB_STATE_SUCCEEDED" else "INFEASIBLE"


def check_study(job: Any) -> None:
    """Refuses what Vertex AI's reference rules out.

    Raises:
      Refused: a field is missing or wrong.
    """
    if not 0 < job.parallel_trial_count <= job.max_trial_count:
        raise Refused("max_trial_count and parallel_trial_count are required, the latter not above the former")
    if len(job.study_spec.metrics) != 1 or not job.study_spec.metrics[0].goal or not job.study_spec.parameters:
        raise Refused("a metric with a goal, and a parameter, are required")
    if not job.trial_job_spec.base_output_directory.output_uri_prefix:
        raise Refused("these tests compare trials by their model directories")
    for spec in job.study_spec.parameters:
        if not any(kind in spec for kind in _KINDS):
            raise Refused(f"{spec.parameter_id}: a range or values are required")


_KINDS = ("double_value_spec", "integer_value_spec", "discrete_value_spec", "categorical_value_spec")


def _value(spec: Any, share: float) -> float | str:
    """A value at a share of a parameter's range."""
    kind = next(kind for kind in _KINDS if kind in spec)
    of = getattr(spec, kind)
    if kind in ("discrete_value_spec", "categorical_value_spec"):
        value: float | str = of.values[round(share * (len(of.values) - 1))]
        return value
    if spec.scale_type.name == "UNIT_LOG_SCALE":
        found = of.min_value * (of.max_value / of.min_value) ** share
    else:
        found = of.min_value + share * (of.max_value - of.min_value)
    return float(round(found) if kind == "integer_value_spec" else found)


def _typed(value: float | str) -> str:
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)


def _best(metrics: Path, study: Any) -> Any:
    """The best measurement of a trial, as cloudml-hypertune's file has them; an empty one without such a file."""
    if not metrics.exists():
        return {}
    (metric,) = study.metrics
    reported = [json.loads(line) for line in metrics.read_text().splitlines()]
    choose = max if metric.goal.name == "MAXIMIZE" else min
    best = choose(reported, key=lambda entry: float(entry[metric.metric_id]))
    value = {"metric_id": metric.metric_id, "value": float(best[metric.metric_id])}
    return {"step_count": int(best["global_step"]), "metrics": [value]}


REGION, IMAGE = "us-central1", "us-docker.pkg.dev/tests/jobs/millrace:0.2.0"
ENDED = frozenset({"JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED"})
_JOBS = re.compile(
    r"/v1/(projects/[^/]+/locations/[^/]+/(customJobs|hyperparameterTuningJobs))(?:/([^/:?]+)(:cancel)?)?(?:\?.*)?"
)
_LABEL = re.compile(r"[a-z][a-z0-9_-]{0,62}=[a-z0-9_-]{0,63}")


class VertexService(JobService):
    """The jobs of a service.

    Attributes:
      log_status: as `status`, for requests for the log.
    """

    def __init__(self, folder: Path, environment: WorkerEnvironment) -> None:
        super().__init__()
        self._folder = folder
        self._environment = environment
        self._ids = itertools.count(7)
        self.log_status: int | None = None

    def flags(self, bucket: str) -> tuple[str, ...]:
        """The flags of `millrace submit vertex` for a job that runs here."""
        place = ("--project", PROJECT, "--region", REGION, "--endpoint", self.endpoint, "--no_auth")
        return (*place, "--staging_bucket", f"{bucket}/staging", "--image", IMAGE)

    @property
    def last(self) -> Job:
        """The job that was submitted last."""
        job = list(self.jobs.values())[-1]
        assert isinstance(job, Job)
        return job

    @property
    def last_study(self) -> TuningJob:
        """The study that was submitted last."""
        job = list(self.jobs.values())[-1]
        assert isinstance(job, TuningJob)
        return job

    def submit(self, parent: str, submitted: Any) -> Job | TuningJob:
        """Takes a job or a study, and starts it."""
        name = f"{parent}/{next(self._ids)}"
        job: Job | TuningJob
        if parent.endswith("/customJobs"):
            check(submitted, submitted.job_spec)
            job = Job(submitted, name)
        else:
            check(submitted, submitted.trial_job_spec)
            check_study(submitted)
            job = TuningJob(submitted, name)
        self.start(job, self._work)
        return job

    def cancel(self, job: Job | TuningJob) -> None:
        """Cancels a job, unless it has ended."""
        if job.state not in ENDED:
            job.state = "JOB_STATE_CANCELLED"
            job.end()

    def _work(self, job: Job | TuningJob) -> None:
        if job.state in ENDED:
            return
        folder = self._folder / f"job-{job.id}"
        folder.mkdir()
        try:
            ended, error = job.run(folder, self._environment.python)
        except Exception as problem:
            ended, error = "JOB_STATE_FAILED", f"{problem!r}"
            job.end()
        if job.state not in ENDED:
            job.state, job.error = ended, error


def check(job: Any, spec: Any) -> None:
    """Refuses what Vertex AI's reference rules out.

    Args:
      job: a `CustomJob` or a `HyperparameterTuningJob`.
      spec: the `CustomJobSpec` of it, or of its trials.

    Raises:
      Refused: a field is missing or wrong.
    """
    pools = spec.worker_pool_specs
    if not job.display_name or not pools or pools[0].replica_count != 1 or len(pools) > len(ROLES):
        raise Refused("display_name, and one to four pools, the first of one replica, are required")
    for pool in pools:
        if pool.replica_count and not (pool.machine_spec.machine_type and pool.container_spec.image_uri):
            raise Refused("machine_type and image_uri are required")
        if pool.machine_spec.accelerator_type and not pool.machine_spec.accelerator_count:
            raise Refused("accelerator_count is required with accelerator_type")
    if not all(_LABEL.fullmatch(f"{key}={value}") for key, value in job.labels.items()):
        raise Refused(f"labels: {dict(job.labels)}")
    if spec.tensorboard and not spec.service_account:
        raise Refused("service_account is required with tensorboard")


class Handler(JsonHandler):
    """One connection of a client."""

    def do_GET(self) -> None:  # noqa: N802 - the base class calls it so
        found = _JOBS.fullmatch(self.path)
        job = self.service.jobs.get(found[3] or "") if found else None
        if not self._refused():
            self._answer_job(job)

    def do_POST(self) -> None:  # noqa: N802 - the base class calls it so
        from google.cloud import aiplatform_v1

        body = self.body()
        if self.path == "/v2/entries:list":
            self._answer_log(json.loads(body))
            return
        found = _JOBS.fullmatch(self.path)
        if self._refused():
            return
        if found is None:
            self._answer(404, {"error": {"message": "no such method"}})
        elif found[4]:
            job = self.service.jobs.get(found[3])
            if job is not None:
                self.service.cancel(job)
            self._answer(200 if job else 404, {})
        else:
            try:
                custom = found[2] == "customJobs"
                message = aiplatform_v1.CustomJob if custom else aiplatform_v1.HyperparameterTuningJob
                submitted = message.from_json(body, ignore_unknown_fields=False)
                self._answer_job(self.service.submit(found[1], submitted))
            except Exception as error:
                refused = {"code": 400, "status": "INVALID_ARGUMENT", "message": f"{type(error).__name__}: {error}"}
                self._answer(400, {"error": refused})

    def _answer_job(self, job: Job | TuningJob | None) -> None:
        from google.cloud import aiplatform_v1

        if job is None:
            self._answer(404, {"error": {"message": "no such job"}})
            return
        message = type(job.submitted)
        described = message(job.submitted)
        for field, value in {"name": job.name, "state": aiplatform_v1.JobState[job.state], **job.described()}.items():
            setattr(described, field, value)
        if job.error:
            described.error = {"code": 13, "message": job.error}
        self._answer(200, json.loads(message.to_json(described)))

    def _answer_log(self, asked: dict[str, Any]) -> None:
        if self.service.log_status is not None:
            self._answer(self.service.log_status, {})
            return
        job_id = re.search(r'resource\.labels\.job_id="(\w+)"', asked["filter"])
        since = re.search(r'timestamp>="([^"]+)"', asked["filter"])
        lines = self.service.jobs[job_id[1]].lines if job_id else []
        entries = [
            {
                "timestamp": line.time,
                "insertId": str(i),
                "resource": {"type": "ml_job", "labels": {"job_id": job_id and job_id[1], "task_name": line.replica}},
                "labels": {} if line.trial is None else {"ml.googleapis.com/trial_id": line.trial},
                "jsonPayload": {"message": line.text},
            }
            for i, line in enumerate(list(lines))
            if since is None or line.time >= since[1]
        ]
        start, size = int(asked.get("pageToken", "0")), 100  # pages smaller than asked for, as the service may
        rest = {"nextPageToken": str(start + size)} if start + size < len(entries) else {}
        self._answer(200, {"entries": entries[start : start + size], **rest})

    def _refused(self) -> bool:
        status = self.service.status
        if status is not None:
            self._answer(status, {"error": {"message": "out of order"}})
        return status is not None

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        self.send(status, json.dumps(body).encode())


@contextlib.contextmanager
def running(folder: Path) -> Iterator[VertexService]:
    """Starts the service. The files of its jobs and its machines' environment are in `folder`."""
    (folder / "machines").mkdir()
    service = VertexService(folder, loopback_service.make_environment(folder / "machines"))
    with serving(service, Handler):
        yield service
