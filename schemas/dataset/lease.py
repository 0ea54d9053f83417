"""The lease on a dataset directory: one job writes to it at a time, and the lease of a dead job expires.

`OUT/lease.json` names the holder: run, host, process, start time, and the last heartbeat, which a thread renews. A
lease is free if there is none, if its process on this host is dead, or if its last heartbeat is older than
`STALE_SECONDS`. A job that was suspended for longer may lose its lease to another job. It finds out when it commits:
the manifest is swapped only if the job still holds the lease and the manifest has not changed since the job took it.
A new holder first fences the manifest (`compare_and_swap.fence`), so that a job that was suspended between the
comparison and the swap cannot commit either. A lost lease never returns to its old holder.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator

from pydantic import ValidationError

from schemas import storage
from schemas.dataset import layout
from schemas.errors import MillraceError
from schemas.spec.strict import Strict
from schemas.storage import compare_and_swap
from schemas.storage.compare_and_swap import Changed, Seen

BEAT_SECONDS = 10.0
STALE_SECONDS = 120.0  # longer than swapping or a slightly wrong clock can delay the heartbeat of a live job


class LeaseError(MillraceError):
    """Another process holds the lease, or has taken it."""


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


def this_process(run: str) -> Holder:
    """This process as a holder, with a heartbeat now."""
    now = dt.datetime.now(dt.timezone.utc)
    return Holder(
        run=run,
        host=socket.gethostname(),
        system=_system(),
        pid=os.getpid(),
        started=_started(os.getpid()) or "",
        since=now.isoformat(timespec="seconds"),
        beat=now.timestamp(),
    )


class Lease:
    """A lease that this process has taken. Thread-safe."""

    def __init__(self, data_dir: str, holder: Holder, seen: Seen) -> None:
        self.data_dir = data_dir
        self._path = layout.join(data_dir, layout.LEASE)
        self._holder = holder
        self._seen = seen
        self._lock = threading.Lock()

    def renew(self) -> None:
        """Writes a heartbeat.

        Raises:
          LeaseError: another process has taken the lease.
        """
        with self._lock:
            self._holder = self._holder.model_copy(update={"beat": time.time()})
            data = self._holder.model_dump_json().encode()
            try:
                self._seen = compare_and_swap.swap(self._path, data, self._seen)
            except Changed as error:
                now = compare_and_swap.look(self._path)
                if not self._is_mine(_read(now)):
                    raise LeaseError(self._taken()) from error
                self._seen = now  # an earlier put succeeded, but its response was lost

    def check(self) -> None:
        """Checks that this process holds the lease, and so has held it without a break since it was taken.

        Raises:
          LeaseError: another process has taken it.
        """
        with self._lock:
            if not self._is_mine(_read(compare_and_swap.look(self._path))):
                raise LeaseError(self._taken())

    def put(self, name: str, data: bytes, seen: Seen) -> None:
        """Replaces a file of the directory if it is still as in `seen` and the lease is held.

        Raises:
          LeaseError: another process has taken the lease, or the file has changed; nothing was written.
        """
        path = layout.join(self.data_dir, name)
        try:
            self.renew()
        except LeaseError as error:
            raise self.lost() from error
        with self._lock:
            try:
                compare_and_swap.swap(path, data, seen, unless=(self._path, self._seen))
            except Changed as error:
                if not self._is_mine(_read(compare_and_swap.look(self._path))):
                    raise self.lost() from error
                raise LeaseError(
                    f"{path}: was changed while this job ran, by something that took no lease. Nothing was committed."
                ) from error

    def is_lost(self) -> bool:
        """Whether another process is known to have taken the lease."""
        try:
            self.renew()
        except LeaseError:
            return True
        except MillraceError:  # unknown, such as without network
            return False
        return False

    def release(self) -> None:
        """Removes the lease, unless another process has taken it."""
        with self._lock, contextlib.suppress(Changed):
            compare_and_swap.swap(self._path, None, self._seen)

    def lost(self) -> LeaseError:
        """The error of a job that lost its lease before it committed; names the new holder."""
        return LeaseError(
            f"{self._taken()}. Nothing of this job was committed. Run it again when the other one has finished."
        )

    def _taken(self) -> str:
        holder = _read(compare_and_swap.look(self._path))
        return (
            f"{self.data_dir}: this job (run {self._holder.run}) did not renew its lease in time, and the lease was "
            "taken over" + (f" by {holder}" if holder else " by a job that has finished")
        )

    def _is_mine(self, holder: Holder | None) -> bool:
        return holder is not None and holder.model_copy(update={"beat": self._holder.beat}) == self._holder


@contextlib.contextmanager
def hold(
    data_dir: str, *, run: str, beat_seconds: float = BEAT_SECONDS, stale_seconds: float = STALE_SECONDS
) -> Iterator[Lease]:
    """Holds the lease on a dataset directory during the `with` block; creates the directory if it is missing.

    Args:
      data_dir: local or gs://.
      run: identifies the holder in messages: the run's name, or the command's.
      beat_seconds: seconds between heartbeats.
      stale_seconds: the age of the last heartbeat at which another holder's lease is free.

    Raises:
      LeaseError: another process holds it.
    """
    lease = _take(data_dir, run, stale_seconds)
    done = threading.Event()

    def beat() -> None:
        while not done.wait(beat_seconds):
            try:
                lease.renew()
            except LeaseError:
                return
            except MillraceError:  # no network, or a full disk: the next heartbeat may succeed
                continue

    thread = threading.Thread(target=beat, name="lease", daemon=True)
    thread.start()
    try:
        yield lease
    finally:
        done.set()
        thread.join()
        with contextlib.suppress(MillraceError):  # if it cannot be removed, it soon becomes stale
            lease.release()


def _take(data_dir: str, run: str, stale_seconds: float) -> Lease:
    path = layout.join(data_dir, layout.LEASE)
    seen = compare_and_swap.look(path)
    holder = _read(seen)
    if (
        holder is None
        or holder.is_gone(stale_seconds=stale_seconds)
        or _heartbeat_stopped(path, seen, holder, stale_seconds)
    ):
        me = this_process(run)
        try:
            lease = Lease(data_dir, me, compare_and_swap.swap(path, me.model_dump_json().encode(), seen))
        except Changed:  # another process was faster
            holder = _read(compare_and_swap.look(path))
        else:
            # A fence rewrites the manifest on GCS, so only fence there if an old holder might wake up.
            try:
                if seen.data is not None or storage.is_local(path):
                    compare_and_swap.fence(layout.join(data_dir, layout.MANIFEST))
            except BaseException:
                with contextlib.suppress(MillraceError):
                    lease.release()
                raise
            return lease
    raise LeaseError(
        f"{data_dir}: another job is writing to it: {holder or 'one that has just finished'}. "
        "Wait until it is done, or use another folder. "
        f"(The lease of a dead job expires {stale_seconds:g} s after its last heartbeat; on the same host, at once.)"
    )


def _heartbeat_stopped(path: str, seen: Seen, holder: Holder, seconds: float) -> bool:
    """Whether a lease with a heartbeat in the future stays unchanged for `seconds` of this host's clock."""
    if not holder.is_ahead(stale_seconds=seconds):
        return False
    print(
        f"{path}: the last heartbeat of {holder} is {holder.beat - time.time():,.0f} s in the future: "
        f"its clock or this one is wrong. Watching for {seconds:g} s for another heartbeat.",
        file=sys.stderr,
    )
    until = time.monotonic() + seconds
    while compare_and_swap.look(path) == seen:
        if time.monotonic() > until:
            return True
        time.sleep(min(1.0, seconds / 10))
    return False


def _read(seen: Seen) -> Holder | None:
    """The holder; None if there is no lease, or it cannot be parsed."""
    try:
        return Holder.model_validate_json(seen.data) if seen.data else None
    except ValidationError:
        return None


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
