"""A Dataflow service on loopback: it takes the requests of Beam's DataflowRunner, and really runs what is submitted.

Beam's client speaks plain REST to an endpoint whose name holds `localhost`. What was
staged, the pipeline's proto in a bucket, runs on Prism, in workers that have the staged package alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from schemas import storage
from tests.support import loopback_service, prism
from tests.support.loopback_service import JobService, JsonHandler, WorkerEnvironment, serving

ROOT = Path(__file__).parents[2]
PROJECT, REGION = "tests", "us-central1"
ENDED = frozenset({"JOB_STATE_DONE", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED"})
_JOBS = re.compile(r"/v1b3/projects/[^/]+/locations/[^/]+/jobs(?:/([^/?]+)(?:/(messages|metrics))?)?(?:\?.*)?")


@dataclasses.dataclass
class Job:
    """A submitted job.

    Attributes:
      submitted: the request, a `google.cloud.dataflow.Job`.
      id: the job's.
      state: the name of its state, JOB_STATE_DONE and so on.
      staged: what runs it.
      messages: when, the importance's name, and the text.
      ended: set when the state does not change any more.
    """

    submitted: Any
    id: str
    staged: StagedJob
    messages: list[tuple[dt.datetime, str, str]]
    state: str = "JOB_STATE_QUEUED"
    ended: threading.Event = dataclasses.field(default_factory=threading.Event)


class DataflowService(JobService):
    """The jobs of a service.

    Attributes:
      requests: what was asked, as `METHOD path`.
    """

    def __init__(self, folder: Path, environment: WorkerEnvironment) -> None:
        super().__init__()
        self._folder = folder
        self._environment = environment
        self.requests: list[str] = []

    def beam_args(self, bucket: str) -> tuple[str, ...]:
        """The options of a job that runs here, beside `--runner DataflowRunner`.

        Args:
          bucket: the address of the bucket for temporary and staged files.
        """
        place = ("--project", PROJECT, "--region", REGION, "--dataflow_endpoint", self.endpoint, "--no_auth")
        files = ("--temp_location", f"{bucket}/temp", "--staging_location", f"{bucket}/staging")
        return (*place, *files)

    def submit(self, submitted: Any) -> Job:
        """Takes a job, and starts it."""
        number = len(self.jobs)
        folder = self._folder / f"job-{number}"
        folder.mkdir()
        messages: list[tuple[dt.datetime, str, str]] = []

        def tell(importance: str, text: str) -> None:
            messages.append((dt.datetime.now(dt.UTC), importance, text))

        url = submitted.environment.sdk_pipeline_options["options"]["pipelineUrl"]
        job = Job(
            submitted,
            f"2026-01-01_00_00_00-{number:04d}",
            StagedJob(url, self._environment, folder, tell),
            messages,
        )
        self.start(job, self._work)
        return job

    def cancel(self, job: Job) -> None:
        """Cancels a job, unless it has ended."""
        if job.state == "JOB_STATE_QUEUED":
            job.state = "JOB_STATE_CANCELLED"
        elif job.state not in ENDED:
            job.state = "JOB_STATE_CANCELLING"
        job.staged.cancel()

    def _work(self, job: Job) -> None:
        ended = "JOB_STATE_CANCELLED"
        try:
            if job.state == "JOB_STATE_QUEUED":
                job.state = "JOB_STATE_RUNNING"
                ended = f"JOB_STATE_{job.staged.run()}"
        except Exception as error:
            ended = "JOB_STATE_FAILED"
            job.messages.append((dt.datetime.now(dt.UTC), "JOB_MESSAGE_ERROR", f"{error!r}"[:2000]))
        job.state = ended
        job.ended.set()


class Handler(JsonHandler):
    """One connection of a client."""

    def do_GET(self) -> None:  # noqa: N802 - the base class calls it so
        from google.cloud import dataflow

        if (match := _JOBS.fullmatch(self.path)) and match[1] is None:
            if not self._refused():
                described = [_described(job) for job in self.service.jobs.values()]
                self._answer(dataflow.ListJobsResponse(jobs=described))
            return
        job, part = self._asked_for()
        if job is None:
            return
        if part == "messages":
            messages = [
                dataflow.JobMessage(id=str(i), time=when, message_text=text, message_importance=importance)
                for i, (when, importance, text) in enumerate(list(job.messages))
            ]
            self._answer(dataflow.ListJobMessagesResponse(job_messages=messages))
        elif part == "metrics":
            self._answer(dataflow.JobMetrics(metrics=[_metric(*counter) for counter in job.staged.counters()]))
        else:
            self._answer(_described(job))

    def do_POST(self) -> None:  # noqa: N802 - the base class calls it so
        from google.cloud import dataflow

        body = self.body()
        if self._refused():
            return
        if _JOBS.fullmatch(self.path) is None:
            self.send_error(404)
            return
        self._answer(_described(self.service.submit(dataflow.Job.from_json(body))))

    def do_PUT(self) -> None:  # noqa: N802 - the base class calls it so
        from google.cloud import dataflow

        requested_state = dataflow.Job.from_json(self.body()).requested_state
        job, _ = self._asked_for()
        if job is None:
            return
        if requested_state != dataflow.JobState.JOB_STATE_CANCELLED:
            self.send_error(400, f"this service only cancels jobs; asked for {requested_state!r}")
            return
        self.service.cancel(job)
        self._answer(_described(job))

    def _asked_for(self) -> tuple[Job | None, str | None]:
        """The job that the path names, and the part of it; (None, None) if an error was answered."""
        if self._refused():
            return None, None
        match = _JOBS.fullmatch(self.path)
        job = self.service.jobs.get(match[1] or "") if match else None
        if match is None or job is None:
            self.send_error(404)
            return None, None
        return job, match[2]

    def _refused(self) -> bool:
        service = self.service
        service.requests.append(f"{self.command} {self.path.partition('?')[0]}")
        if service.status is not None:
            self.send_error(service.status)
        return service.status is not None

    def _answer(self, message: Any) -> None:
        self.send(200, type(message).to_json(message).encode())


def _described(job: Job) -> Any:
    """The job as the service describes it."""
    from google.cloud import dataflow

    return dataflow.Job(
        id=job.id,
        name=job.submitted.name,
        project_id=PROJECT,
        location=REGION,
        type_=dataflow.JobType.JOB_TYPE_BATCH,
        current_state=job.state,
        client_request_id=job.submitted.client_request_id,
        labels=dict(job.submitted.labels),
    )


def _metric(committed: bool, labels: dict[str, str], value: int) -> Any:
    """A user's counter."""
    from google.cloud import dataflow

    context = {"step": labels["PTRANSFORM"], "namespace": labels["NAMESPACE"]}
    if not committed:
        context["tentative"] = "true"
    return dataflow.MetricUpdate(name={"origin": "user", "name": labels["NAME"], "context": context}, scalar=value)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[DataflowService]:
    """Starts the service. The files of its jobs and its workers' environment are in `folder`."""
    (folder / "workers").mkdir()
    service = DataflowService(folder, loopback_service.make_environment(folder / "workers"))
    with serving(service, Handler):
        yield service


