"""Finds and removes leftovers in a dataset directory.

A killed job leaves a run folder that no manifest names, and the temporary files of unfinished writes. Nobody ever reads
these. The following are never removed: files that the manifest names, `failed/`, and files that Millrace did not write.

The order of steps makes this safe: list the directory, check the lease, then read the manifest. A run that is listed
while this process holds the lease belongs to this job or to an earlier one. So it is committed when the manifest is
read, or it will never be. Every later manifest names only its own run and files that this manifest names. So a leftover
stays a leftover, even if this process is suspended for a long time before it removes it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Set

from schemas import storage
from schemas.dataset import layout
from schemas.dataset.lease import Lease
from schemas.dataset.manifest import Manifest, read_manifest
from schemas.storage import folders
from schemas.storage.local import TEMPORARY

_OWN = frozenset({layout.MANIFEST, layout.FAILED, layout.LEASE})


def leftovers(data_dir: str, *, keep_previous: bool = True, lease: Lease | None = None) -> list[str]:
    """Returns the run folders and temporary files that are not in use, relative to the dataset directory, sorted.

    If this process does not hold the lease, the run folder of a running job is among them.

    Args:
      data_dir: a dataset directory, local or gs://.
      keep_previous: whether to keep the runs of the previous dataset, which a reader may have open.
      lease: the directory's lease, if this process holds it.

    Raises:
      LeaseError: another process has taken the lease.
      MillraceError: the manifest cannot be read, so it is unknown what to keep.
    """
    top = storage.listdir(data_dir)
    if lease is not None:
        lease.check()
    runs = set(_runs(data_dir, top))
    unread: list[str] = []
    if storage.exists(layout.join(data_dir, layout.MANIFEST)):
        manifest = read_manifest(data_dir)
        in_use = runs & manifest.runs.union(manifest.previous if keep_previous else ())
        unread += _unread(data_dir, manifest, runs)
    else:
        in_use = set(orphans(data_dir))
    # Temporary files of unfinished writes in runs that are in use.
    for run in in_use:
        names = folders.walk(layout.join(data_dir, run))
        unread += [layout.join(run, name) for name in names if _is_stray(os.path.basename(name))]
    return sorted([*(runs - in_use), *filter(_is_stray, top), *unread])


def orphans(data_dir: str) -> list[str]:
    """Returns the runs that may be complete datasets whose manifest was lost, sorted. Empty if there is a manifest.

    A job removes the staging folder of its run when all other files of the run are complete. So a run without this
    folder may be complete.
    """
    if storage.exists(layout.join(data_dir, layout.MANIFEST)):
        return []
    return [run for run in _runs(data_dir) if not storage.exists(layout.join(data_dir, run, layout.STAGING))]


def is_output(data_dir: str) -> bool:
    """Returns whether a job has ever written to this directory: it has a manifest, a run, or a lease."""
    names = storage.listdir(data_dir)
    return not {layout.MANIFEST, layout.LEASE}.isdisjoint(names) or bool(_runs(data_dir, names))


def foreign(data_dir: str) -> list[str]:
    """Returns the names at the top of the directory that are not part of a dataset, sorted. They are never removed."""
    return [
        name
        for name in storage.listdir(data_dir)
        if name not in _OWN and not _is_run(data_dir, name) and not TEMPORARY.fullmatch(name)
    ]


def is_left_over(name: str) -> bool:
    """Returns whether a path in a run is a leftover of the commit, if the manifest does not name it.

    Such files are those of the staging folder, which only the commit reads, and other attempts at a shard.
    """
    return name.partition("/")[0] == layout.STAGING or layout.ATTEMPT.fullmatch(name) is not None


def files_of_run(data_dir: str, run: str) -> Iterator[str]:
    """Yields the files of a run that the manifest should name, by path within the run.

    Leaves out the files that clean-up removes, and temporary files, because another process that commits the same run
    may be writing them.
    """
    for name in folders.walk(layout.join(data_dir, run)):
        if not (is_left_over(name) or TEMPORARY.fullmatch(os.path.basename(name))):
            yield name


def size(data_dir: str, name: str) -> int:
    """Returns the size in bytes of a leftover, which is a file or a folder."""
    path = layout.join(data_dir, name)
    if _is_folder(data_dir, name):
        return sum(
            storage.for_each(path, lambda below: storage.stat(layout.join(path, below)).size, folders.walk(path))
        )
    return storage.stat(path).size


def prune(data_dir: str, lease: Lease, *, keep_previous: bool = True) -> list[str]:
    """Removes the leftovers of a directory and returns their names.

    See `leftovers` and `remove` for arguments and errors.
    """
    names = leftovers(data_dir, keep_previous=keep_previous, lease=lease)
    remove(data_dir, names, lease)
    return names


def remove(data_dir: str, names: Iterable[str], lease: Lease) -> None:
    """Removes the leftovers that `leftovers` returned, even if that was long ago.

    Args:
      data_dir: a dataset directory, local or gs://.
      names: the leftovers.
      lease: the directory's lease, which this process has held since before it called `leftovers`.

    Raises:
      LeaseError: another process has taken the lease; the remaining leftovers are left to its job.
      MillraceError: a leftover cannot be removed.
    """
    for name in names:
        lease.check()
        path = layout.join(data_dir, name)
        with storage.wrap_errors(path):
            if _is_folder(data_dir, name):
                folders.remove(path)
            else:
                storage.delete(path)


def _runs(data_dir: str, names: Iterable[str] | None = None) -> list[str]:
    """Returns the run folders of a directory; if `names` is given, those among the names."""
    return [name for name in (storage.listdir(data_dir) if names is None else names) if _is_run(data_dir, name)]


def _is_run(data_dir: str, name: str) -> bool:
    """Whether this is a run folder. A link to a run folder is not: somebody else made the link, so it is left alone."""
    if not layout.RUN.fullmatch(name):
        return False
    path = layout.join(data_dir, name)
    return not storage.is_local(path) or (os.path.isdir(path) and not os.path.islink(path))


def _is_folder(data_dir: str, name: str) -> bool:
    """Whether a leftover is a folder: a run, or one of the known folders in a run."""
    run, _, below = name.partition("/")
    if not below:
        return _is_run(data_dir, run)
    return below in layout.FOLDERS and not os.path.islink(layout.join(data_dir, name))


def _is_stray(name: str) -> bool:
    """Whether this is a leftover temporary file. Those of the lease may be in use, as its holder keeps rewriting it."""
    match = TEMPORARY.fullmatch(name)
    return match is not None and match["name"] != layout.LEASE


def _unread(data_dir: str, manifest: Manifest, runs: Set[str]) -> Iterator[str]:
    """Yields files and folders that nobody reads, in the runs that the dataset consists of, sorted by run.

    In the current run, these are files that its commit left behind. They could not be removed earlier, because a
    submitted job keeps all its files until the manifest names its run. In earlier runs, these are files that neither
    this manifest nor the previous one names: a later run has replaced everything except the shards.
    """
    # The first two parts of each path: the run, and the file or folder in it.
    named_paths = {"/".join(file.path.split("/")[:2]) for file in manifest.contents}
    for run in sorted(manifest.runs & runs):
        for name in storage.listdir(layout.join(data_dir, run)):
            path = layout.join(run, name)
            is_replaced = bool(manifest.previous_files) and layout.DESCRIPTION.fullmatch(name) is not None
            if path not in named_paths and (is_left_over(name) if run == manifest.run else is_replaced):
                yield path
