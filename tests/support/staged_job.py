"""Runs a pipeline that was staged for Dataflow: the proto from the bucket on Prism, in workers that have the staged
package alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from schemas import storage
from tests.support import prism
from tests.support.worker_environment import WorkerEnvironment

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
                found = self._service.GetJobMetrics(jobs.GetJobMetricsRequest(job_id=self._job_id)).metrics
                self._last_metrics = [
                    (committed, dict(info.labels), _decoded(info.payload))
                    for committed, infos in ((False, found.attempted), (True, found.committed))
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
                said = message.message_response
                self._on_message(jobs.JobMessage.MessageImportance.Name(said.importance), said.message_text)


def staged_packages(pipeline: Any) -> Mapping[str, bytes]:
    """The archives that a pipeline's workers install, by name."""
    from apache_beam.portability.api import beam_runner_api_pb2 as api

    found = {}
    for environment in pipeline.components.environments.values():
        for dependency in environment.dependencies:
            name = api.ArtifactStagingToRolePayload.FromString(dependency.role_payload).staged_name
            if name.endswith((".tar.gz", ".whl")):
                found[name] = storage.read_bytes(api.ArtifactUrlPayload.FromString(dependency.type_payload).url)
    return found


def _decoded(payload: bytes) -> int:
    from apache_beam import coders

    return int(coders.VarIntCoder().decode(payload))
