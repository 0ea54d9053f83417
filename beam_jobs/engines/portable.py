"""Submits jobs to Beam's job service, which Prism, Flink and Spark have, starts workers here, and finds jobs again."""

from __future__ import annotations

import collections
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import grpc
from apache_beam.metrics.metric import MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions
from apache_beam.portability.api import beam_job_api_pb2 as api
from apache_beam.portability.api import beam_job_api_pb2_grpc
from apache_beam.runners import PipelineRunner
from apache_beam.runners.portability.portable_runner import PortableMetrics, PortableRunner
from apache_beam.runners.portability.prism_runner import PrismRunner

from beam_jobs.core.workers import NAMESPACE
from beam_jobs.engines.remote_job import Unreachable
from schemas.dataset.holders import JobReference
from schemas.errors import MillraceError

_TO_DO = {
    "PrismRunner": "check --prism_location, a program of Prism such as `make cloud-tools` builds",
    "FlinkRunner": "install Java, and check --flink_job_server_jar, the jar that Beam downloads otherwise",
    "SparkRunner": "install Java, and check --spark_job_server_jar, the jar that Beam downloads otherwise",
}


def observed(runner: PortableRunner, note: Callable[[Any, str], None]) -> PortableRunner:
    """Returns a runner of the same class that reports each submitted job to `note`.

    The returned runner also raises a MillraceError of one line if its job service does not start or does not answer.

    Args:
      runner: the runner.
      note: called with the client of the job service and the id of the job, when the job is submitted.
    """
    kind: Any = type(runner)
    to_do = _TO_DO.get(kind.__name__, "check its options")

    class ObservedRunner(kind):
        """A runner of class `kind` with a changed `create_job_service`, which Beam calls to submit a job."""

        def create_job_service(self, options: PipelineOptions) -> Any:
            _hide_closed_channels()
            try:
                handle = super().create_job_service(options)
            except grpc.FutureTimeoutError as error:
                portable = options.view_as(PortableOptions)
                raise MillraceError(
                    f"--job_endpoint {portable.job_endpoint}: no job service answered within "
                    f"{portable.job_server_timeout:.0f} s. Start it, or correct the address; nothing was submitted."
                ) from error
            except Exception as error:
                reason = " ".join(str(error).split()) or type(error).__name__
                raise MillraceError(
                    f"{kind.__name__}: its job service did not start: {reason}; {to_do}; --verbose shows its log"
                ) from error
            submit = handle.submit

            def submit_and_note(pipeline: Any) -> tuple[Any, ...]:
                job_id, *streams = submit(pipeline)
                note(handle.job_service, job_id)
                return job_id, *streams

            handle.submit = submit_and_note
            return handle

    ObservedRunner.__name__ = kind.__name__  # Beam decides some things by the name of the runner's class
    return ObservedRunner()


def _hide_closed_channels() -> None:
    """Suppresses the tracebacks of gRPC's threads that end because Beam has closed the channel to a dead service.

    The hook is not removed later, because such a thread may end after this process has reported the service's error.
    """
    report = threading.excepthook

    def hook(args: threading.ExceptHookArgs) -> None:
        if "Channel closed" not in str(args.exc_value):
            report(args)

    threading.excepthook = hook


