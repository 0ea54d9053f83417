"""The version of a model that a server has in service, and the versions that were refused.

A newer version takes over between two batches, because a batch takes the current version when it begins. The one before
is freed when the batches that it answers are done. All methods but `load_newer` belong to the event loop.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import threading
from collections.abc import Callable

from millrace.serve.model import ServedVersion, load
from millrace.serve.options import ServeOptions
from millrace.serve.trial import Stopped, try_out
from schemas import storage
from schemas.errors import MillraceError
from schemas.exports.model import NotFetched
from schemas.exports.notes import ExportSource
from schemas.storage import folders

log = logging.getLogger(__name__)
LOCAL_POLL = 1.0  # seconds between looks for newer exports on local disk, at most
NOT_FETCHED = "not fetched"  # the state of what is tried again at every look
REMEMBERED = 100  # refused versions


@dataclasses.dataclass(frozen=True)
class Refusal:
    """A version that is not served: why, and what its folder was like then."""

    version: str
    reason: str
    state: str


class Versions:
    """Loads versions and exchanges them.

    Args:
      source: where exports come from.
      options: how long and how much a newer export may take while it is tried out, and how often one is looked for.
      retire: is called with a version that is not in service any more.

    Attributes:
      current: the version in service.
      refused: by number, at most 100.
      swaps: how often another version was put into service.

    Raises:
      MillraceError: no export can be served.
    """

    def __init__(self, source: ExportSource, options: ServeOptions, retire: Callable[[ServedVersion], None]) -> None:
        self._source = source
        self._options = options
        self._retire = retire
        self._stopped = threading.Event()
        self._refreshing = asyncio.Lock()
        self.refused: dict[str, Refusal] = {}
        self.current: ServedVersion = self._first()
        self.swaps = 0

    def _first(self) -> ServedVersion:
        """Loads the newest version that can be served."""
        versions = self._source.versions()
        for version in versions:
            # There is none that the last one could harm, in service or to fall back to.
            tried = self._try(version, None, trial=version != versions[-1])
            if isinstance(tried, ServedVersion):
                return tried
            self.refused[version] = tried
        reasons = "\n".join(refusal.reason for refusal in self.refused.values())
        raise MillraceError(f"{self._source.folder}: no export in it can be served:\n{reasons}")

    def _try(self, version: str, current: ServedVersion | None, *, trial: bool = True) -> ServedVersion | Refusal:
        folder = self._source.path(version)
        state = _state(folder)
        trial = trial and self._options.check_secs > 0
        try:
            return load(
                folder,
                version,
                like=None if current is None else current.interface,
                trust=self._options.trust,
                trial=functools.partial(self._try_out, folder, state) if trial else None,
            )
        except Stopped:
            raise
        except NotFetched as error:
            reason, state = str(error), NOT_FETCHED
        except MillraceError as error:
            reason = str(error)
        except Exception as error:  # whatever a broken export makes TensorFlow raise: the version in service goes on
            reason = f"{folder}: cannot be loaded: {type(error).__name__}: {error}"
        refusal = Refusal(version, reason, state)
        if self.refused.get(version) != refusal:  # logged once, however often it is tried
            log.error("version %s is not served: %s", version, reason)
        return refusal

    def _try_out(self, folder: str, state: str, here: str) -> None:
        options = self._options
        try_out(here, options.check_secs, options.check_mb, self._stopped, trust=options.trust)
        if here == folder and _state(folder) != state:  # and is no copy
            raise NotFetched(f"{folder}: was changed while it was tried out")

    def load_newer(self) -> list[ServedVersion | Refusal]:
        """Tries the versions that are newer than the current one, newest first, until one can be served.

        Runs in any thread. Passes over those that were refused already and have not changed.
        """
        tried: list[ServedVersion | Refusal] = []
        current = self.current
        for version in [] if self._source.single else self._source.versions():
            if int(version) <= int(current.version):
                break
            refusal = self.refused.get(version)
            if refusal is None or refusal.state != _state(self._source.path(version)):
                tried.append(self._try(version, current))
                if isinstance(tried[-1], ServedVersion):
                    break
        return tried

    async def refresh(self) -> None:
        """Looks for a newer export, and puts it into service."""
        async with self._refreshing:
            try:
                tried = await asyncio.get_running_loop().run_in_executor(None, self.load_newer)
            except Stopped:
                return
            except Exception as error:  # else no newer export would ever be looked for
                log.error("the exports cannot be listed: %s", error, exc_info=not isinstance(error, MillraceError))
                return
            for loaded in tried:
                self._take(loaded)

    async def watch(self) -> None:
        """Refreshes for ever."""
        secs = self._options.poll_secs
        while not self._source.single:
            await self.refresh()
            await asyncio.sleep(min(secs, LOCAL_POLL) if storage.is_local(self._source.folder) else secs)

    def _take(self, tried: ServedVersion | Refusal) -> None:
        """Puts a version into service, or notes that it was refused."""
        if isinstance(tried, Refusal):
            self.refused[tried.version] = tried
            for version in sorted(self.refused, key=int)[:-REMEMBERED]:
                del self.refused[version]
            return
        before, self.current = self.current, tried
        self._retire(before)
        self.refused.pop(tried.version, None)
        self.swaps += 1
        log.warning("version %s is in service, after %s", tried.version, before.version)

    def stop(self) -> None:
        """Ends the process that tries an export out, if there is one: no other will be put into service."""
        self._stopped.set()


def _state(folder: str) -> str:
    """Changes when a file of a folder does: an export that is copied here is whole only at the end."""
    try:
        files = [storage.join(folder, name) for name in folders.walk(folder)]
        return str([(path, storage.stat(path)) for path in files])
    except MillraceError as error:
        return str(error)
