"""Image files in the pipeline, put together in pairs: each is still read and decoded once."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import apache_beam as beam
import numpy as np

from beam_jobs.core import parity_files, parity_sample
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
    pair_ranks, ranks = ranks_of(pairs)
    ingest = IngestImages(
        images, classes=listing.classes, split=identity_splits, plan=plan, records=len(pairs), ranks=ranks
    )
    ingested = (
        pipeline
        | "Bundles" >> beam.Create(list(bundles(listing)), reshuffle=True)
        | "Ingest" >> beam.ParDo(ingest).with_output_types(ImageBatch)
    )
    moments = ingested | "Moments" >> beam.Map(lambda batch: preprocessing.to_analyze(batch.moments))
    rows = (
        ingested
        | "DealToPairs" >> beam.FlatMap(deal_to_pairs, uses=dict(uses), chunk=PAIRS_AT_ONCE)
        | "ByChunk" >> beam.GroupByKey()
        | "Assemble"
        >> beam.ParDo(AssemblePairs(pairs, listing.paths, source=source, plan=plan, ranks=pair_ranks))
        .with_output_types(Encoded)
        .with_outputs(COUNTS, REJECTS, PARITY, main="examples")
    )
    listed_counts, listed_files = listing_rejects(pipeline, plan, source, listing)
    return Steps(
        encoded=rows.examples,
        transform_fn=analyze(pipeline, plan, moments),
        counts=(rows[COUNTS], listed_counts),
        reject_files=(rows[REJECTS], listed_files) | "RejectFiles" >> beam.Flatten(),
        late_rejects=pipeline | "NoLateRejects" >> beam.Create([], reshuffle=False),
        parity_files=rows[PARITY],
    )


def ranks_of(pairs: Sequence[Pair]) -> tuple[dict[int, int], dict[int, int]]:
    """The pairs that may become parity records, each with its rank; and their images, each with its best pair's."""
    ranks = parity_sample.place_hash(0, np.arange(len(pairs))).tolist()
    most = parity_files.RECORDS * 2**64 // max(len(pairs), 1)
    of_pairs = {number: rank for number, rank in enumerate(ranks) if rank <= most}
    of_images: dict[int, int] = {}
    for number, rank in of_pairs.items():
        for place in (pairs[number].a, pairs[number].b):
            of_images[place] = min(rank, of_images.get(place, rank))
    return of_pairs, of_images


def deal_to_pairs(
    batch: ImageBatch, *, uses: Mapping[int, list[PairUse]], chunk: int
) -> Iterable[tuple[int, tuple[PairUse, StoredImage | Reject]]]:
    """An image to every pair that shows it, by the pairs' chunk."""
    images: list[tuple[int, StoredImage | Reject]] = [(r.offset, r) for r in batch.rejects]
    if batch.records.num_rows:
        columns = {name: batch.records.column(name).flatten().to_pylist() for name in batch.records.schema.names}
        names = (OFFSET, key.ENCODED, key.FORMAT, key.HEIGHT, key.WIDTH, key.FILENAME)
        for place, *row in zip(*(columns[name] for name in names), strict=True):
            stored = StoredImage(*row)
            images.append((place, dataclasses.replace(stored, kept=batch.kept.get(place))))
    for place, image in images:
        for use in uses.get(place, ()):
            yield use.pair // chunk, (use, image)
