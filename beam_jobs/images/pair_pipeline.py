"""Image files in the pipeline, put together in pairs: each is still read and decoded once."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence

import apache_beam as beam

from beam_jobs.core import parity_sample
from beam_jobs.core.accounting import COUNTS, PARITY, REJECTS
from beam_jobs.core.steps import Plan, Steps
from beam_jobs.images import preprocessing
from beam_jobs.images.pairs import LEFT, RIGHT, AssemblePairs, PairUse, StoredImage
from beam_jobs.images.pipeline import IngestImages, analyze, listing_rejects
from beam_jobs.images.records import ImageBatch
from beam_jobs.output.encode import Encoded
from schemas.images.listing import Listing, bundles
from schemas.images.pairs import Pair
from schemas.rejects import Reject
from schemas.spec import image_keys as key
from schemas.spec.image_options import ImageOptions
from schemas.spec.raw_columns import OFFSET

PAIRS_AT_ONCE = 64  # pairs that are put together in one go


def pair_steps(
    pipeline: beam.Pipeline,
    plan: Plan,
    *,
    images: ImageOptions,
    listing: Listing,
    source: str,
    pairs: Sequence[Pair],
    identity_splits: Mapping[str, str],
) -> Steps:
    """Applies the steps from a listing to encoded pairs: each image is ingested once, however many pairs show it."""
    uses: dict[int, list[PairUse]] = collections.defaultdict(list)
    for number, pair in enumerate(pairs):
        uses[pair.a].append(PairUse(number, LEFT))
        uses[pair.b].append(PairUse(number, RIGHT))
    kept_pairs = parity_sample.chosen(len(pairs), plan.parity_threshold)
    kept = frozenset(place for number in kept_pairs for place in (pairs[number].a, pairs[number].b))
    ingest = IngestImages(images, classes=listing.classes, split=identity_splits, plan=plan, keep_raw=kept)
    ingested = (
        pipeline
        | "Bundles" >> beam.Create(list(bundles(listing)), reshuffle=True)
        | "Ingest" >> beam.ParDo(ingest).with_output_types(ImageBatch)
    )
    moments = ingested | "Moments" >> beam.Map(lambda batch: preprocessing.to_analyze(batch.moments))
    rows = (
        ingested
        | "DealToPairs" >> beam.FlatMap(deal_to_pairs, uses=dict(uses), chunk=PAIRS_AT_ONCE, keep_raw=kept_pairs)
        | "ByChunk" >> beam.GroupByKey()
        | "Assemble"
        >> beam.ParDo(AssemblePairs(pairs, listing.paths, source=source, plan=plan))
        .with_output_types(Encoded)
        .with_outputs(COUNTS, REJECTS, PARITY, "stored", main="examples")
    )
    listed_counts, listed_files = listing_rejects(pipeline, plan, source, listing)
    return Steps(
        encoded=rows.examples,
        transform_fn=analyze(pipeline, plan, moments),
        counts=(rows[COUNTS], listed_counts),
        reject_files=(rows[REJECTS], listed_files) | "RejectFiles" >> beam.Flatten(),
        late_rejects=pipeline | "NoLateRejects" >> beam.Create([], reshuffle=False),
        parity_raw=rows[PARITY],
        parity_stored=rows["stored"],
    )


def deal_to_pairs(
    batch: ImageBatch, *, uses: Mapping[int, list[PairUse]], chunk: int, keep_raw: Collection[int]
) -> Iterable[tuple[int, tuple[PairUse, StoredImage | Reject]]]:
    """An image to every pair that shows it, by the pairs' chunk; with its file's bytes to the pairs in `keep_raw`."""
    images: list[tuple[int, StoredImage | Reject]] = [(r.offset, r) for r in batch.rejects]
    if batch.records.num_rows:
        columns = {name: batch.records.column(name).flatten().to_pylist() for name in batch.records.schema.names}
        names = (key.ENCODED, key.FORMAT, key.HEIGHT, key.WIDTH, key.FILENAME)
        rows = zip(*(columns[name] for name in names), strict=True)
        images += [(place, StoredImage(*row)) for place, row in zip(columns[OFFSET], rows, strict=True)]
    for place, image in images:
        for use in uses.get(place, ()):
            keep = use.pair in keep_raw and isinstance(image, StoredImage)
            yield use.pair // chunk, (use, dataclasses.replace(image, raw=batch.raw[place]) if keep else image)
