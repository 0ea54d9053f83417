"""Advice about vocabularies that would be very large, from a sample of the input, before a job begins."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.formats import row_format
from schemas.rows import RowFile
from schemas.spec.features import CategoryLabel
from schemas.spec.table import OFFSET, Schema

MANY = 1_000_000  # distinct values from which advice is given
PLACES = 8  # where the input is read, a batch at each
PIECE = 1 << 20  # bytes between two places, at least
GZIP_GROWTH = 4


@dataclasses.dataclass(frozen=True)
class Estimate:
    """How many distinct values a column may have, from a sample of it.

    Attributes:
      low: the guaranteed-error estimate of Charikar et al. ("Towards estimation error guarantees for distinct values",
        2000): sqrt(N/n) for each value that was sampled once, one for each other value. It is wrong by a factor of
        sqrt(N/n) at most, and no estimator does better in the worst case.
      high: as many as if all values sampled once occurred in their part of the input only.
    """

    low: float
    high: float
    sampled: int
    distinct: int


def estimate(values: pa.BinaryArray, share: float) -> Estimate:
    """Estimates the distinct values. `share`: the sample's share of the input, more than 0 and at most 1."""
    counts = np.asarray(pc.value_counts(values).field("counts"))
    once = int((counts == 1).sum())
    others = len(counts) - once
    return Estimate(others + once / math.sqrt(share), others + once / share, len(values), len(counts))


def vocabulary_advice(schema: Schema, sample: Sequence[RowFile], total: int) -> Iterator[str]:
    """A line for each column whose vocabulary is likely to have more than MANY values, and is not limited.

    Args:
      schema: the schema.
      sample: some of the input files.
      total: the bytes of all input files.
    """
    measured = [
        item
        for item in schema.items
        if item.vocabulary is not None and not (item.vocabulary.top_k or item.vocabulary.frequency_threshold)
    ]
    least = min((file.min_record_bytes for file in sample if file.min_record_bytes), default=1)
    if not measured or GZIP_GROWTH * total // least < MANY:  # there are fewer records than that
        return
    batches, share = sample_rows(schema, sample, total, [item.name for item in measured])
    if not batches:
        return
    for item in measured:
        values = pa.concat_arrays([batch.column(item.name).flatten() for batch in batches])
        found = estimate(values, share)
        if found.low < MANY:
            continue
        advice = "consider `top_k`, `frequency_threshold` or `hash_buckets` in the schema"
        if isinstance(item, CategoryLabel):
            advice = "a label has one class for each; check that it is the right column"
        yield (
            f"{item.name}: {about(found.low)} to {about(found.high)} distinct values are expected: {found.distinct:,} "
            f"of {found.sampled:,} sampled ones differ. Every worker, every training and the served model hold a "
            f"vocabulary in memory; {advice}"
        )


def sample_rows(
    schema: Schema, sample: Sequence[RowFile], total: int, columns: list[str]
) -> tuple[list[pa.RecordBatch], float]:
    """Raw columns from evenly spaced places in the sample files, and which share of the input's rows they are.

    Neighbouring rows are often alike, so one place would show too few values.
    """
    rows = row_format(schema)
    files = list(sample[:PLACES])
    places = max(1, PLACES // max(1, len(files)))
    batches: list[pa.RecordBatch] = []
    read = 0.0  # bytes of the input, as on disk
    for file in files:
        for part in rows.plan_ranges(file, range_bytes=max(PIECE, -(-file.size // places)))[:places]:
            decoded = next(iter(rows.read_range(part, schema, with_split=False)), None)
            if decoded is not None and decoded.batch.num_rows:
                batches.append(decoded.batch.select(columns))
                offsets = np.asarray(decoded.batch.column(OFFSET))
                size = int(offsets[-1] - offsets[0]) * len(offsets) // max(1, len(offsets) - 1)
                read += size / (GZIP_GROWTH if file.gzip else 1)
    return batches, min(1.0, max(read, 1.0) / total)


def about(count: float) -> str:
    """A count in two digits: 2,200,000."""
    digits = max(0, math.floor(math.log10(count)) - 1)
    return f"{round(count / 10**digits) * 10**digits:,}"
