"""Runs in forked processes that are stopped, killed or overtaken at a step, and what of them was flushed at a commit.

What has been flushed is recorded, not assumed: whoever wrote a file (TensorFlow writes behind Python), it must have
gone through `fsync` when the manifest gets its name.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import errno
import functools
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Self
from unittest import mock

from schemas.dataset import layout
from tests.support import last_step


class Flushes:
    """Which files and folders went to disk, as of which change, and which new names did not."""

    def __init__(self) -> None:
        self.flushed: dict[tuple[int, int], int] = {}  # device, inode -> when it had last been changed
        self.unnamed: set[str] = set()  # folders that were made, and whose parent was not flushed since
        self.commits: list[list[str]] = []  # what each manifest's rename found missing
        self._lock = threading.Lock()  # the lease's thread flushes, too
        self._fsync, self._mkdir, self._replace = os.fsync, os.mkdir, os.replace

    @contextlib.contextmanager
    def recorded(self) -> Iterator[Flushes]:
        """Records what this process does in the block."""
        with (
            mock.patch.object(os, "fsync", self._record_fsync),
            mock.patch.object(os, "mkdir", self._record_mkdir),
            mock.patch.object(os, "replace", self._record_replace),
        ):
            yield self

    def missing(self, run: Path) -> Iterator[str]:
        """Names in a run, and folders on the way to it, that a power cut may take; not what is then removed."""
        output = run.parent
        for path in (run, *sorted(run.rglob("*"))):
            if self._is_newer(path) and layout.STAGING not in path.relative_to(run).parts:
                yield str(path.relative_to(output))
        yield from (str(p) for p in (run, output, *output.parents) if str(p) in self.unnamed)

    def _is_newer(self, path: Path) -> bool:
        """Whether it was changed after it was flushed."""
        now = path.stat()
        return self.flushed.get((now.st_dev, now.st_ino), 0) < now.st_ctime_ns

    def _record_fsync(self, handle: int) -> None:
        now = os.fstat(handle)
        self._fsync(handle)
        with self._lock:
            self.flushed[now.st_dev, now.st_ino] = now.st_ctime_ns
            self.unnamed = {path for path in self.unnamed if not _same_file(os.path.dirname(path), now)}

    def _record_mkdir(self, path: Any, *args: Any, **kwargs: Any) -> None:
        self._mkdir(path, *args, **kwargs)
        with self._lock:
            self.unnamed.add(os.path.abspath(path))

    def _record_replace(self, source: Any, target: Any, **kwargs: Any) -> None:
        if os.path.basename(target) == layout.MANIFEST:
            run = json.loads(Path(source).read_bytes())["run"]
            unflushed = [layout.MANIFEST] if self._is_newer(Path(source)) else []
            self.commits.append([*unflushed, *self.missing(Path(target).parent / run)])
        self._replace(source, target, **kwargs)


def _same_file(path: str, now: os.stat_result) -> bool:
    if not os.path.isdir(path):
        return False
    status = os.stat(path)
    return (status.st_dev, status.st_ino) == (now.st_dev, now.st_ino)


# Every bundle is run to its end and its output thrown away; then it is run again, as where a worker is lost.
TWICE = ("--direct_runner_bundle_repeat", "1")
ARGUMENTS = ("--runner", "PortableRunner", "--job_endpoint", "localhost:1", "--environment_type", "PROCESS")


@dataclasses.dataclass
class StubJob:
    """A submitted job. Implements `beam_jobs.engines.remote_job.RemoteJob`."""

    current_state: str
    id: str = "stub-1"
    place: str = "localhost:1"
    poll_seconds: float = 0.01
    watches_workers: bool = True

    def state(self) -> str:
        return self.current_state

    def counters(self) -> Mapping[str, int]:
        return {}

    def errors(self) -> Sequence[str]:
        return ()

    def cancel(self) -> None:
        self.current_state = "CANCELLED"


def install_stub_cluster(state: str) -> None:
    """Has this process use the stub as its only cluster, for good.

    Args:
      state: in which every job is said to be, such as RUNNING, DONE or FAILED.
    """
    from beam_jobs.engines import jobs, runner

    run = runner.started

    @contextlib.contextmanager
    def started(options: Any, build: Callable[[Any], Any], last: Any) -> Iterator[StubJob | None]:
        here = dataclasses.replace(options, runner="FnApiRunner", beam_args=TWICE, no_wait=False)
        save_step = functools.partial(last_step.save, last, last.run.output)
        with run(options, build, last) if options.is_local else run(here, build, save_step):
            yield None if options.is_local else StubJob(state)

    mock.patch.object(runner, "started", started).start()
    mock.patch.object(jobs, "_connected", return_value=StubJob(state)).start()


ROOT = Path(__file__).parents[2]
PROGRAMS = {  # by the names that tests use; any other module with a `main` goes by its own
    "preprocess": "beam_jobs.preprocess",
    "predict": "beam_jobs.predict",
    "job": "beam_jobs.job",
    "dataset": "schemas.dataset.command",
    "last_step": "tests.support.last_step",
}
OF_THE_COMMIT = ("preprocess", "predict")  # of which only the steps since the phase "committing" count
CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate")
CRASHED, HANGS = 70, -99
PR_SET_PDEATHSIG = 1


def fork(run: Callable[[], int], *, out: int, err: int | None = None) -> int:
    """Calls a function in a process of its own, which ends with this one.

    Args:
      run: returns the exit status; an exception is printed, and gives `CRASHED`.
      out: the file descriptor of its output.
      err: that of its errors; None: the same.

    Returns:
      The process id.
    """
    child = os.fork()
    if child:
        return child
    status = CRASHED
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(out if err is None else err, 2)
        status = run()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


@dataclasses.dataclass
class Child:
    """A command, and what is to befall it.

    A step is a file or folder that is renamed, removed, created, linked or opened for writing: anywhere, or below
    `watched`. Before the step `kill_at` it gets the signal `struck_by`. `snapshots` has the first folder copied to
    the second, as 1, 2 and so on, before each step: a copy is what SIGKILL would leave. "steps" of the answer has a
    letter for each: "m" for one on a manifest, "." for others. The disk refuses the step `fail_at`. Just before the
    step `stop_at` it is stopped until the command `meanwhile` has ended, whose report the answer holds. "unflushed" of
    the answer names, for each commit, what a power cut may take.

    `signals` are (seconds after the call, signal), and `kill_after` is that of SIGKILL; `delay` is how long it waits
    before it begins. `lease` is (beat, stale) seconds; `system` has it take itself for a process of another machine.
    One with `takes_over` finds every lease stale. `cluster` is the state in which a job that was submitted is said to
    be; what is submitted is run here, but for its last step, which `tests.support.last_step` takes.
    """

    argv: list[str]
    program: str = "preprocess"
    signals: list[tuple[float, int]] = dataclasses.field(default_factory=list)
    kill_after: float | None = None
    delay: float = 0.0
    kill_at: int | None = None
    struck_by: int = signal.SIGKILL
    fail_at: int | None = None
    stop_at: int | None = None
    meanwhile: dict[str, Any] | None = None
    watched: str | None = None
    snapshots: tuple[str, str] | None = None
    lease: tuple[float, float] | None = None
    system: str | None = None
    takes_over: bool = False
    cluster: str | None = None

    def __post_init__(self) -> None:
        self.begun = time.monotonic()
        self.other: Child | None = None  # `meanwhile`, while this one is stopped
        self.others: dict[str, Any] | None = None  # its report
        self.steps: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - closed by the report
        self.output: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115
        self.unflushed: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115
        killed = [] if self.kill_after is None else [(self.kill_after, signal.SIGKILL)]
        self.due = sorted((float(at), number) for at, number in [*self.signals, *killed])
        self.pid = fork(self._run, out=self.output.fileno())

    def _run(self) -> int:
        time.sleep(self.delay)
        if self.lease is not None:
            shorten_lease(*self.lease)
        if self.system is not None:
            claim_system(self.system)
        if self.takes_over:
            take_over()
        if self.cluster is not None:
            install_stub_cluster(self.cluster)
        main = importlib.import_module(PROGRAMS.get(self.program, self.program)).main
        sys.addaudithook(Steps(self))
        if self.program not in PROGRAMS:
            return main(self.argv)
        flushes = Flushes()
        try:
            with flushes.recorded():
                return main(self.argv)
        finally:
            os.write(self.unflushed.fileno(), json.dumps(flushes.commits).encode())

    def report(self, patience: float) -> dict[str, Any] | None:
        """The answer once it has ended; sends the signals that are due."""
        if self.other is not None:
            self.others = self.other.report(patience)
            if self.others is None:
                return None
            self.other = None
            os.kill(self.pid, signal.SIGCONT)
        ended, status = os.waitpid(self.pid, os.WNOHANG | (0 if self.stop_at is None else os.WUNTRACED))
        if ended and os.WIFSTOPPED(status):
            self.other = Child(**(self.meanwhile or {}))
            return None
        seconds = time.monotonic() - self.begun
        if not ended:
            while self.due and self.due[0][0] <= seconds:
                os.kill(self.pid, self.due.pop(0)[1])
            if seconds > patience:
                os.kill(self.pid, signal.SIGKILL)
            return None
        written = []
        for file in (self.steps, self.output, self.unflushed):
            file.seek(0)
            written.append(file.read().decode(errors="replace"))
            file.close()
        code = os.waitstatus_to_exitcode(status) if seconds <= patience else HANGS
        return {
            "status": code,
            "seconds": seconds,
            "steps": written[0],
            "stderr": written[1],
            "unflushed": json.loads(written[2] or "[]"),
            "meanwhile": self.others,
        }


class Steps:
    """Counts a child's steps, and does what is to be done before each of them."""

    def __init__(self, child: Child) -> None:
        self.child, self.count = child, 0
        self.phase = "committing" if child.program in OF_THE_COMMIT else None
        self._lock = threading.Lock()  # the lease's thread waits while a copy is made
        self._copying: int | None = None

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if not (writes or event in CHANGES) or self._copying == threading.get_ident():
            return
        below = self.child.watched
        if below is not None and not any(isinstance(a, str) and a.startswith(below) for a in arguments[:2]):
            return
        if self.phase is not None:
            from beam_jobs.core import progress

            if self.phase != progress.JOB.counters.phase:
                return
        with self._lock:
            self._step(arguments)

    def _step(self, arguments: tuple[Any, ...]) -> None:
        from schemas.dataset import layout

        self.count += 1
        if self.count == self.child.kill_at:
            os.kill(os.getpid(), self.child.struck_by)
        if self.count == self.child.stop_at:
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.child.snapshots is not None:
            self._copying = threading.get_ident()
            copy(self.child.snapshots[0], os.path.join(self.child.snapshots[1], str(self.count)))
            self._copying = None
        os.write(self.child.steps.fileno(), b"m" if any(layout.MANIFEST in str(a) for a in arguments) else b".")
        if self.count == self.child.fail_at:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(arguments[0]))