@contextlib.contextmanager
def worker_pool(*, verbose: bool) -> Iterator[str]:
    """Starts a pool of worker processes on this machine, and yields the pool's address.

    The pool and its workers end with the block, or with this process.

    Args:
      verbose: the workers print to this process's standard error.

    Raises:
      MillraceError: the pool does not start.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "beam_jobs.engines.portable"],
        stdin=subprocess.PIPE,  # the pipe is closed when this process ends, even by a kill, and the pool then ends
        stdout=subprocess.PIPE,
        stderr=None if verbose else subprocess.DEVNULL,
        # The pool starts workers with the command `python`. PATH makes it this Python, and PYTHONPATH gives the workers
        # the modules of this process.
        env={
            **os.environ,
            "PATH": os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath))),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        },
        start_new_session=True,
        text=True,
    ) as pool:
        address = pool.stdout.readline().strip() if pool.stdout else ""
        if not address:
            raise MillraceError("the worker pool on this machine did not start; --verbose shows what it printed")
        yield address


def main() -> None:
    """Runs a pool of workers: prints its address, waits until the launcher has ended, then ends with all workers."""
    from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer

    address, _ = BeamFnExternalWorkerPoolServicer.start(use_process=True)
    print(address, flush=True)
    sys.stdin.read()
    os.killpg(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()


ANSWER_SECONDS = 20.0  # the longest time to wait for the answer to one request
_JOB_NAME = "beam:option:job_name:v1"


class PortableJob:
    """A job of a job service. Implements `beam_jobs.engines.remote_job.RemoteJob`."""

    poll_seconds = 0.5
    watches_workers = False

    def __init__(self, service: beam_job_api_pb2_grpc.JobServiceStub, job_id: str, place: str) -> None:
        self._service = service
        self.id = job_id
        self.place = place

    def state(self) -> str:
        with _answers():
            response = self._service.GetState(api.GetJobStateRequest(job_id=self.id), timeout=ANSWER_SECONDS)
        return str(api.JobState.Enum.Name(response.state))

    def counters(self) -> Mapping[str, int]:
        with _answers():
            response = self._service.GetJobMetrics(api.GetJobMetricsRequest(job_id=self.id), timeout=ANSWER_SECONDS)
        sums: collections.Counter[str] = collections.Counter()
        for result in PortableMetrics(response).query(MetricsFilter().with_namespace(NAMESPACE))["counters"]:
            sums[result.key.metric.name] += result.committed or result.attempted or 0
        return sums

    def errors(self) -> Sequence[str]:
        texts = []
        with contextlib.suppress(grpc.RpcError):  # the messages that came before an error are returned
            for message in self._service.GetMessageStream(
                api.JobMessagesRequest(job_id=self.id), timeout=ANSWER_SECONDS
            ):
                job_message = message.message_response
                if job_message.importance == api.JobMessage.JOB_MESSAGE_ERROR:
                    texts.append(job_message.message_text)
        return texts

    def cancel(self) -> None:
        with _answers():
            self._service.Cancel(api.CancelJobRequest(job_id=self.id), timeout=ANSWER_SECONDS)


def find(service: beam_job_api_pb2_grpc.JobServiceStub, job: JobReference) -> PortableJob:
    """Finds a job in a job service by its name, and by its id if the reference has one.

    The id alone is not enough: a service that was restarted numbers its jobs anew, so an old id may be another job's.

    Args:
      service: the client of the job service.
      job: the reference of the job.

    Raises:
      Unreachable: the service does not answer, has no such job, or has several jobs of this name.
    """
    with _answers():
        infos = service.GetJobs(api.GetJobsRequest(), timeout=ANSWER_SECONDS).job_info
    named = [info.job_id for info in infos if info.pipeline_options.fields[_JOB_NAME].string_value == job.name]
    if job.id in named or (not job.id and len(named) == 1):
        return PortableJob(service, job.id or named[0], job.endpoint or "")
    if any(info.job_id == job.id for info in infos):
        raise Unreachable(f"it was started again, and its {job.id} is another job")
    raise Unreachable(f"{len(named)} jobs are named {job.name}" if named else "no such job")


def endpoint(options: PipelineOptions) -> str | None:
    """Returns the address of the job service; None if the options name no address."""
    address = options.view_as(PortableOptions).job_endpoint
    return None if address in (None, "", "embed") else str(address)


@contextlib.contextmanager
def with_workers(options: PipelineOptions, runner: PipelineRunner, *, verbose: bool) -> Iterator[None]:
    """Starts a worker pool on this machine if the job needs one, and puts the pool's address in the options.

    A job needs the pool with `--environment_type LOOPBACK`, and on Prism without `--environment_type`.

    Args:
      options: the pipeline's options, which are changed.
      runner: the runner of the job.
      verbose: the workers print to this process's standard error.
    """
    portable = options.view_as(PortableOptions)
    prism_starts_none = isinstance(runner, PrismRunner) and not portable.environment_type
    if not isinstance(runner, PortableRunner) or not (portable.environment_type == "LOOPBACK" or prism_starts_none):
        yield
        return
    with worker_pool(verbose=verbose) as address:
        portable.environment_type, portable.environment_config = "EXTERNAL", address
        yield


@contextlib.contextmanager
def _answers() -> Iterator[None]:
    """Turns an error of gRPC in the block into Unreachable, with a message of one line."""
    try:
        yield
    except grpc.RpcError as error:
        details = error.details() if isinstance(error, grpc.Call) else None
        raise Unreachable(" ".join((details or type(error).__name__).split())) from error
