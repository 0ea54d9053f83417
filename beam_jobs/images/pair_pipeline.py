"""The pipeline of pairs of images: each image is still read and decoded only once."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import apache_beam as beam

from beam_jobs.core import progress
from beam_jobs.core.accounting import COUNTS, PARITY, REJECTS
from beam_jobs.core.steps import Plan, Steps
from beam_jobs.images import preprocessing
from beam_jobs.images.pairs import LEFT, RIGHT, AssemblePairs, PairUse, StoredImage
from beam_jobs.images.pipeline import IngestImages, analyze, listing_rejects
from beam_jobs.images.records import ImageBatch
from beam_jobs.images.seen import FindImageLeaks
from beam_jobs.images.staged import StagedImages, StagedPairs
from beam_jobs.output.encode import Encoded
from beam_jobs.statistics.combine import STATISTICS
from schemas.images.pairs import Pair
from schemas.rejects import Reject
from schemas.spec import image_keys as key
from schemas.spec.image_options import ImageOptions
from schemas.spec.raw_columns import OFFSET

PAIRS_AT_ONCE = 64  # pairs that are assembled together


def pair_steps(
    pipeline: beam.Pipeline,
    plan: Plan,
    *,
    options: ImageOptions,
    images: StagedImages,
    pairs: StagedPairs,
    records: int,
    rejects: Sequence[Reject],
    identity_splits: Mapping[str, str],
) -> Steps:
    """Applies the steps from a listing to encoded pairs: each image is ingested once, however many pairs have it.

    `rejects` are those of the listing itself; `records` is the number of pairs.
    """
    classes = tuple(sorted(identity_splits))
    progress.expect("ingesting", "writing")
    ingest = IngestImages(options, classes=classes, split=identity_splits, plan=plan, records=records, pairs=pairs)
    ingested = images.create(pipeline) | "Ingest" >> beam.ParDo(ingest).with_output_types(ImageBatch)
    moments = ingested | "Moments" >> beam.Map(lambda batch: preprocessing.to_analyze(batch.moments))
    rows = (
        ingested
        | "DealToPairs" >> beam.ParDo(DealToPairs(pairs))
        | "ByChunk" >> beam.GroupByKey()
        | "Assemble"
        >> beam.ParDo(AssemblePairs(pairs, plan=plan))
        .with_output_types(Encoded)
        .with_outputs(COUNTS, REJECTS, PARITY, STATISTICS, main="examples")
    )
    listed_counts, listed_files = listing_rejects(pipeline, plan, [rejects])
    return Steps(
        encoded=rows.examples,
        transform_fn=analyze(pipeline, plan, moments),
        counts=(rows[COUNTS], listed_counts),
        reject_files=(rows[REJECTS], listed_files) | "RejectFiles" >> beam.Flatten(),
        late_rejects=pipeline | "NoLateRejects" >> beam.Create([], reshuffle=False),
        parity_files=rows[PARITY],
        statistics=rows[STATISTICS] if plan.statistics else None,
        leakage=ingested | FindImageLeaks() if plan.leakage else None,
    )


class DealToPairs(beam.DoFn):
    """ImageBatch -> (chunk of pairs, (use, image)): sends an image to every pair that has it."""

    uses: Mapping[int, list[PairUse]]

    def __init__(self, pairs: StagedPairs, *, chunk: int = PAIRS_AT_ONCE) -> None:
        self.pairs = pairs
        self.chunk = chunk

    def setup(self) -> None:
        self.uses = uses_of(self.pairs.read().pairs)

    def process(self, batch: ImageBatch) -> Iterator[tuple[int, tuple[PairUse, StoredImage | Reject]]]:
        images: list[tuple[int, StoredImage | Reject]] = [(r.offset, r) for r in batch.rejects]
        if batch.records.num_rows:
            columns = {name: batch.records.column(name).flatten().to_pylist() for name in batch.records.schema.names}
            names = (OFFSET, key.ENCODED, key.FORMAT, key.HEIGHT, key.WIDTH, key.FILENAME)
            rows = zip(*(columns[name] for name in names), strict=True)
            for (place, *row), facts in zip(rows, batch.facts, strict=True):
                stored = StoredImage(facts, *row)
                images.append((place, dataclasses.replace(stored, kept=batch.kept.get(place))))
        for place, image in images:
            for use in self.uses.get(place, ()):
                yield use.pair // self.chunk, (use, image)


def uses_of(pairs: Sequence[Pair]) -> dict[int, list[PairUse]]:
    """The pairs that each image is in."""
    uses: dict[int, list[PairUse]] = collections.defaultdict(list)
    for number, pair in enumerate(pairs):
        uses[pair.a].append(PairUse(number, LEFT))
        uses[pair.b].append(PairUse(number, RIGHT))
    return dict(uses)
