"""Finds and removes leftovers in a dataset directory.

A killed job leaves a run folder that no manifest names, and the temporary files of unfinished writes. Neither is ever
read. Files that the manifest refers to, `failed/`, and files that Millrace did not write are never touched.

The order makes this safe: list the directory, check the lease, then read the manifest. A run that is listed while the
lease is held belongs to this job or an earlier one, so it is committed by then or never will be. A later manifest names
only its own run and runs that this manifest keeps. So a leftover stays a leftover, even if this process is suspended
for a long time before it removes it.
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
_TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{32}\.tmp")  # written by `storage.write_bytes`


def kept_runs(manifest: Manifest, *, keep_previous: bool = True) -> frozenset[str]:
    """The run folders to keep: those of this dataset, and those of the previous one."""
    return manifest.runs.union(manifest.previous if keep_previous else ())


def leftovers(data_dir: str, *, keep_previous: bool = True, held: Lease | None = None) -> list[str]:
    """Run folders and temporary files that nothing refers to, by path relative to the dataset directory, sorted.

    Without the lease, they include those of a running job.

    Raises:
      LeaseError: another process has taken the lease.
      MillraceError: there is no manifest, or it cannot be read, so it is unknown what to keep.
    """
    top = storage.listdir(data_dir)
    if held is not None:
        held.check()
    kept = kept_runs(read_manifest(data_dir), keep_previous=keep_previous)
    runs = {name for name in top if _is_run(data_dir, name)}
    return sorted([*(runs - kept), *filter(_is_stray, top), *_strays_of(data_dir, sorted(runs & kept))])


def foreign(data_dir: str) -> list[str]:
    """Names at the top of the directory that are not part of a dataset, sorted. They are never removed."""
    return [
        name
        for name in storage.listdir(data_dir)
        if name not in _OWN and not _is_run(data_dir, name) and not _TEMPORARY.fullmatch(name)
    ]


def size(data_dir: str, name: str) -> int:
    """The size of a file in bytes, or of all files in a run folder."""
    path = layout.join(data_dir, name)
    if _is_run(data_dir, name):
        return sum(storage.stat(layout.join(path, below)).size for below in folders.walk(path))
    return storage.stat(path).size


def prune(data_dir: str, held: Lease, *, keep_previous: bool = True) -> list[str]:
    """Removes the leftovers and returns their names. See `leftovers` and `remove` for arguments and errors."""
    found = leftovers(data_dir, keep_previous=keep_previous, held=held)
    remove(data_dir, found, held)
    return found


def remove(data_dir: str, names: Iterable[str], held: Lease) -> None:
    """Removes what `leftovers` returned, however long ago.

    Args:
      data_dir: a dataset directory, local or gs://.
      names: the leftovers.
      held: the directory's lease, held since before `leftovers` was called.

    Raises:
      LeaseError: another process has taken the lease; the remaining leftovers are left to its job.
      MillraceError: a leftover cannot be removed.
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
    """Whether this is a run folder; a link to one was made by somebody else, and is left alone."""
    if not layout.RUN.fullmatch(name):
        return False
    path = layout.join(data_dir, name)
    return not storage.is_local(path) or (os.path.isdir(path) and not os.path.islink(path))


def _is_stray(name: str) -> bool:
    """Whether this is a leftover temporary file. The lease's may be in use, since its holder keeps rewriting it."""
    found = _TEMPORARY.fullmatch(name)
    return found is not None and found["name"] != layout.LEASE


def _strays_of(data_dir: str, runs: list[str]) -> Iterator[str]:
    for run in runs:
        for name in folders.walk(layout.join(data_dir, run)):
            if _is_stray(os.path.basename(name)):
                yield layout.join(run, name)
