"""The lease on a dataset directory: one job at a time writes to it, and the lease of a dead job expires.

`OUT/lease.json` names the holder: its run, host, process, start time, and last heartbeat. A thread renews the
heartbeat. The lease is free if there is no such file, if the holder is a dead process of this host, or if the last
heartbeat is older than `STALE_SECONDS`.

A job that was suspended for longer than that may lose its lease to another job. It notices this when it commits,
because the manifest is swapped only under two conditions: the job still holds the lease, and the manifest has not
changed since the job took the lease. Between this comparison and the swap, the job may be suspended again. So each new
holder first fences the manifest (`folders.fence`), which makes such a swap fail. A lost lease never returns to its old
holder.

The last step of a job runs in the launcher's process or on a worker. It finds the lease by the run's name
(`lease_of_job`), commits, and gives the lease back. Several attempts at this step may run at once; then the conditional
swap of the manifest decides which one commits.

A launcher can end while its job goes on on a cluster. It then hands the lease over to that job, which sends no
heartbeats. Such a lease is free when the runner says that the job has ended. If the runner does not answer, a user can
break the lease (`--break_lease`).
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

from schemas import retries, storage
from schemas.dataset import layout
from schemas.dataset.holders import (
    AnyHolder,
    HasEnded,
    Holder,
    RemoteHolder,
    read_holder,
    this_process,
    unknown_to_have_ended,
)
from schemas.errors import MillraceError
from schemas.storage import folders
from schemas.storage.folders import Changed, Snapshot

BEAT_SECONDS = 10.0
STALE_SECONDS = 120.0  # longer than a slow machine or a slightly wrong clock can delay a live job's heartbeat


class LeaseError(MillraceError):
    """Another process holds the lease, or has taken it from this job."""


class Lease:
    """A lease that this process has taken, or that it uses as part of a job on a cluster. Thread-safe."""

    def __init__(self, data_dir: str, holder: AnyHolder, snapshot: Snapshot) -> None:
        self.data_dir = data_dir
        self._path = layout.join(data_dir, layout.LEASE)
        self._holder = holder
        self._snapshot = snapshot
        self._lock = threading.Lock()

    def renew(self) -> None:
        """Writes a heartbeat. If a remote job holds the lease, only checks that it still does.

        Raises:
          LeaseError: another process has taken the lease.
        """
        with self._lock:
            if isinstance(self._holder, RemoteHolder):
                self._snapshot = self._mine()
                return
            self._holder = self._holder.model_copy(update={"beat": time.time()})
            data = self._holder.model_dump_json().encode()
            try:
                self._snapshot = folders.swap(self._path, data, self._snapshot)
            except Changed:
                self._snapshot = self._mine()  # an earlier put succeeded, but its response was lost

    def check(self) -> None:
        """Checks that this process still holds the lease.

        A lost lease never comes back, so it was held without a break.

        Raises:
          LeaseError: another process has taken the lease.
        """
        with self._lock:
            self._mine()

    def put(self, name: str, data: bytes, snapshot: Snapshot) -> None:
        """Replaces a file of the directory, if the file is unchanged and this process holds the lease.

        Args:
          name: the file, relative to the directory.
          data: its new bytes.
          snapshot: the file as it was read before.

        Raises:
          LeaseError: another process has taken the lease, or the file has changed. Nothing was written.
        """
        path = layout.join(self.data_dir, name)
        while True:
            try:
                self.renew()
            except LeaseError as error:
                raise self.lost() from error
            with self._lock:
                try:
                    folders.swap(path, data, snapshot, unless=(self._path, self._snapshot))
                    return
                except Changed as error:
                    if folders.look(self._path) == self._snapshot:
                        raise LeaseError(
                            f"{path}: was changed while this job ran, by something that took no lease. Nothing was "
                            "committed."
                        ) from error
            # Only the lease was rewritten: by the launcher, which added the job's id, or by another job that took the
            # lease. Try again: `renew` finds out which.

    def hand_over(self, holder: RemoteHolder) -> None:
        """Gives the lease to a remote job, or adds the job's id to it. From then on only `release` removes the lease.

        Raises:
          LeaseError: another process has taken the lease.
        """
        with self._lock:
            self._snapshot = self._swap_mine(holder.model_dump_json().encode())
            self._holder = holder

    @property
    def is_remote(self) -> bool:
        """Whether a remote job holds the lease."""
        return isinstance(self._holder, RemoteHolder)

    def release(self) -> None:
        """Removes the lease. Does nothing if another process has taken it."""
        with self._lock, contextlib.suppress(LeaseError):
            self._swap_mine(None)

    def lost(self) -> LeaseError:
        """Returns the error of a job that lost its lease before it committed. The message names the new holder."""
        return LeaseError(
            f"{self._taken()}. Nothing of this job was committed. Run it again when the other one has finished."
        )

    def _swap_mine(self, data: bytes | None) -> Snapshot:
        """Replaces or removes the lease. Tries again if another process of the same run has rewritten it."""
        while True:
            try:
                return folders.swap(self._path, data, self._snapshot)
            except Changed:
                self._snapshot = self._mine()

    def _mine(self) -> Snapshot:
        """Returns the lease as it is now. Raises LeaseError if another process has taken it."""
        now = folders.look(self._path)
        if not self._is_mine(read_holder(now)):
            raise LeaseError(self._taken())
        return now

    def _taken(self) -> str:
        holder = read_holder(folders.look(self._path))
        return (
            f"{self.data_dir}: this job (run {self._holder.run}) did not renew its lease in time, and the lease was "
            "taken over" + (f" by {holder}" if holder else " by a job that has finished")
        )

    def _is_mine(self, holder: AnyHolder | None) -> bool:
        """Whether a holder is this one: the same process (heartbeats may differ), or the same run of a remote job."""
        if isinstance(holder, Holder) and isinstance(self._holder, Holder):
            return holder.model_copy(update={"beat": self._holder.beat}) == self._holder
        return isinstance(holder, RemoteHolder) and self.is_remote and holder.run == self._holder.run


@contextlib.contextmanager
def hold(
    data_dir: str,
    *,
    run: str,
    beat_seconds: float = BEAT_SECONDS,
    stale_seconds: float = STALE_SECONDS,
    has_ended: HasEnded = unknown_to_have_ended,
    break_lease: bool = False,
    instead_of: str | None = None,
) -> Iterator[Lease]:
    """Holds the lease on a dataset directory during the `with` block. Creates the directory if it is missing.

    A thread renews the heartbeat during the block. At the end the lease is removed, unless a remote job has it by then.

    Args:
      data_dir: the directory, local or gs://.
      run: the holder's name in messages: the name of the run, or a command.
      beat_seconds: the seconds between two heartbeats.
      stale_seconds: the age in seconds of another holder's last heartbeat at which its lease is free.
      has_ended: tells whether a remote job that holds the lease has ended, so that its lease is free.
      break_lease: take the lease of a remote job if the runner does not say whether the job has ended.
      instead_of: the name of a run that loses its lease in any case, so that no step of it can commit any more; None:
        no run does.

    Raises:
      LeaseError: another process, or a job on a cluster, holds the lease.
    """
    lease = _take(data_dir, this_process(run), stale_seconds, has_ended, instead_of, break_lease=break_lease)
    done = threading.Event()

    def beat() -> None:
        while not done.wait(beat_seconds) and not lease.is_remote:
            try:
                lease.renew()
            except LeaseError:
                return
            except MillraceError:  # the network is down, or the disk full: the next heartbeat may succeed
                continue

    beats = threading.Thread(target=beat, name="lease", daemon=True)
    beats.start()
    try:
        yield lease
    except BaseException:
        done.set()
        with retries.ending():
            beats.join(retries.ENDING_SECONDS)
            _let_go(lease, beats)
        raise
    done.set()
    beats.join(retries.RETRY_SECONDS + retries.STALL_SECONDS)  # a request under way ends by then, even with retries
    _let_go(lease, beats)


def _let_go(lease: Lease, beats: threading.Thread) -> None:
    """Removes this process's lease after its last heartbeat.

    If that fails, prints a note: the lease expires by itself.
    """
    if lease.is_remote:
        return
    try:
        if beats.is_alive():
            raise MillraceError("a request to renew it is still under way")
        lease.release()
    except MillraceError as error:
        path = layout.join(lease.data_dir, layout.LEASE)
        print(
            f"{path}: could not be removed. It keeps other hosts from writing there for {STALE_SECONDS:g} s: {error}",
            file=sys.stderr,
        )


def lease_of_job(data_dir: str, run: str) -> Lease:
    """Returns the lease of a run, for a process that acts for this run: the job's last step, or its launcher.

    Raises:
      LeaseError: another process has taken the lease, or it was broken.
    """
    snapshot = folders.look(layout.join(data_dir, layout.LEASE))
    holder = read_holder(snapshot)
    if holder is not None and holder.run == run:
        return Lease(data_dir, holder, snapshot)
    by = f"is held by {holder}" if holder else "is gone"
    raise LeaseError(f"{data_dir}: the lease of this job (run {run}) {by}; nothing of it was committed. Run it again.")


def holder_of(data_dir: str) -> AnyHolder | None:
    """Returns the holder of the lease on a dataset directory, even if it has died; None if there is no lease."""
    return read_holder(folders.look(layout.join(data_dir, layout.LEASE)))


def _take(
    data_dir: str, me: Holder, stale_seconds: float, has_ended: HasEnded, instead_of: str | None, *, break_lease: bool
) -> Lease:
    """Takes the lease, and fences the manifest. Raises LeaseError if another holder has the lease."""
    path = layout.join(data_dir, layout.LEASE)
    snapshot = folders.look(path)
    holder = read_holder(snapshot)
    if holder is not None and holder.run == instead_of:
        holder = None  # its lease is taken in any case
    if isinstance(holder, RemoteHolder) and not _has_ended(path, holder, has_ended, break_lease=break_lease):
        raise _refusal(data_dir, holder, stale_seconds)
    if isinstance(holder, Holder) and not (
        holder.is_gone(stale_seconds=stale_seconds) or _heartbeat_stopped(path, snapshot, holder, stale_seconds)
    ):
        raise _refusal(data_dir, holder, stale_seconds)
    try:
        lease = Lease(data_dir, me, folders.swap(path, me.model_dump_json().encode(), snapshot))
    except Changed as error:  # another process was faster
        holder = read_holder(folders.look(path))
        if holder is not None and holder.run == instead_of:  # with a heartbeat, or with the id of its job
            return _take(data_dir, me, stale_seconds, has_ended, instead_of, break_lease=break_lease)
        raise _refusal(data_dir, holder, stale_seconds) from error
    try:
        # A fence rewrites the manifest on GCS, so only fence there if an old holder might wake up.
        if snapshot.data is not None or storage.is_local(path):
            folders.fence(layout.join(data_dir, layout.MANIFEST))
    except BaseException:
        with contextlib.suppress(MillraceError):
            lease.release()
        raise
    return lease


def _refusal(data_dir: str, holder: AnyHolder | None, stale_seconds: float) -> LeaseError:
    """Returns the error about a lease that another holder has."""
    if isinstance(holder, RemoteHolder):
        return LeaseError(
            f"{data_dir}: a job on a cluster is writing to it: {holder}. Wait until it is done, or use another folder. "
            f"`millrace job status --output {data_dir}` tells how it is doing, and `millrace job cancel` ends it."
        )
    return LeaseError(
        f"{data_dir}: another job is writing to it: {holder or 'one that has just finished'}. "
        "Wait until it is done, or use another folder. "
        f"(The lease of a dead job expires {stale_seconds:g} s after its last heartbeat; on the same host, at once.)"
    )


def _has_ended(path: str, holder: RemoteHolder, has_ended: HasEnded, *, break_lease: bool) -> bool:
    """Returns whether a remote job has ended.

    If the runner does not answer, `break_lease` decides: True, or an error.
    """
    try:
        return has_ended(holder)
    except MillraceError as error:
        if break_lease:
            return True
        raise LeaseError(
            f"{path}: held by {holder}, and whether it still runs could not be found out: {error}. If you know that it "
            "has ended, or want its result to be thrown away, give --break_lease."
        ) from error


def _heartbeat_stopped(path: str, snapshot: Snapshot, holder: Holder, seconds: float) -> bool:
    """Watches a lease with a heartbeat in the future.

    Returns whether it stays unchanged for `seconds` of this host's clock.
    """
    if not holder.is_ahead(stale_seconds=seconds):
        return False
    print(
        f"{path}: the last heartbeat of {holder} is {holder.beat - time.time():,.0f} s in the future: "
        f"its clock or this one is wrong. Watching for {seconds:g} s for another heartbeat.",
        file=sys.stderr,
    )
    until = time.monotonic() + seconds
    while folders.look(path) == snapshot:
        if time.monotonic() > until:
            return True
        time.sleep(min(1.0, seconds / 10))
    return False
