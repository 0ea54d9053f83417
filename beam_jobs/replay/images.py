"""Corrected images in the pipeline: the steps of `beam_jobs.images.pipeline` over a listing of what was rejected."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import apache_beam as beam

from beam_jobs.core.steps import Plan, Steps
from beam_jobs.images.pipeline import image_steps
from beam_jobs.replay.corrections import Chosen
from beam_jobs.replay.relisting import list_again, still_rejected
from schemas.dataset.manifest import Manifest
from schemas.rejects import Reject
from schemas.spec.images import ImageFolderSchema


@dataclasses.dataclass(frozen=True)
class KnownAs:
    """A reject of the new listing -> as the data set knows it. `records` are the listed images, in order."""

    records: tuple[Chosen, ...]

    def __call__(self, reject: Reject) -> Reject:
        return still_rejected(self.records[reject.offset], reject)


def replay_image_steps(
    pipeline: beam.Pipeline, plan: Plan, *, schema: ImageFolderSchema, manifest: Manifest, records: Sequence[Chosen]
) -> Steps:
    """Applies the steps from mended images to encoded records. `manifest`: of the data set that rejected them."""
    (source,) = (file.path for file in manifest.inputs)
    listing, listed = list_again(records, source, root=schema.images.root)
    return image_steps(
        pipeline,
        plan,
        schema=schema,
        listing=listing,
        source=source,
        classes=manifest.classes,
        known_as=KnownAs(listed),
    )
