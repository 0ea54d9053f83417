"""The pipeline of image files: a step reads each file once, decodes it, makes its record, and measures it.

The measurements are the sums for the channels' mean and deviation, facts for the statistics, and hashes by which
leakage is found.
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
    """The place of a staged listing. The pipeline holds only this, and not the listing, which may be large.

    Attributes:
      folder: the folder of the listing's files.
      parts: the number of files.
      images: the number of images in all files.
    """

    folder: str
    parts: int
    images: int

    def read(self, part: int) -> Iterator[ImageBundle]:
        """Reads file number `part` of the listing, and yields its images in bundles of at most BUNDLE images."""
        first, *columns = parse_json(storage.read_bytes(_path_of(self.folder, part)))
        for i in range(0, len(columns[0]), BUNDLE):
            yield ImageBundle(first + i, *(tuple(column[i : i + BUNDLE]) for column in columns))


def spread(pipeline: beam.Pipeline, parts: int, read: Callable[[int], Iterator[Any]]) -> beam.PCollection:
    """Reads the staged parts of a listing, and distributes the bundles over the workers.

    Args:
      pipeline: the pipeline to extend.
      parts: the number of parts.
      read: yields the bundles of the part with this number.
    """
    return (
        pipeline
        | "ListingParts" >> beam.Create(list(range(parts)), reshuffle=False)
        | "Bundles" >> beam.FlatMap(read)
        | "SpreadBundles" >> beam.Reshuffle()
    )


def _path_of(folder: str, part: int) -> str:
    return layout.join(folder, f"{_PART}{part:05d}.json")


def stage_images(folder: str, bundles: Iterable[ImageBundle]) -> StagedImages:
    """Writes a listing to a folder, one file for each bundle, so that only one bundle is in memory at a time."""
    parts = images = 0
    for bundle in bundles:
        # In file names that are not UTF-8, Python has surrogates for the invalid bytes. JSON escapes surrogates.
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
    """Adds the steps from a listing of images to encoded records. Each image is one record.

    Args:
      pipeline: the pipeline to extend.
      plan: the plan of the pipeline.
      schema: the schema of the images.
      images: the staged listing.
      rejects: images that the listing itself rejects, without reading them, some at a time.
      classes: the labels in the order of their ids.
      corrected: in a replay, the rejects that are tried again, in the order of the listing; empty: new input.
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
    if plan.transform_from is None:  # else `write_transform` copies the transform of the other dataset
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
    """Writes the rejects of the listing itself to files, and counts them.

    Returns:
      A PCollection of pairs (CountKey, int), and a PCollection of RejectFiles.
    """
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
    """Reads the images of an ImageBundle, and yields their records as RecordBatches, with facts for the statistics.

    Side outputs:
      COUNTS: the number of read and rejected images.
      REJECTS: RejectFiles.
      PARITY: ParityFiles, for a sample of the images.
      MOMENTS: the sums over the pixels of the train split's images.
      CONTENTS: files with the digests of the images.
      LEAKAGE: the LeakageProfile of the bundle.
    """

    reader: ImageReader
    profile: ImageLeakage  # the profile of the images of the current bundle

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
        """Ingests the images of a bundle, batch by batch. Ends the job early if too many images are rejected."""
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
        """Yields all outputs of a batch: its counts, rejects, records and measurements."""
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
        """Yields the parity records of a batch: copies of some files, with the stored records of the same images."""
        places = passthrough(batch.records, OFFSET)
        labels = batch.records.column(key.TEXT).flatten()
        for i, rank in enumerate(place_hash(0, places).tolist() if batch.file_copies else ()):
            file = batch.file_copies.get(int(places[i]))
            if file is not None:
                features = batch.records.slice(i, 1).select(RECORDS.names)
                stored = write_staged(self.staging, examples.record(examples.frames(encode(features)), 0))
                label = labels[i].as_py().decode()
                yield beam.pvalue.TaggedOutput(PARITY, ParityFiles(rank, file, label, stored))