PATIENCE = 60  # seconds until a job service must be ready


class Cancelled(Exception):
    """The job was cancelled before it was submitted."""


class StagedJob:
    """A staged pipeline.

    Args:
      pipeline_url: where its proto lies.
      environment: what its workers run in.
      folder: where the logs of Prism and the workers are written.
      on_message: called with the importance and the text of each message.
    """

    def __init__(
        self, pipeline_url: str, environment: WorkerEnvironment, folder: Path, on_message: Callable[[str, str], None]
    ) -> None:
        self._url = pipeline_url
        self._environment = environment
        self._folder = folder
        self._on_message = on_message
        self._lock = threading.Lock()
        self._cancelled = False
        self._service: Any = None  # Beam's job service
        self._job_id = ""
        self._last_metrics: list[tuple[bool, dict[str, str], int]] = []
        self.packages: tuple[str, ...] = ()  # the names of the staged packages
        self.worker_pids: Callable[[], list[int]] = list  # the workers that are running

    def run(self) -> str:
        """Runs the job to its end.

        Returns:
          The state in which Prism ended it: DONE, FAILED or CANCELLED.
        """
        from apache_beam.portability.api import beam_job_api_pb2 as jobs
        from apache_beam.portability.api import beam_runner_api_pb2 as api

        pipeline = api.Pipeline.FromString(storage.read_bytes(self._url))
        packages = staged_packages(pipeline)
        self.packages = tuple(sorted(packages))
        site = self._environment.install(packages)
        with prism.running(self._folder, python=self._environment.python, site=site) as engine:
            self.worker_pids = engine.workers
            try:
                messages, states = self._submit(pipeline, engine)
                reader = threading.Thread(target=self._read, args=(messages,), daemon=True)
                reader.start()
                ended = (jobs.JobState.DONE, jobs.JobState.FAILED, jobs.JobState.CANCELLED)
                state = next((event.state for event in states if event.state in ended), jobs.JobState.FAILED)
                reader.join(10)
                self.counters()
            except Cancelled:
                return "CANCELLED"
            finally:
                self.worker_pids = list
                with self._lock:
                    self._service = None
        return "CANCELLED" if self._cancelled else jobs.JobState.Enum.Name(state)

    def cancel(self) -> None:
        from apache_beam.portability.api import beam_job_api_pb2 as jobs

        with self._lock:
            self._cancelled = True
            if self._service is not None:
                self._service.Cancel(jobs.CancelJobRequest(job_id=self._job_id))

    def counters(self) -> list[tuple[bool, dict[str, str], int]]:
        """The user's counters: whether it is of committed bundles, its labels, its value."""
        from apache_beam.portability.api import beam_job_api_pb2 as jobs

        with self._lock:
            if self._service is not None:
                metrics = self._service.GetJobMetrics(jobs.GetJobMetricsRequest(job_id=self._job_id)).metrics
                self._last_metrics = [
                    (committed, dict(info.labels), _decoded(info.payload))
                    for committed, infos in ((False, metrics.attempted), (True, metrics.committed))
                    for info in infos
                    if info.urn == "beam:metric:user:sum_int64:v1"
                ]
            return self._last_metrics

    def _submit(self, pipeline: Any, engine: prism.Prism) -> tuple[Iterable[Any], Iterable[Any]]:
        from apache_beam.options.pipeline_options import PipelineOptions
        from apache_beam.portability import common_urns
        from apache_beam.portability.api import beam_runner_api_pb2 as api
        from apache_beam.portability.api import endpoints_pb2
        from apache_beam.runners.portability import job_server, portable_runner

        for environment in pipeline.components.environments.values():  # the same proto, but for where its workers are
            environment.urn = common_urns.environments.EXTERNAL.urn
            pool = endpoints_pb2.ApiServiceDescriptor(url=engine.pool_endpoint)
            environment.payload = api.ExternalPayload(endpoint=pool).SerializeToString()
            del environment.dependencies[:]
        options = PipelineOptions(["--runner=PortableRunner", *engine.beam_args])
        service = job_server.ExternalJobServer(engine.job_endpoint, PATIENCE).start()
        with self._lock:
            if self._cancelled:
                raise Cancelled
            self._job_id, messages, states = portable_runner.JobServiceHandle(service, options).submit(pipeline)
            self._service = service
        return messages, states

    def _read(self, messages: Iterable[Any]) -> None:
        from apache_beam.portability.api import beam_job_api_pb2 as jobs

        for message in messages:
            if message.HasField("message_response"):
                response = message.message_response
                self._on_message(jobs.JobMessage.MessageImportance.Name(response.importance), response.message_text)


def staged_packages(pipeline: Any) -> Mapping[str, bytes]:
    """The archives that a pipeline's workers install, by name."""
    from apache_beam.portability.api import beam_runner_api_pb2 as api

    archives = {}
    for environment in pipeline.components.environments.values():
        for dependency in environment.dependencies:
            name = api.ArtifactStagingToRolePayload.FromString(dependency.role_payload).staged_name
            if name.endswith((".tar.gz", ".whl")):
                archives[name] = storage.read_bytes(api.ArtifactUrlPayload.FromString(dependency.type_payload).url)
    return archives


def _decoded(payload: bytes) -> int:
    from apache_beam import coders

    return int(coders.VarIntCoder().decode(payload))
