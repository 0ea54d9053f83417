"""Image files in the pipeline: each is read and decoded once, stored as it is, and measured on the way."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import apache_beam as beam
import pyarrow as pa
import tensorflow_transform.beam as tft_beam

from beam_jobs.core import parity_sample, progress
from beam_jobs.core.accounting import (
    COUNTS,
    PARITY,
    READ,
    REJECTS,
    RejectFile,
    give_up_if_certain,
    passthrough,
    write_reject_file,
)
from beam_jobs.core.coders import BatchCoder
from beam_jobs.core.counting import counted, covered, kept_rejects
from beam_jobs.core.parity_files import FileKeeper, ParityFiles, write_stored
from beam_jobs.core.steps import Plan, Steps
from beam_jobs.images import preprocessing
from beam_jobs.images.reader import ImageReader
from beam_jobs.images.records import RECORDS, ImageBatch
from beam_jobs.output import tfrecord_frames
from beam_jobs.output.encode import Encoded, EncodeExamples, encode
from beam_jobs.transform.observed import Watched
from beam_jobs.transform.rejects import Outputs
from schemas.concurrency import prefetch
from schemas.dataset import layout
from schemas.images.listing import ImageBundle, Listing, bundles
from schemas.rejects import Reject
from schemas.spec import image_keys as key
from schemas.spec.image_options import ImageOptions, ImageSplit
from schemas.spec.images import ImageFolderSchema
from schemas.spec.raw_columns import OFFSET

MOMENTS = "moments"

beam.coders.registry.register_coder(ImageBatch, BatchCoder)


def image_steps(
    pipeline: beam.Pipeline,
    plan: Plan,
    *,
    schema: ImageFolderSchema,
    listing: Listing,
    source: str,
    classes: tuple[str, ...],
    known_as: Callable[[Reject], Reject] | None = None,
) -> Steps:
    """Applies the steps from a listing to encoded records: one image, one record.

    `source` is the listing's name. `known_as` gives an image's reject another place than the listing's, if need be.
    """
    ingest = IngestImages(schema.images, classes=classes, split=schema.split, plan=plan, records=len(listing.paths))
    rows = (
        pipeline
        | "Bundles" >> beam.Create(list(bundles(listing)), reshuffle=True)
        | "Ingest" >> beam.ParDo(ingest).with_output_types(ImageBatch)
        | "Account"
        >> beam.ParDo(AccountImages(source, listing, plan, known_as))
        .with_output_types(pa.RecordBatch)
        .with_outputs(COUNTS, REJECTS, PARITY, MOMENTS, main="records")
    )
    encoded = rows.records | "Encode" >> beam.ParDo(
        EncodeExamples(
            Outputs(key.CLASS),
            Watched(frozenset({key.CLASS})),
            paths=[source],
            staging=plan.staging,
        )
    ).with_output_types(Encoded).with_outputs(COUNTS, REJECTS, main="examples")
    listed_counts, listed_files = listing_rejects(pipeline, plan, source, listing)
    return Steps(
        encoded=encoded.examples,
        transform_fn=analyze(pipeline, plan, rows[MOMENTS]),
        counts=(rows[COUNTS], encoded[COUNTS], listed_counts),
        reject_files=(rows[REJECTS], listed_files) | "RejectFiles" >> beam.Flatten(),
        late_rejects=encoded[REJECTS],
        parity_files=rows[PARITY],
    )


def analyze(pipeline: beam.Pipeline, plan: Plan, moments: beam.PCollection) -> Any:
    """Measures the channels, unless another dataset's transform is applied."""
    if plan.transform_from is not None:
        return pipeline | "ReadTransformFn" >> tft_beam.ReadTransformFn(plan.transform_from)
    with tft_beam.Context(temp_dir=plan.temp_dir):
        return (moments, preprocessing.adapter_config()) | tft_beam.AnalyzeDataset(plan.preprocessing_fn)


