"""The images of a dataset, by the digests of their contents: `contents-*.jsonl`, a line for each."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable, Iterator

from beam_jobs.output.base import files_of
from schemas import storage
from schemas.dataset import Dataset, layout
from schemas.storage import folders
from schemas.storage.json_files import parse_json

FILE_BYTES = 32 << 20

Content = tuple[str, str]  # the digest of an image's file, and its path


def image_digest(data: bytes) -> bytes:
    """The digest of an image's file, 8 bytes: also what its split is drawn by."""
    return hashlib.blake2b(data, digest_size=8).digest()


def write_contents(staging: str, contents: Iterable[Content]) -> str:
    """Writes what a batch of images holds, under a name of its own, so that a bundle may be run again."""
    path = layout.join(staging, f"contents-{uuid.uuid4().hex}.jsonl")
    storage.write_bytes(path, b"".join(json.dumps(content).encode() + b"\n" for content in contents))
    return path


def place_contents(run_dir: str, files: Iterable[str], *, onto: Dataset | None = None) -> None:
    """Writes the images of a run to its folder, after those of the dataset that they are added to."""
    waiting: list[bytes] = []
    number = size = 0
    old = iter(()) if onto is None else files_of(onto, layout.CONTENTS)
    new = (storage.read_bytes(path) for path in sorted(files))

    def write() -> None:
        nonlocal number, waiting, size
        if waiting:
            folders.create(layout.join(run_dir, layout.contents_name(number)), b"".join(waiting))
            number, waiting, size = number + 1, [], 0

    for some in (old, new):
        for data in some:
            waiting.append(data)
            size += len(data)
            if size >= FILE_BYTES:
                write()
    write()


def contents_of(base: Dataset) -> Iterator[Content]:
    """The images of a dataset; none if an earlier release wrote it."""
    for data in files_of(base, layout.CONTENTS):
        for line in data.splitlines():
            digest, path = parse_json(line)
            yield digest, path
