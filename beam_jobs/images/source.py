"""Image files as a job's input, whatever the records are made of: a listing. No image is read here."""

from __future__ import annotations

import abc
import dataclasses
import hashlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from beam_jobs.core.source import InputFile, RawFiles
from schemas import storage
from schemas.dataset import Dataset, layout
from schemas.errors import UsageError
from schemas.images.listing import Listing, folder_label, list_csv, list_folders, listed_as
from schemas.rejects import Reject
from schemas.spec.image_options import MAX_PIXELS, ImageOptions
from schemas.spec.images import ImageSchema

if TYPE_CHECKING:
    import apache_beam as beam

    from beam_jobs.core.steps import Plan, Steps

STORED_BYTES = {"jpeg": 0.75, "raw": 3.0}  # per pixel of a canonical image; of JPEG a generous guess


@dataclasses.dataclass(frozen=True)
class ImageSource(abc.ABC):
    """See `beam_jobs.core.source.Source`. What a record is made of, a subclass says."""

    schema: ImageSchema
    schema_text: bytes
    source: InputFile
    listing: Listing
    classes: tuple[str, ...]

    @property
    @abc.abstractmethod
    def records(self) -> int:
        """How many records there are."""

    @abc.abstractmethod
    def shares(self) -> dict[str, float]:
        """Each split's share of the records."""

    @abc.abstractmethod
    def steps(self, pipeline: beam.Pipeline, plan: Plan) -> Steps:
        """Applies the steps from the listing to encoded records."""

    @property
    def files(self) -> tuple[InputFile, ...]:
        return (dataclasses.replace(self.source, covers=self.records),)

    @property
    def total(self) -> int:
        return len(self.listing.paths)

    @property
    def estimated_bytes(self) -> int:
        images = self.schema.images
        height, width = images.resize.size(3, 4)  # of a photo of the usual proportions
        return int(len(self.schema.image_names) * self.records * height * width * STORED_BYTES[images.store])

    @property
    def estimated_rows(self) -> int:
        return self.records

    def preprocessing_fn(self) -> Any:
        from beam_jobs.images.preprocessing import ImagePreprocessing

        return ImagePreprocessing(self.schema.images.channels, self.classes)

    def write_description(self, run_dir: str, *, transform_from: str | None) -> None:
        """The graph from a file's bytes to the canonical image."""
        from beam_jobs.images.ingest import save_ingest
        from beam_jobs.transform.write import copy_tree

        ingest = layout.join(run_dir, layout.INGEST_FN)
        if transform_from is None:
            save_ingest(self.schema.images, ingest)
        else:
            copy_tree(layout.join(transform_from, layout.INGEST_FN), ingest)

    def raw_bytes(self, rejects: Sequence[Reject]) -> list[bytes]:
        """What the listing says of each: its path, which leads to the file, or its line."""
        listing, by_csv = self.listing, self.schema.images.root is not None
        places = (reject.offset for reject in rejects)
        return [listed_as(listing.paths[i], listing.names[i], listing.labels[i], by_csv=by_csv) for i in places]

    def incompatibility(self, other: Dataset) -> str | None:
        """None for the same canonical images and classes; how files are listed and split may differ."""
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


@dataclasses.dataclass(frozen=True)
class Listed:
    """The input as a listing."""

    source: InputFile
    listing: Listing


def list_input(schema: ImageSchema, raw: RawFiles) -> Listed:
    """Lists the images, by folders or by a CSV file, as the schema has it.

    Raises:
      UsageError: there is no image, or one file stands in the folders of two labels.
    """
    paths = raw.paths
    images = schema.images
    if images.root is None:
        check_labels(raw.duplicates)
        listing, name = list_folders(paths), " ".join(raw.options.input)
    else:
        if len(paths) != 1:
            raise UsageError(f"--input: `listing: csv` reads exactly one CSV file of path,label; found {len(paths)}")
        listing, name = list_csv(paths[0], images.root), paths[0]
    if not listing.paths:
        refused = (
            f", and refuses {len(listing.rejects):,} such as: {listing.rejects[0].detail}" if listing.rejects else ""
        )
        raise UsageError(f"{name}: lists no images{refused}")
    digest = hashlib.sha256("\n".join(listing.paths).encode()).hexdigest()
    return Listed(InputFile(name, _size(listing.paths, images), digest), listing)


def check_labels(again: Sequence[tuple[str, str]]) -> None:
    """Refuses a file that stands in the folders of two labels: by links, or under hard links.

    Raises:
      UsageError: there is one. Which label it has is not for a program to say.
    """
    for paths in again:
        one, other = (folder_label(path) for path in paths)
        if one != other:
            raise UsageError(
                f"{paths[0]} and {paths[1]} are the same file in the folders of two labels, {one!r} and {other!r}; "
                "remove one of them, or exclude it from --input"
            )


def _canonical(images: ImageOptions) -> ImageOptions:
    """As far as stored pixels follow from it."""
    return images.model_copy(update={"listing": "folders", "root": None, "max_pixels": MAX_PIXELS})


def _size(paths: Sequence[str], images: ImageOptions) -> int:
    """The files' bytes together; 0 where each would be a request to the cloud."""
    if not storage.is_local(paths[0]) or images.root is not None:
        return 0
    return sum(os.stat(path).st_size for path in paths if os.path.exists(path))