def listing_rejects(
    pipeline: beam.Pipeline, plan: Plan, source: str, listing: Listing
) -> tuple[beam.PCollection, beam.PCollection]:
    """What the listing itself refused: its counts, and the file that it is kept in."""
    counts = collections.Counter((source, r.stage, r.reason) for r in listing.rejects)
    counts[source, READ, ""] = len(listing.rejects)
    files = []
    if listing.rejects:
        files.append(RejectFile(write_reject_file(plan.staging, "transforming", listing.rejects), len(listing.rejects)))
    return (
        pipeline | "ListedCounts" >> beam.Create(list(counts.items()), reshuffle=False),
        pipeline | "ListedRejects" >> beam.Create(files, reshuffle=False),
    )


class IngestImages(beam.DoFn):
    """ImageBundle -> ImageBatch."""

    def __init__(
        self,
        images: ImageOptions,
        *,
        classes: tuple[str, ...],
        split: ImageSplit | Mapping[str, str],
        plan: Plan,
        records: int,
        ranks: Mapping[int, int] | None = None,
    ) -> None:
        self.images = images
        self.classes = classes
        self.split = split
        self.staging = plan.staging
        self.keeps = plan.parity_threshold is not None
        self.ingest_from = None if plan.transform_from is None else layout.join(plan.transform_from, layout.INGEST_FN)
        self.records = records
        self.ranks = ranks
        self.limit = plan.limit
        self.total = plan.total

    def setup(self) -> None:
        in_pairs = self.ranks is not None  # a branch's image without its partner would make no record
        keeper = FileKeeper(self.staging, self.records, files=1 + in_pairs, each_branch=not in_pairs)
        self.reader = ImageReader(
            self.images,
            classes=self.classes,
            split=self.split,
            keeper=keeper if self.keeps else None,
            ranks=self.ranks,
            ingest_from=self.ingest_from,
        )

    def teardown(self) -> None:
        self.reader.close()

    def process(self, bundle: ImageBundle) -> Iterator[ImageBatch]:
        progress.enter("ingesting")
        progress.begin(bundle.first)

        def count(rejected: bool) -> None:
            progress.add(bundle.first, read=1, done=1, rejected=int(rejected))

        for batch in prefetch(self.reader.read(bundle, count=count)):
            yield batch
            most = max(self.total, progress.counters.read)
            give_up_if_certain(self.limit, most, records="images", of=f" of {self.total:,}")


class AccountImages(beam.DoFn):
    """ImageBatch -> its records. Side outputs: counts, reject files, raw parity records, moments of the train split."""

    def __init__(
        self, source: str, listing: Listing, plan: Plan, known_as: Callable[[Reject], Reject] | None = None
    ) -> None:
        self.source = source
        self.known_as = known_as
        self.labels = listing.labels
        self.staging = plan.staging

    def process(self, batch: ImageBatch) -> Iterator[Any]:
        rejects = batch.rejects if self.known_as is None else [self.known_as(r) for r in batch.rejects]
        yield from counted(self.source, read=batch.read, rejects=rejects)
        yield covered(self.source, batch.read)
        yield from kept_rejects(self.staging, rejects)
        if not batch.records.num_rows:
            return
        yield from self.parity(batch)
        if batch.moments.num_rows:
            yield beam.pvalue.TaggedOutput(MOMENTS, preprocessing.to_analyze(batch.moments))
        yield batch.records

    def parity(self, batch: ImageBatch) -> Iterator[beam.pvalue.TaggedOutput]:
        """The records of kept files, each with what is stored of it."""
        places = passthrough(batch.records, OFFSET)
        for i, rank in enumerate(parity_sample.place_hash(0, places).tolist()):
            file = batch.kept.get(int(places[i]))
            if file is not None:
                features = batch.records.slice(i, 1).select(RECORDS.names)
                stored = write_stored(self.staging, tfrecord_frames.record(encode(features), 0))
                label = self.labels[int(places[i])]
                yield beam.pvalue.TaggedOutput(PARITY, ParityFiles(rank, {"image": file}, label, stored))
