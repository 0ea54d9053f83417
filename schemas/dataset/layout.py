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
MODEL_JSON = "model.json"  # in no dataset, but in the directory of a model
SCHEMA_YAML = "schema.yaml"
SCHEMA_PBTXT = "schema.pbtxt"
TRANSFORM_FN = "transform_fn"
INGEST_FN = "ingest_fn"
TRANSFORMED_METADATA = "transformed_metadata"
PARITY = "parity"
PARITY_RAW = f"{PARITY}/raw.tfrecord"
PARITY_TRANSFORMED = f"{PARITY}/transformed.tfrecord"
STATISTICS_JSON = "statistics.json"  # of the accepted records, by split and feature
STATISTICS_SKETCHES = "statistics.arrow"  # what they are made of, to be merged with those of more records
STATISTICS = frozenset({STATISTICS_JSON, STATISTICS_SKETCHES})
LEAKAGE = "leakage.json"  # what a model could know of eval and test without having learned it
DRIFT = "drift.json"  # how its splits differ, and how it differs from the dataset that it replaced
REPORT = "report.html"  # what the data is like, for people
SUMMARY = "summary.json"
STAGING = "staging"  # in a run: what only the commit reads

FOLDERS = frozenset({TRANSFORM_FN, INGEST_FN, TRANSFORMED_METADATA, PARITY, STAGING})  # in a run
DESCRIBING = STATISTICS | {DRIFT, REPORT}  # what a run says of all records

RUN = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{4}")
REJECTS = re.compile(r"rejects-[0-9]{5,}\.jsonl")
CONTENTS = re.compile(r"contents-[0-9]{5,}\.jsonl")  # the images of the dataset: digest and path
GROWING = re.compile(f"{REJECTS.pattern}|{CONTENTS.pattern}")  # a run that adds records repeats them with more lines
_FILES = "|".join(map(re.escape, sorted({*FOLDERS, *DESCRIBING, SCHEMA_YAML, SCHEMA_PBTXT, LEAKAGE})))
DESCRIPTION = re.compile(rf"{_FILES}|{GROWING.pattern}|inputs-[0-9]{{5,}}\.json")  # what a run has beside its shards
_EXAMPLE = "20260131T120000Z-3f2a"
_OF_RUN = (SCHEMA_YAML, "train-00000-of-00001.tfrecord", REPORT, "rejects-00000.jsonl", STATISTICS_JSON)
EXAMPLES = (  # some of the files in a dataset directory
    MANIFEST,
    *(f"{_EXAMPLE}/{name}" for name in (*_OF_RUN, f"{TRANSFORM_FN}/saved_model.pb", f"{TRANSFORM_FN}/assets/city")),
)
ATTEMPT = re.compile(r"(?:places-)?[a-z]+-[0-9]{5,}-[0-9]{3,}-[0-9a-f]{32}\.(?:tfrecord(?:\.gz)?|arrow)")
COMPRESSIONS = {"none": "", "gzip": "GZIP"}  # name in the manifest -> name in tf.io


def new_run_id() -> str:
    """Returns a run's name: its start time in UTC, and four random hex digits."""
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
    """Returns a new name of a shard that several attempts may write: `train-00003-000-<32 hex digits>.tfrecord`."""
    suffix = ".gz" if compression == "gzip" else ""
    return f"{split}-{index:05d}-{part:03d}-{secrets.token_hex(16)}.tfrecord{suffix}"


def places_of(shard: str) -> str:
    """Returns the path of the places of a shard's records: see `schemas.dataset.provenance`.

    >>> places_of("run/train-00000-of-00008.tfrecord.gz")
    'run/places-train-00000-of-00008.arrow'
    """
    folder, slash, name = shard.rpartition("/")
    return f"{folder}{slash}places-{name.partition('.')[0]}.arrow"


def rejects_name(index: int) -> str:
    """Returns a name such as `rejects-00000.jsonl`."""
    return f"rejects-{index:05d}.jsonl"


def contents_name(index: int) -> str:
    """Returns a name such as `contents-00000.jsonl`."""
    return f"contents-{index:05d}.jsonl"


def inputs_name(index: int) -> str:
    """Returns a name such as `inputs-00000.json`."""
    return f"inputs-{index:05d}.json"


def join(base: str, *parts: str) -> str:
    """Joins local paths or gs:// paths."""
    return os.path.join(base, *parts)


def check_directory(data_dir: str) -> None:
    """Raises UsageError for a local path that names a file, a pipe or a device."""
    if storage.is_local(data_dir) and os.path.exists(data_dir) and not os.path.isdir(data_dir):
        raise UsageError(f"{data_dir}: is a file; expected a dataset directory")


def check_outside(folder: str, where: str, *marks: str, itself: bool = False) -> None:
    """Refuses to write to a folder inside a dataset or a model directory, whose files would be among others.

    Args:
      folder: the folder; on local disk, those above it are looked at.
      where: the beginning of the message.
      *marks: MANIFEST (also that of predictions), or MODEL_JSON too.
      itself: it may be neither.

    Raises:
      UsageError: a folder has one of the marks.
    """
    above = map(str, pathlib.Path(os.path.realpath(folder)).parents) if storage.is_local(folder) else ()
    for place in (*((folder,) if itself else ()), *above):
        for content in filter(None, (described_by(join(place, mark)) for mark in marks)):
            relation = "holds" if place == folder else f"lies in {place}, which holds"
            raise UsageError(f"{where}{folder}: {relation} {content}; use another folder")


def described_by(path: str) -> str:
    """Returns what a MANIFEST or MODEL_JSON describes: `a dataset`, `predictions` or `a model`; '' if none of these."""
    try:
        head = storage.read_bytes(path)[:200] if storage.exists(path) else b""
    except MillraceError:  # somebody else's
        return ""
    if b'"format_version"' not in head:
        return ""
    return "a model" if path.endswith(MODEL_JSON) else "predictions" if b'"kind"' in head else "a dataset"
