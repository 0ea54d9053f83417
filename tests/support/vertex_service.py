"""The jobs of the tests' Vertex AI. A job's replicas are processes, with the variables that Vertex AI sets."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support import processes
from tests.support.loopback_service import JobService, JsonHandler, serving

ROOT = Path(__file__).parents[2]
PROJECT = "tests"
ROLES = ("chief", "worker", "ps", "evaluator")


@dataclasses.dataclass(frozen=True)
class LogLine:
    """A line of a log: of which replica, and the text."""

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
      lines: its log.
      environments: the variables that each replica was started with, by the replica's name.
    """

    submitted: Any
    name: str
    state: str = "JOB_STATE_PENDING"
    error: str = ""
    lines: list[LogLine] = dataclasses.field(default_factory=list)
    environments: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    processes: dict[str, subprocess.Popen[str]] = dataclasses.field(default_factory=dict)

    @property
    def id(self) -> str:
        return self.name.rpartition("/")[2]

    def tell(self, replica: str, text: str) -> None:
        """Adds a line to the log."""
        self.lines.append(LogLine(replica, text))

    def end(self) -> None:
        """Ends all replicas."""
        for process in self.processes.values():
            processes.end_group(process)


def run(job: Job, folder: Path) -> tuple[str, str]:
    """Runs a job's replicas until it has ended, and ends those that are left.

    Args:
      job: the job.
      folder: an empty one, in which they run.

    Returns:
      The state in which the job ends, and its error.
    """
    start(job, folder)
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


def start(job: Job, folder: Path) -> None:
    """Starts a process for each replica, in an image that holds the checkout."""
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
                **os.environ,
                **{variable.name: variable.value for variable in container.env},
                **_variables(job, hosts, name, index),
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                "PYTHONPATH": str(ROOT),
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
    variables = {"CLUSTER_SPEC": json.dumps(spec), "CLOUD_ML_JOB_ID": job.id, "CLOUD_ML_PROJECT_ID": PROJECT}
    if sum(map(len, hosts.values())) > 1:
        cluster = {role[name]: addresses for name, addresses in hosts.items() if role[name] != "evaluator"}
        own = {"type": role[pool], "index": index, "cloud": job.id}
        variables["TF_CONFIG"] = json.dumps({"cluster": cluster, "environment": "cloud", "task": own, "job": {}})
    output = job.submitted.job_spec.base_output_directory.output_uri_prefix
    if output:
        parts = {"MODEL_DIR": "model", "CHECKPOINT_DIR": "checkpoints", "TENSORBOARD_LOG_DIR": "logs"}
        variables |= {f"AIP_{name}": f"{output.rstrip('/')}/{part}/" for name, part in parts.items()}
    return variables


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


REGION, IMAGE = "us-central1", "us-docker.pkg.dev/tests/jobs/millrace:0.2.0"
ENDED = frozenset({"JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED"})
_JOBS = re.compile(r"/v1/(projects/[^/]+/locations/[^/]+/customJobs)(?:\?.*)?")
_LABEL = re.compile(r"[a-z][a-z0-9_-]{0,62}=[a-z0-9_-]{0,63}")


class VertexService(JobService):
    """The jobs of a service."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._ids = itertools.count(7)

    def flags(self) -> tuple[str, ...]:
        """The flags of `millrace submit vertex` for a job that runs here."""
        place = ("--project", PROJECT, "--region", REGION, "--endpoint", self.endpoint, "--no_auth")
        return (*place, "--image", IMAGE)

    @property
    def last(self) -> Job:
        """The job that was submitted last."""
        job = list(self.jobs.values())[-1]
        assert isinstance(job, Job)
        return job

    def submit(self, parent: str, submitted: Any) -> Job:
        """Takes a job, and starts it."""
        check(submitted)
        job = Job(submitted, f"{parent}/{next(self._ids)}")
        self.start(job, self._work)
        return job

    def cancel(self, job: Job) -> None:
        """Cancels a job, unless it has ended."""
        if job.state not in ENDED:
            job.state = "JOB_STATE_CANCELLED"
            job.end()

    def _work(self, job: Job) -> None:
        if job.state in ENDED:
            return
        folder = self._folder / f"job-{job.id}"
        folder.mkdir()
        try:
            ended, error = run(job, folder)
        except Exception as problem:
            ended, error = "JOB_STATE_FAILED", f"{problem!r}"
            job.end()
        if job.state not in ENDED:
            job.state, job.error = ended, error


def check(job: Any) -> None:
    """Refuses what Vertex AI's reference rules out.

    Args:
      job: a `CustomJob`.

    Raises:
      Refused: a field is missing or wrong.
    """
    spec = job.job_spec
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


class Handler(JsonHandler):
    """One connection of a client."""

    def do_POST(self) -> None:  # noqa: N802 - the base class calls it so
        from google.cloud import aiplatform_v1

        body = self.body()
        path = _JOBS.fullmatch(self.path)
        if self._refused():
            return
        if path is None:
            self._answer(404, {"error": {"message": "no such method"}})
            return
        try:
            submitted = aiplatform_v1.CustomJob.from_json(body, ignore_unknown_fields=False)
            job = self.service.submit(path[1], submitted)
        except Exception as error:
            refused = {"code": 400, "status": "INVALID_ARGUMENT", "message": f"{type(error).__name__}: {error}"}
            self._answer(400, {"error": refused})
            return
        created = aiplatform_v1.CustomJob(job.submitted)
        created.name, created.state = job.name, aiplatform_v1.JobState[job.state]
        self._answer(200, json.loads(aiplatform_v1.CustomJob.to_json(created)))

    def _refused(self) -> bool:
        status = self.service.status
        if status is not None:
            self._answer(status, {"error": {"message": "out of order"}})
        return status is not None

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        self.send(status, json.dumps(body).encode())


@contextlib.contextmanager
def running(folder: Path) -> Iterator[VertexService]:
    """Starts the service. The files of its jobs are in `folder`."""
    service = VertexService(folder)
    with serving(service, Handler):
        yield service
