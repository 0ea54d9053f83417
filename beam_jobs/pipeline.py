"""The pipeline's common end: shards, the transform graph, and an account of every record."""

from __future__ import annotations

import apache_beam as beam

from beam_jobs.result import RESULT, write_result
from beam_jobs.shards import ShuffleIntoShards
from beam_jobs.steps import Plan, Steps
from beam_jobs.write_transform import WriteTransform
from schemas import layout


def finish(pipeline: beam.Pipeline, plan: Plan, steps: Steps) -> None:
    """Shuffles the records into shards, writes the transform, and leaves the account in the staging folder."""
    shards = steps.encoded | ShuffleIntoShards(plan.shards)
    _ = steps.transform_fn | "WriteTransform" >> WriteTransform(plan.run_dir, staging=plan.staging)
    counts = steps.counts | "AllCounts" >> beam.Flatten() | "SumCounts" >> beam.CombinePerKey(sum)
    parts = (shards, counts, steps.reject_files, steps.late_rejects, steps.parity_raw, steps.parity_stored)
    _ = (
        pipeline
        | "Finally" >> beam.Create([layout.join(plan.staging, RESULT)])
        | "WriteResult" >> beam.Map(write_result, *map(beam.pvalue.AsList, parts))
    )
