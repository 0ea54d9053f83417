"""Image files as the source of a job: lists the images with their labels, and reads none of them.

The labels are the names of the images' folders, or stand in a CSV file. A replay lists the rejected images again that
were corrected.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from beam_jobs.core.inputs import LISTING, InputFile, StagedInputs, stage_inputs
from beam_jobs.core.source import Chosen, Described, JobInput
from schemas import storage
from schemas.dataset import OpenDataset, layout
from schemas.errors import UsageError
from schemas.images.listing import (
    FIRST,
    ImageBundle,
    ImageListing,
    bundles,
    check_first,
    folder_label,
    folders_like_splits,
    list_csv,
    list_folders,
    list_lines,
    listed_as,
    note_of_splits,
)
from schemas.rejects import Reject
from schemas.spec.images import MAX_PIXELS, ImageOptions, ImageSchema
from schemas.storage import folders

if TYPE_CHECKING:
    import apache_beam as beam

    from beam_jobs.core.source import PipelinePlan, SourceOutputs


STORED_BYTES = {"jpeg": 0.75, "raw": 3.0}  # the bytes for each pixel of a stored image; for JPEG a high estimate
AT_ONCE = 10_000  # the number of images in memory at once, and in a staged file


@dataclasses.dataclass(frozen=True)
class ImageList:
    """A list of images with their labels, in order.

    Attributes:
      files: the files in the folders of their labels, as a listing on disk that is read anew for each iteration; or
        the images as a listing in memory.
      images: the number of images, without the rejects of the listing.
      classes: the labels, each once, sorted.
      digest: a hash of all paths, in order.
      bytes: the total size of the files; 0 if it is unknown.
      notes: a message if the folders look like splits, such as `train` and `test`; empty otherwise.
    """

    files: storage.Listing | ImageListing
    images: int
    classes: tuple[str, ...]
    digest: str
    bytes: int = 0
    notes: tuple[str, ...] = ()

    def bundles(self) -> Iterator[ImageBundle]:
        """Yields the images, at most AT_ONCE at a time."""
        first = 0
        for _, part in _parts(self.files):
            for bundle in bundles(part, AT_ONCE):
                yield dataclasses.replace(bundle, first=first + bundle.first)
            first += len(part.paths)

    def rejects(self) -> Iterator[tuple[Reject, ...]]:
        """Yields the rejects of the listing itself, such as an invalid line of the CSV file, some at a time."""
        for start, part in _parts(self.files):
            yield tuple(dataclasses.replace(reject, offset=start + reject.offset) for reject in part.rejects)


def image_list(files: storage.Listing | ImageListing) -> ImageList:
    """Makes a list of images, and counts and digests them.

    Args:
      files: an ImageListing with the labels, or the listing of files in folders that are named after their labels.

    Raises:
      UsageError: a path has no folder.
    """
    images, classes, splits, digest = 0, set[str](), set[str](), hashlib.sha256()
    for _, part in _parts(files):
        images += len(part.paths)
        classes.update(part.labels)
        splits.update(folders_like_splits(part.paths))
        digest.update("".join(f"{path}\n" for path in part.paths).encode())
    size = 0 if isinstance(files, ImageListing) else files.bytes
    notes = (note_of_splits(splits),) if len(splits) > 1 and not isinstance(files, ImageListing) else ()
    return ImageList(files, images, tuple(sorted(classes)), digest.hexdigest(), size, notes)


def _parts(files: storage.Listing | ImageListing) -> Iterator[tuple[int, ImageListing]]:
    """Yields listings of at most AT_ONCE files, each with the place of its first file in the whole list."""
    if isinstance(files, ImageListing):
        yield 0, files
        return
    paths = (file.path for file in files)
    start = 0
    while part := list(itertools.islice(paths, AT_ONCE)):
        yield start, list_folders(part)
        start += len(part)


def list_again(records: Sequence[Chosen], source: str, *, root: str | None) -> tuple[ImageListing, tuple[Chosen, ...]]:
    """Lists rejected images again, by their corrected raw bytes: a path, or a line `path,label` of a CSV file.

    Args:
      records: the rejects with their corrected raw bytes.
      source: the name of the listing. If there is a root, the CSV file of the lines; the file need not exist any more.
      root: the folder that the paths in the lines are relative to; None: the raw bytes are paths.

    Returns:
      The listing, and the records that it lists, in the same order. The other records are rejects of the listing.

    Raises:
      UsageError: a path has no folder to be its label, or the root is not a folder.
    """
    listed: list[Chosen] = []
    images: list[tuple[str, str, str]] = []
    rejects: list[Reject] = []
    for record in records:
        if root is None:
            listing = list_folders([os.fsdecode(record.raw)])
        else:
            listing = list_lines([(record.was.offset, record.raw.decode("utf-8", "replace"))], source, root)
        rejects += [record.still_rejected(reject) for reject in listing.rejects]
        if listing.paths:
            listed.append(record)
            images.append((listing.paths[0], listing.names[0], listing.labels[0]))
    paths, names, labels = zip(*images, strict=True) if images else ((), (), ())
    return ImageListing(paths, names, labels, tuple(rejects)), tuple(listed)


@dataclasses.dataclass(frozen=True)
class ImageSource:
    """Image files as the source of a job: each image is a record. Implements `beam_jobs.core.source.JobSource`.

    Attributes:
      schema: the schema of the images.
      schema_text: the bytes of the schema file.
      source: the listing, as the one input of the job.
      classes: the labels in the order of their ids.
      listed: the images.
      corrected: in a replay, the rejects that are tried again, in the order of the listing; empty: new input.
    """

    schema: ImageSchema
    schema_text: bytes
    source: InputFile
    classes: tuple[str, ...]
    listed: ImageList
    corrected: tuple[Chosen, ...] = ()

    @property
    def total(self) -> int:
        return self.listed.images

    def bundles(self) -> Iterator[ImageBundle]:
        """Yields the images, in the order of the listing."""
        return self.listed.bundles()

    def shares(self) -> dict[str, float]:
        """Returns the fraction of each split, from the schema."""
        return {name: getattr(self.schema.split, name) for name in self.schema.split_names}

    def steps(self, pipeline: beam.Pipeline, plan: PipelinePlan) -> SourceOutputs:
        """Adds the steps from the listing to encoded records."""
        from beam_jobs.images.pipeline import image_steps, stage_images

        return image_steps(
            pipeline,
            plan,
            schema=self.schema,
            images=stage_images(plan.staging, self.bundles()),
            rejects=self.listed.rejects(),
            classes=self.classes,
            corrected=self.corrected,
        )

    def stage(self, folder: str) -> StagedInputs:
        return stage_inputs(folder, [dataclasses.replace(self.source, covers=self.total)], count=1)

    @property
    def estimated_bytes(self) -> int:
        images = self.schema.images
        height, width = images.resize.size(3, 4)  # the stored size of a photo of the usual proportions
        return int(self.total * height * width * STORED_BYTES[images.store])

    @property
    def estimated_rows(self) -> int:
        return self.total

    def preprocessing_fn(self) -> Any:
        from beam_jobs.images.facts import ImagePreprocessing

        return ImagePreprocessing(self.schema.images.channels, self.classes)

    def write_description(self, run_dir: str, *, transform_from: str | None) -> None:
        """Writes the ingest graph to the run's folder.

        Args:
          run_dir: the folder of the run.
          transform_from: the folder of another dataset's run, from which the graph is copied; None: builds the graph.
        """
        from beam_jobs.images.ingest import save_ingest

        ingest = layout.join(run_dir, layout.INGEST_FN)
        if transform_from is None:
            with folders.written_locally(ingest) as local:
                save_ingest(self.schema.images, local)
        else:
            folders.copy(layout.join(transform_from, layout.INGEST_FN), ingest)

    def described(self, inputs: StagedInputs) -> Described:
        return DescribedImages(self.schema, self.schema_text, self.classes, inputs.folder)

    def incompatibility(self, other: OpenDataset) -> str | None:
        """Returns why another dataset's transform cannot be used for these images; None if it can be used.

        Both must store images in the same way and have the same classes. Listing and splits may differ.
        """
        schema = other.image_schema
        if schema is None:
            return f"is of format {other.declared.format}"
        if _canonical(schema.images) != _canonical(self.schema.images):
            return "was written with other `images`"
        if self.schema.images.max_pixels > schema.images.max_pixels:
            return f"was written with `max_pixels: {schema.images.max_pixels}`, which is less than this schema's"
        if other.manifest.classes == self.classes:
            return None
        theirs, ours = (", ".join(classes) for classes in (other.manifest.classes, self.classes))
        return f"has the classes {theirs}, and not {ours} (`label: {{values: [{theirs}]}}` in the schema names them)"


@dataclasses.dataclass(frozen=True)
class DescribedImages:
    """Describes the images of a job for its last step. Implements `beam_jobs.core.source.Described`.

    `staging`: the folder with the staged listing.
    """

    schema: ImageSchema
    schema_text: bytes
    classes: tuple[str, ...]
    staging: str

    def raw_bytes(self, rejects: Sequence[Reject]) -> list[bytes]:
        """Returns the entry of each image in the listing: the file's path, or the line of the CSV file."""
        from beam_jobs.images.pipeline import read_staged

        by_csv = self.schema.images.root is not None
        places = {reject.offset for reject in rejects}
        entries = {}
        for bundle in read_staged(self.staging):
            for place in places.intersection(range(bundle.first, bundle.first + len(bundle.paths))):
                i = place - bundle.first
                entries[place] = listed_as(bundle.paths[i], bundle.names[i], bundle.labels[i], by_csv=by_csv)
        return [entries[reject.offset] for reject in rejects]


