"""Images of one class each, as a job's input."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from beam_jobs.core.source import RawFiles
from beam_jobs.images.image_lists import ImageList
from beam_jobs.images.source import ImageSource, list_images, listing_input
from schemas.errors import UsageError
from schemas.images.listing import ImageBundle
from schemas.spec.images import ImageFolderSchema

if TYPE_CHECKING:
    import apache_beam as beam

    from beam_jobs.core.steps import Plan, Steps


@dataclasses.dataclass(frozen=True)
class FolderSource(ImageSource):
    """See `beam_jobs.core.source.Source`. A record is an image."""

    schema: ImageFolderSchema
    listed: ImageList

    @property
    def total(self) -> int:
        return self.listed.images

    @property
    def records(self) -> int:
        return self.total

    def bundles(self) -> Iterator[ImageBundle]:
        return self.listed.bundles()

    def shares(self) -> dict[str, float]:
        """By the schema."""
        return {name: getattr(self.schema.split, name) for name in self.schema.split_names}

    def steps(self, pipeline: beam.Pipeline, plan: Plan) -> Steps:
        from beam_jobs.images.pipeline import image_steps
        from beam_jobs.images.staged import stage_images

        return image_steps(
            pipeline,
            plan,
            schema=self.schema,
            images=stage_images(plan.staging, self.bundles()),
            rejects=self.listed.rejects(),
            classes=self.classes,
        )


def open_folders(schema: ImageFolderSchema, raw: RawFiles) -> FolderSource:
    """Lists the images.

    Raises:
      UsageError: there is no image, or fewer than two classes; or one file is in the folders of two labels.
    """
    listed = list_images(schema, raw)
    source = listing_input(schema, raw, listed)
    classes = raw.classes or schema.label.values or listed.classes
    if len(classes) < 2:
        raise UsageError(f"{source.path}: has only the class {classes[0]!r}; a classifier needs two or more")
    raw.report(listed.repeated)
    return FolderSource(schema, raw.schema_text, source, classes, listed)
