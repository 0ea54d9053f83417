"""The pipeline for rows: read, analyze, read again, transform, encode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa
import tensorflow_transform.beam as tft_beam
from tfx_bsl.tfxio.tensor_adapter import TensorAdapterConfig

from beam_jobs.core import progress
from beam_jobs.core.accounting import COUNTS, PARITY, PASSTHROUGH, REJECTS
from beam_jobs.core.source import PipelinePlan, SourceOutputs
from beam_jobs.profiles import LEAKAGE, STATISTICS, merged
from beam_jobs.records.encode import Encoded, EncodeExamples
from beam_jobs.rows.children import SharedWork
from beam_jobs.rows.groups import unit_starts
from beam_jobs.rows.ranges import GivenRanges, Ranges
from beam_jobs.rows.read import CollectProfiles, ReadForAnalysis, ReadForTransform, arrow_schema
from beam_jobs.transform.numeric import tensor_config
from beam_jobs.transform.preprocessing import ByName
from beam_jobs.transform.rejects import Outputs
from beam_jobs.transform.write_transform import write_transform
from schemas.dataset.records import graph_inputs
from schemas.profile.columns import raw_names
from schemas.spec.forms import RawColumn
from schemas.spec.naming import file_name
from schemas.spec.table import Schema, graph_columns, hints_of


def row_steps(
    pipeline: beam.Pipeline,
    plan: PipelinePlan,
    *,
    schema: Schema,
    ranges: Ranges,
    work: SharedWork,
) -> SourceOutputs:
    """Applies the steps from ranges to encoded records.

    Args:
        pipeline: the pipeline to extend.
        plan: what all sources need.
        schema: the schema of the rows.
        ranges: creates the input of both reads.
        work: the units whose profiles are collected and then merged, in order; without any, all rows are one.
    """
    measures, counts = False, []
    if plan.transform_from is None:
        # The schema's own function knows whether it has analyzers; a user's function may have some.
        measures = getattr(plan.preprocessing_fn, "measures", True)
        progress.JOB.expect(*(("analyzing",) if measures else ()), "transforming", "writing")
        to_analyze, _ = (ranges if measures else GivenRanges(())).create(pipeline, "Analyze", count=False)
        train = to_analyze | "ReadTrain" >> beam.ParDo(
            ReadForAnalysis(schema, plan.staging, plan.limit, plan.total, cache_dir=plan.cache_dir, digests=measures)
        ).with_output_types(pa.RecordBatch).with_outputs(COUNTS, main="batches")
        counts.append(train[COUNTS])
        assert plan.preprocessing_fn is not None  # noqa: S101 - only a replay has none, and measures nothing
        function = plan.preprocessing_fn if plan.derived else ByName(plan.preprocessing_fn, schema)
        with tft_beam.Context(temp_dir=plan.temp_dir):
            config = adapter_config(schema, graph_columns(schema))
            transform_fn = (train.batches, config) | tft_beam.AnalyzeDataset(function)
    else:
        progress.JOB.expect("transforming", "writing")
        transform_fn = read_transform(pipeline, plan.transform_from)
    written = write_transform(transform_fn, plan)

    groups, file_counts = ranges.create(pipeline, "Transform", count=True)
    digests = not measures
    rows, encoded = _transform_rows(groups, transform_fn, plan, schema, work=work, digests=digests)
    late_rejects = encoded[REJECTS]

    if plan.observed_apart:
        collecting = beam.ParDo(CollectProfiles(work), beam.pvalue.AsList(late_rejects))
        profiles = (
            pipeline
            | "ProfilesOnce" >> beam.Create([None], reshuffle=False)
            | "CollectProfiles" >> collecting.with_outputs(STATISTICS, LEAKAGE)
        )
        collected = {STATISTICS: plan.statistics, LEAKAGE: plan.leakage}
        watched = {tag: profiles[tag] for tag in collected if collected[tag]}
    else:
        watched = merged(plan, encoded[STATISTICS], encoded[LEAKAGE])
    return SourceOutputs(
        encoded=encoded.examples,
        counts=(*counts, file_counts, rows[COUNTS], encoded[COUNTS]),
        reject_files=rows[REJECTS],
        late_rejects=late_rejects,
        watched={"raw": rows[PARITY], "transformed": encoded[PARITY], **written, **watched},
    )


def read_transform(pipeline: beam.Pipeline, folder: str) -> Any:
    """Returns the transform that is in the folder of a run."""
    return pipeline | "ReadTransformFn" >> tft_beam.ReadTransformFn(folder)


def _transform_rows(
    groups: beam.PCollection,
    transform_fn: Any,
    plan: PipelinePlan,
    schema: Schema,
    *,
    digests: bool,
    work: SharedWork,
) -> tuple[Any, Any]:
    """Groups -> the outputs of `read` and those of `EncodeExamples`. See `row_steps` for the arguments."""
    apart = plan.observed_apart
    raw = (plan.statistics or plan.leakage) and not apart  # whether raw columns travel beside the features
    inputs = graph_columns(schema) if plan.transform_from is None else graph_inputs(plan.transform_from, schema)
    rows = groups | "ReadAll" >> beam.ParDo(
        ReadForTransform(
            schema,
            plan.staging,
            plan.limit,
            plan.total,
            inputs=inputs,
            parity_threshold=plan.parity_threshold,
            cache_dir=plan.cache_dir,
            caches=apart,
            statistics=raw,
            digests=digests,
        )
    ).with_output_types(pa.RecordBatch).with_outputs(COUNTS, REJECTS, PARITY, main="batches")
    handed_through = {*PASSTHROUGH, *(raw_names(schema) if raw else ())}
    with tft_beam.Context(temp_dir=plan.temp_dir, passthrough_keys=handed_through):
        features, _ = (
            (rows.batches, adapter_config(schema, inputs, passthrough=True, statistics=raw)),
            transform_fn,
        ) | tft_beam.TransformDataset(output_record_batches=True)
    encoded = (
        features
        | "DropPassthrough" >> beam.Keys()
        | "Encode"
        >> beam.ParDo(
            EncodeExamples(
                row_outputs(schema, plan),
                inputs=plan.inputs,
                staging=plan.staging,
                parity_threshold=plan.parity_threshold,
                described=None if apart else work.described,
                known_ids=plan.known_ids,
                guarded=None if apart else work.watched,
                units=unit_starts(work.units),
                placed=True,
            )
        )
        .with_output_types(Encoded)
        .with_outputs(COUNTS, REJECTS, PARITY, STATISTICS, LEAKAGE, main="examples")
    )
    return rows, encoded


def row_outputs(schema: Schema, plan: PipelinePlan) -> Outputs:
    """Returns how messages name the transform's outputs."""
    items = (*schema.features, schema.label) if plan.derived else (schema.label,)
    columns = {item.name: tuple(file_name(ref, schema) or str(ref) for ref in item.refs) for item in items}
    measured = "" if plan.transform_from is None else plan.transform_from.rpartition("/")[0]
    return Outputs(schema.label.name, columns, hints_of(schema) if plan.derived else {}, measured)


def adapter_config(
    schema: Schema, inputs: Sequence[RawColumn], *, passthrough: bool = False, statistics: bool = False
) -> TensorAdapterConfig:
    """Returns how tf.Transform converts the batches to a graph's inputs: `[rows]`, `[rows, width]`, or sparse."""
    widths = {column.name: column.width for column in inputs if not column.varying}
    made = arrow_schema(schema, inputs, passthrough=passthrough, statistics=statistics)
    return tensor_config(made, widths, [column.name for column in inputs if column.varying])
