"""The versions of a model in one server: the current one, the one before it, and those that were refused.

All methods but `load_newer` belong to the event loop. A version takes over between two batches, because a batch takes
the current version when it begins. The version before stays loaded, to answer requests that name it and for rolling
back; the one before that is freed when the batches that it answers are done.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import threading
from collections.abc import Callable, Collection

from schemas import storage
from schemas.errors import MillraceError
from schemas.storage import folders
from trainer.serving.candidate import Stopped, try_out
from trainer.serving.exports import Source
from trainer.serving.fetched import NotFetched
from trainer.serving.limits import CheckLimits
from trainer.serving.loaded import Loaded, load

log = logging.getLogger(__name__)
ROLLED_BACK = "rolled back"
NOT_FETCHED = "not fetched"  # the state of what is tried again at every look
REMEMBERED = 100  # refused versions
CURRENT, PREVIOUS = "stable", "previous"  # labels in addresses


@dataclasses.dataclass(frozen=True)
class Refusal:
    """A version that is not served: why, and what its folder was like then."""

    reason: str
    state: str


class Versions:
    """See the module.

    Args:
      source: where exports come from.
      trust: load graphs that can do more than compute.
      checks: what an export may take while it is tried out; None: it is not.
      retire: is called with a version that nothing asks for any more.
    """

    def __init__(
        self, source: Source, *, trust: bool, checks: CheckLimits | None, retire: Callable[[Loaded], None]
    ) -> None:
        self.source = source
        self._trust = trust
        self._checks = checks
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
        checks = self._checks if apart else None
        first = None if checks is None else functools.partial(self._try_out, folder, state, checks)
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

    def _try_out(self, folder: str, state: str, checks: CheckLimits, here: str) -> None:
        try_out(here, checks, self._stopped, trust=self._trust)
        if here == folder and _state(folder) != state:  # and is no copy
            raise NotFetched(f"{folder}: was changed while it was tried out")

    def _refused(self, version: str, reason: str, state: str) -> Refusal:
        refusal = Refusal(reason, state)
        if self.refused.get(version) != refusal:  # told once, however often it is tried
            log.error("version %s is not served: %s", version, reason)
        return refusal

    def load_newer(self, passed: Collection[str] = ()) -> Loaded | tuple[str, Refusal] | None:
        """The newest version that is newer than the current one and not refused already. Runs in any thread.

        Args:
          passed: versions that are left out, because they were tried a moment ago.

        Returns:
          The version, loaded; or its number and why it is refused; or None if there is none.
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
                    found = self._try(version, current)
                except Stopped:
                    return None
                return found if isinstance(found, Loaded) else (version, found)
        return None

    def take(self, found: Loaded | tuple[str, Refusal]) -> None:
        """Puts a version into service, or notes that it was refused."""
        if isinstance(found, tuple):
            self.refused[found[0]] = found[1]
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
        self.refused[bad.version] = Refusal("rolled back", ROLLED_BACK)
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
