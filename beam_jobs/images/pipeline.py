"""The pipeline of image files: each is read and decoded once, stored, and measured for the channel statistics.

Finds leakage among the images that a pipeline ingests, in the step that ingests them.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa
import tensorflow_transform.beam as tft_beam
from apache_beam.transforms.window import GlobalWindows

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
    passthrough,
    write_reject_file,
    write_rejects,
)
from beam_jobs.core.inputs import LISTING
from beam_jobs.core.parity import FileKeeper, ParityFiles, write_staged
from beam_jobs.core.source import Chosen, PipelinePlan, SourceOutputs
from beam_jobs.images import facts
from beam_jobs.images.facts import described_images, with_facts
from beam_jobs.images.reader import RECORDS, ImageBatch, ImageReader
from beam_jobs.profiles import STATISTICS, merged
from beam_jobs.records import examples
from beam_jobs.records.encode import Encoded, EncodeExamples, encode
from beam_jobs.records.existing import write_contents
from beam_jobs.transform.rejects import Outputs
from beam_jobs.transform.write_transform import write_transform
from schemas import storage
from schemas.concurrency import prefetch
from schemas.dataset import layout
from schemas.images.listing import BUNDLE, ImageBundle
from schemas.profile.duplicates import place_hash
from schemas.profile.leakage import ImageLeakage
from schemas.rejects import Reject
from schemas.spec import images as key
from schemas.spec.images import ImageSchema
from schemas.spec.table import OFFSET, SPLIT
from schemas.storage.json_files import parse_json

_PART = "images-"  # how the names of a staged listing's files begin
MOMENTS, CONTENTS, LEAKAGE = "moments", "contents", "leakage"


@dataclasses.dataclass(frozen=True)
class StagedImages:
    """Where a listing is staged, and how many images it has. This is all that the pipeline holds of it."""

    folder: str
    parts: int
    images: int

    def read(self, part: int) -> Iterator[ImageBundle]:
        """Reads the images of a part, in bundles of at most BUNDLE."""
        first, *columns = parse_json(storage.read_bytes(_path_of(self.folder, part)))
        for i in range(0, len(columns[0]), BUNDLE):
            yield ImageBundle(first + i, *(tuple(column[i : i + BUNDLE]) for column in columns))


def spread(pipeline: beam.Pipeline, parts: int, read: Callable[[int], Iterator[Any]]) -> beam.PCollection:
    """Distributes what `read` yields of the staged parts of a listing over the workers."""
    return (
        pipeline
        | "ListingParts" >> beam.Create(list(range(parts)), reshuffle=False)
        | "Bundles" >> beam.FlatMap(read)
        | "SpreadBundles" >> beam.Reshuffle()
    )


def _path_of(folder: str, part: int) -> str:
    return layout.join(folder, f"{_PART}{part:05d}.json")


def stage_images(folder: str, bundles: Iterable[ImageBundle]) -> StagedImages:
    """Writes images to a folder, each bundle to a file: few are files in memory, however many they are."""
    parts = images = 0
    for bundle in bundles:
        # Names that are not UTF-8 have surrogates, which JSON escapes.
        data = json.dumps([bundle.first, bundle.paths, bundle.names, bundle.labels]).encode()
        storage.write_bytes(_path_of(folder, parts), data)
        parts += 1
        images += len(bundle.paths)
    return StagedImages(folder, parts, images)


def read_staged(folder: str) -> Iterator[ImageBundle]:
    """Reads the images that `stage_images` has written to a folder, in the order of the listing."""
    parts = sum(name.startswith(_PART) for name in storage.listdir(folder))
    return itertools.chain.from_iterable(map(StagedImages(folder, parts, images=0).read, range(parts)))


def image_steps(
    pipeline: beam.Pipeline,
    plan: PipelinePlan,
    *,
    schema: ImageSchema,
    images: StagedImages,
    rejects: Iterable[Sequence[Reject]],
    classes: tuple[str, ...],
    corrected: Sequence[Chosen] = (),
) -> SourceOutputs:
    """Applies the steps from a listing to encoded records: one image, one record.

    `rejects` are those of the listing itself. `corrected` are the rejects that the
    listing has again, which keep their places.
    """
    progress.JOB.expect("ingesting", "writing")
    ingest = IngestImages(schema, classes=classes, plan=plan, records=images.images, corrected=corrected)
    bundles = spread(pipeline, images.parts, images.read)
    rows = bundles | "Ingest" >> beam.ParDo(ingest).with_output_types(pa.RecordBatch).with_outputs(
        COUNTS, REJECTS, PARITY, MOMENTS, CONTENTS, LEAKAGE, main="records"
    )
    encoded = rows.records | "Encode" >> beam.ParDo(
        EncodeExamples(
            Outputs(key.CLASS),
            inputs=plan.inputs,
            staging=plan.staging,
            described=described_images() if plan.statistics else None,
        )
    ).with_output_types(Encoded).with_outputs(COUNTS, REJECTS, STATISTICS, main="examples")
    measured = None
    if plan.transform_from is None:  # else the transform of another dataset is copied
        with tft_beam.Context(temp_dir=plan.temp_dir):
            measured = (rows[MOMENTS], facts.adapter_config()) | tft_beam.AnalyzeDataset(plan.preprocessing_fn)
    written = write_transform(measured, plan)
    listed_counts, listed_files = listing_rejects(pipeline, plan, rejects)
    return SourceOutputs(
        encoded=encoded.examples,
        counts=(rows[COUNTS], encoded[COUNTS], listed_counts),
        reject_files=(rows[REJECTS], listed_files) | "RejectFiles" >> beam.Flatten(),
        late_rejects=encoded[REJECTS],
        watched={"parity_files": rows[PARITY], "content_files": rows[CONTENTS], **written}
        | merged(plan, encoded[STATISTICS], rows[LEAKAGE]),
    )


def listing_rejects(
    pipeline: beam.Pipeline, plan: PipelinePlan, rejects: Iterable[Sequence[Reject]]
) -> tuple[beam.PCollection, beam.PCollection]:
    """Counts the rejects of the listing itself, and writes them to files."""
    counts: collections.Counter[CountKey] = collections.Counter()
    files = []
    for part in rejects:
        counts.update((str(LISTING), r.stage, r.reason) for r in part)
        counts[str(LISTING), READ, ""] += len(part)
        if part:
            files.append(write_reject_file(plan.staging, "transforming", part))
    return (
        pipeline | "ListedCounts" >> beam.Create(list(counts.items()), reshuffle=False),
        pipeline | "ListedRejects" >> beam.Create(files, reshuffle=False),
    )


class IngestImages(beam.DoFn):
    """ImageBundle -> records of images as RecordBatches, which have what the statistics say of them beside.

    Side outputs: counts, reject files, parity records, moments of the train split, files of contents, and the bundle's
    LeakageProfile.
    """

    reader: ImageReader
    profile: ImageLeakage  # of the images of the current bundle

    def __init__(
        self,
        schema: ImageSchema,
        *,
        classes: tuple[str, ...],
        plan: PipelinePlan,
        records: int,
        corrected: Sequence[Chosen],
    ) -> None:
        self.schema, self.classes, self.records, self.corrected = schema, classes, records, corrected
        self.staging, self.limit, self.total = plan.staging, plan.limit, plan.total
        self.statistics, self.leakage = plan.statistics, plan.leakage
        self.keeps = plan.parity_threshold is not None
        self.ingest_from = None if plan.transform_from is None else layout.join(plan.transform_from, layout.INGEST_FN)
        self.meter = workers.Meter("ingesting")

    def setup(self) -> None:
        self.reader = ImageReader(
            self.schema.images,
            classes=self.classes,
            split=self.schema.split,
            keeper=FileKeeper(self.staging, self.records) if self.keeps else None,
            ingest_from=self.ingest_from,
            looks=self.leakage,
        )

    def teardown(self) -> None:
        self.reader.close()

    def start_bundle(self) -> None:
        self.profile = ImageLeakage()

    def finish_bundle(self) -> Iterator[beam.pvalue.TaggedOutput]:
        if self.profile.records:
            yield beam.pvalue.TaggedOutput(LEAKAGE, GlobalWindows.windowed_value(self.profile))

    def process(self, bundle: ImageBundle) -> Iterator[Any]:
        workers.report_begun(self.staging)
        progress.JOB.enter("ingesting")
        progress.JOB.begin(bundle.first)

        def count_image(rejected: bool) -> None:
            progress.JOB.add(bundle.first, read=1, done=1, consumed=1, rejected=int(rejected))

        for batch in prefetch(self.reader.read(bundle, count=count_image)):
            self.meter.add(read=batch.read, done=batch.read, rejected=len(batch.rejects))
            yield from self.outputs(batch)
            most = max(self.total, progress.JOB.counters.read)
            give_up_if_certain(self.limit, most, of=f" for all {self.total:,} records")

    def outputs(self, batch: ImageBatch) -> Iterator[Any]:
        """Yields the outputs of a batch."""
        rejects: Sequence[Reject] = batch.rejects
        if self.corrected:
            rejects = [self.corrected[reject.offset].still_rejected(reject) for reject in rejects]
        yield from counted(LISTING, read=batch.read, rejects=rejects)
        yield count(LISTING, COVERED, "", batch.read)
        yield from write_rejects(self.staging, rejects)
        if not batch.records.num_rows:
            return
        yield beam.pvalue.TaggedOutput(CONTENTS, write_contents(self.staging, batch.contents))
        yield from self.parity(batch)
        if self.leakage:
            labels = batch.records.column(key.TEXT).flatten()
            self.profile.add(batch.fingerprints, passthrough(batch.records, SPLIT), labels)
        measured = facts.to_analyze(batch.records, batch.facts)
        if measured.num_rows:
            yield beam.pvalue.TaggedOutput(MOMENTS, measured)
        yield with_facts(batch.records, batch.facts) if self.statistics else batch.records

    def parity(self, batch: ImageBatch) -> Iterator[beam.pvalue.TaggedOutput]:
        """Yields the parity records: copies of files with their stored records."""
        places = passthrough(batch.records, OFFSET)
        labels = batch.records.column(key.TEXT).flatten()
        for i, rank in enumerate(place_hash(0, places).tolist() if batch.file_copies else ()):
            file = batch.file_copies.get(int(places[i]))
            if file is not None:
                features = batch.records.slice(i, 1).select(RECORDS.names)
                stored = write_staged(self.staging, examples.record(examples.frames(encode(features)), 0))
                label = labels[i].as_py().decode()
                yield beam.pvalue.TaggedOutput(PARITY, ParityFiles(rank, file, label, stored))
