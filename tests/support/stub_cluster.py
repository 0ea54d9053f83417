"""A cluster in this process: it runs what is submitted at once, each bundle twice, and gives every job one state."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest import mock

# Every bundle is run to its end and its output thrown away; then it is run again, as where a worker is lost.
TWICE = ("--direct_runner_bundle_repeat", "1")
ARGUMENTS = ("--runner", "PortableRunner", "--job_endpoint", "localhost:1", "--environment_type", "PROCESS")


@dataclasses.dataclass
class StubJob:
    """A submitted job. Implements `beam_jobs.engines.remote_job.RemoteJob`."""

    said: str
    id: str = "stub-1"
    place: str = "localhost:1"
    poll_seconds: float = 0.01
    watches_workers: bool = True

    def state(self) -> str:
        return self.said

    def counters(self) -> Mapping[str, int]:
        return {}

    def errors(self) -> Sequence[str]:
        return ()

    def cancel(self) -> None:
        self.said = "CANCELLED"


def install(state: str) -> None:
    """Has this process use the stub as its only cluster, for good.

    Args:
      state: in which every job is said to be, such as RUNNING, DONE or FAILED.
    """
    from beam_jobs.engines import jobs, runner

    def start(options: Any, build: Callable[[Any], None]) -> StubJob:
        runner._run_here(dataclasses.replace(options, runner="FnApiRunner", beam_args=TWICE, no_wait=False), build)
        return StubJob(state)

    mock.patch.object(runner, "start", start).start()
    mock.patch.object(jobs, "_connected", return_value=StubJob(state)).start()
