"""Images of one class each, as a job's input."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from beam_jobs.core.source import RawFiles
from beam_jobs.images.source import ImageSource, list_input
from schemas.errors import UsageError
from schemas.spec.images import ImageFolderSchema

if TYPE_CHECKING:
    import apache_beam as beam

    from beam_jobs.core.steps import Plan, Steps


@dataclasses.dataclass(frozen=True)
class FolderSource(ImageSource):
    """See `beam_jobs.core.source.Source`. A record is an image."""

    schema: ImageFolderSchema

    @property
    def records(self) -> int:
        return self.total

    def shares(self) -> dict[str, float]:
        """By the schema."""
        return {name: getattr(self.schema.split, name) for name in self.schema.split_names}

    def steps(self, pipeline: beam.Pipeline, plan: Plan) -> Steps:
        from beam_jobs.images.pipeline import image_steps

        return image_steps(
            pipeline,
            plan,
            schema=self.schema,
            listing=self.listing,
            source=self.source.path,
            classes=self.classes,
        )


def open_folders(schema: ImageFolderSchema, raw: RawFiles) -> FolderSource:
    """Lists the images.

    Raises:
      UsageError: there is no image, or fewer than two classes; or one file stands in the folders of two labels.
    """
    listed = list_input(schema, raw)
    classes = schema.label.values or listed.listing.classes
    if len(classes) < 2:
        raise UsageError(f"{listed.source.path}: has only the class {classes[0]!r}; a classifier needs two or more")
    raw.report(listed.listing.repeated)
    return FolderSource(schema, raw.schema_text, listed.source, listed.listing, classes)
