"""Workers that die or never come, services that do not answer, launchers that are interrupted: each ends in a clear
line and a dataset directory that the next job can use."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from apache_beam.portability.api import beam_job_api_pb2_grpc

from beam_jobs.core.workers import BEGUN
from beam_jobs.engines import remote_job
from beam_jobs.engines.portable import PortableJob
from schemas.dataset import layout
from schemas.errors import MillraceError
from tests.support import commands, processes
from tests.support import prism as prisms
from tests.support.datasets import Folder, folder_of_people
from tests.support.people import MEASURED_SCHEMA, people_csv
from tests.support.prism import ROOT
from tests.support.processes import until

pytestmark = pytest.mark.engines


@pytest.fixture
def long_job(tmp_path: Path) -> Folder:
    """Rows enough for a job to be still at work when it has begun to read."""
    job = folder_of_people(tmp_path, MEASURED_SCHEMA)
    header, rows = people_csv(500).split("\n", 1)
    job.raw.write_text(header + "\n" + 200 * rows)
    return job


def arguments(job: Folder, *beam_args: str) -> list[str]:
    return job.argv("--range_mb", "0.2", "--runner", "PortableRunner", *beam_args)


def has_begun(job: Folder) -> bool:
    return bool(list(job.output.glob(f"*/staging/{BEGUN}*")))


def test_a_killed_worker_fails_the_job_in_one_line_and_the_next_job_cleans_up(prism, long_job) -> None:
    def kill_the_worker() -> None:
        until(lambda: has_begun(long_job), "the job begins to read")
        for pid in prism.workers():
            os.kill(pid, signal.SIGKILL)

    code, printed = commands.end(commands.start("--quiet", *arguments(long_job, *prism.beam_args)), kill_the_worker)
    assert code == 1
    (line,) = printed
    assert line.startswith("error: ")
    assert "no worker reported an error: one may have been killed" in line
    assert not (long_job.output / layout.MANIFEST).exists()
    long_job.raw.write_text(people_csv(300))
    code, printed = commands.run("--quiet", *arguments(long_job, *prism.beam_args))
    assert (code, printed) == (0, [])
    runs = os.listdir(long_job.output)
    assert sorted(runs) == sorted([layout.MANIFEST, next(name for name in runs if name != layout.MANIFEST)])


def test_ctrl_c_ends_a_job_that_ends_with_its_launcher_and_leaves_nothing(long_job) -> None:
    own = ("--runner", "PrismRunner", "--prism_location", str(prisms.BINARY))
    process = commands.start("--quiet", *arguments(long_job, *own))

    def interrupt() -> None:
        until(lambda: has_begun(long_job), "the job begins to read")
        process.send_signal(signal.SIGINT)

    assert commands.end(process, interrupt) == (130, ["error: interrupted; nothing was committed"])
    assert list(long_job.output.iterdir()) == []


@pytest.mark.parametrize("pool", [prisms.mute, prisms.nobody])
def test_a_worker_pool_that_does_not_answer_ends_the_job_after_start_timeout(people, tmp_path, pool) -> None:
    (tmp_path / "prism").mkdir()
    with pool() as address, prisms.running(tmp_path / "prism", pool=address) as prism:  # its own: Prism hangs in it
        args = arguments(people, *prism.beam_args, "--start_timeout", "3")
        code, printed = commands.run("--quiet", *args)
    assert code == 1
    line, *more = printed
    silent = "no worker of the job .* has begun to read for 3 s. Is the worker pool running.*"
    ended = "the job service went away while the job was being submitted .*; nothing was committed."
    # Where a pool refuses connections, Prism ends with a panic: before it has answered to the job or afterwards.
    possible = silent if pool is prisms.mute else f"({silent}|{ended})"
    assert re.fullmatch(f"error: {prism.job_endpoint}: {possible}", line)
    if not more:
        assert list(people.output.iterdir()) == []
        return
    assert [line for line in more if "`millrace job status" not in line] == []  # Prism has ended, and can tell nothing
    assert commands.run("--quiet", *people.argv("--break_lease")) == (0, [])


@pytest.mark.parametrize("service", [prisms.mute, prisms.nobody])
def test_a_job_service_that_does_not_answer_is_given_up_in_one_line(people, service) -> None:
    with service() as address:
        code, printed = commands.run(
            "--quiet", *arguments(people, "--job_endpoint", address, "--job_server_timeout", "2")
        )
    assert code == 1
    (line,) = printed
    assert line.startswith(f"error: --job_endpoint {address}: no job service answered within 2 s")
    assert list(people.output.iterdir()) == []


def test_a_job_service_that_ends_while_the_job_is_submitted_is_told_in_one_line(people, tmp_path) -> None:
    with prisms.ends_when_asked(tmp_path) as address:
        code, printed = commands.run("--quiet", *arguments(people, "--job_endpoint", address))
    assert code == 1
    (line,) = printed
    assert line.startswith(f"error: {address}: the job service went away while the job was being submitted (")
    assert line.endswith(" See its log; nothing was committed.")
    assert list(people.output.iterdir()) == []


def test_a_job_service_that_stops_answering_is_given_up_in_one_line(tmp_path: Path) -> None:
    with grpc.insecure_channel(f"localhost:{processes.free_port()}") as channel:
        job = PortableJob(beam_job_api_pb2_grpc.JobServiceStub(channel), "job-001", "localhost:8073")
        with pytest.raises(MillraceError) as raised:
            remote_job.follow(job, staging=str(tmp_path), total=1, start_seconds=900, answer_seconds=1.0, quiet=True)
    message = str(raised.value)
    assert message.startswith("localhost:8073: no answer for 1 s (")
    assert message.endswith("The job job-001 may still be running there.")
    assert "\n" not in message


def test_workers_on_the_launchers_machine_end_with_it_even_if_it_is_killed(tmp_path: Path) -> None:
    code = (
        "import time\nfrom beam_jobs.engines.portable import worker_pool\n"
        "with worker_pool(verbose=False) as address:\n    print(address, flush=True)\n    time.sleep(1000)"
    )
    launcher = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert launcher.stdout
        with launcher.stdout as printed:
            assert printed.readline().startswith("localhost:")
        (pool,) = children(launcher.pid)
        launcher.kill()
        launcher.wait()
        until(lambda: has_ended(pool), "the workers end")
    finally:
        launcher.kill()


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except OSError:
        return True


def children(pid: int) -> list[int]:
    pids = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            pids += [int(child) for child in path.read_text().split()]
    return pids


@pytest.fixture
def people(tmp_path: Path) -> Folder:
    """500 valid rows."""
    return folder_of_people(tmp_path, MEASURED_SCHEMA)
