"""Pairs of images as a job's input, drawn from the listing of all images."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from beam_jobs.core.source import RawFiles
from beam_jobs.images.image_lists import AT_ONCE, ImagesInMemory
from beam_jobs.images.source import ImageSource, list_images, listing_input
from schemas.dataset import Dataset
from schemas.errors import UsageError
from schemas.images.listing import ImageBundle, Listing, bundles, list_folders
from schemas.images.pairs import Pair, TooFewPairs, draw_pairs, split_identities
from schemas.spec.images import SAMENESS, ImagePairsSchema
from schemas.spec.loader import mistake_in

if TYPE_CHECKING:
    import apache_beam as beam

    from beam_jobs.core.steps import Plan, Steps


@dataclasses.dataclass(frozen=True)
class PairSource(ImageSource):
    """See `beam_jobs.core.source.Source`. A record is a pair of images."""

    schema: ImagePairsSchema
    listing: Listing
    pairs: tuple[Pair, ...]
    identity_splits: Mapping[str, str]

    @property
    def total(self) -> int:
        return len(self.listing.paths)

    @property
    def records(self) -> int:
        return len(self.pairs)

    def bundles(self) -> Iterator[ImageBundle]:
        return bundles(self.listing)

    def shares(self) -> dict[str, float]:
        """By the numbers of pairs."""
        return {name: sum(p.split == name for p in self.pairs) / self.records for name in self.schema.split_names}

    def steps(self, pipeline: beam.Pipeline, plan: Plan) -> Steps:
        from beam_jobs.images.pair_pipeline import pair_steps
        from beam_jobs.images.staged import stage_images, stage_pairs

        return pair_steps(
            pipeline,
            plan,
            options=self.schema.images,
            images=stage_images(plan.staging, bundles(self.listing, AT_ONCE)),
            pairs=stage_pairs(plan.staging, self.pairs, self.listing.paths),
            records=self.records,
            rejects=self.listing.rejects,
            identity_splits=self.identity_splits,
        )


def open_pairs(schema: ImagePairsSchema, raw: RawFiles) -> PairSource:
    """Lists the images and draws the pairs.

    Raises:
      UsageError: there is no image, or fewer pairs than asked for; or one file is in the folders of two labels.
    """
    listed = list_images(schema, raw)
    # Pairs are drawn from all images at once, so these are in memory, by path.
    everything = (
        listed.listing if isinstance(listed, ImagesInMemory) else list_folders(sorted(f.path for f in raw.listing))
    )
    splits = split_identities(everything.classes, schema.pairs)
    try:
        drawn = draw_pairs(everything.labels, schema.pairs)
    except TooFewPairs as error:
        raise mistake_in(raw.schema_text, raw.options.schema, error.key, str(error)) from None
    listing, pairs = only_used(everything, drawn)
    raw.report(listing.repeated)
    source = listing_input(schema, raw, listed)
    return PairSource(schema, raw.schema_text, source, SAMENESS, listing, pairs, splits)


def replay_pairs(schema: ImagePairsSchema, base: Dataset) -> NoReturn:
    """Pairs cannot be replayed.

    Raises:
      UsageError: always.
    """
    raise UsageError(
        f"--append_to {base.path}: holds pairs of images, which are drawn from all images at once and cannot be "
        "replayed one by one. Fix the images and write the dataset again with --overwrite."
    )


def only_used(listing: Listing, pairs: Sequence[Pair]) -> tuple[Listing, tuple[Pair, ...]]:
    """The images that occur in pairs, and the pairs with their places among these."""
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
