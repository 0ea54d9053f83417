"""Opens a dataset for reading, after checking its manifest, schema, and the names and sizes of its files."""

from __future__ import annotations

import dataclasses
import functools
import tempfile

from schemas import storage
from schemas.dataset import layout
from schemas.dataset.check_counts import named, verify_account
from schemas.dataset.checksums import GRAPHS, check_graphs
from schemas.dataset.manifest import Manifest, read_manifest
from schemas.errors import MillraceError
from schemas.scratch import own_temporary_folder
from schemas.spec.images import ImageSchema
from schemas.spec.loader import AnySchema, load_schema
from schemas.spec.table import Schema
from schemas.storage import folders
from schemas.storage.gcs_credentials import check_tensorflow
from schemas.storage.links import link_fault, links_of


@dataclasses.dataclass(frozen=True)
class Dataset:
    """One committed run of a dataset directory."""

    path: str
    manifest: Manifest
    declared: AnySchema
    trust: bool = False  # load its graphs even if they can do more than compute
    copies: str = ""  # a local folder with some of its files, see `schemas.dataset.local_cache`
    copied: frozenset[str] = frozenset()  # which ones, by the paths in the manifest

    @property
    def schema(self) -> Schema:
        """The schema of a CSV dataset.

        Raises:
          MillraceError: this is an image dataset.
        """
        if not isinstance(self.declared, Schema):
            raise MillraceError(f"{self.path}: a dataset of format {self.declared.format}; expected csv")
        return self.declared

    @property
    def image_schema(self) -> ImageSchema | None:
        """The schema of an image dataset; None for CSV."""
        return None if isinstance(self.declared, Schema) else self.declared

    @property
    def run(self) -> str:
        return self.manifest.run

    @property
    def run_dir(self) -> str:
        """The run's folder; the local copy of it if there is one."""
        return layout.join(self.copies or self.path, self.run)

    @functools.cached_property
    def graphs_dir(self) -> str:
        """The run's folder, for `tft.TFTransformOutput` and for loading the ingest graph; checked before first use.

        Where TensorFlow cannot read it, a local copy, which holds these graphs alone.

        Raises:
          UsageError: TensorFlow cannot read the folder with these credentials.
          MillraceError: a file of these graphs does not match the manifest, or a graph can do more than compute.
        """
        from schemas.graphs.check import check_graph  # imported only to load a graph

        data_dir = self.copies or self.path
        if not storage.tensorflow_reads(data_dir):
            data_dir = self._copy_graphs()
        check_tensorflow(data_dir)
        check_graphs(data_dir, self.manifest)
        for graph in () if self.trust else (layout.TRANSFORM_FN, layout.INGEST_FN):
            if any(file.path.startswith(f"{self.run}/{graph}/") for file in self.manifest.files):
                check_graph(layout.join(data_dir, self.run, graph), objects=True)
        return layout.join(data_dir, self.run)

    def _copy_graphs(self) -> str:
        """A local folder with the graphs alone, which is removed when this process ends."""
        with own_temporary_folder():
            folder = tempfile.mkdtemp()
        for graph in GRAPHS:
            folders.copy(layout.join(self.run_dir, graph), layout.join(folder, self.run, graph))
        return folder

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self.manifest.splits)

    @property
    def compression(self) -> str:
        """The `compression_type` of `tf.data.TFRecordDataset`: '' or 'GZIP'."""
        return layout.COMPRESSIONS[self.manifest.compression]

    def shards(self, split: str) -> tuple[str, ...]:
        """The full paths of the split's shards, in order; of local copies if there are any.

        Raises:
          MillraceError: the dataset has no such split.
        """
        if split not in self.manifest.splits:
            raise MillraceError(f"{self.path}: no split {split!r}; it has {', '.join(self.splits)}")
        shards = [shard.path for shard in self.manifest.splits[split].shards]
        return tuple(layout.join(self.copies if path in self.copied else self.path, path) for path in shards)

    def rows(self, split: str) -> int:
        """The number of examples in the split."""
        self.shards(split)
        return self.manifest.splits[split].rows

    def check_sizes(self) -> None:
        """Checks again, as `open_dataset` did, that every file is present, no link, and has its size.

        Raises:
          MillraceError: a file is missing, is a link, or has another size.
        """
        _refuse_links(self.path, self.manifest)
        _check_sizes(self.path, self.manifest)


def read_checked(path: str) -> Manifest:
    """The manifest of a dataset. Every command that reads a dataset's files begins with it; `verify` reports instead.

    Raises:
      UsageError: there is no manifest, and so no dataset.
      MillraceError: the manifest contradicts itself, or a file or folder of the dataset is a link, which could lead
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
    for link in links_of(path, manifest.run, named(manifest)):
        full = layout.join(path, link)
        raise MillraceError(f"{full}: {link_fault(full)}, or write the dataset again.")


def open_dataset(path: str, *, trust: bool = False) -> Dataset:
    """Opens the dataset directory's current run.

    Args:
      path: the directory.
      trust: load its graphs even if they can do more than compute.

    Raises:
      UsageError: there is no manifest, and so no dataset.
      MillraceError: the manifest is inconsistent; a file that it names is missing, is a link or has another size; or
        the schema is not the one that the dataset was written with.
    """
    manifest = read_checked(path)
    _check_sizes(path, manifest)
    schema = load_schema(layout.join(path, manifest.run, layout.SCHEMA_YAML))
    if schema.fingerprint != manifest.schema_fingerprint:
        raise MillraceError(
            f"{layout.join(path, manifest.run, layout.SCHEMA_YAML)}: not the schema that this dataset was written with"
        )
    return Dataset(path, manifest, schema, trust)


def _check_sizes(path: str, manifest: Manifest) -> None:
    sizes = [(s.path, s.bytes) for split in manifest.splits.values() for s in split.shards]
    sizes += [(f.path, f.bytes) for f in manifest.files]
    storage.for_each(path, lambda file: _check_size(layout.join(path, file[0]), file[1]), sizes)


def _check_size(path: str, size: int) -> None:
    if not storage.exists(path):
        raise MillraceError(f"{path}: missing, but {layout.MANIFEST} names it. Restore it, or write the dataset again.")
    found = storage.stat(path).size
    if found != size:
        raise MillraceError(
            f"{path}: {found:,} bytes, but {layout.MANIFEST} says {size:,}: the file was truncated or changed "
            "after it was written. Restore it, or write the dataset again."
        )
