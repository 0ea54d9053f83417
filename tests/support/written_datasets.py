"""Datasets of every kind that a job wrote, on disk, with some rejects."""

from __future__ import annotations

import dataclasses
import gzip
from pathlib import Path

from schemas.dataset.checks import Issue
from schemas.dataset.manifest import Manifest, Shard
from schemas.dataset.verify import verify_dataset
from tests.support import jobs
from tests.support.drawn_images import write_folders
from tests.support.people import LEAN_SCHEMA, people_csv

FOLDERS = "name: shapes\nformat: image_folder\nimages: {resize: {exact: [24, 32]}, "
FOLDERS += "channels: {means: [123, 117, 104]}, store: %s}\n"


@dataclasses.dataclass(frozen=True)
class Written:
    """A dataset directory, and its manifest."""

    path: Path
    manifest: Manifest

    @property
    def run(self) -> Path:
        return self.path / self.manifest.run

    @property
    def compressed(self) -> bool:
        return self.manifest.compression == "gzip"

    def shards(self, split: str = "train") -> tuple[Shard, ...]:
        return self.manifest.splits[split].shards

    def content(self, shard: Shard) -> bytes:
        """A shard's frames."""
        data = (self.path / shard.path).read_bytes()
        return gzip.decompress(data) if self.compressed else data

    def put(self, shard: Shard, frames: bytes) -> None:
        (self.path / shard.path).write_bytes(gzip.compress(frames) if self.compressed else frames)

    def problems(self) -> list[Issue]:
        return verify_dataset(str(self.path))


def write(folder: Path, schema: str, raw: str, **changes) -> Written:
    dataset = jobs.written(folder, schema, raw, **{"num_shards": 3, "max_reject_fraction": 1.0, **changes})
    return Written(Path(dataset.path), dataset.manifest)


def write_csv(folder: Path, **changes) -> Written:
    (folder / "people.csv").write_text(people_csv(500) + "too,few\n" * 3)
    return write(folder, LEAN_SCHEMA, str(folder / "people.csv"), **changes)


def write_images(folder: Path, store: str, **changes) -> Written:
    write_folders(folder / "raw", each=30)
    (folder / "raw" / "disc" / "empty.jpg").write_bytes(b"")
    return write(folder, FOLDERS % store, str(folder / "raw/*/*"), **changes)
