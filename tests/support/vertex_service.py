"""Vertex AI's jobs and studies on loopback: takes the requests of Google's client, and really runs what is submitted.

A replica is a process that runs the container's command with the variables that Vertex AI sets, in an environment that
holds the pinned packages without the project. As there, a job ends with its chief, whatever the others do.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support import worker_environment
from tests.support.loopback_service import JobService, JsonHandler, serving
from tests.support.vertex_jobs import PROJECT, ROLES, Job, Refused, TuningJob, check_study
from tests.support.worker_environment import WorkerEnvironment

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
        self.send_json(json.dumps(body).encode(), status=status)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[VertexService]:
    """Starts the service. The files of its jobs and its machines' environment are in `folder`."""
    (folder / "machines").mkdir()
    service = VertexService(folder, worker_environment.make(folder / "machines"))
    with serving(service, Handler):
        yield service
