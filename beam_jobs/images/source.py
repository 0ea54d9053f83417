"""Image files as a job's input: what folders and pairs of images share. No image is read here."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from beam_jobs.core.inputs import LISTING, InputFile, StagedInputs, stage_inputs
from beam_jobs.core.keeping import Keeping
from beam_jobs.core.source import RawFiles
from beam_jobs.images.image_lists import ImageList, ImagesInMemory, images_in_folders
from schemas.dataset import Dataset, layout
from schemas.errors import UsageError
from schemas.images.listing import ImageBundle, folder_label, list_csv, listed_as
from schemas.rejects import Reject
from schemas.spec.image_options import MAX_PIXELS, ImageOptions
from schemas.spec.images import ImageSchema
from schemas.storage import folders

if TYPE_CHECKING:
    import apache_beam as beam

    from beam_jobs.core.steps import Plan, Steps

STORED_BYTES = {"jpeg": 0.75, "raw": 3.0}  # per pixel of a canonical image; for JPEG a high estimate


@dataclasses.dataclass(frozen=True)
class ImageSource(abc.ABC):
    """See `beam_jobs.core.source.Source`. A subclass defines what a record is."""

    schema: ImageSchema
    schema_text: bytes
    source: InputFile
    classes: tuple[str, ...]

    @property
    @abc.abstractmethod
    def total(self) -> int:
        """How many images there are."""

    @property
    @abc.abstractmethod
    def records(self) -> int:
        """How many records there are."""

    @abc.abstractmethod
    def shares(self) -> dict[str, float]:
        """Each split's share of the records."""

    @abc.abstractmethod
    def bundles(self) -> Iterator[ImageBundle]:
        """The images, in the order of the listing."""

    @abc.abstractmethod
    def steps(self, pipeline: beam.Pipeline, plan: Plan) -> Steps:
        """Applies the steps from the listing to encoded records."""

    def stage(self, folder: str) -> StagedInputs:
        return stage_inputs(folder, [dataclasses.replace(self.source, covers=self.records)], count=1)

    @property
    def estimated_bytes(self) -> int:
        images = self.schema.images
        height, width = images.resize.size(3, 4)  # of a photo of the usual proportions
        return int(len(self.schema.image_names) * self.records * height * width * STORED_BYTES[images.store])

    @property
    def estimated_rows(self) -> int:
        return self.records

    def preprocessing_fn(self, keeping: Keeping | None = None) -> Any:
        from beam_jobs.images.preprocessing import ImagePreprocessing

        return ImagePreprocessing(self.schema.images.channels, self.classes)

    def write_description(self, run_dir: str, *, transform_from: str | None) -> None:
        """The graph from a file's bytes to the canonical image."""
        from beam_jobs.images.ingest import save_ingest

        ingest = layout.join(run_dir, layout.INGEST_FN)
        if transform_from is None:
            with folders.written_locally(ingest) as local:
                save_ingest(self.schema.images, local)
        else:
            folders.copy(layout.join(transform_from, layout.INGEST_FN), ingest)

    def raw_bytes(self, rejects: Sequence[Reject]) -> list[bytes]:
        """The entry of each in the listing: the file's path, or the line of the CSV file."""
        by_csv = self.schema.images.root is not None
        wanted = {reject.offset for reject in rejects}
        found = {}
        for bundle in self.bundles():
            for place in wanted.intersection(range(bundle.first, bundle.first + len(bundle.paths))):
                i = place - bundle.first
                found[place] = listed_as(bundle.paths[i], bundle.names[i], bundle.labels[i], by_csv=by_csv)
        return [found[reject.offset] for reject in rejects]

    def incompatibility(self, other: Dataset) -> str | None:
        """None if canonical images and classes are the same; how files are listed and split may differ."""
        schema = other.image_schema
        if schema is None or schema.format != self.schema.format:
            return f"is of format {other.declared.format}"
        if _canonical(schema.images) != _canonical(self.schema.images):
            return "was written with other `images`"
        if self.schema.images.max_pixels > schema.images.max_pixels:
            return f"was written with `max_pixels: {schema.images.max_pixels}`, which is less than this schema's"
        if other.manifest.classes == self.classes:
            return None
        theirs, ours = (", ".join(classes) for classes in (other.manifest.classes, self.classes))
        return f"has the classes {theirs}, and not {ours} (`label: {{values: [{theirs}]}}` in the schema names them)"


def list_images(schema: ImageSchema, raw: RawFiles) -> ImageList:
    """Lists the images, by folders or by a CSV file, as the schema says.

    Raises:
      UsageError: there is no image, or one file is in the folders of two labels.
    """
    root = schema.images.root
    listed: ImageList
    if root is None:
        check_labels(raw.duplicates)
        listed = images_in_folders(raw.listing)
    else:
        listed = ImagesInMemory(list_csv(only_path(raw), root))
    if not listed.images:
        rejects = [reject for some in listed.rejects() for reject in some]
        refused = f", and refuses {len(rejects):,} such as: {rejects[0].detail}" if rejects else ""
        raise UsageError(f"{listing_name(schema, raw)}: lists no images{refused}")
    return listed


def listing_name(schema: ImageSchema, raw: RawFiles) -> str:
    """What messages and the manifest call the listing."""
    return " ".join(raw.options.input) if schema.images.root is None else only_path(raw)


def only_path(raw: RawFiles) -> str:
    """The one CSV file that lists the images.

    Raises:
      UsageError: there are several files.
    """
    if len(raw.listing) != 1:
        raise UsageError(f"--input: `listing: csv` reads exactly one CSV file of path,label; found {len(raw.listing)}")
    return next(iter(raw.listing)).path


def listing_input(schema: ImageSchema, raw: RawFiles, listed: ImageList) -> InputFile:
    """The listing as the input that records are counted by."""
    return InputFile(LISTING, listing_name(schema, raw), listed.bytes, listed.digest)


def check_labels(again: Sequence[tuple[str, str]]) -> None:
    """Checks that no file is in the folders of two labels, by symbolic or hard links.

    Raises:
      UsageError: there is one, so its label is ambiguous.
    """
    for paths in again:
        one, other = (folder_label(path) for path in paths)
        if one != other:
            raise UsageError(
                f"{paths[0]} and {paths[1]} are the same file in the folders of two labels, {one!r} and {other!r}; "
                "remove one of them, or exclude it from --input"
            )


def _canonical(images: ImageOptions) -> ImageOptions:
    """The options with those replaced by constants that stored pixels do not depend on."""
    return images.model_copy(update={"listing": "folders", "root": None, "max_pixels": MAX_PIXELS})
