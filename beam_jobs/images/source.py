"""Image files as a job's input: a listing, and for pairs what was drawn from it. No image is read here."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from beam_jobs.core.source import InputFile, RawFiles
from schemas import storage
from schemas.dataset import Dataset, layout
from schemas.errors import UsageError
from schemas.images.listing import Listing, folder_label, list_csv, list_folders, listed_as
from schemas.images.pairs import Pair, TooFewPairs, draw_pairs, split_identities
from schemas.rejects import Reject
from schemas.spec.image_options import MAX_PIXELS, ImageOptions
from schemas.spec.images import SAME, ImageFolderSchema, ImagePairsSchema, ImageSchema
from schemas.spec.loader import mistake_in

if TYPE_CHECKING:
    import apache_beam as beam

    from beam_jobs.core.steps import Plan, Steps

STORED_BYTES = {"jpeg": 0.75, "raw": 3.0}  # per pixel of a canonical image; of JPEG a generous guess


@dataclasses.dataclass(frozen=True)
class ImageSource:
    """See `beam_jobs.core.source.Source`. A record is an image, or a pair of them."""

    schema: ImageSchema
    schema_text: bytes
    source: InputFile
    listing: Listing
    classes: tuple[str, ...]
    pairs: tuple[Pair, ...] = ()
    identity_splits: Mapping[str, str] = dataclasses.field(default_factory=dict)  # of pairs

    @property
    def files(self) -> tuple[InputFile, ...]:
        return (dataclasses.replace(self.source, covers=len(self.pairs) or self.total),)

    @property
    def total(self) -> int:
        return len(self.listing.paths)

    @property
    def estimated_bytes(self) -> int:
        images = self.schema.images
        height, width = images.resize.size(3, 4)  # of a photo of the usual proportions
        return int((2 * len(self.pairs) or self.total) * height * width * STORED_BYTES[images.store])

    @property
    def estimated_rows(self) -> int:
        """Eight times as many as there are: of files that are a thousand times a row, fewer are kept as parity."""
        return 8 * (len(self.pairs) or self.total)

    def shares(self) -> dict[str, float]:
        """By the schema; by their numbers, for pairs."""
        if isinstance(self.schema, ImageFolderSchema):
            return {name: getattr(self.schema.split, name) for name in self.schema.split_names}
        count = len(self.pairs)
        return {name: sum(p.split == name for p in self.pairs) / count for name in self.schema.split_names}

    def preprocessing_fn(self) -> Any:
        from beam_jobs.images.preprocessing import ImagePreprocessing

        return ImagePreprocessing(self.schema.images.channels, self.classes)

    def write_description(self, run_dir: str) -> None:
        """The graph from a file's bytes to the canonical image."""
        from beam_jobs.images.ingest import save_ingest

        save_ingest(self.schema.images, layout.join(run_dir, layout.INGEST_FN))

    def steps(self, pipeline: beam.Pipeline, plan: Plan) -> Steps:
        from beam_jobs.images.pipeline import image_steps, pair_steps

        name, schema = self.source.path, self.schema
        if isinstance(schema, ImageFolderSchema):
            return image_steps(pipeline, plan, schema=schema, listing=self.listing, source=name, classes=self.classes)
        return pair_steps(
            pipeline,
            plan,
            images=schema.images,
            listing=self.listing,
            source=name,
            pairs=self.pairs,
            identity_splits=self.identity_splits,
        )

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
        if other.manifest.classes == self.classes:
            return None
        theirs, ours = (", ".join(classes) for classes in (other.manifest.classes, self.classes))
        return f"has the classes {theirs}, and not {ours} (`label: {{values: [{theirs}]}}` in the schema names them)"


def open_images(schema: ImageSchema, raw: RawFiles) -> ImageSource:
    """Lists the images and draws the pairs.

    Raises:
      UsageError: there is no image, or fewer than two classes, or fewer pairs than asked for; or one file stands in the
        folders of two labels.
    """
    if schema.images.root is None:
        check_labels(raw.duplicates)
    source = _listed(schema, raw)
    raw.report(source.listing.repeated)
    return source


def _listed(schema: ImageSchema, raw: RawFiles) -> ImageSource:
    paths = raw.paths
    images = schema.images
    if images.root is not None:
        if len(paths) != 1:
            raise UsageError(f"--input: `listing: csv` reads exactly one CSV file of path,label; found {len(paths)}")
        listing, name = list_csv(paths[0], images.root), paths[0]
    else:
        listing, name = list_folders(paths), " ".join(raw.options.input)
    if not listing.paths:
        refused = (
            f", and refuses {len(listing.rejects):,} such as: {listing.rejects[0].detail}" if listing.rejects else ""
        )
        raise UsageError(f"{name}: lists no images{refused}")
    source = InputFile(
        name, _size(listing.paths, images), hashlib.sha256("\n".join(listing.paths).encode()).hexdigest()
    )
    if isinstance(schema, ImagePairsSchema):
        splits = split_identities(listing.classes, schema.pairs)
        try:
            drawn = draw_pairs(listing.labels, schema.pairs)
        except TooFewPairs as error:
            raise mistake_in(raw.schema_text, raw.options.schema, error.key, str(error)) from None
        listing, pairs = only_used(listing, drawn)
        return ImageSource(schema, raw.schema_text, source, listing, SAME, pairs, splits)
    classes = schema.label.values or listing.classes
    if len(classes) < 2:
        raise UsageError(f"{name}: has only the class {classes[0]!r}; a classifier needs two or more")
    return ImageSource(schema, raw.schema_text, source, listing, classes)


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


def only_used(listing: Listing, pairs: Sequence[Pair]) -> tuple[Listing, tuple[Pair, ...]]:
    """The images that pairs show, and the pairs by the places among these."""
    used = sorted({place for pair in pairs for place in (pair.a, pair.b)})
    place_of = {place: i for i, place in enumerate(used)}
    kept = Listing(
        paths=tuple(listing.paths[i] for i in used),
        names=tuple(listing.names[i] for i in used),
        labels=tuple(listing.labels[i] for i in used),
        rejects=listing.rejects,
        repeated=listing.repeated,
    )
    return kept, tuple(dataclasses.replace(p, a=place_of[p.a], b=place_of[p.b]) for p in pairs)


def _canonical(images: ImageOptions) -> ImageOptions:
    """As far as stored pixels follow from it."""
    return images.model_copy(update={"listing": "folders", "root": None, "max_pixels": MAX_PIXELS})


def _size(paths: Sequence[str], images: ImageOptions) -> int:
    """The files' bytes together; 0 where each would be a request to the cloud."""
    if not storage.is_local(paths[0]) or images.root is not None:
        return 0
    return sum(os.stat(path).st_size for path in paths if os.path.exists(path))
