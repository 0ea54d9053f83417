"""Prism, Beam's runner in a process of its own, and a worker pool that starts each SDK worker as another process.

`make cloud-tools` builds Prism; `make test-prism` needs nothing else of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import grpc

from tests.support import processes
from tests.support.processes import free_port

ROOT = Path(__file__).parents[2]
BINARY = processes.BUILT / "prism"


@dataclasses.dataclass(frozen=True)
class Prism:
    """A running Prism with its worker pool.

    Attributes:
      job_endpoint: the address of its job service.
      pool_endpoint: the address of the worker pool.
      pool_pid: the process of the worker pool.
      pid: its own process.
      folder: holds `prism.log` and `workers.log`.
    """

    job_endpoint: str
    pool_endpoint: str
    pool_pid: int
    pid: int
    folder: Path

    @property
    def beam_args(self) -> tuple[str, ...]:
        """The options of a job that runs here, beside `--runner PortableRunner`."""
        environment = ("--environment_type", "EXTERNAL", "--environment_config", self.pool_endpoint)
        return ("--job_endpoint", self.job_endpoint, *environment)

    def workers(self) -> list[int]:
        """The processes of the SDK workers that are running."""
        children = Path(f"/proc/{self.pool_pid}/task").glob("*/children")  # by the thread that started them
        return [int(pid) for path in children for pid in path.read_text().split()]


@contextlib.contextmanager
def running(
    folder: Path, *, python: Path = Path(sys.executable), site: Path = ROOT, pool: str | None = None
) -> Iterator[Prism]:
    """Starts Prism and a worker pool.

    Args:
      folder: where their logs are written.
      python: the Python that the workers run.
      site: the folder that the workers import the project from.
      pool: the address of a worker pool; None: starts one.
    """
    port, pool_pid = processes.free_port(), 0
    with contextlib.ExitStack() as stack:
        if pool is None:
            pool_port = processes.free_port()
            # Prism panics where the pool does not listen yet. The pool starts workers by the name `python`.
            path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
            starting = processes.running(
                [str(python), "-m", "apache_beam.runners.worker.worker_pool_main", f"--service_port={pool_port}"],
                port=pool_port,
                log=folder / "workers.log",
                cwd=site,
                env={**os.environ, "PATH": path, "PYTHONPATH": str(site)},
            )
            pool, pool_pid = f"localhost:{pool_port}", stack.enter_context(starting).pid
        command = [processes.built(BINARY), "-job_port", str(port), "-serve_http=false"]
        process = stack.enter_context(processes.running(command, port=port, log=folder / "prism.log"))
        yield Prism(f"localhost:{port}", pool, pool_pid, process.pid, folder)


@contextlib.contextmanager
def mute() -> Iterator[str]:
    """Accepts connections, and neither reads nor answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"localhost:{server.getsockname()[1]}"


@contextlib.contextmanager
def nobody() -> Iterator[str]:
    """Refuses connections."""
    yield f"localhost:{free_port()}"


@contextlib.contextmanager
def ends_when_asked(folder: Path) -> Iterator[str]:
    """A gRPC server, in a process of its own, which exits at the first request, of whatever kind."""
    port = free_port()
    command = [sys.executable, "-m", __name__, str(port)]
    with processes.running(command, port=port, log=folder / "server.log"):
        yield f"localhost:{port}"


class _Exits(grpc.GenericRpcHandler):
    def service(self, handler_call_details: grpc.HandlerCallDetails) -> NoReturn:
        os._exit(1)


if __name__ == "__main__":
    server = grpc.server(ThreadPoolExecutor(1), handlers=[_Exits()])
    server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}")
    server.start()
    server.wait_for_termination()
