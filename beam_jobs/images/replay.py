"""Fixed images as a replay's raw data: a listing of what was rejected, through the steps of any listing."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from beam_jobs.core.source import Chosen
from beam_jobs.images.relisting import list_again, still_rejected
from schemas.dataset import Dataset
from schemas.rejects import Reject
from schemas.spec.images import ImageFolderSchema

if TYPE_CHECKING:
    import apache_beam as beam

    from beam_jobs.core.steps import Plan, Steps


@dataclasses.dataclass(frozen=True)
class KnownAs:
    """A reject of the new listing -> as the dataset knows it. `records` are the listed images, in order."""

    records: tuple[Chosen, ...]

    def __call__(self, reject: Reject) -> Reject:
        return still_rejected(self.records[reject.offset], reject)


@dataclasses.dataclass(frozen=True)
class ImageReplay:
    """See `beam_jobs.core.source.ReplaySource`. `listing` is the name of the listing that the images came from."""

    schema: ImageFolderSchema
    listing: str
    classes: tuple[str, ...]
    encodings: None = None  # what is fixed is the file, and the line need not change

    def check(self, records: Sequence[Chosen]) -> None:
        """Lists the images again, which refuses a path without a folder."""
        list_again(records, self.listing, root=self.schema.images.root)

    def steps(self, pipeline: beam.Pipeline, plan: Plan, records: Sequence[Chosen]) -> Steps:
        from beam_jobs.images.pipeline import image_steps

        listing, listed = list_again(records, self.listing, root=self.schema.images.root)
        return image_steps(
            pipeline,
            plan,
            schema=self.schema,
            listing=listing,
            source=self.listing,
            classes=self.classes,
            known_as=KnownAs(listed),
        )


def replay_images(schema: ImageFolderSchema, base: Dataset) -> ImageReplay:
    """Rejected images of a dataset, to be tried again."""
    (listing,) = (file.path for file in base.manifest.inputs)
    return ImageReplay(schema, listing, base.manifest.classes)
