"""Checks the files of a TensorFlow graph before it is loaded: exactly those that the manifest names, unchanged.

Loading a SavedModel runs its graph, and a graph can read and write files. The checksums show that the files have not
changed since they were written. They do not show who wrote them: whoever can write to the folder can write its
manifest, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from schemas import storage
from schemas.dataset import layout
from schemas.dataset.manifest import Manifest
from schemas.errors import MillraceError
from schemas.storage import folders
from schemas.storage.links import link_fault, links_in, links_to

GRAPHS = (layout.TRANSFORM_FN, layout.TRANSFORMED_METADATA, layout.INGEST_FN)
_CHUNK = 1 << 20


def sha256(path: str) -> str:
    """A file's SHA-256, 64 hex digits; the file is read in chunks."""
    digest = hashlib.sha256()
    with storage.wrap_errors(path), storage.open_read(path) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def checksums(folder: str, *, exclude: Iterable[str] = ()) -> dict[str, str]:
    """The SHA-256 of every file below a folder, by path relative to it, without the paths in `exclude`."""
    left_out = set(exclude)
    names = [name for name in folders.walk(folder) if name not in left_out]
    return dict(
        zip(names, storage.for_each(folder, lambda name: sha256(storage.join(folder, name)), names), strict=True)
    )


def check_graphs(data_dir: str, manifest: Manifest) -> None:
    """Compares the files of the transform graph and the ingest graph with the manifest, before either is loaded.

    Raises:
      MillraceError: a file was changed, is missing, is a link, or is not named by the manifest.
    """
    for link in links_to(data_dir, [f"{manifest.run}/{graph}" for graph in GRAPHS]):
        path = storage.join(data_dir, link)
        raise MillraceError(
            f"{path}: {link_fault(path)}. No graph is loaded through a link, because loading a graph runs it."
        )
    for graph in GRAPHS:
        prefix = f"{manifest.run}/{graph}/"
        named = {file.path[len(prefix) :]: file.sha256 for file in manifest.files if file.path.startswith(prefix)}
        problem = difference(storage.join(data_dir, manifest.run, graph), named, source=layout.MANIFEST)
        if problem is not None:
            raise MillraceError(
                f"{problem}. It is not loaded, because loading a graph runs it. Write the dataset again."
            )


def difference(folder: str, named: Mapping[str, str], *, source: str, exclude: Iterable[str] = ()) -> str | None:
    """A message about the first difference between a folder's files and their checksums; None if there is none.

    A link below the folder is always a difference; the folder itself may be a link.

    Args:
      folder: the folder, local or gs://.
      named: the expected SHA-256 by path relative to the folder.
      source: the file that names them, for the message.
      exclude: other paths that are allowed in the folder.
    """
    for link in links_in(folder):
        path = storage.join(folder, link)
        return f"{path}: {link_fault(path)}"
    found = checksums(folder, exclude=exclude)
    for name in sorted({*found, *named}):
        path = storage.join(folder, name)
        if name not in named:
            return f"{path}: is not named by {source}"
        if name not in found:
            return f"{path}: missing, but {source} names it"
        if found[name] != named[name]:
            return f"{path}: was changed: its SHA-256 is {found[name][:16]}..., but {source} says {named[name][:16]}..."
    return None
