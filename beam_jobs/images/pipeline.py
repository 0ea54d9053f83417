"""The pipeline of image files: each is read and decoded once, stored, and measured for the channel statistics.

Finds leakage among the images that a pipeline ingests, in the step that ingests them.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa
import tensorflow_transform.beam as tft_beam
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from beam_jobs.core import progress, workers
from beam_jobs.core.accounting import (
    COUNTS,
    COVERED,
    PARITY,
    READ,
    REJECTS,
    CountKey,
    count,
    counted,
    give_up_if_certain,
    kept_rejects,
    passthrough,
    write_reject_file,
)
from beam_jobs.core.inputs import LISTING
from beam_jobs.core.parity import FileKeeper, ParityFiles, write_stored
from beam_jobs.core.source import Plan, Steps
from beam_jobs.core.workers import BatchCoder
from beam_jobs.images import facts
from beam_jobs.images.facts import described_images, with_facts
from beam_jobs.images.image_lists import StagedImages
from beam_jobs.images.reader import RECORDS, ImageBatch, ImageReader
from beam_jobs.profiles import STATISTICS, merged
from beam_jobs.records import examples
from beam_jobs.records.encode import Encoded, EncodeExamples, encode
from beam_jobs.records.existing import write_contents
from beam_jobs.transform.observed import Watched
from beam_jobs.transform.rejects import Outputs
from beam_jobs.transform.write_transform import write_transform
from schemas.concurrency import prefetch
from schemas.dataset import layout
from schemas.images.listing import ImageBundle
from schemas.profile.duplicates import place_hash
from schemas.profile.leakage import ImageCollector
from schemas.rejects import Reject
from schemas.spec import images as key
from schemas.spec.images import ImageOptions, ImageSchema, ImageSplit
from schemas.spec.table import OFFSET, SPLIT


class CollectImages(beam.DoFn):
    """ImageBatch -> what the bundle's images leave behind."""

    collector: ImageCollector  # of the current bundle

    def start_bundle(self) -> None:
        self.collector = ImageCollector()

    def process(self, batch: ImageBatch) -> None:
        if batch.records.num_rows:
            labels = batch.records.column(key.TEXT).flatten()
            self.collector.add(batch.seen, passthrough(batch.records, SPLIT), labels)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self.collector.profile is not None:
            yield GlobalWindows.windowed_value(self.collector.profile)


MOMENTS, CONTENTS = "moments", "contents"

beam.coders.registry.register_coder(ImageBatch, BatchCoder)


def image_steps(
    pipeline: beam.Pipeline,
    plan: Plan,
    *,
    schema: ImageSchema,
    images: StagedImages,
    rejects: Iterable[Sequence[Reject]],
    classes: tuple[str, ...],
    known_as: Callable[[Reject], Reject] | None = None,
) -> Steps:
    """Applies the steps from a listing to encoded records: one image, one record.

    `rejects` are those of the listing itself. `known_as` gives an image's reject a place other than the listing's.
    """
    progress.expect("ingesting", "writing")
    ingest = IngestImages(schema.images, classes=classes, split=schema.split, plan=plan, records=images.images)
    ingested = images.create(pipeline) | "Ingest" >> beam.ParDo(ingest).with_output_types(ImageBatch)
    rows = ingested | "Account" >> beam.ParDo(AccountImages(plan, known_as)).with_output_types(
        pa.RecordBatch
    ).with_outputs(COUNTS, REJECTS, PARITY, MOMENTS, CONTENTS, main="records")
    encoded = rows.records | "Encode" >> beam.ParDo(
        EncodeExamples(
            Outputs(key.CLASS),
            Watched(frozenset({key.CLASS})),
            inputs=plan.inputs,
            staging=plan.staging,
            described=described_images() if plan.statistics else None,
        )
    ).with_output_types(Encoded).with_outputs(COUNTS, REJECTS, STATISTICS, main="examples")
    analyze(plan, rows[MOMENTS])
    listed_counts, listed_files = listing_rejects(pipeline, plan, rejects)
    return Steps(
        encoded=encoded.examples,
        counts=(rows[COUNTS], encoded[COUNTS], listed_counts),
        reject_files=(rows[REJECTS], listed_files) | "RejectFiles" >> beam.Flatten(),
        late_rejects=encoded[REJECTS],
        watched={"parity_files": rows[PARITY], "content_files": rows[CONTENTS]}
        | merged(plan, encoded[STATISTICS], image_profiles(plan, ingested)),
    )


