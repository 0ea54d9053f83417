"""Datasets that a job wrote, faults of them, and the problems that verification must find."""

from __future__ import annotations

import dataclasses
import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path

from schemas.dataset.checks import Issue
from schemas.dataset.manifest import Manifest, Shard
from schemas.dataset.verify import verify_dataset
from schemas.storage.tfrecord import read_frames
from tests.support import datasets
from tests.support.image_files import write_folders
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
    dataset = datasets.written(folder, schema, raw, **{"num_shards": 3, "max_reject_fraction": 1.0, **changes})
    return Written(Path(dataset.path), dataset.manifest)


def write_csv(folder: Path, **changes) -> Written:
    (folder / "people.csv").write_text(people_csv(500) + "too,few\n" * 3)
    return write(folder, LEAN_SCHEMA, str(folder / "people.csv"), **changes)


def write_images(folder: Path, store: str, **changes) -> Written:
    write_folders(folder / "raw", per_class=30)
    (folder / "raw" / "disc" / "empty.jpg").write_bytes(b"")
    return write(folder, FOLDERS % store, str(folder / "raw/*/*"), **changes)


def frame_ends(frames: bytes) -> list[int]:
    """Where each record's frame ends."""
    return [end for batch in read_frames([frames]) for end in batch.offsets[1:]]


def flip(path: Path, byte: int) -> None:
    data = bytearray(path.read_bytes())
    data[byte] ^= 4
    path.write_bytes(data)


def write_json(path: Path, change: Callable[[dict], None]) -> None:
    text = json.loads(path.read_text())
    change(text)
    path.write_text(json.dumps(text))


def assert_every_damage_is_found(path: Path, scratch: Path) -> None:
    """Damages all files of a dataset but the manifest, in four ways, and asserts that `verify` names each of them."""
    names = sorted(str(f.relative_to(path)) for f in path.rglob("*") if f.is_file() and f.name != "manifest.json")
    assert verify_dataset(str(path)) == []
    damages: tuple[Callable[[Path], object], ...] = (_flip_any, _truncate, Path.unlink, _replace)
    for number, damage in enumerate(damages):
        copy = Path(shutil.copytree(path, scratch / f"damaged-{number}"))
        for name in names:
            damage(copy / name)
        assert sorted({issue.path for issue in verify_dataset(str(copy))} & set(names)) == names
        shutil.rmtree(copy)


def _flip_any(path: Path) -> None:
    flip(path, path.stat().st_size // 2) if path.stat().st_size else path.write_bytes(b"x")


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] or b"x")


def _replace(path: Path) -> None:
    path.write_text("another file")


# Each fault: a function that causes it; then (part of the path, kind, pattern of the message) of every problem found.
Expected = list[tuple[str, str, str]]


def cut_at_a_record(data: Written) -> Expected:
    shard = data.shards()[1]
    frames = data.content(shard)
    end = frame_ends(frames)[4]
    data.put(shard, frames[:end])
    if data.compressed:  # valid gzip again, so that only the manifest shows the fault
        left = (data.path / shard.path).stat().st_size
        return [
            (
                shard.path,
                "cut",
                f"{left:,} of {shard.bytes:,} bytes are left, truncated: after record 4, at the boundary",
            )
        ]
    return [
        (
            shard.path,
            "cut",
            f"{end:,} of .* truncated: after record 4, at the boundary.*; 5 of its {shard.rows} records",
        )
    ]


