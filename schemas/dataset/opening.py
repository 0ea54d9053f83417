"""Opens a dataset for reading, after checking its manifest, its schema, and the names and sizes of its files.

A TensorFlow graph is checked more strictly before it is loaded, because loading a SavedModel runs its graph, and a
graph can read and write files. The files of the graph must be exactly those that the manifest names, with the same
checksums. The checksums show that nobody changed the files after they were written. They do not show who wrote the
files: whoever can write to the folder can write a manifest, too.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping

from schemas import storage
from schemas.dataset import layout
from schemas.dataset.checks import named, verify_account
from schemas.dataset.manifest import Manifest, read_manifest
from schemas.errors import MillraceError
from schemas.spec.images import ImageSchema
from schemas.spec.loader import AnySchema, load_schema
from schemas.spec.table import Schema
from schemas.storage import folders
from schemas.storage.content import sha256_of
from schemas.storage.folders import link_fault, links_in, links_of, links_to, refuse_links
from schemas.storage.gcs_access import check_tensorflow

GRAPHS = (layout.TRANSFORM_FN, layout.TRANSFORMED_METADATA, layout.INGEST_FN)


def sha256(path: str) -> str:
    """Returns the SHA-256 of a file, in hex. The file is read in chunks, so that it need not fit in memory."""
    return sha256_of(storage.read_chunks(path))[1]


# Files that file managers write into the folders that they show.
_OF_FILE_MANAGERS = (".DS_Store", ".directory", "Thumbs.db", "desktop.ini")


def checksums(folder: str, *, exclude: Iterable[str] = ()) -> dict[str, str]:
    """Returns the SHA-256 of every file below a folder, by the file's path relative to the folder.

    Args:
      folder: the folder, local or gs://.
      exclude: paths relative to the folder that are left out.
    """
    left_out = set(exclude)
    names = [name for name in folders.walk(folder) if name not in left_out]
    return dict(storage.for_each(folder, lambda name: (name, sha256(storage.join(folder, name))), names))


def check_graphs(data_dir: str, manifest: Manifest) -> None:
    """Compares the files of the transform graph and the ingest graph with the manifest, before either graph is loaded.

    Raises:
      MillraceError: a file was changed, is missing, is a link, or is not named by the manifest.
    """
    advice = ". No graph is loaded through a link, because loading a graph runs it"
    refuse_links(data_dir, links_to(data_dir, [f"{manifest.run}/{graph}" for graph in GRAPHS]), advice=advice)
    for graph in GRAPHS:
        prefix = f"{manifest.run}/{graph}/"
        named = {file.path[len(prefix) :]: file.sha256 for file in manifest.files if file.path.startswith(prefix)}
        problem = difference(storage.join(data_dir, manifest.run, graph), named, source=layout.MANIFEST)
        if problem is not None:
            raise MillraceError(
                f"{problem}. It is not loaded, because loading a graph runs it. Write the dataset again."
            )


def difference(folder: str, named: Mapping[str, str], *, source: str, exclude: Iterable[str] = ()) -> str | None:
    """Returns a message about the first difference between a folder's files and their checksums; None if all match.

    A link below the folder is always a difference; the folder itself may be a link. Files such as `.DS_Store`, which
    file managers write and no graph reads, are ignored.

    Args:
      folder: the folder, local or gs://.
      named: the expected SHA-256 of each file, by path relative to the folder.
      source: the file that holds these checksums, for the message.
      exclude: other paths that are allowed in the folder.
    """
    for link in links_in(folder):
        path = storage.join(folder, link)
        return f"{path}: {link_fault(path)}"
    digests = checksums(folder, exclude=exclude)
    for name in sorted({*digests, *named}):
        path = storage.join(folder, name)
        if name not in named and name.rpartition("/")[2] in _OF_FILE_MANAGERS:
            continue
        if name not in named:
            return f"{path}: is not named by {source}"
        if name not in digests:
            return f"{path}: missing, but {source} names it"
        if digests[name] != named[name]:
            return (
                f"{path}: was changed: its SHA-256 is {digests[name][:16]}..., but {source} says {named[name][:16]}..."
            )
    return None


@dataclasses.dataclass(frozen=True)
class OpenDataset:
    """One committed run of a dataset directory, opened for reading."""

    path: str
    manifest: Manifest
    declared: AnySchema
    trust: bool = False  # load the dataset's graphs even if they can do more than compute
    copies: str = ""  # a local folder with copies of some files, see `schemas.dataset.local_cache`; '': no copies
    copied: frozenset[str] = frozenset()  # the files that have a copy, by their paths in the manifest

    @property
    def schema(self) -> Schema:
        """The schema of a dataset of rows.

        Raises:
          MillraceError: this is an image dataset.
        """
        if not isinstance(self.declared, Schema):
            raise MillraceError(f"{self.path}: a dataset of format {self.declared.format}; expected csv")
        return self.declared

    @property
    def image_schema(self) -> ImageSchema | None:
        """The schema of an image dataset; None if this is a dataset of rows."""
        return None if isinstance(self.declared, Schema) else self.declared

    @property
    def run(self) -> str:
        return self.manifest.run

    @property
    def run_dir(self) -> str:
        """The folder of the run, or its local copy if there is one."""
        return layout.join(self.copies or self.path, self.run)

    @functools.cached_property
    def graphs_dir(self) -> str:
        """The folder of the run, for `tft.TFTransformOutput` and for loading the ingest graph.

        The graphs are checked when this property is first used.

        Raises:
          UsageError: TensorFlow cannot read the folder with these credentials.
          MillraceError: a file of the graphs does not match the manifest, or a graph can do more than compute.
        """
        from schemas.graphs.check import check_graph  # imported only to load a graph

        data_dir = self.copies or self.path
        check_tensorflow(data_dir)
        check_graphs(data_dir, self.manifest)
        for graph in () if self.trust else (layout.TRANSFORM_FN, layout.INGEST_FN):
            if any(file.path.startswith(f"{self.run}/{graph}/") for file in self.manifest.files):
                check_graph(layout.join(data_dir, self.run, graph), objects=True)
        return layout.join(data_dir, self.run)

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self.manifest.splits)

    @property
    def compression(self) -> str:
        """The argument `compression_type` for `tf.data.TFRecordDataset`: '' or 'GZIP'."""
        return layout.COMPRESSIONS[self.manifest.compression]

    def shards(self, split: str) -> tuple[str, ...]:
        """Returns the full paths of a split's shards, in order; those of local copies if there are any.

        Raises:
          MillraceError: the dataset has no such split.
        """
        if split not in self.manifest.splits:
            raise MillraceError(f"{self.path}: no split {split!r}; it has {', '.join(self.splits)}")
        shards = [shard.path for shard in self.manifest.splits[split].shards]
        return tuple(layout.join(self.copies if path in self.copied else self.path, path) for path in shards)

    def rows(self, split: str) -> int:
        """Returns the number of examples in a split. Raises MillraceError if the dataset has no such split."""
        self.shards(split)
        return self.manifest.splits[split].rows

    def check_sizes(self) -> None:
        """Checks again what `open_dataset` checked: that every file is present, is not a link, and has its size.

        Raises:
          MillraceError: a file is missing, is a link, or has another size.
        """
        _refuse_links(self.path, self.manifest)
        _check_sizes(self.path, self.manifest)


def read_checked(path: str) -> Manifest:
    """Reads and checks the manifest of a dataset.

    Every command that reads a dataset's files begins with this, except `verify`, which reports problems instead.

    Raises:
      UsageError: there is no manifest, and so no dataset.
      MillraceError: the manifest contradicts itself; or a file or folder of the dataset is a link, which could lead
        anywhere.
    """
    manifest = read_manifest(path)
    for problem in verify_account(manifest):
        raise MillraceError(
            f"{layout.join(path, layout.MANIFEST)}: {problem.message}: the file was changed after it was written. "
            "Restore it, or write the dataset again."
        )
    _refuse_links(path, manifest)
    return manifest


def _refuse_links(path: str, manifest: Manifest) -> None:
    refuse_links(path, links_of(path, manifest.run, named(manifest)), advice=", or write the dataset again")


def open_dataset(path: str, *, trust: bool = False) -> OpenDataset:
    """Opens the current run of a dataset directory.

    Args:
      path: the directory, local or gs://.
      trust: load the dataset's graphs even if they can do more than compute.

    Raises:
      UsageError: there is no manifest, and so no dataset.
      MillraceError: the manifest contradicts itself; a file that it names is missing, is a link or has another size; or
        the schema is not the one that the dataset was written with.
    """
    manifest = read_checked(path)
    _check_sizes(path, manifest)
    schema = load_schema(layout.join(path, manifest.run, layout.SCHEMA_YAML))
    if schema.fingerprint != manifest.schema_fingerprint:
        raise MillraceError(
            f"{layout.join(path, manifest.run, layout.SCHEMA_YAML)}: not the schema that this dataset was written with"
        )
    return OpenDataset(path, manifest, schema, trust)


def _check_sizes(path: str, manifest: Manifest) -> None:
    files = (*manifest.shard_files, *manifest.files)
    storage.for_each(path, lambda file: _check_size(layout.join(path, file.path), file.bytes), files)


def _check_size(path: str, size: int) -> None:
    if not storage.exists(path):
        raise MillraceError(f"{path}: missing, but {layout.MANIFEST} names it. Restore it, or write the dataset again.")
    actual_size = storage.stat(path).size
    if actual_size != size:
        raise MillraceError(
            f"{path}: {actual_size:,} bytes, but {layout.MANIFEST} says {size:,}: the file was truncated or changed "
            "after it was written. Restore it, or write the dataset again."
        )
