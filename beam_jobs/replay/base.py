"""The dataset that a replay appends to: opened, its rejects read, and what stays of its run copied."""

from __future__ import annotations

import hashlib
import os

from beam_jobs.replay.corrections import Key
from schemas import storage
from schemas.dataset import Dataset, layout, open_dataset
from schemas.errors import MillraceError, UsageError
from schemas.rejects import Reject, read_rejects
from schemas.spec import split_hash


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
    found = {}
    for file in base.manifest.files:
        if layout.REJECTS.fullmatch(os.path.basename(file.path)):
            for reject in read_rejects(_checked(base, file.path, file.sha256)):
                found[reject.source, reject.offset] = reject
    return found


_ANEW = {*layout.STATISTICS, layout.DRIFT, layout.REPORT}  # files that a replay writes itself


def copy_files(base: Dataset, run_dir: str) -> None:
    """The old run's files that stay as they are: schema, ingest graph, parity. The pipeline writes the transform.

    Raises:
      MillraceError: a file of the old run, the transform among them, is not as it was written.
    """
    for file in base.manifest.files:
        name = file.path.partition("/")[2]
        if layout.REJECTS.fullmatch(name) or file.path in base.manifest.input_files or name in _ANEW:
            continue
        data = _checked(base, file.path, file.sha256)
        if name.partition("/")[0] not in (layout.TRANSFORM_FN, layout.TRANSFORMED_METADATA):
            storage.write_bytes(layout.join(run_dir, name), data)


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
