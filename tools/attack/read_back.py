"""What a dataset directory holds, read without the project's own readers."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import google_crc32c


class Unreadable(Exception):
    """A dataset that does not read back."""


@dataclasses.dataclass(frozen=True)
class Stored:
    """A stored record: its split and the values of its features."""

    split: str
    values: dict[str, list[Any]]


@dataclasses.dataclass(frozen=True)
class Rejected:
    """A line of a rejects file."""

    source: str
    offset: int
    stage: str
    reason: str
    column: str | None
    raw: bytes


def manifest(folder: Path) -> dict[str, Any]:
    """The manifest's JSON."""
    return json.loads((folder / "manifest.json").read_bytes())


def frames(data: bytes) -> Iterator[bytes]:
    """The records of a TFRecord file, whose checksums must match."""
    position = 0
    while position < len(data):
        length, sum_of_length = struct.unpack_from("<QI", data, position)
        record = data[position + 12 : position + 12 + length]
        (sum_of_record,) = struct.unpack_from("<I", data, position + 12 + length)
        for part, found in ((data[position : position + 8], sum_of_length), (record, sum_of_record)):
            crc = google_crc32c.value(part)
            if (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF != found:
                raise Unreadable(f"the checksum at byte {position} does not match")
        yield record
        position += 16 + length


def stored(folder: Path, told: dict[str, Any]) -> Iterator[Stored]:
    """Every record of every shard that the manifest names."""
    from tensorflow.core.example.example_pb2 import Example

    for split, content in told["splits"].items():
        for shard in content["shards"]:
            data = (folder / shard["path"]).read_bytes()
            if told["compression"] == "gzip":
                data = gzip.decompress(data)
            for record in frames(data):
                features = Example.FromString(record).features.feature
                yield Stored(split, {name: _values(feature) for name, feature in features.items()})


def _values(feature: Any) -> list[Any]:
    kind = feature.WhichOneof("kind")
    return [] if kind is None else list(getattr(feature, kind).value)


def reject_files(folder: Path) -> list[Path]:
    """The rejects files of a dataset directory's run."""
    return sorted((folder / manifest(folder)["run"]).glob("rejects-*.jsonl"))


def rejects(*paths: Path) -> Iterator[Rejected]:
    """The lines of rejects files."""
    for path in paths:
        for line in path.read_bytes().split(b"\n"):
            if line:
                row = json.loads(line)
                raw = base64.b64decode(row["raw_base64"]) if "raw_base64" in row else row["raw"].encode()
                yield Rejected(row["source"], row["offset"], row["stage"], row["reason"], row["column"], raw)
