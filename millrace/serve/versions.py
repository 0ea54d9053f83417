"""The versions of a model in one server: the current one, the one before it, and those that were refused.

All methods but `load_newer` belong to the event loop. A version takes over between two batches, because a batch takes
the current version when it begins. The version before stays loaded, to answer requests that name it and for rolling
back; the one before that is freed when the batches that it answers are done.

Newer exports are waited for: local disks tell of them, on other stores the folder is listed. Before a server that
answers others loads one, it is tried out in a process of its own. Its graph only computes, but may do that without end,
in all memory there is, or in an op that crashes. There it harms a process with nothing else to do: on the CPU, of low
priority, watched by its resident memory and by time, and gone with the server, however that ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import dataclasses
import functools
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from millrace.serve.model import Loaded, load
from schemas import storage
from schemas.concurrency import available_memory
from schemas.errors import MillraceError
from schemas.exports.model import NotFetched
from schemas.exports.notes import Source
from schemas.libraries import quick_import
from schemas.storage import folders

WATCHED = 0.05  # seconds between looks at the process
SHARE = 0.75  # of the memory that is available, where no limit is given: the rest is for the requests meanwhile
_NICE = 10
_TEXT = 4000  # characters of a reason, which fit into a pipe
_PR_SET_PDEATHSIG = 1  # of prctl(2)


class Stopped(Exception):
    """The server ends: whether the export is good was not found out."""


def try_out(folder: str, secs: float, memory: int | None, stopped: threading.Event, *, trust: bool) -> None:
    """Loads an export of local disk, and answers its warm-up requests, in a process of its own.

    Args:
      folder: the export.
      secs: that the process may take.
      memory: resident bytes that it may take; None: most of what is available now.
      stopped: ends the process when it is set.
      trust: load a graph that can do more than compute.

    Raises:
      MillraceError: it is not to be served, took too long or too much memory, or has ended the process.
      Stopped: `stopped` was set.
    """
    most = memory or int(available_memory() * SHARE)
    why = "--check_mb" if memory else "three quarters of what was available; see --check_mb"
    arguments = [sys.executable, "-m", __name__, folder, str(os.getpid()), *(["trust"] if trust else [])]
    process = subprocess.Popen(  # noqa: S603 - this very module
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"},
        start_new_session=True,  # Ctrl-C is for the server
    )
    try:
        end = time.monotonic() + secs
        while _running(process):
            if stopped.is_set():
                raise Stopped
            if time.monotonic() > end:
                raise MillraceError(f"{folder}: loading it and its warm-up took more than {secs:g} s (--check_secs)")
            if _resident(process.pid) > most:
                raise MillraceError(f"{folder}: loading it and its warm-up took more than {most >> 20:,} MB ({why})")
        told = process.stdout.read().decode("utf-8", "replace").strip() if process.stdout else ""
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()
    if stopped.is_set():
        raise Stopped
    if process.returncode < 0:
        name = signal.Signals(-process.returncode).name
        raise MillraceError(f"{folder}: loading it and its warm-up ended the process that tried it out, by {name}")
    if process.returncode:
        raise MillraceError(told or f"{folder}: the process that tried it out ended with {process.returncode}")


def main(argv: Sequence[str]) -> int:
    """Takes the export, the number of the server's process, and `trust`; prints why the export is not to be served."""
    from millrace.serve.model import load

    folder, server, *trust = argv
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(server):  # it has ended before
        return 1
    os.nice(_NICE)
    with contextlib.suppress(OSError):  # where memory runs out, the kernel is to end this process, not the server
        Path("/proc/self/oom_score_adj").write_text("1000")
    quick_import("tensorflow")
    try:
        load(folder, "1", trust=bool(trust)).close()
    except MillraceError as error:
        print(str(error)[:_TEXT])
        return 1
    except Exception as error:
        print(f"{folder}: cannot be loaded: {type(error).__name__}: {error}"[:_TEXT])
        return 1
    return 0


def _running(process: subprocess.Popen[bytes]) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(WATCHED)
    return process.returncode is None


