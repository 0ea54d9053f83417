"""The dataset that an append or a replay adds records to: opened, and what stays of its run copied."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator

from schemas import storage
from schemas.dataset import Dataset, layout, open_dataset
from schemas.errors import MillraceError, UsageError
from schemas.rejects import Reject, read_rejects
from schemas.spec import split_hash

Key = tuple[str, int]  # a reject's source and offset: no two rejects of a dataset share them


def open_base(path: str, *, trust: bool) -> Dataset:
    """The dataset to append to.

    Raises:
      UsageError: there is none, or none that can be appended to.
    """
    try:
        base = open_dataset(path, trust=trust)
    except MillraceError as error:
        raise UsageError(f"--append_to {path}: {error}") from error
    manifest = base.manifest
    if manifest.split_hash_version != split_hash.VERSION:
        raise UsageError(
            f"--append_to {path}: its rows were split by version {manifest.split_hash_version} of the hash, and this "
            f"is version {split_hash.VERSION}. Write the dataset again."
        )
    return base


def rejects_of(base: Dataset) -> dict[Key, Reject]:
    """All rejects of the dataset's current run.

    Raises:
      MillraceError: a file of rejects is not as it was written.
    """
    return {
        (reject.source, reject.offset): reject
        for data in files_of(base, layout.REJECTS)
        for reject in read_rejects(data, f"{base.path}: rejects")
    }


def files_of(base: Dataset, name: re.Pattern[str]) -> Iterator[bytes]:
    """The files of the dataset's current run with such names, one by one.

    Raises:
      MillraceError: one is not as it was written.
    """
    for file in base.manifest.files:
        if name.fullmatch(os.path.basename(file.path)):
            yield _checked(base, file.path, file.sha256)


def copy_files(base: Dataset, run_dir: str) -> None:
    """The old run's files that stay as they are: schema, ingest graph, parity. The pipeline writes the transform.

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


def copy_folder(base: Dataset, name: str, run_dir: str) -> None:
    """The files in a folder of the old run.

    Raises:
      MillraceError: one is not as it was written.
    """
    for file in base.manifest.files:
        path = file.path.partition("/")[2]
        if path.startswith(f"{name}/"):
            storage.write_bytes(layout.join(run_dir, path), _checked(base, file.path, file.sha256))


def statistics_of(base: Dataset) -> bytes | None:
    """The sketches of the statistics of the dataset's records; None if it has none.

    Raises:
      MillraceError: they are not as they were written.
    """
    for file in base.manifest.files:
        if file.path == layout.join(base.run, layout.STATISTICS_SKETCHES):
            return _checked(base, file.path, file.sha256)
    return None


def _checked(base: Dataset, name: str, sha256: str) -> bytes:
    path = layout.join(base.path, name)
    data = storage.read_bytes(path)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise MillraceError(
            f"{path}: was changed since the dataset was written; {layout.MANIFEST} names another checksum. "
            "Restore it, or write the dataset again. (Correct rejects in a copy.)"
        )
    return data
