"""The lease on a dataset directory: one job writes to it at a time, and a dead job's lease does not last.

`OUT/lease.json` says who holds it: run, host, process, since when, and the time of its last sign of life, which a
thread renews. A lease is free when there is none, when its process on this host is gone, or when it gave no sign of
life for `STALE_SECONDS`. A job that was stopped that long, and whose lease another took meanwhile, finds out when it
commits: the manifest is swapped only while the lease is still its own and the manifest still the one seen at first.
Who takes a lease fences the manifest (`compare_and_swap.fence`) before anything else: a job that was stopped between
the comparison and the swap does not get through. A lease that was lost is never its old holder's again.
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
STALE_SECONDS = 120.0  # more than a machine that swaps, or a clock that is a little off, keeps a living job silent


class LeaseError(MillraceError):
    """Another process holds the lease, or has taken it."""


class Holder(Strict):
    """Who holds a lease."""

    run: str
    host: str
    system: str  # which boot of which machine, and which process namespace: where a process number means something
    pid: int
    started: str  # when the process began, in the kernel's ticks, '' if unknown: process numbers are used again
    since: str
    beat: float  # the last sign of life, seconds since 1970

    def __str__(self) -> str:
        return f"run {self.run} on host {self.host}, pid {self.pid}, since {self.since}"

    def is_gone(self, *, stale_seconds: float) -> bool:
        """Whether the process is dead, as far as this host knows, or has been silent for so long."""
        if time.time() - self.beat > stale_seconds:
            return True
        if (self.host, self.system) != (socket.gethostname(), _system()):
            return False
        started = _started(self.pid)
        return started is None or ("" not in (started, self.started) and started != self.started)

    def is_ahead(self, *, stale_seconds: float) -> bool:
        """Whether its last sign of life lies so far in the future that by the clock it would not end before long."""
        return self.beat - time.time() > stale_seconds


def this_process(run: str) -> Holder:
    """This process, now."""
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
    """A lease that this process took. Safe to use from several threads."""

    def __init__(self, data_dir: str, holder: Holder, seen: Seen) -> None:
        self.data_dir = data_dir
        self._path = layout.join(data_dir, layout.LEASE)
        self._holder = holder
        self._seen = seen
        self._lock = threading.Lock()

    def renew(self) -> None:
        """Gives a sign of life.

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
                self._seen = now  # of a put whose answer was lost on its way

    def check(self) -> None:
        """Looks whether the lease is held: then it was, without a break, since it was taken.

        Raises:
          LeaseError: another process has taken it.
        """
        with self._lock:
            if not self._is_mine(_read(compare_and_swap.look(self._path))):
                raise LeaseError(self._taken())

    def put(self, name: str, data: bytes, seen: Seen) -> None:
        """Swaps a file of the directory that was seen as `seen`, while the lease is held.

        Raises:
          LeaseError: the lease was taken, or the file changed; nothing was written.
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
        except MillraceError:  # it cannot be told
            return False
        return False

    def release(self) -> None:
        """Ends the lease; does nothing where it is another's by now."""
        with self._lock, contextlib.suppress(Changed):
            compare_and_swap.swap(self._path, None, self._seen)

    def lost(self) -> LeaseError:
        """Says who has the directory now, of a job that has not committed."""
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
    """Holds the lease on a dataset directory, which is made if it is missing, while the `with` block runs.

    Args:
      data_dir: local or gs://.
      run: what the holder is told by: the run's name, or the command's.
      beat_seconds: how often a sign of life is given.
      stale_seconds: after how long a silence another's lease is taken.

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
            except MillraceError:  # no network, a full disk: the next one may get through
                continue

    thread = threading.Thread(target=beat, name="lease", daemon=True)
    thread.start()
    try:
        yield lease
    finally:
        done.set()
        thread.join()
        with contextlib.suppress(MillraceError):  # it could not be removed: it is taken for dead before long
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
        except Changed:  # another was quicker
            holder = _read(compare_and_swap.look(path))
        else:
            # On GCS a fence costs a put of the manifest: only where there is a job that may wake up.
            try:
                if seen.data is not None or storage.is_local(path):
                    compare_and_swap.fence(layout.join(data_dir, layout.MANIFEST))
            except BaseException:
                with contextlib.suppress(MillraceError):
                    lease.release()
                raise
            return lease
    raise LeaseError(
        f"{data_dir}: another job is writing to it: {holder or 'one that is just done'}. "
        "Wait until it is done, or name another folder. "
        f"(If it is dead: the lease is free {stale_seconds:g} s after its last sign of life, on its own host at once.)"
    )


def _heartbeat_stopped(path: str, seen: Seen, holder: Holder, seconds: float) -> bool:
    """Watches a lease whose sign of life lies in the future, by this host's clock alone: does it change no more?"""
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
    """The holder; None where there is none, or none that can be read."""
    try:
        return Holder.model_validate_json(seen.data) if seen.data else None
    except ValidationError:
        return None


def _system() -> str:
    """The boot and the process namespace; '' where the system does not tell."""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    return ""


def _started(pid: int) -> str | None:
    """When a process began, in the kernel's ticks; '' where the system does not tell; None if it is dead."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:  # another user's
        pass
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, *fields = file.read().rpartition(b")")[2].split()  # the name before it may hold anything
    except OSError:
        return ""
    return None if state in (b"Z", b"X") else fields[18].decode()