def cut_inside_a_record(data: Written) -> Expected:
    shard = data.shards()[0]
    path = data.path / shard.path
    if data.compressed:
        path.write_bytes(path.read_bytes()[: shard.bytes // 2])
        return [(shard.path, "cut", "complete records, at compressed byte .*: the gzip stream ends early")]
    first, second = frame_ends(data.content(shard))[:2]
    path.write_bytes(path.read_bytes()[: second - 9])
    problem = f"truncated: record 1 at byte {first:,}: the file ends inside it"
    return [(shard.path, "cut", problem)]


def flip_a_bit_of_a_record(data: Written) -> Expected:
    shard = data.shards()[2]
    ends = frame_ends(data.content(shard))
    if data.compressed:
        flip(data.path / shard.path, shard.bytes - 6)  # in the stream's own checksum
        return [
            (
                shard.path,
                "damaged",
                f"after {shard.rows} complete records, at compressed byte .*: .*incorrect data check",
            )
        ]
    flip(data.path / shard.path, ends[2] + 12 + 5)
    return [(shard.path, "damaged", f"record 3 at bytes {ends[2]:,} to {ends[3]:,}: does not match its checksum")]


def swap_two_shards(data: Written) -> Expected:
    shard, other = data.shards()[:2]
    a, b = data.path / shard.path, data.path / other.path
    content = a.read_bytes()
    a.write_bytes(b.read_bytes())
    b.write_bytes(content)
    return [
        (shard.path, "swapped", f"holds the bytes of {other.path}"),
        (other.path, "swapped", f"holds the bytes of {shard.path}"),
    ]


def flip_bits_in_several_places(data: Written) -> Expected:
    """In two records of one shard, and in the length of a record of another."""
    shard, other = data.shards()[0], data.shards("eval")[0]
    frames, more = bytearray(data.content(shard)), bytearray(data.content(other))
    ends, length = frame_ends(bytes(frames)), frame_ends(bytes(more))[1]
    for record in (1, 3):
        frames[ends[record - 1] + 14] ^= 1
    more[length] ^= 1
    data.put(shard, bytes(frames))
    data.put(other, bytes(more))
    return [
        (other.path, "damaged|cut", f"record 2 at byte {length:,}: its length does not match its checksum"),
        *(
            [(shard.path, "cut", "")]
            if data.compressed and (data.path / shard.path).stat().st_size < shard.bytes
            else []
        ),
        (shard.path, "damaged", f"record 1 at bytes {ends[0]:,} to {ends[1]:,}"),
        (shard.path, "damaged", f"record 3 at bytes {ends[2]:,} to {ends[3]:,}"),
    ]


def write_a_shard_again(data: Written) -> Expected:
    """The same records in another order: the checksum of every record is correct."""
    shard = data.shards()[0]
    frames = data.content(shard)
    first = frame_ends(frames)[0]
    data.put(shard, frames[first:] + frames[:first])
    if data.compressed and (data.path / shard.path).stat().st_size < shard.bytes:
        return [(shard.path, "cut", "")]
    return [(shard.path, "changed", f"is not the file that was written: {shard.rows} records")]


def lose_a_shard(data: Written) -> Expected:
    path = data.shards()[1].path
    (data.path / path).unlink()
    return [(path, "missing", "is missing")]


def lose_other_files(data: Written) -> Expected:
    (data.run / "parity" / "raw.tfrecord").unlink()
    (data.run / "schema.yaml").unlink()
    return [
        ("schema.yaml", "schema", "the records were not checked against the schema"),
        ("parity/raw.tfrecord", "missing", "is missing"),
        ("schema.yaml", "missing", "is missing"),
    ]


def add_files(data: Written) -> Expected:
    (data.run / "train-00003-of-00004.tfrecord").write_bytes(b"")
    (data.run / "transform_fn" / "assets").mkdir(exist_ok=True)
    (data.run / "transform_fn" / "assets" / "more").write_text("x")
    return [
        ("train-00003-of-00004.tfrecord", "extra", "is not named by manifest.json"),
        ("transform_fn/assets/more", "extra", "is not named by manifest.json"),
    ]


def put_another_graph(data: Written) -> Expected:
    path = data.run / "transform_fn" / "saved_model.pb"
    flip(path, path.stat().st_size // 2)
    return [("transform_fn/saved_model.pb", "graph", "is not the transform graph that this dataset was written with")]


def put_another_description(data: Written) -> Expected:
    path = data.run / "transformed_metadata" / "schema.pbtxt"
    path.write_bytes(path.read_bytes() + b"# by hand\n")
    return [("transformed_metadata/schema.pbtxt", "graph", "is not the description of the transformed features")]


def put_another_schema(data: Written) -> Expected:
    path = data.run / "schema.yaml"
    path.write_text(path.read_text().replace("name: ", "name: other_", 1))
    return [
        ("schema.yaml", "schema", "is not the schema that this dataset was written with"),
        ("schema.yaml", "changed", "was changed after it was written"),
    ]


def lose_a_reject(data: Written) -> Expected:
    (path,) = data.run.glob("rejects-*.jsonl")
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))
    return [
        ("rejects-*.jsonl", "account", r"\d rejects of stage '\w+' and reason '\w+', but manifest.json counts \d"),
        (path.name, "changed", "was changed after it was written"),
    ]


def garble_a_reject(data: Written) -> Expected:
    (path,) = data.run.glob("rejects-*.jsonl")
    path.write_bytes(path.read_bytes() + b"{\n")
    return [(path.name, "changed", "was changed"), (path.name, "account", r"line \d is not a reject")]


def miscount_an_input(data: Written) -> Expected:
    write_json(data.path / "manifest.json", lambda m: m["inputs"][0].update(read=m["inputs"][0]["read"] + 7))
    return [
        ("manifest.json", "account", r"records read, .* written and .* rejected: 7 unaccounted for"),
        ("manifest.json", "account", "read is .*, but those of the inputs sum to"),
    ]


def miscount_a_split(data: Written) -> Expected:
    rows = data.manifest.splits["eval"].rows
    write_json(data.path / "manifest.json", lambda m: m["splits"]["eval"].update(rows=rows + 1))
    return [
        ("manifest.json", "account", f"split 'eval': {rows + 1} rows, but those of its shards sum to {rows}"),
        ("manifest.json", "account", f"split 'eval': {rows + 1} rows, but {rows} are counted as written to it"),
    ]


def miscount_a_shard(data: Written) -> Expected:
    shard = data.shards()[0]
    write_json(data.path / "manifest.json", lambda m: m["splits"]["train"]["shards"][0].update(rows=shard.rows - 1))
    return [
        ("manifest.json", "account", "split 'train': .* those of its shards sum to"),
        (shard.path, "rows", f"holds {shard.rows} records, and manifest.json says {shard.rows - 1}"),
    ]


def miscount_the_rejected(data: Written) -> Expected:
    def change(manifest: dict) -> None:
        (count,) = [c for c in manifest["counts"] if c["outcome"] == "rejected"]
        count["rows"] += 2

    write_json(data.path / "manifest.json", change)
    return [
        ("manifest.json", "account", "rejected is .*, but its counts sum to"),
        ("rejects-*.jsonl", "account", "manifest.json counts"),
    ]


def name_a_file_twice(data: Written) -> Expected:
    def change(manifest: dict) -> None:
        manifest["files"].append(manifest["files"][-1])

    write_json(data.path / "manifest.json", change)
    return [("manifest.json", "manifest", f"names {data.manifest.files[-1].path} 2 times")]


FAULTS = (
    cut_at_a_record,
    cut_inside_a_record,
    flip_a_bit_of_a_record,
    flip_bits_in_several_places,
    swap_two_shards,
    write_a_shard_again,
    lose_a_shard,
    lose_other_files,
    add_files,
    put_another_graph,
    put_another_description,
    put_another_schema,
    lose_a_reject,
    garble_a_reject,
    miscount_an_input,
    miscount_a_split,
    miscount_a_shard,
    miscount_the_rejected,
    name_a_file_twice,
)
