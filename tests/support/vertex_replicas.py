"""The replicas of a job of the tests' Vertex AI, each a process, and the variables that Vertex AI sets for them."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

from tests.support import server_process

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
            server_process.end_group(process)


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
        name: [f"127.0.0.1:{server_process.free_port()}" for _ in range(pool.replica_count)]
        for name, pool in pools.items()
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
