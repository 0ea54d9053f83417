"""Finds leakage among the images that a pipeline ingests, in the step that ingests them."""

from __future__ import annotations

from collections.abc import Iterator

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from beam_jobs.core.accounting import passthrough
from beam_jobs.images.records import ImageBatch
from beam_jobs.leakage.combine import find_leaks
from beam_jobs.leakage.images import ImageCollector
from schemas.spec import image_keys as key
from schemas.spec.raw_columns import SPLIT


class FindImageLeaks(beam.PTransform):
    """ImageBatch -> what is found, as JSON. Each image counts once, however many pairs have it."""

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        return batches | "Look" >> beam.ParDo(CollectImages()) | "FindLeaks" >> find_leaks(None)


class CollectImages(beam.DoFn):
    """ImageBatch -> what the bundle's images leave behind, as bytes."""

    collector: ImageCollector  # of the current bundle

    def start_bundle(self) -> None:
        self.collector = ImageCollector()

    def process(self, batch: ImageBatch) -> None:
        if batch.records.num_rows:
            labels = batch.records.column(key.TEXT).flatten()
            self.collector.add(batch.seen, passthrough(batch.records, SPLIT), labels)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self.collector.known is not None:
            yield GlobalWindows.windowed_value(self.collector.known.to_bytes())
