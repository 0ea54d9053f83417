"""What any kind of raw data becomes inside the pipeline, before it is shuffled and counted."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import apache_beam as beam

from beam_jobs.core.accounting import RejectLimit
from beam_jobs.core.inputs import Analysis, StagedInputs
from beam_jobs.core.shuffle_plan import ShardOptions


@dataclasses.dataclass(frozen=True)
class KnownIds:
    """The ids of a feature's known values: from `first` up to, and without, `end`. Ids below `first` are padding."""

    first: int
    end: int


@dataclasses.dataclass(frozen=True)
class Plan:
    """All that the pipeline's construction needs beside the input."""

    run_dir: str  # the transform graph is written here
    temp_dir: str
    inputs: StagedInputs
    total: int  # of the input, in the units that progress is counted in
    limit: RejectLimit
    parity_threshold: int | None  # None: no parity records are kept
    shards: ShardOptions
    preprocessing_fn: Callable[[dict[str, Any]], dict[str, Any]] | None  # None: not needed, with transform_from
    derived: bool  # the transform that is applied is the schema's own, and no function of the user's
    transform_from: str | None  # the run folder whose transform is applied; None: measure one
    statistics: bool = True  # whether statistics of the written records are collected
    known_ids: Mapping[str, KnownIds] = dataclasses.field(default_factory=dict)  # whose unknown values are counted
    analysis: Analysis | None = None  # what is kept of the analysis; None: nothing
    leakage: bool = True  # whether leakage between the splits is looked for
    cache_dir: str | None = None  # local folder that caches what the first read decodes; None: decode twice

    @property
    def staging(self) -> str:
        return self.shards.staging


@dataclasses.dataclass(frozen=True)
class Steps:
    """The PCollections that a kind of raw data ends in. Parity records travel as bytes, or lie in files."""

    encoded: beam.PCollection  # of Encoded
    transform_fn: Any
    counts: tuple[beam.PCollection, ...]  # of (CountKey, int)
    reject_files: beam.PCollection  # of RejectFile
    late_rejects: beam.PCollection  # of RejectFile, whose rejects' raw bytes are still to be read
    parity_raw: beam.PCollection | None = None  # of (place, tf.Example)
    parity_stored: beam.PCollection | None = None  # of (place, tf.Example)
    parity_files: beam.PCollection | None = None  # of ParityFiles
    content_files: beam.PCollection | None = None  # of paths of files that say what images hold
    statistics: beam.PCollection | None = None  # of the bytes of Statistics, of bundles
    leakage: beam.PCollection | None = None  # of the JSON of what is found, of which there is one at most
