"""Measures the transform: all of the train split, or what no earlier run has measured and kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pyarrow as pa
import tensorflow_transform.beam as tft_beam
from tfx_bsl.tfxio.tensor_adapter import TensorAdapterConfig

from beam_jobs.core.keeping import Keeping, Outdated
from beam_jobs.transform.kept import read_entries, write_entries

Tensors = dict[str, Any]


def analyze(
    batches: beam.PCollection,
    config: TensorAdapterConfig,
    preprocessing_fn: Callable[[Tensors], Tensors],
    keeping: Keeping | None,
) -> Any:
    """The transform that a `preprocessing_fn` makes of the train split.

    Args:
      batches: what is read of it, as record batches.
      config: how they become tensors.
      preprocessing_fn: the function.
      keeping: what is kept, and what is known; None: neither.

    Raises:
      Outdated: what is known cannot be used; then nothing has been read yet.
    """
    if keeping is None:
        return (batches, config) | tft_beam.AnalyzeDataset(preprocessing_fn)
    pipeline = batches.pipeline
    data, cache = {_key(keeping.run): batches}, {}
    for number, kept in enumerate(keeping.known):
        entries = read_entries(kept, keeping.fingerprint)
        cache[_key(kept.run)] = tft_beam.analyzer_cache.DatasetCache(
            {
                key: pipeline | f"Known{number}[{i}]" >> beam.Create([value], reshuffle=False)
                for i, (key, value) in enumerate(sorted(entries.items()))
            },
            None,
        )
        # Empty, for analyzers that cannot be cached: what they know they read themselves.
        nothing = pipeline | f"Known{number}" >> beam.Create([], reshuffle=False).with_output_types(pa.RecordBatch)
        data[_key(kept.run)] = nothing
    transform_fn, measured = (data, cache, config) | tft_beam.AnalyzeDatasetWithCache(preprocessing_fn)
    missed = [kept.run for kept in keeping.known if _key(kept.run) in measured]
    if missed:  # tf.Transform would measure the empty one instead, and say nothing
        raise Outdated(f"what run {missed[0]} has measured lacks a part that this release measures")
    parts = measured[_key(keeping.run)].cache_dict if _key(keeping.run) in measured else {}
    tagged = [
        part | f"Entry[{i}]" >> beam.Map(lambda value, key: (key, value), key=key)
        for i, (key, part) in enumerate(sorted(parts.items()))
    ]
    together = tagged | "Entries" >> beam.Flatten(pipeline=pipeline)
    _ = (
        pipeline
        | "KeepOnce" >> beam.Create([None], reshuffle=False)
        | "Keep" >> beam.Map(write_entries, entries=beam.pvalue.AsList(together), keeping=keeping)
    )
    return transform_fn


def _key(run: str) -> Any:
    return tft_beam.analyzer_cache.DatasetKey(run)
