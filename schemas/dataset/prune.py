"""What a dataset directory holds beside its dataset: found, named, and removed.

A job that is killed leaves a run folder that no manifest names, and the temporary file of a put that it did not finish.
Neither is ever read. Nothing that the manifest keeps is touched, nor `failed/`, nor what the project did not put there.

The order is what makes it safe: the directory is listed, the lease looked at, the manifest read. A run that was there
while the lease was held is of this job or of an earlier one, so it is committed by then or never will be, and a later
manifest names no run that this one does not keep, but its own. So what was found stays nobody's, however long this
process is stopped before it removes it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from schemas import storage
from schemas.dataset import layout
from schemas.dataset.lease import Lease
from schemas.dataset.manifest import Manifest, read_manifest
from schemas.storage import folders

_OWN = frozenset({layout.MANIFEST, layout.FAILED, layout.LEASE})
_TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{32}\.tmp")  # of `storage.write_bytes`


def kept_runs(manifest: Manifest, *, keep_previous: bool = True) -> frozenset[str]:
    """The run folders that stay: those that the dataset consists of, and those that the one before it consisted of."""
    return manifest.runs.union(manifest.previous if keep_previous else ())


def leftovers(data_dir: str, *, keep_previous: bool = True, held: Lease | None = None) -> list[str]:
    """Run folders and stray temporary files that nothing names, by path relative to the dataset directory, sorted.

    Without the lease, a running job's are among them.

    Raises:
      LeaseError: another process has taken the lease.
      MillraceError: there is no manifest, or it cannot be read: then nothing says what is to be kept.
    """
    top = storage.listdir(data_dir)
    if held is not None:
        held.check()
    kept = kept_runs(read_manifest(data_dir), keep_previous=keep_previous)
    runs = {name for name in top if _is_run(data_dir, name)}
    return sorted([*(runs - kept), *filter(_is_stray, top), *_strays_of(data_dir, sorted(runs & kept))])


def foreign(data_dir: str) -> list[str]:
    """Names at the top of the directory that are no part of a dataset, sorted. They are never removed."""
    return [
        name
        for name in storage.listdir(data_dir)
        if name not in _OWN and not _is_run(data_dir, name) and not _TEMPORARY.fullmatch(name)
    ]


def size(data_dir: str, name: str) -> int:
    """Bytes of a file, or of all files of a folder."""
    path = layout.join(data_dir, name)
    if _is_run(data_dir, name):
        return sum(storage.stat(layout.join(path, below)).size for below in folders.walk(path))
    return storage.stat(path).size


def prune(data_dir: str, held: Lease, *, keep_previous: bool = True) -> list[str]:
    """Removes the leftovers, and returns their names. Arguments and errors are those of `leftovers` and `remove`."""
    found = leftovers(data_dir, keep_previous=keep_previous, held=held)
    remove(data_dir, found, held)
    return found


def remove(data_dir: str, names: Iterable[str], held: Lease) -> None:
    """Removes what `leftovers` found, which stays nobody's, however long ago that was.

    Args:
      data_dir: a dataset directory, local or gs://.
      names: of the leftovers.
      held: the directory's lease, held since before they were looked for.

    Raises:
      LeaseError: another process has taken the lease; what is left is for its job to remove.
      MillraceError: something cannot be removed.
    """
    for name in names:
        held.check()
        path = layout.join(data_dir, name)
        with storage.wrap_errors(path):
            if _is_run(data_dir, name):
                folders.remove(path)
            else:
                storage.delete(path)


def _is_run(data_dir: str, name: str) -> bool:
    """A folder of a run's name; a link to one is somebody's own, and is left alone."""
    if not layout.RUN.fullmatch(name):
        return False
    path = layout.join(data_dir, name)
    return not storage.is_local(path) or (os.path.isdir(path) and not os.path.islink(path))


def _is_stray(name: str) -> bool:
    """A temporary file that is nobody's; the lease's own may be in use, since its holder keeps writing it."""
    found = _TEMPORARY.fullmatch(name)
    return found is not None and found["name"] != layout.LEASE


def _strays_of(data_dir: str, runs: list[str]) -> Iterator[str]:
    for run in runs:
        for name in folders.walk(layout.join(data_dir, run)):
            if _is_stray(os.path.basename(name)):
                yield layout.join(run, name)
