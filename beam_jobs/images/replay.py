"""Corrected images as a replay's raw data: rejects are listed again and take the steps of any listing."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from beam_jobs.core.inputs import LISTING, InputFile
from beam_jobs.core.source import Chosen
from beam_jobs.images.image_lists import list_again, still_rejected
from schemas.dataset import Dataset
from schemas.images.listing import bundles
from schemas.rejects import Reject
from schemas.spec.images import ImageFolderSchema

if TYPE_CHECKING:
    import apache_beam as beam

    from beam_jobs.core.steps import Plan, Steps


@dataclasses.dataclass(frozen=True)
class KnownAs:
    """Maps a reject of the new listing to its place in the dataset. `records` are the listed images, in order."""

    records: tuple[Chosen, ...]

    def __call__(self, reject: Reject) -> Reject:
        return still_rejected(self.records[reject.offset], reject)


@dataclasses.dataclass(frozen=True)
class ImageReplay:
    """See `beam_jobs.core.source.ReplaySource`. `listing` is the name of the listing that the images came from."""

    schema: ImageFolderSchema
    listing: str
    classes: tuple[str, ...]
    encodings: None = None  # the image file is corrected; its line need not change

    def check(self, records: Sequence[Chosen]) -> None:
        """Lists the images again; a path without a folder is a UsageError."""
        list_again(records, self.listing, root=self.schema.images.root)

    def inputs(self, records: Sequence[Chosen]) -> list[InputFile]:
        return [InputFile(LISTING, self.listing, 0, "")]

    def steps(self, pipeline: beam.Pipeline, plan: Plan, records: Sequence[Chosen]) -> Steps:
        from beam_jobs.images.pipeline import image_steps
        from beam_jobs.images.staged import stage_images

        listing, listed = list_again(records, self.listing, root=self.schema.images.root)
        return image_steps(
            pipeline,
            plan,
            schema=self.schema,
            images=stage_images(plan.staging, bundles(listing)),
            rejects=[listing.rejects],
            classes=self.classes,
            known_as=KnownAs(listed),
        )


def replay_images(schema: ImageFolderSchema, base: Dataset) -> ImageReplay:
    """The rejected images of a dataset, to be read again."""
    (listing,) = (file.path for file in base.manifest.inputs)
    return ImageReplay(schema, listing, base.manifest.classes)