def _resident(process: int) -> int:
    """Bytes; 0 of a process that has ended."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))


log = logging.getLogger(__name__)
ROLLED_BACK = "rolled back"
NOT_FETCHED = "not fetched"  # the state of what is tried again at every look
REMEMBERED = 100  # refused versions
CURRENT, PREVIOUS = "stable", "previous"  # labels in addresses


@dataclasses.dataclass(frozen=True)
class Refusal:
    """A version that is not served: why, and what its folder was like then."""

    version: str
    reason: str
    state: str


class Versions:
    """See the module.

    Args:
      source: where exports come from.
      trust: load graphs that can do more than compute.
      check_secs: that an export may take while it is tried out; 0: it is not.
      check_mb: resident megabytes that it may take; None: most of what is available then.
      retire: is called with a version that nothing asks for any more.
    """

    def __init__(
        self,
        source: Source,
        *,
        trust: bool,
        check_secs: float,
        check_mb: int | None,
        retire: Callable[[Loaded], None],
    ) -> None:
        self.source = source
        self._trust = trust
        self._check_secs = check_secs
        self._check_memory = check_mb and check_mb << 20
        self._stopped = threading.Event()
        self._retire = retire
        self.refused: dict[str, Refusal] = {}
        self.current: Loaded = self._first()
        self.previous: Loaded | None = None
        self.swaps = 0

    def _first(self) -> Loaded:
        """The newest version that can be served."""
        versions = self.source.versions()
        for version in versions:  # the last one has nothing in service, and none to fall back to, that it could harm
            found = self._try(version, None, apart=version != versions[-1])
            if isinstance(found, Loaded):
                return found
            self.refused[version] = found
        reasons = "\n".join(refusal.reason for refusal in self.refused.values())
        raise MillraceError(f"{self.source.folder}: no export in it can be served:\n{reasons}")

    def _try(self, version: str, like: Loaded | None, *, apart: bool = True) -> Loaded | Refusal:
        folder = self.source.path(version)
        state = _state(folder)
        first = functools.partial(self._try_out, folder, state) if apart and self._check_secs else None
        try:
            interface = None if like is None else like.interface
            return load(folder, version, like=interface, trust=self._trust, first=first)
        except Stopped:
            raise
        except NotFetched as error:
            return self._refused(version, str(error), NOT_FETCHED)
        except MillraceError as error:
            return self._refused(version, str(error), state)
        except Exception as error:  # whatever a broken export makes TensorFlow raise: the version in service goes on
            return self._refused(version, f"{folder}: cannot be loaded: {type(error).__name__}: {error}", state)

    def _try_out(self, folder: str, state: str, here: str) -> None:
        try_out(here, self._check_secs, self._check_memory, self._stopped, trust=self._trust)
        if here == folder and _state(folder) != state:  # and is no copy
            raise NotFetched(f"{folder}: was changed while it was tried out")

    def _refused(self, version: str, reason: str, state: str) -> Refusal:
        refusal = Refusal(version, reason, state)
        if self.refused.get(version) != refusal:  # told once, however often it is tried
            log.error("version %s is not served: %s", version, reason)
        return refusal

    def load_newer(self, passed: Collection[str] = ()) -> Loaded | Refusal | None:
        """The newest version that is newer than the current one and not refused already. Runs in any thread.

        Args:
          passed: versions that are left out, because they were tried a moment ago.

        Returns:
          The version, loaded; or why it is refused; or None if there is none.
        """
        current = self.current
        if self.source.single:
            return None
        for version in self.source.versions():
            if int(version) <= int(current.version):
                return None
            if version in passed:
                continue
            known = self.refused.get(version)
            if known is None or known.state not in (ROLLED_BACK, _state(self.source.path(version))):
                try:
                    return self._try(version, current)
                except Stopped:
                    return None
        return None

    def take(self, found: Loaded | Refusal) -> None:
        """Puts a version into service, or notes that it was refused."""
        if isinstance(found, Refusal):
            self.refused[found.version] = found
            for version in sorted(self.refused, key=int)[:-REMEMBERED]:
                del self.refused[version]
            return
        if self.previous is not None:
            self._retire(self.previous)
        self.previous, self.current = self.current, found
        self.refused.pop(found.version, None)
        self.swaps += 1
        log.warning("version %s is in service, after %s", found.version, self.previous.version)

    def roll_back(self) -> str:
        """Puts the version before back into service, and refuses the current one from now on; returns its number.

        Raises:
          MillraceError: there is no version before.
        """
        if self.previous is None:
            raise MillraceError("there is no version to roll back to: none was in service before")
        bad, self.current = self.current, self.previous
        self.previous = None
        self.refused[bad.version] = Refusal(bad.version, "rolled back", ROLLED_BACK)
        self.swaps += 1
        self._retire(bad)
        log.warning("version %s is in service again: %s was rolled back", self.current.version, bad.version)
        return self.current.version

    def forget_refusals(self) -> None:
        """Lets refused versions be tried again."""
        self.refused.clear()

    def stop(self) -> None:
        """Ends the process that tries an export out, if there is one: no other will be put into service."""
        self._stopped.set()

    def close(self) -> None:
        """Frees all of them, at the end."""
        for loaded in (self.current, self.previous):
            if loaded is not None:
                loaded.close()

    def named(self, version: str | None) -> Loaded | None:
        """A version that is loaded, by its number or label; None: the current one."""
        if version is None or version in (self.current.version, CURRENT):
            return self.current
        if self.previous is not None and version in (self.previous.version, PREVIOUS):
            return self.previous
        return None


def _state(folder: str) -> str:
    """Changes when a file of a folder does: an export that is copied here is whole only at the end."""
    try:
        files = [storage.join(folder, name) for name in folders.walk(folder)]
        return str([(path, storage.stat(path)) for path in files])
    except MillraceError as error:
        return str(error)


SETTLE = 200  # milliseconds without a change, after which a folder is looked at
AGAIN = 1.0  # seconds after a sign, until the folder is looked at once more
LISTED = 60.0  # seconds after which a local folder is listed even so: network file systems tell of no changes


class Watcher:
    """Has newer exports loaded and put into service, one at a time."""

    def __init__(self, versions: Versions, *, poll_secs: float) -> None:
        self._versions = versions
        self._poll_secs = poll_secs
        self._one = asyncio.Lock()

    async def refresh(self) -> None:
        """Looks for a newer export, and puts it into service; until there is none."""
        loop = asyncio.get_running_loop()
        passed: set[str] = set()  # each is tried once, also those that the next look will try again
        async with self._one:
            while True:
                try:
                    found = await loop.run_in_executor(None, self._versions.load_newer, passed)
                except MillraceError as error:
                    log.error("the exports cannot be listed: %s", error)
                    return
                except Exception:  # else no newer export would ever be looked for
                    log.exception("the exports cannot be listed")
                    return
                if found is None:
                    return
                if isinstance(found, Refusal):
                    passed.add(found.version)
                self._versions.take(found)

    async def run(self) -> None:
        """Refreshes for ever, at each sign of a change."""
        if self._versions.source.single:
            return
        await self.refresh()
        async for _ in self._signs():
            await self.refresh()
            await asyncio.sleep(AGAIN)  # for a change that came while the signs were read, and gave none
            await self.refresh()

    async def _signs(self) -> AsyncIterator[None]:
        folder = self._versions.source.folder
        if storage.is_local(folder):
            from watchfiles import awatch

            settings: Any = {"step": SETTLE, "rust_timeout": int(LISTED * 1000), "yield_on_timeout": True}
            try:
                async for _ in awatch(folder, watch_filter=None, **settings):
                    yield
            except (OSError, RuntimeError) as error:
                log.warning("%s cannot be watched (%s); it is listed every %g s", folder, error, self._poll_secs)
        while True:
            await asyncio.sleep(self._poll_secs)
            yield
