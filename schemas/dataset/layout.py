"""Names the files and folders of a dataset directory."""

from __future__ import annotations

import datetime as dt
import os
import pathlib
import re
import secrets

from schemas import storage
from schemas.errors import MillraceError, UsageError

MANIFEST = "manifest.json"
LEASE = "lease.json"  # exists while a job writes to the directory
FAILED = "failed"
MODEL_JSON = "model.json"  # in the directory of a model, not in a dataset
SCHEMA_YAML = "schema.yaml"
SCHEMA_PBTXT = "schema.pbtxt"
TRANSFORM_FN = "transform_fn"
INGEST_FN = "ingest_fn"
TRANSFORMED_METADATA = "transformed_metadata"
PARITY = "parity"
PARITY_RAW = f"{PARITY}/raw.tfrecord"
PARITY_TRANSFORMED = f"{PARITY}/transformed.tfrecord"
STATISTICS_JSON = "statistics.json"  # the statistics of the written records, by split and feature
STATISTICS_SKETCHES = "statistics.arrow"  # sketches behind the statistics; an append merges them with new ones
STATISTICS = frozenset({STATISTICS_JSON, STATISTICS_SKETCHES})
LEAKAGE = "leakage.json"  # what gives away the labels of eval and test rows
DRIFT = "drift.json"  # how the splits differ from each other, and the dataset from the one that it replaced
REPORT = "report.html"  # a description of the data for people
SUMMARY = "summary.json"
STAGING = "staging"  # a folder of a run, with files that only the commit reads

FOLDERS = frozenset({TRANSFORM_FN, INGEST_FN, TRANSFORMED_METADATA, PARITY, STAGING})  # the folders of a run
DESCRIBING = STATISTICS | {DRIFT, REPORT}  # files of a run that describe all records of the dataset

RUN = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{4}")
REJECTS = re.compile(r"rejects-[0-9]{5,}\.jsonl")
CONTENTS = re.compile(r"contents-[0-9]{5,}\.jsonl")  # the digest and the path of each image of the dataset
# A run that adds records writes these files again, with more lines.
GROWING = re.compile(f"{REJECTS.pattern}|{CONTENTS.pattern}")
_FILES = "|".join(map(re.escape, sorted({*FOLDERS, *DESCRIBING, SCHEMA_YAML, SCHEMA_PBTXT, LEAKAGE})))
DESCRIPTION = re.compile(rf"{_FILES}|{GROWING.pattern}|inputs-[0-9]{{5,}}\.json")  # files of a run except its shards
_EXAMPLE = "20260131T120000Z-3f2a"
_OF_RUN = (SCHEMA_YAML, "train-00000-of-00001.tfrecord", REPORT, "rejects-00000.jsonl", STATISTICS_JSON)
EXAMPLES = (  # some of the files in a dataset directory
    MANIFEST,
    *(f"{_EXAMPLE}/{name}" for name in (*_OF_RUN, f"{TRANSFORM_FN}/saved_model.pb", f"{TRANSFORM_FN}/assets/city")),
)
# A file that one of several attempts at a shard wrote.
ATTEMPT = re.compile(r"(?:places-)?[a-z]+-[0-9]{5,}-[0-9]{3,}-[0-9a-f]{32}\.(?:tfrecord(?:\.gz)?|arrow)")
COMPRESSIONS = {"none": "", "gzip": "GZIP"}  # name in the manifest -> name in tf.io


def new_run_id() -> str:
    """Returns a name for a new run, such as `20260131T120000Z-3f2a`: its start time in UTC and four random hex
    digits."""
    now = dt.datetime.now(dt.UTC)
    return f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"


def shard_name(split: str, index: int, count: int, compression: str) -> str:
    """Returns the name of a shard.

    >>> shard_name("train", 0, 8, "gzip")
    'train-00000-of-00008.tfrecord.gz'
    """
    suffix = ".gz" if compression == "gzip" else ""
    return f"{split}-{index:05d}-of-{count:05d}.tfrecord{suffix}"


def attempt_name(split: str, index: int, part: int, compression: str) -> str:
    """Returns a new random name for a shard, if several attempts may write the same shard at the same time.

    Such a name is `train-00003-000-<32 hex digits>.tfrecord`, with the index of the shard and the number of its part.
    """
    suffix = ".gz" if compression == "gzip" else ""
    return f"{split}-{index:05d}-{part:03d}-{secrets.token_hex(16)}.tfrecord{suffix}"


def places_of(shard: str) -> str:
    """Returns the path of the file that says where each record of a shard comes from.

    `schemas.dataset.provenance` describes such files.

    >>> places_of("run/train-00000-of-00008.tfrecord.gz")
    'run/places-train-00000-of-00008.arrow'
    """
    folder, slash, name = shard.rpartition("/")
    return f"{folder}{slash}places-{name.partition('.')[0]}.arrow"


def rejects_name(index: int) -> str:
    """Returns the name of a file of rejects, such as `rejects-00000.jsonl`."""
    return f"rejects-{index:05d}.jsonl"


def contents_name(index: int) -> str:
    """Returns the name of a file of image digests, such as `contents-00000.jsonl`."""
    return f"contents-{index:05d}.jsonl"


def inputs_name(index: int) -> str:
    """Returns the name of a file that lists inputs, such as `inputs-00000.json`."""
    return f"inputs-{index:05d}.json"


def join(base: str, *parts: str) -> str:
    """Joins local paths or gs:// paths."""
    return os.path.join(base, *parts)


def check_directory(data_dir: str) -> None:
    """Refuses a local path that is a file, a pipe or a device. A path that does not exist is accepted.

    Raises:
      UsageError: the path is not a folder.
    """
    if storage.is_local(data_dir) and os.path.exists(data_dir) and not os.path.isdir(data_dir):
        raise UsageError(f"{data_dir}: is a file; expected a dataset directory")


def check_outside(folder: str, where: str, *marks: str, itself: bool = False) -> None:
    """Refuses a folder inside a dataset or model directory, so that no other files are written among theirs.

    Args:
      folder: the folder to write to. If it is local, all folders above it are checked.
      where: the beginning of the message.
      *marks: the files by which such a directory is recognized: MANIFEST (of datasets and of predictions), MODEL_JSON.
      itself: whether `folder` itself may not be such a directory either.

    Raises:
      UsageError: one of the folders contains one of these files.
    """
    above = map(str, pathlib.Path(os.path.realpath(folder)).parents) if storage.is_local(folder) else ()
    for place in (*((folder,) if itself else ()), *above):
        for content in filter(None, (described_by(join(place, mark)) for mark in marks)):
            relation = "holds" if place == folder else f"lies in {place}, which holds"
            raise UsageError(f"{where}{folder}: {relation} {content}; use another folder")


def described_by(path: str) -> str:
    """Returns what a MANIFEST or MODEL_JSON file describes: `a dataset`, `predictions` or `a model`.

    Returns '' if there is no such file, or if another program wrote it.
    """
    try:
        head = storage.read_bytes(path)[:200] if storage.exists(path) else b""
    except MillraceError:  # a file that this user may not read
        return ""
    if b'"format_version"' not in head:
        return ""
    return "a model" if path.endswith(MODEL_JSON) else "predictions" if b'"kind"' in head else "a dataset"
