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
    """The process that holds a lease."""

    run: str
    host: str
    system: str  # boot id and pid namespace, within which a pid is meaningful
    pid: int
    started: str  # start time of the process in kernel ticks, since pids are reused; '' if unknown
    since: str
    beat: float  # the last heartbeat, in seconds since 1970

    def __str__(self) -> str:
        return f"run {self.run} on host {self.host}, pid {self.pid}, since {self.since}"

    def is_gone(self, *, stale_seconds: float) -> bool:
        """Returns whether the process is known to be dead, or its last heartbeat is older than `stale_seconds`."""
        if time.time() - self.beat > stale_seconds:
            return True
        if (self.host, self.system) != (socket.gethostname(), _system()):
            return False
        started = _started(self.pid)
        return started is None or ("" not in (started, self.started) and started != self.started)

    def is_ahead(self, *, stale_seconds: float) -> bool:
        """Returns whether its last heartbeat is so far in the future that the lease would long not expire."""
        return self.beat - time.time() > stale_seconds


class JobReference(Strict):
    """By what the runner is asked about the job.

    `id` is '' before the job is submitted, and for one that the service begins from a Flex Template after its launcher
    has ended. The job is then found by its `name`.
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
        """Where a person finds the job: its page, or its job service."""
        return self.url or self.endpoint or f"project {self.project}, region {self.region}"

    def __str__(self) -> str:
        return f"job {self.id or self.name} of {self.runner}" + (f" ({self.url})" if self.url else "")


class RemoteHolder(Strict):
    """A job on a cluster that holds a lease. Its run is the token by which its last step recognizes the lease."""

    run: str
    job: JobReference
    since: str

    def __str__(self) -> str:
        return f"run {self.run}, {self.job}, since {self.since}"


AnyHolder = Holder | RemoteHolder
HasEnded = Callable[[RemoteHolder], bool]  # asks the runner; raises MillraceError where it does not answer


def unknown_to_have_ended(_: RemoteHolder) -> bool:
    """Returns False: for commands that do not ask the runner, so that a remote job holds its lease."""
    return False


def this_process(run: str) -> Holder:
    """This process as a holder, with a heartbeat now."""
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
    """Returns the holder; None if there is no lease, or it cannot be parsed."""
    try:
        return _HOLDERS.validate_json(snapshot.data) if snapshot.data else None
    except ValidationError:
        return None


_HOLDERS: TypeAdapter[AnyHolder] = TypeAdapter(AnyHolder)


def _system() -> str:
    """The boot id and the pid namespace; '' if the system does not provide them."""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    return ""


def _started(pid: int) -> str | None:
    """The start time of a process in kernel ticks; '' if the system does not provide it; None if it is dead."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:  # another user's
        pass
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, *fields = file.read().rpartition(b")")[2].split()  # the process name may contain any character
    except OSError:
        return ""
    return None if state in (b"Z", b"X") else fields[18].decode()
