"""Listed images, and pairs of them, as files in the staging folder, which workers read part by part."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterable, Iterator, Sequence

import apache_beam as beam

from schemas import storage
from schemas.dataset import layout
from schemas.images.listing import BUNDLE, ImageBundle
from schemas.images.pairs import Pair
from schemas.storage.json_files import parse_json


@dataclasses.dataclass(frozen=True)
class StagedImages:
    """Where a listing is staged, and how many images it has. This is all that the pipeline holds of it."""

    folder: str
    parts: int
    images: int

    def read(self, part: int) -> Iterator[ImageBundle]:
        """The images of a part, in bundles of at most BUNDLE."""
        first, *columns = parse_json(storage.read_bytes(_part(self.folder, part)))
        for i in range(0, len(columns[0]), BUNDLE):
            yield ImageBundle(first + i, *(tuple(column[i : i + BUNDLE]) for column in columns))

    def create(self, pipeline: beam.Pipeline) -> beam.PCollection:
        """The bundles, distributed over the workers."""
        return (
            pipeline
            | "ListingParts" >> beam.Create(list(range(self.parts)), reshuffle=False)
            | "Bundles" >> beam.FlatMap(self.read)
            | "SpreadBundles" >> beam.Reshuffle()
        )


def _part(folder: str, part: int) -> str:
    return layout.join(folder, f"images-{part:05d}.json")


def stage_images(folder: str, bundles: Iterable[ImageBundle]) -> StagedImages:
    """Writes images to a folder, each bundle to a file: few are held in memory, however many they are."""
    parts = images = 0
    for bundle in bundles:
        # Names that are not UTF-8 have surrogates, which JSON escapes.
        data = json.dumps([bundle.first, bundle.paths, bundle.names, bundle.labels]).encode()
        storage.write_bytes(_part(folder, parts), data)
        parts += 1
        images += len(bundle.paths)
    return StagedImages(folder, parts, images)


@dataclasses.dataclass(frozen=True)
class PairTable:
    """All pairs, and the paths of the images that their places stand for."""

    pairs: tuple[Pair, ...]
    paths: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class StagedPairs:
    """Where the pairs are staged."""

    path: str

    def read(self) -> PairTable:
        """The pairs, which every worker holds in memory."""
        return _read_pairs(self.path)


@functools.lru_cache(maxsize=1)
def _read_pairs(path: str) -> PairTable:
    pairs, paths = parse_json(storage.read_bytes(path))
    return PairTable(tuple(Pair(*pair) for pair in pairs), tuple(paths))


def stage_pairs(folder: str, pairs: Sequence[Pair], paths: Sequence[str]) -> StagedPairs:
    """Writes pairs to a folder."""
    path = layout.join(folder, "pairs.json")
    storage.write_bytes(path, json.dumps([[dataclasses.astuple(pair) for pair in pairs], paths]).encode())
    return StagedPairs(path)