def copy(folder: str, target: str) -> None:
    """Copies a folder. Starts again if another thread has removed a file meanwhile."""
    while True:
        try:
            shutil.copytree(folder, target)
        except shutil.Error:
            shutil.rmtree(target)
        else:
            return


def shorten_lease(beat: float, stale: float) -> None:
    """Has leases of this process go stale sooner."""
    from schemas.dataset import lease

    lease.BEAT_SECONDS, lease.STALE_SECONDS = beat, stale
    defaults = getattr(lease.hold, "__wrapped__", lease.hold).__kwdefaults__ or {}
    defaults.update({k: v for k, v in (("beat_seconds", beat), ("stale_seconds", stale)) if k in defaults})


def take_over() -> None:
    """Has this process find every lease stale."""
    from schemas.dataset import lease

    lease.hold.__wrapped__.__kwdefaults__["stale_seconds"] = -1  # type: ignore[attr-defined]


def claim_system(name: str) -> None:
    """Has this process pass for one of another machine, whose processes cannot be seen here."""
    import socket

    from schemas.dataset import holders

    socket.gethostname = lambda: name
    if hasattr(holders, "_system"):
        holders._system = lambda: name


class Forking:
    """The process that forks, as a context.

    Args:
      modules: what it imports once.
      patience: seconds that a child may take.
      environment: variables that it is given beside those of this process.
    """

    def __init__(
        self, *modules: str, patience: float = 600.0, environment: Mapping[str, str] | None = None, quiet: bool = False
    ) -> None:
        errors = subprocess.DEVNULL if quiet else None
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forking", str(patience), *modules],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )

    def run(self, *requests: dict[str, Any]) -> list[dict[str, Any]]:
        """Runs children side by side; returns their reports when all have ended.

        Raises:
          RuntimeError: the process that forks has ended.
        """
        assert self._process.stdin
        assert self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(requests) + "\n")
            self._process.stdin.flush()
            if line := self._process.stdout.readline():
                return list(json.loads(line))
        raise RuntimeError("the process that runs commands has ended")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):  # it ends with its input, and removes its files
            self._process.communicate(timeout=10)
        self._process.kill()
        self._process.communicate()


def serve(patience: float, *modules: str) -> None:
    """Runs commands until stdin ends. This process has no threads and runs no TensorFlow, so that it can be forked."""
    from schemas.libraries import quick_import

    quick_import(*modules)
    for line in sys.stdin:
        children = [Child(**request) for request in json.loads(line)]
        reports: dict[int, dict[str, Any]] = {}
        while len(reports) < len(children):
            time.sleep(0.002)
            for i, child in enumerate(children):
                if i not in reports and (report := child.report(patience)):
                    reports[i] = report
        print(json.dumps([reports[i] for i in range(len(children))]), flush=True)


if __name__ == "__main__":
    serve(float(sys.argv[1]), *sys.argv[2:])