def analyze(plan: Plan, moments: beam.PCollection) -> None:
    """Measures the channels and writes the transform; or copies that of another dataset, if it is applied."""
    measured = None
    if plan.transform_from is None:
        with tft_beam.Context(temp_dir=plan.temp_dir):
            measured = (moments, facts.adapter_config()) | tft_beam.AnalyzeDataset(plan.preprocessing_fn)
    write_transform(measured, plan)


def image_profiles(plan: Plan, batches: beam.PCollection) -> beam.PCollection | None:
    """ImageBatch -> LeakageProfile."""
    return batches | "Look" >> beam.ParDo(CollectImages()) if plan.leakage else None


def listing_rejects(
    pipeline: beam.Pipeline, plan: Plan, rejects: Iterable[Sequence[Reject]]
) -> tuple[beam.PCollection, beam.PCollection]:
    """The rejects of the listing itself: their counts, and the files that they are written to."""
    counts: collections.Counter[CountKey] = collections.Counter()
    files = []
    for some in rejects:
        counts.update((str(LISTING), r.stage, r.reason) for r in some)
        counts[str(LISTING), READ, ""] += len(some)
        if some:
            files.append(write_reject_file(plan.staging, "transforming", some))
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
        split: ImageSplit,
        plan: Plan,
        records: int,
    ) -> None:
        self.images = images
        self.classes = classes
        self.split = split
        self.staging = plan.staging
        self.keeps = plan.parity_threshold is not None
        self.ingest_from = None if plan.transform_from is None else layout.join(plan.transform_from, layout.INGEST_FN)
        self.records = records
        self.looks = plan.leakage
        self.limit = plan.limit
        self.total = plan.total
        self.meter = workers.Meter("ingesting")

    def setup(self) -> None:
        self.reader = ImageReader(
            self.images,
            classes=self.classes,
            split=self.split,
            keeper=FileKeeper(self.staging, self.records) if self.keeps else None,
            ingest_from=self.ingest_from,
            looks=self.looks,
        )

    def teardown(self) -> None:
        self.reader.close()

    def process(self, bundle: ImageBundle) -> Iterator[ImageBatch]:
        workers.tell_begun(self.staging)
        progress.enter("ingesting")
        progress.begin(bundle.first)

        def tell(rejected: bool) -> None:
            progress.add(bundle.first, read=1, done=1, consumed=1, rejected=int(rejected))

        for batch in prefetch(self.reader.read(bundle, count=tell)):
            self.meter.add(read=batch.read, done=batch.read, rejected=len(batch.rejects))
            yield batch
            most = max(self.total, progress.counters.read)
            give_up_if_certain(self.limit, most, of=f" for all {self.total:,} records")


class AccountImages(beam.DoFn):
    """ImageBatch -> its records. Side outputs: counts, reject files, parity records, moments of the
    train split, files of contents."""

    def __init__(self, plan: Plan, known_as: Callable[[Reject], Reject] | None = None) -> None:
        self.known_as = known_as
        self.staging = plan.staging
        self.statistics = plan.statistics

    def process(self, batch: ImageBatch) -> Iterator[Any]:
        rejects = batch.rejects if self.known_as is None else [self.known_as(r) for r in batch.rejects]
        yield from counted(LISTING, read=batch.read, rejects=rejects)
        yield count(LISTING, COVERED, "", batch.read)
        yield from kept_rejects(self.staging, rejects)
        if not batch.records.num_rows:
            return
        yield beam.pvalue.TaggedOutput(CONTENTS, write_contents(self.staging, batch.contents))
        yield from self.parity(batch)
        measured = facts.to_analyze(batch.records, batch.facts)
        if measured.num_rows:
            yield beam.pvalue.TaggedOutput(MOMENTS, measured)
        yield with_facts(batch.records, batch.facts) if self.statistics else batch.records

    def parity(self, batch: ImageBatch) -> Iterator[beam.pvalue.TaggedOutput]:
        """The parity records: each kept file with its stored record."""
        places = passthrough(batch.records, OFFSET)
        labels = batch.records.column(key.TEXT).flatten().to_pylist()
        for i, rank in enumerate(place_hash(0, places).tolist()):
            file = batch.kept.get(int(places[i]))
            if file is not None:
                features = batch.records.slice(i, 1).select(RECORDS.names)
                stored = write_stored(self.staging, examples.record(examples.frames(encode(features)), 0))
                label = labels[i].decode()
                yield beam.pvalue.TaggedOutput(PARITY, ParityFiles(rank, file, label, stored))