def _only_path(raw: JobInput) -> str:
    """Returns the path of the CSV file that lists the images.

    Raises:
      UsageError: the input is not exactly one file.
    """
    if len(raw.listing) != 1:
        raise UsageError(f"--input: `listing: csv` reads exactly one CSV file of path,label; found {len(raw.listing)}")
    return next(iter(raw.listing)).path


def _check_labels(again: Sequence[tuple[str, str]]) -> None:
    """Checks that files with several paths, by symbolic or hard links, have the same label under each path.

    Args:
      again: pairs of paths of the same file.

    Raises:
      UsageError: the paths of a file are in the folders of two labels, so its label is ambiguous.
    """
    for paths in again:
        labels = [folder_label(path) for path in paths]
        if labels[0] != labels[1]:
            raise UsageError(
                f"{paths[0]} and {paths[1]} are the same file in the folders of two labels, {labels[0]!r} and "
                f"{labels[1]!r}; "
                "remove one of them, or exclude it from --input"
            )


def _canonical(images: ImageOptions) -> ImageOptions:
    """Returns the options, with constants for those options that do not change the stored pixels."""
    return images.model_copy(update={"listing": "folders", "root": None, "max_pixels": MAX_PIXELS})


def open_images(schema: ImageSchema, raw: JobInput) -> ImageSource:
    """Lists the images, by folders or by a CSV file, as the schema says, and returns them as a source.

    Args:
      schema: the schema of the images.
      raw: the input of the job.

    Raises:
      UsageError: there is no image, or fewer than two classes; or one file is in the folders of two labels.
    """
    if schema.images.root is None:
        name = " ".join(raw.options.input)
        if not raw.classes:  # an append may name files that the dataset has rejected, so they are not checked here
            check_first([file.path for file in itertools.islice(raw.listing, FIRST)])
        _check_labels(raw.duplicates)
        listed = image_list(raw.listing)
    else:
        name = _only_path(raw)
        listed = image_list(list_csv(name, schema.images.root))
    if not listed.images:
        rejects = [reject for part in listed.rejects() for reject in part]
        refused = f", and refuses {len(rejects):,} such as: {rejects[0].detail}" if rejects else ""
        raise UsageError(f"{name}: lists no images{refused}")
    source = InputFile(LISTING, name, listed.bytes, listed.digest)
    classes = raw.classes or schema.label.values or listed.classes
    if len(classes) < 2:
        raise UsageError(f"{source.path}: has only the class {classes[0]!r}; a model needs two or more")
    raw.report(listed.notes)
    return ImageSource(schema, raw.schema_text, source, classes, listed)


def correct_images(schema: ImageSchema, base: OpenDataset, corrected: tuple[Chosen, ...]) -> ImageSource:
    """Makes the source of a replay: the rejected images that are read again.

    A user has corrected the image file, or the path or line that lists the image.

    Args:
      schema: the schema of the dataset.
      base: the dataset.
      corrected: the rejects to try again, with their corrected raw bytes.

    Raises:
      UsageError: a corrected path has no folder.
    """
    (name,) = (file.path for file in base.manifest.inputs)
    listing, records = list_again(corrected, name, root=schema.images.root)
    text = storage.read_bytes(layout.join(base.run_dir, layout.SCHEMA_YAML))
    source = InputFile(LISTING, name, 0, "")
    return ImageSource(schema, text, source, base.manifest.classes, image_list(listing), records)
