"""Opens a dataset that a run adds records to, and reads or copies its rejects, statistics and image digests."""

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

Key = tuple[str, int]  # a reject's source file and offset; every reject of a dataset has its own key


def open_base(path: str, *, trust: bool) -> OpenDataset:
    """Opens the dataset to append to.

    Args:
      path: the dataset's folder, from --append_to.
      trust: load the dataset's graphs even if they can do more than compute, such as read files.

    Raises:
      UsageError: the folder holds no dataset, or a dataset that this version of Millrace cannot append to.
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
      MillraceError: a file of rejects was changed since the dataset was written.
    """
    return {
        (reject.source, reject.offset): reject
        for data in files_of(base, layout.REJECTS)
        for reject in read_rejects(data, f"{base.path}: rejects")
    }


def files_of(base: OpenDataset, name: re.Pattern[str]) -> Iterator[bytes]:
    """Yields the contents of the files of the dataset's current run with a matching name, one by one.

    Raises:
      MillraceError: a file was changed since the dataset was written: its checksum differs from the manifest's.
    """
    for file in base.manifest.files:
        if name.fullmatch(os.path.basename(file.path)):
            yield _checked(base, file.path, file.sha256)


def copy_files(base: OpenDataset, run_dir: str) -> None:
    """Copies the files that do not change when records are added: the schema, the ingest graph and the parity records.

    The transform is checked but not copied, because the pipeline writes it to the new run. Files that describe all
    records (rejects, inputs, statistics, the report) are skipped, because the commit writes them anew.

    Args:
      base: the dataset, with the run that is copied from.
      run_dir: the folder of the new run.

    Raises:
      MillraceError: a file of the old run, or of its transform, was changed since it was written.
    """
    for file in base.manifest.files:
        name = file.path.partition("/")[2]
        if file.path in base.manifest.input_files or name in layout.DESCRIBING or layout.GROWING.fullmatch(name):
            continue
        data = _checked(base, file.path, file.sha256)
        if name.partition("/")[0] not in (layout.TRANSFORM_FN, layout.TRANSFORMED_METADATA):
            storage.write_bytes(layout.join(run_dir, name), data)


def statistics_of(base: OpenDataset) -> bytes | None:
    """Reads the file with the sketches from which a dataset's statistics are computed.

    Returns:
      The contents of the file; None if the dataset was written without statistics.

    Raises:
      MillraceError: the file was changed since the dataset was written.
    """
    return next(files_of(base, re.compile(re.escape(layout.STATISTICS_SKETCHES))), None)


def _checked(base: OpenDataset, name: str, sha256: str) -> bytes:
    """Reads a file of the dataset, and raises MillraceError if its SHA-256 is not `sha256`."""
    path = layout.join(base.path, name)
    data = storage.read_bytes(path)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise MillraceError(
            f"{path}: was changed since the dataset was written; {layout.MANIFEST} names another checksum. "
            "Restore it, or write the dataset again. (Correct rejects in a copy.)"
        )
    return data


FILE_BYTES = 32 << 20  # the size at which a file of image digests ends and the next one begins

Content = tuple[str, str]  # the digest of an image's file in hexadecimal digits, and the file's path


def image_digest(data: bytes) -> bytes:
    """Returns the digest of an image file's bytes, 8 bytes long. The digest also decides the image's split."""
    return hashlib.blake2b(data, digest_size=8).digest()


def write_contents(staging: str, contents: Iterable[Content]) -> str:
    """Writes the digests and paths of a batch of images to a new file, and returns the file's path.

    The file's name is random, so that a bundle that the runner repeats does not overwrite an earlier file.
    """
    path = layout.join(staging, f"contents-{uuid.uuid4().hex}.jsonl")
    storage.write_bytes(path, b"".join(json.dumps(content).encode() + b"\n" for content in contents))
    return path


def place_contents(run_dir: str, files: Iterable[str], *, onto: OpenDataset | None) -> None:
    """Writes the digests and paths of all images to a run's folder, joined to files of about FILE_BYTES.

    The digests tell a later append which images the dataset holds already.

    Args:
      run_dir: the folder of the run.
      files: the files that `write_contents` wrote.
      onto: the dataset that the images are added to, so its digests come first; None: the run writes a new dataset.
    """
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
