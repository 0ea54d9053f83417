"""The common end of all pipelines: shards, the transform graph, and the counts of all records."""

from __future__ import annotations

import apache_beam as beam

from beam_jobs.core.steps import Plan, Steps
from beam_jobs.output.accounts import WriteCounts
from beam_jobs.output.result import RESULT, write_result
from beam_jobs.profiles import MergeStatistics
from beam_jobs.records.shards import ShuffleIntoShards
from beam_jobs.transform.analyze import WriteTransform
from schemas.dataset import layout
from schemas.storage import folders


def finish(pipeline: beam.Pipeline, plan: Plan, steps: Steps) -> None:
    """Shuffles the records into shards, and writes the transform and the result file in the staging folder."""
    shards = steps.encoded | ShuffleIntoShards(plan.shards)
    if plan.transform_from is None:
        _ = steps.transform_fn | "WriteTransform" >> WriteTransform(plan.run_dir, temp_dir=plan.temp_dir)
    else:  # copied: if tf.Transform wrote a graph that it has read, the names of its vocabularies would be missing
        for part in (layout.TRANSFORM_FN, layout.TRANSFORMED_METADATA):
            folders.copy(layout.join(plan.transform_from, part), layout.join(plan.run_dir, part))
    counts = steps.counts | "AllCounts" >> beam.Flatten() | "Counts" >> WriteCounts(plan.inputs, plan.staging)
    parts = {
        "shards": shards,
        "count_files": counts,
        "reject_files": steps.reject_files,
        "late_rejects": steps.late_rejects,
    }
    parity = {"raw": steps.parity_raw, "transformed": steps.parity_stored, "parity_files": steps.parity_files}
    parity |= {"content_files": steps.content_files}
    parts |= {name: part for name, part in parity.items() if part is not None}
    if steps.statistics is not None:
        parts["statistics"] = steps.statistics | "MergeStatistics" >> MergeStatistics()
    if steps.leakage is not None:
        parts["leakage"] = steps.leakage
    _ = (
        pipeline
        | "Finally" >> beam.Create([layout.join(plan.staging, RESULT)])
        | "WriteResult" >> beam.Map(write_result, **{name: beam.pvalue.AsList(part) for name, part in parts.items()})
    )
