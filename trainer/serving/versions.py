"""The versions of a model in one server: the current one, the one before it, and those that were refused.

All methods but `load_newer` belong to the event loop. A version takes over between two batches, because a batch takes
the current version when it begins. The version before stays loaded, to answer requests that name it and for rolling
back; the one before that is freed when the batches that it answers are done.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable

from schemas import storage
from schemas.errors import MillraceError
from schemas.storage import folders
from trainer.serving.exports import Source
from trainer.serving.loaded import Loaded, load

log = logging.getLogger(__name__)
ROLLED_BACK = "rolled back"
REMEMBERED = 100  # refused versions
CURRENT, PREVIOUS = "stable", "previous"  # labels in addresses


@dataclasses.dataclass(frozen=True)
class Refusal:
    """A version that is not served: why, and what its folder was like then."""

    reason: str
    state: str


class Versions:
    """See the module. `retire`: is called with a version that nothing asks for any more."""

    def __init__(self, source: Source, *, trust: bool, retire: Callable[[Loaded], None]) -> None:
        self.source = source
        self._trust = trust
        self._retire = retire
        self.current: Loaded = self._first()
        self.previous: Loaded | None = None
        self.refused: dict[str, Refusal] = dict(self._passed_over)
        self.swaps = 0

    def _first(self) -> Loaded:
        """The newest version that can be served."""
        self._passed_over: dict[str, Refusal] = {}
        for version in self.source.versions():
            found = self._try(version, None)
            if isinstance(found, Loaded):
                return found
            self._passed_over[version] = found
        reasons = "\n".join(refusal.reason for refusal in self._passed_over.values())
        raise MillraceError(f"{self.source.folder}: no export in it can be served:\n{reasons}")

    def _try(self, version: str, like: Loaded | None) -> Loaded | Refusal:
        folder = self.source.path(version)
        state = _state(folder)
        try:
            return load(folder, version, like=None if like is None else like.interface, trust=self._trust)
        except MillraceError as error:
            log.error("version %s is not served: %s", version, error)
            return Refusal(str(error), state)
        except Exception as error:  # whatever a broken export makes TensorFlow raise: the version in service goes on
            log.error("version %s is not served: %s: %s", version, type(error).__name__, error)
            return Refusal(f"{folder}: cannot be loaded: {type(error).__name__}: {error}", state)

    def load_newer(self) -> Loaded | tuple[str, Refusal] | None:
        """The newest version that is newer than the current one and not refused already. Runs in any thread.

        Returns:
          The version, loaded; or its number and why it is refused; or None if there is none.
        """
        current = self.current
        if self.source.single:
            return None
        for version in self.source.versions():
            if int(version) <= int(current.version):
                return None
            known = self.refused.get(version)
            if known is None or known.state not in (ROLLED_BACK, _state(self.source.path(version))):
                found = self._try(version, current)
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
