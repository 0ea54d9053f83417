"""Which exports there are: a single one, or a folder of them whose names are numbers."""

from __future__ import annotations

import dataclasses

from schemas import storage
from schemas.errors import UsageError

GRAPH = "saved_model.pb"
_BEST = "export/best"


@dataclasses.dataclass(frozen=True)
class Source:
    """Where exports come from.

    Attributes:
      folder: of numbered exports; or the one export, where `single`.
      single: there is only this export, and no other will come.
    """

    folder: str
    single: bool

    def versions(self) -> list[str]:
        """The versions that there are, newest first."""
        if self.single:
            return [_version(self.folder)]
        names = [name.rstrip("/") for name in storage.listdir(self.folder)]
        return sorted((name for name in names if _is_number(name)), key=int, reverse=True)

    def path(self, version: str) -> str:
        """The folder of a version."""
        return self.folder if self.single else storage.join(self.folder, version)


def find_source(path: str) -> Source:
    """What a path holds: an export, a model directory, or a folder of numbered exports.

    Raises:
      UsageError: none of these.
    """
    storage.check_scheme(path, "--model_dir ")
    path = path.rstrip("/")
    if storage.exists(storage.join(path, GRAPH)):
        return Source(path, single=True)
    best = storage.join(path, _BEST)
    source = Source(best if storage.exists(best) else path, single=False)
    if not storage.exists(source.folder):
        raise UsageError(f"{path}: no such folder; expected a model directory, an export, or a folder of exports")
    if not source.versions():
        raise UsageError(
            f"{source.folder}: no exports in it yet; expected folders whose names are numbers, as in {_BEST} of a "
            "model directory. Train a model first, or give another folder"
        )
    return source


def _version(folder: str) -> str:
    """The number of an export's folder; 1 where its name is none."""
    name = folder.rpartition("/")[2]
    return name if _is_number(name) else "1"


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal()
