"""Who may hold the lease on a dataset directory: a process, or a job on a cluster.

A job on a cluster has a `job.json` in its run, with all that its commit needs to know later. It is written once, before
the lease is handed over to the remote job, and never changed.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import os
import socket
import time
from collections.abc import Callable
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from schemas.dataset import layout
from schemas.errors import MillraceError
from schemas.spec.forms import Strict, first_mistake
from schemas.storage import folders
from schemas.storage.folders import Seen
from schemas.storage.json_files import check_version_of

FORMAT_VERSION = 1  # of job.json


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
        """Whether the process is known to be dead, or its last heartbeat is older than `stale_seconds`."""
        if time.time() - self.beat > stale_seconds:
            return True
        if (self.host, self.system) != (socket.gethostname(), _system()):
            return False
        started = _started(self.pid)
        return started is None or ("" not in (started, self.started) and started != self.started)

    def is_ahead(self, *, stale_seconds: float) -> bool:
        """Whether its last heartbeat is so far in the future that the lease would not expire for a long time."""
        return self.beat - time.time() > stale_seconds


class RemoteHolder(Strict):
    """A job on a cluster that holds a lease."""

    kind: Literal["remote"] = "remote"
    run: str
    job: str  # for people: the runner, the job's id and its URL; `schemas.dataset.holders` has the rest
    since: str

    def __str__(self) -> str:
        return f"run {self.run}, {self.job}, since {self.since}"


AnyHolder = Holder | RemoteHolder
# Asks the runner. Raises MillraceError where it cannot be asked, and LeaseError where the result waits for its commit.
HasEnded = Callable[[RemoteHolder], bool]


def unknown_to_have_ended(_: RemoteHolder) -> bool:
    """For commands that ask no runner: a remote job holds its lease."""
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


def read_holder(seen: Seen) -> AnyHolder | None:
    """The holder; None if there is no lease, or it cannot be parsed."""
    try:
        return _HOLDERS.validate_json(seen.data) if seen.data else None
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


class Replaced(Strict):
    """The manifest that was there when the job began, and that its own replaces."""

    sha256: str | None  # of its bytes; None: there was no manifest
    generation: int | str = 0  # of the object, in a bucket; or its ETag

    @classmethod
    def of(cls, seen: Seen) -> Replaced:
        """The manifest as it was seen."""
        return cls(sha256=None if seen.data is None else digest(seen.data), generation=seen.generation)

    def is_still(self, manifest: bytes | None) -> bool:
        """Whether this is the same manifest. A fence may have put the same bytes under another generation."""
        return self.sha256 == (None if manifest is None else digest(manifest))


class JobReference(Strict):
    """By what the runner is asked about the job.

    `id` is '' for a job that the service begins after its launcher has ended, from a Flex Template; it is then found by
    its `name`.
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


class Submitted(Strict):
    """A job that was submitted."""

    format_version: Literal[1] = 1
    run: str
    job: JobReference
    submitted: float  # in seconds since 1970
    options: dict[str, Any]  # those of the job, `beam_jobs.core.options.JobOptions`, without Beam's
    replaces: Replaced
    input_files: int
    input_parts: int  # the files in staging that list them
    classes: tuple[str, ...] = ()
    transform_from: str | None = None  # the run whose transform is applied
    preprocessing_fn: str | None = None  # module:function, if it is not derived from the schema

    @property
    def holder(self) -> RemoteHolder:
        """The job as the holder of the lease."""
        since = dt.datetime.fromtimestamp(self.submitted, dt.UTC).isoformat(timespec="seconds")
        return RemoteHolder(run=self.run, job=str(self.job), since=since)

    def to_json(self) -> bytes:
        """The file's bytes."""
        return self.model_dump_json(indent=1).encode() + b"\n"


def digest(manifest: bytes) -> str:
    """What a manifest is recognized by."""
    return hashlib.sha256(manifest).hexdigest()


def read_submitted(data_dir: str, run: str) -> Submitted | None:
    """Reads the job.json of a run; None if it has none.

    Raises:
      MillraceError: it cannot be read.
    """
    path = layout.join(data_dir, run, layout.JOB)
    data = folders.look(path).data
    if data is None:
        return None
    try:
        found = Submitted.model_validate_json(data)
        if found.run != run:
            raise MillraceError(f"{path}: is of run {found.run[:80]!r}; expected {run}. Restore the file.")
        return found
    except ValidationError as error:
        check_version_of(data, path, FORMAT_VERSION, advice="end the job with `millrace job cancel`")
        raise MillraceError(
            f"{path}: {first_mistake(error)}. Expected what this release writes when it submits a job; use the "
            "release that submitted it, or end it with `millrace job cancel`."
        ) from error


def may_be_committed(data_dir: str, run: str, manifest: bytes | None) -> bool:
    """Whether a run is that of a submitted job that can still be committed: the manifest is the one it replaces.

    A job.json that cannot be read counts as one, so that nothing is removed.
    """
    try:
        found = read_submitted(data_dir, run)
    except MillraceError:
        return True
    return found is not None and found.replaces.is_still(manifest)
