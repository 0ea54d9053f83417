"""Opens a dataset that a run adds to, and reads or copies what stays of it: rejects, statistics, digests of images."""

from __future__ import annotations

import hashlib
import json
import os
import re
import uuid
from collections.abc import Iterable, Iterator

from schemas import storage
from schemas.dataset import OpenDataset, layout, open_dataset
from schemas.errors import MillraceError, UsageError
from schemas.rejects import Reject, read_rejects
from schemas.spec import split_hash
from schemas.storage import folders
from schemas.storage.json_files import parse_json

Key = tuple[str, int]  # a reject's source and offset: no two rejects of a dataset share them


def open_base(path: str, *, trust: bool) -> OpenDataset:
    """Opens the dataset to append to.

    Raises:
      UsageError: there is none, or none that can be appended to.
    """
    try:
        base = open_dataset(path, trust=trust)
    except MillraceError as error:
        raise UsageError(f"--append_to {error}") from error
    manifest = base.manifest
    if manifest.split_hash_version != split_hash.VERSION:
        raise UsageError(
            f"--append_to {path}: its rows were split by version {manifest.split_hash_version} of the hash, and this "
            f"is version {split_hash.VERSION}. Write the dataset again."
        )
    return base


def rejects_of(base: OpenDataset) -> dict[Key, Reject]:
    """Reads all rejects of the dataset's current run, by source and offset.

    Raises:
      MillraceError: a file of rejects is not as it was written.
    """
    return {
        (reject.source, reject.offset): reject
        for data in files_of(base, layout.REJECTS)
        for reject in read_rejects(data, f"{base.path}: rejects")
    }


def files_of(base: OpenDataset, name: re.Pattern[str]) -> Iterator[bytes]:
    """Reads the files of the dataset's current run whose names match, one by one.

    Raises:
      MillraceError: one is not as it was written.
    """
    for file in base.manifest.files:
        if name.fullmatch(os.path.basename(file.path)):
            yield _checked(base, file.path, file.sha256)


def copy_files(base: OpenDataset, run_dir: str) -> None:
    """Copies the files of the old run that stay: schema, ingest graph, parity. The pipeline writes the transform.

    What describes all records (rejects, inputs, statistics, the report) is written anew.

    Raises:
      MillraceError: a file of the old run, the transform among them, is not as it was written.
    """
    for file in base.manifest.files:
        name = file.path.partition("/")[2]
        if file.path in base.manifest.input_files or name in layout.DESCRIBING or layout.GROWING.fullmatch(name):
            continue
        data = _checked(base, file.path, file.sha256)
        if name.partition("/")[0] not in (layout.TRANSFORM_FN, layout.TRANSFORMED_METADATA):
            storage.write_bytes(layout.join(run_dir, name), data)


def statistics_of(base: OpenDataset) -> bytes | None:
    """Reads the sketches of the statistics of the dataset's records; returns None if it has none.

    Raises:
      MillraceError: they are not as they were written.
    """
    return next(files_of(base, re.compile(re.escape(layout.STATISTICS_SKETCHES))), None)


def _checked(base: OpenDataset, name: str, sha256: str) -> bytes:
    path = layout.join(base.path, name)
    data = storage.read_bytes(path)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise MillraceError(
            f"{path}: was changed since the dataset was written; {layout.MANIFEST} names another checksum. "
            "Restore it, or write the dataset again. (Correct rejects in a copy.)"
        )
    return data


FILE_BYTES = 32 << 20

Content = tuple[str, str]  # the digest of an image's file, and its path


def image_digest(data: bytes) -> bytes:
    """Returns the digest of an image's file, 8 bytes, by which its split is drawn, too."""
    return hashlib.blake2b(data, digest_size=8).digest()


def write_contents(staging: str, contents: Iterable[Content]) -> str:
    """Writes what a batch of images holds, under a name of its own, so that a bundle may be run again."""
    path = layout.join(staging, f"contents-{uuid.uuid4().hex}.jsonl")
    storage.write_bytes(path, b"".join(json.dumps(content).encode() + b"\n" for content in contents))
    return path


def place_contents(run_dir: str, files: Iterable[str], *, onto: OpenDataset | None) -> None:
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

    for contents in (old, new):
        for data in contents:
            waiting.append(data)
            size += len(data)
            if size >= FILE_BYTES:
                write()
    write()


def contents_of(base: OpenDataset) -> Iterator[Content]:
    """Yields the digest and the path of each image of a dataset."""
    for data in files_of(base, layout.CONTENTS):
        for line in data.splitlines():
            digest, path = parse_json(line)
            yield digest, path
