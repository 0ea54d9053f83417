"""The files of a run beside its shards and its transform: rejects, parity records, statistics."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from beam_jobs.core import parity_files, parity_sample
from beam_jobs.core.accounting import RejectFile
from beam_jobs.output import tfrecord_frames
from beam_jobs.output.base import files_of, statistics_of
from beam_jobs.output.result import Result
from schemas import storage
from schemas.dataset import Dataset, layout
from schemas.libraries import tensorflow
from schemas.profile import statistics_files
from schemas.profile.statistics import Statistics
from schemas.rejects import Reject
from schemas.storage import folders


def place_rejects(run_dir: str, result: Result, late: Sequence[Reject], *, onto: Dataset | None) -> None:
    """Copies the reject files to their final names, those of a dataset that is added to first.

    The transform's rejects, which are complete now, come last.
    """
    names = (layout.join(run_dir, layout.rejects_name(number)) for number in itertools.count())

    def place(named: tuple[str, RejectFile]) -> None:
        name, file = named
        folders.create(name, storage.read_bytes(file.path))

    for data in () if onto is None else files_of(onto, layout.REJECTS):
        folders.create(next(names), data)
    storage.for_each(run_dir, place, [(next(names), file) for file in result.reject_files])
    if late:
        lines = "".join(f"{reject.to_json()}\n" for reject in late)
        folders.create(next(names), lines.encode())


def place_parity(run_dir: str, result: Result) -> None:
    """Writes the sampled records for the parity check, raw and transformed in the same order."""
    pairs = list(parity_records(result))
    for name, records in (
        (layout.PARITY_RAW, [raw for raw, _ in pairs]),
        (layout.PARITY_TRANSFORMED, [transformed for _, transformed in pairs]),
    ):
        folders.create(layout.join(run_dir, name), bytes(tfrecord_frames.joined(tfrecord_frames.framed(records))))


def place_statistics(run_dir: str, result: Result, *, more: Statistics | None = None) -> dict[str, Any] | None:
    """Writes the statistics of the written records, and of those that `more` describes, if they were collected.

    Returns:
      The values of `statistics.json`; None if there are none.
    """
    if result.statistics is not None:
        sketches = storage.read_bytes(result.statistics)
        statistics = Statistics.from_bytes(sketches)
        if more is not None:
            statistics.merge(more)
            sketches = statistics.to_bytes()
        return statistics_files.place(run_dir, statistics, sketches)
    return None


def described_before(base: Dataset) -> Statistics | None:
    """The statistics of a dataset's records; None if it has none."""
    sketches = statistics_of(base)
    return None if sketches is None else Statistics.from_bytes(sketches)


def parity_records(result: Result) -> Iterator[tuple[bytes, bytes]]:
    """Pairs of a raw and a transformed record, of which both sides were kept."""
    places = sorted(result.parity_raw.keys() & result.parity_transformed.keys())
    for place in places[:: max(1, -(-len(places) // parity_sample.LIMIT))]:
        yield result.parity_raw[place], result.parity_transformed[place]
    for record in parity_files.choose(result.parity_files):
        raw = {name: storage.read_bytes(file.path) for name, file in record.raw.items()}
        yield raw_example(**raw, label=record.label.encode()), storage.read_bytes(record.stored)


def raw_example(**features: bytes) -> bytes:
    """A serialized tf.Example of strings."""
    tf = tensorflow()
    lists = {name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[v])) for name, v in features.items()}
    return tf.train.Example(features=tf.train.Features(feature=lists)).SerializeToString(deterministic=True)
