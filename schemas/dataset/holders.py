"""Identifies who holds the lease on a dataset directory: a process, or a job on a cluster."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import socket
import time
from collections.abc import Callable
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from schemas.spec.forms import Strict
from schemas.storage.folders import Snapshot


class Holder(Strict):
    """The process that holds a lease, as `lease.json` describes it."""

    run: str
    host: str
    system: str  # the boot id and the pid namespace: only within the same ones can pids be compared
    pid: int
    started: str  # start time of the process in kernel ticks, because pids are reused; '' if unknown
    since: str
    beat: float  # the last heartbeat, in seconds since 1970

    def __str__(self) -> str:
        return f"run {self.run} on host {self.host}, pid {self.pid}, since {self.since}"

    def is_gone(self, *, stale_seconds: float) -> bool:
        """Returns whether the process is known to be dead, or its last heartbeat is older than `stale_seconds`.

        Only a process on this machine can be known to be dead.
        """
        if time.time() - self.beat > stale_seconds:
            return True
        if (self.host, self.system) != (socket.gethostname(), _system()):
            return False
        started = _started(self.pid)
        return started is None or ("" not in (started, self.started) and started != self.started)

    def is_ahead(self, *, stale_seconds: float) -> bool:
        """Returns whether the last heartbeat is more than `stale_seconds` in the future.

        A clock is wrong then, and the age of the heartbeat says nothing about whether the holder is alive.
        """
        return self.beat - time.time() > stale_seconds


class JobReference(Strict):
    """The data with which a runner is asked about a job.

    `id` is '' before the job is submitted. It also stays '' if the service begins the job from a Flex Template after
    the launcher has ended. The job is then found by its `name`.
    """

    runner: Literal["DataflowRunner", "PortableRunner"]
    id: str
    name: str | None = None
    url: str | None = None
    project: str | None = None
    region: str | None = None
    endpoint: str | None = None
    no_auth: bool = False
    impersonate: str | None = None

    @property
    def place(self) -> str:
        """Where a person finds the job: its web page, its job service, or its project and region."""
        return self.url or self.endpoint or f"project {self.project}, region {self.region}"

    def __str__(self) -> str:
        return f"job {self.id or self.name} of {self.runner}" + (f" ({self.url})" if self.url else "")


class RemoteHolder(Strict):
    """A job on a cluster that holds a lease. The job's last step recognizes the lease by the name of the run."""

    run: str
    job: JobReference
    since: str

    def __str__(self) -> str:
        return f"run {self.run}, {self.job}, since {self.since}"


AnyHolder = Holder | RemoteHolder
HasEnded = Callable[[RemoteHolder], bool]  # asks the runner; raises MillraceError if the runner does not answer


def unknown_to_have_ended(_: RemoteHolder) -> bool:
    """Returns False, so that a remote job keeps its lease. For commands that do not ask the runner."""
    return False


def this_process(run: str) -> Holder:
    """Returns this process as a holder, with a heartbeat of this moment."""
    now = dt.datetime.now(dt.UTC)
    return Holder(
        run=run,
        host=socket.gethostname(),
        system=_system(),
        pid=os.getpid(),
        started=_started(os.getpid()) or "",
        since=now.isoformat(timespec="seconds"),
        beat=now.timestamp(),
    )


def read_holder(snapshot: Snapshot) -> AnyHolder | None:
    """Parses a lease. Returns its holder, or None if there is no lease or it cannot be parsed."""
    try:
        return _HOLDERS.validate_json(snapshot.data) if snapshot.data else None
    except ValidationError:
        return None


_HOLDERS: TypeAdapter[AnyHolder] = TypeAdapter(AnyHolder)


def _system() -> str:
    """Returns the boot id and the pid namespace; '' if the system does not provide them."""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    return ""


def _started(pid: int) -> str | None:
    """Returns the start time of a process in kernel ticks; None if the process is dead.

    Returns '' if the system does not provide the time.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:  # the process exists, and belongs to another user
        pass
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The process name, in parentheses, may contain any character: read the fields after the last parenthesis.
            state, *fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    return None if state in (b"Z", b"X") else fields[18].decode()
