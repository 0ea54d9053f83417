"""Pairs of canonical images -> records, a chunk of pairs at a time.

The pipeline of pairs of images: each image is still read and decoded only once.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindows

from beam_jobs.core import progress
from beam_jobs.core.accounting import COUNTS, COVERED, PARITY, REJECTS, WRITTEN, count, counted, kept_rejects
from beam_jobs.core.inputs import LISTING
from beam_jobs.core.parity import KeptFile, ParityFiles, write_stored
from beam_jobs.core.source import Plan, Steps
from beam_jobs.images.facts import Facts, described_pairs, facts_columns, string_lists, to_analyze
from beam_jobs.images.image_lists import StagedImages, read_pairs
from beam_jobs.images.pipeline import IngestImages, analyze, image_profiles, listing_rejects
from beam_jobs.images.reader import ImageBatch, ranks_of
from beam_jobs.profiles import STATISTICS, merged
from beam_jobs.records.encode import Encoded
from beam_jobs.records.examples import example, framed
from schemas.images.listing import listed_as
from schemas.images.pairs import Pair
from schemas.profile.statistics import Statistics
from schemas.rejects import Reject
from schemas.spec import images as key
from schemas.spec.images import SAMENESS, ImageOptions, ImagePairsSchema
from schemas.spec.table import OFFSET, SPLITS

SIDES = LEFT, RIGHT = ImagePairsSchema.image_names


@dataclasses.dataclass(frozen=True)
class PairUse:
    """An image's part in a pair: the pair's number, and which side it is."""

    pair: int
    side: str


@dataclasses.dataclass(frozen=True)
class StoredImage:
    """A canonical image as a record has it, the facts for the statistics, and the copy of its file if there is one."""

    facts: Facts
    encoded: bytes
    format: bytes
    height: int
    width: int
    filename: bytes
    kept: KeptFile | None = None


def pair_example(sides: dict[str, StoredImage], *, same: bool) -> bytes:
    """A serialised tf.Example: `left/image/encoded` and so on, the same with `right/`, and `same`."""
    features: dict[str, bytes | int] = {}
    stored_key = ImagePairsSchema.stored_key
    for side, image in sides.items():
        features |= {
            stored_key(side, key.ENCODED): image.encoded,
            stored_key(side, key.FORMAT): image.format,
            stored_key(side, key.HEIGHT): image.height,
            stored_key(side, key.WIDTH): image.width,
            stored_key(side, key.FILENAME): image.filename,
        }
    return example(features | {key.SAME: int(same)})


class AssemblePairs(beam.DoFn):
    """(chunk, its images) -> Encoded. A pair with a rejected image is a reject itself, for that image's reason.

    Side outputs: counts, reject files, ParityFiles in PARITY of the pairs that are drawn for it, and the STATISTICS of
    the bundle's pairs.
    """

    statistics: Statistics | None  # of the current bundle

    def __init__(self, pairs: str, *, plan: Plan) -> None:
        self.staged = pairs
        self.staging = plan.staging
        self.described = described_pairs() if plan.statistics else None

    def start_bundle(self) -> None:
        self.statistics = None if self.described is None else Statistics(self.described)

    def finish_bundle(self) -> Iterator[beam.pvalue.TaggedOutput]:
        if self.statistics is not None and self.statistics.rows:
            yield beam.pvalue.TaggedOutput(STATISTICS, GlobalWindows.windowed_value(self.statistics))

    def setup(self) -> None:
        table = read_pairs(self.staged)
        self.pairs, self.paths = table.pairs, table.paths
        self.ranks, _ = ranks_of(self.pairs)

    def process(self, element: tuple[int, Iterable[tuple[PairUse, StoredImage | Reject]]]) -> Iterator[Any]:
        _, uses = element
        by_pair: dict[int, dict[str, StoredImage | Reject]] = collections.defaultdict(dict)
        for use, image in uses:
            by_pair[use.pair][use.side] = image
        rejects, numbers, examples = [], [], []
        facts: dict[str, list[Facts]] = {side: [] for side in SIDES}
        for number in sorted(by_pair):
            sides = by_pair[number]
            bad = next((sides[side] for side in SIDES if isinstance(sides[side], Reject)), None)
            if isinstance(bad, Reject):
                rejects.append(self.refuse(number, bad))
                continue
            numbers.append(number)
            good = {side: image for side in SIDES if isinstance(image := sides[side], StoredImage)}
            examples.append(pair_example(good, same=self.pairs[number].same))
            for side, image in good.items():
                facts[side].append(image.facts)
            files = {side: image.kept for side, image in good.items() if image.kept is not None}
            if number in self.ranks and len(files) == len(SIDES):
                stored = write_stored(self.staging, examples[-1])
                label = SAMENESS[self.pairs[number].same]
                yield beam.pvalue.TaggedOutput(PARITY, ParityFiles(self.ranks[number], files, label, stored))
        yield from counted(LISTING, read=len(by_pair), rejects=rejects)
        yield count(LISTING, COVERED, "", len(by_pair))
        yield from kept_rejects(self.staging, rejects)
        if not numbers:
            return
        splits = np.array([SPLITS.index(self.pairs[n].split) for n in numbers], np.int8)
        for split, rows in collections.Counter(splits.tolist()).items():
            yield count(LISTING, WRITTEN, SPLITS[split], rows)
        if self.statistics is not None:
            labels = string_lists([SAMENESS[self.pairs[n].same] for n in numbers])
            columns = {key.SAME: labels}
            for side, images in facts.items():
                columns |= facts_columns(images, f"{side}/")
            self.statistics.add(pa.RecordBatch.from_pydict(columns), splits)
        yield Encoded(framed(examples), splits, 0, numbers[0])

    def refuse(self, number: int, bad: Reject) -> Reject:
        """A pair is rejected for one of its images. Its offset is its number, its raw bytes are the two paths."""
        pair = self.pairs[number]
        raw = listed_as("", self.paths[pair.a], self.paths[pair.b], by_csv=True)
        return dataclasses.replace(bad, offset=number, stage="pair", detail=f"pair {number}: {bad.detail}", raw=raw)


PAIRS_AT_ONCE = 64  # pairs that are assembled together


def pair_steps(
    pipeline: beam.Pipeline,
    plan: Plan,
    *,
    options: ImageOptions,
    images: StagedImages,
    pairs: str,
    records: int,
    rejects: Sequence[Reject],
    identity_splits: Mapping[str, str],
) -> Steps:
    """Applies the steps from a listing to encoded pairs: each image is ingested once, however many pairs have it.

    `rejects` are those of the listing itself; `pairs` is the file where the `records` pairs are staged.
    """
    classes = tuple(sorted(identity_splits))
    progress.expect("ingesting", "writing")
    ingest = IngestImages(options, classes=classes, split=identity_splits, plan=plan, records=records, pairs=pairs)
    ingested = images.create(pipeline) | "Ingest" >> beam.ParDo(ingest).with_output_types(ImageBatch)
    moments = ingested | "Moments" >> beam.Map(lambda batch: to_analyze(batch.records, batch.facts))
    rows = (
        ingested
        | "DealToPairs" >> beam.ParDo(DealToPairs(pairs))
        | "ByChunk" >> beam.GroupByKey()
        | "Assemble"
        >> beam.ParDo(AssemblePairs(pairs, plan=plan))
        .with_output_types(Encoded)
        .with_outputs(COUNTS, REJECTS, PARITY, STATISTICS, main="examples")
    )
    analyze(plan, moments)
    listed_counts, listed_files = listing_rejects(pipeline, plan, [rejects])
    return Steps(
        encoded=rows.examples,
        counts=(rows[COUNTS], listed_counts),
        reject_files=(rows[REJECTS], listed_files) | "RejectFiles" >> beam.Flatten(),
        late_rejects=pipeline | "NoLateRejects" >> beam.Create([], reshuffle=False),
        watched={"parity_files": rows[PARITY]} | merged(plan, rows[STATISTICS], image_profiles(plan, ingested)),
    )


class DealToPairs(beam.DoFn):
    """ImageBatch -> (chunk of pairs, (use, image)): sends an image to every pair that has it."""

    uses: Mapping[int, list[PairUse]]

    def __init__(self, pairs: str) -> None:
        self.staged = pairs

    def setup(self) -> None:
        self.uses = uses_of(read_pairs(self.staged).pairs)

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
                yield use.pair // PAIRS_AT_ONCE, (use, image)


def uses_of(pairs: Sequence[Pair]) -> dict[int, list[PairUse]]:
    """The pairs that each image is in."""
    uses: dict[int, list[PairUse]] = collections.defaultdict(list)
    for number, pair in enumerate(pairs):
        uses[pair.a].append(PairUse(number, LEFT))
        uses[pair.b].append(PairUse(number, RIGHT))
    return dict(uses)
