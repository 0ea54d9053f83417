"""The pipeline for rows: read, analyze, read again, transform, encode."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import apache_beam as beam
import pyarrow as pa
import tensorflow_transform.beam as tft_beam
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue
from tfx_bsl.tfxio.tensor_adapter import TensorAdapterConfig

from beam_jobs.core import progress
from beam_jobs.core.accounting import COUNTS, PARITY, PASSTHROUGH, REJECTS
from beam_jobs.core.children import Children, Finding, running
from beam_jobs.core.options import RunnerOptions
from beam_jobs.core.source import Plan, Steps
from beam_jobs.engines import runner
from beam_jobs.profiles import LEAKAGE, STATISTICS, merged
from beam_jobs.records.encode import Encoded, EncodeExamples
from beam_jobs.records.shards import WriteFragments
from beam_jobs.rows.groups import Group, Unit, cache_path, range_bytes, unit_starts
from beam_jobs.rows.ranges import GivenRanges, Ranges
from beam_jobs.rows.read import CollectProfiles, ReadForAnalysis, ReadForTransform, arrow_schema
from beam_jobs.rows.steps import Collected, Observe
from beam_jobs.transform.analyze import analyze, write_transform
from beam_jobs.transform.numeric import tensor_config
from beam_jobs.transform.observed import Watched, watched_of
from beam_jobs.transform.preprocessing import ByName
from beam_jobs.transform.rejects import Outputs
from schemas.dataset.records import graph_inputs
from schemas.profile.columns import columns_of, raw_names
from schemas.profile.leakage import watched_rows
from schemas.spec.forms import RawColumn
from schemas.spec.table import Schema, graph_columns, hints_of

# What is put out of groups beside their records; and by children that transform some, as what.
LATE, RAW, TRANSFORMED = "late", "raw", "transformed"
FRAGMENTS, DONE = "fragments", "done"
_SHARED = COUNTS, REJECTS, LATE, RAW, TRANSFORMED, FRAGMENTS


def row_steps(
    pipeline: beam.Pipeline,
    plan: Plan,
    *,
    schema: Schema,
    ranges: Ranges,
    read: type[ReadForTransform] = ReadForTransform,
    units: Sequence[Unit] = (),
) -> Steps:
    """Applies the steps from ranges to encoded records.

    Args:
        pipeline: the pipeline to extend.
        plan: what all sources need.
        schema: the schema of the rows.
        ranges: creates the input of `read`.
        read: the DoFn of the second read.
        units: what profiles are collected of and then merged, in order; none: all is one.
    """
    measures, counts = False, []
    if plan.transform_from is None or plan.analysis is not None:
        # The schema's own function knows whether it has analyzers; a user's function may have some.
        measures = getattr(plan.preprocessing_fn, "measures", True)
        progress.expect(*(("analyzing",) if measures else ()), "transforming", "writing")
        analyzed, keeping = ranges, None
        if plan.analysis is not None:
            analyzed, keeping = ranges.of(plan.analysis.inputs), plan.analysis.keeping
        to_analyze, _ = (analyzed if measures else GivenRanges(())).create(pipeline, "Analyze", count=False)
        train = to_analyze | "ReadTrain" >> beam.ParDo(
            ReadForAnalysis(schema, plan.staging, plan.limit, plan.total, cache_dir=plan.cache_dir, digests=measures)
        ).with_output_types(pa.RecordBatch).with_outputs(COUNTS, main="batches")
        counts.append(train[COUNTS])
        assert plan.preprocessing_fn is not None  # noqa: S101 - only a replay has none, and measures nothing
        function = plan.preprocessing_fn if plan.derived else ByName(plan.preprocessing_fn, schema)
        with tft_beam.Context(temp_dir=plan.temp_dir):
            measured = analyze(train.batches, adapter_config(schema, graph_columns(schema)), function, keeping)
    else:
        progress.expect("transforming", "writing")
    transform_fn = measured if plan.transform_from is None else read_transform(pipeline, plan.transform_from)
    written = write_transform(transform_fn, plan)

    groups, file_counts = ranges.create(pipeline, "Transform", count=True)
    digests = not measures or (plan.analysis is not None and bool(plan.analysis.keeping.known))
    shared: Any = None
    if plan.transformed_apart:
        bare = dataclasses.replace(plan, preprocessing_fn=None, analysis=None)
        step = Transform("", bare, ranges, [group for unit in units for group in unit], digests)
        after = () if written is None else (beam.pvalue.AsList(written),)
        shared = groups | "Share" >> beam.ParDo(Share(step), *after).with_outputs(*_SHARED, main="groups")
        groups = shared.groups
    encoded, others = transformed(groups, transform_fn, plan, schema, ranges, read=read, units=units, digests=digests)
    if shared is not None:
        others = {tag: (*some, shared[tag]) for tag, some in others.items()}
    found = {tag: together(tag, some) for tag, some in others.items()}

    if plan.observed_apart:
        collecting = CollectProfiles(schema, units, Collected(plan.statistics, plan.leakage))
        profiles = (
            pipeline
            | "CacheFolder" >> beam.Create([plan.cache_dir], reshuffle=False)
            | "CollectProfiles"
            >> beam.ParDo(collecting, beam.pvalue.AsList(found[LATE])).with_outputs(STATISTICS, LEAKAGE)
        )
        wanted = {STATISTICS: plan.statistics, LEAKAGE: plan.leakage}
        watched = {tag: profiles[tag] for tag in wanted if wanted[tag]}
    else:
        watched = merged(plan, encoded[STATISTICS], encoded[LEAKAGE], watched_rows(schema))
    return Steps(
        encoded=encoded.examples,
        counts=(*counts, file_counts, found[COUNTS]),
        reject_files=found[REJECTS],
        late_rejects=found[LATE],
        watched={"raw": found[RAW], "transformed": found[TRANSFORMED], **watched},
        fragments=shared and shared[FRAGMENTS],
    )


def together(tag: str, some: tuple[beam.PCollection, ...]) -> beam.PCollection:
    """The elements of all."""
    return some[0] if len(some) == 1 else some | f"All[{tag}]" >> beam.Flatten()


def read_transform(pipeline: beam.Pipeline, folder: str) -> Any:
    """The transform that is in the folder of a run."""
    return pipeline | "ReadTransformFn" >> tft_beam.ReadTransformFn(folder)


def transformed(
    groups: beam.PCollection,
    transform_fn: Any,
    plan: Plan,
    schema: Schema,
    ranges: Ranges,
    *,
    digests: bool,
    read: type[ReadForTransform] = ReadForTransform,
    units: Sequence[Unit] = (),
) -> tuple[Any, dict[str, tuple[beam.PCollection, ...]]]:
    """Groups -> their records. See `row_steps` for the arguments.

    Returns:
      What `EncodeExamples` puts out, and what else there is to know of the records.
    """
    apart = plan.observed_apart
    raw = (plan.statistics or plan.leakage) and not apart  # whether raw columns travel beside the features
    inputs = graph_columns(schema) if plan.transform_from is None else graph_inputs(plan.transform_from, schema)
    rows = groups | "ReadAll" >> beam.ParDo(
        read(
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
                row_outputs(schema, ranges, derived=plan.derived),
                watched_of(schema) if plan.derived else Watched(None),
                inputs=plan.inputs,
                staging=plan.staging,
                parity_threshold=plan.parity_threshold,
                described=columns_of(schema) if plan.statistics and not apart else None,
                known_ids=plan.known_ids,
                guarded=watched_rows(schema) if plan.leakage and not apart else None,
                units=unit_starts(units),
            )
        )
        .with_output_types(Encoded)
        .with_outputs(COUNTS, REJECTS, PARITY, STATISTICS, LEAKAGE, main="examples")
    )
    return encoded, {
        COUNTS: (rows[COUNTS], encoded[COUNTS]),
        REJECTS: (rows[REJECTS],),
        LATE: (encoded[REJECTS],),
        RAW: (rows[PARITY],),
        TRANSFORMED: (encoded[PARITY],),
    }


_answers: list[dict[str, list[Any]]] = []  # of the pipeline that this process, a child, has run


@dataclasses.dataclass(frozen=True)
class Transform(Finding[dict[str, list[Any]]]):
    """The step that transforms and encodes groups, as long as there are some that nobody has claimed.

    It finds what `transformed` puts out, and as DONE the groups.

    Attributes:
      plan, ranges: the job's.
      groups: all of the job.
      digests: whether the digests of the files are taken with this read.
    """

    plan: Plan
    ranges: Ranges
    groups: Sequence[Group]
    digests: bool
    needs_libraries: ClassVar[bool] = True

    @property
    def folder(self) -> str:
        """That of the cache."""
        return str(self.plan.cache_dir)

    def run(self, schema: Schema) -> dict[str, list[Any]]:
        def build(pipeline: beam.Pipeline) -> None:
            groups = pipeline | "Once" >> beam.Create([None]) | "Claim" >> beam.FlatMap(self.claim)
            transform_fn = read_transform(pipeline, self.plan.run_dir)
            encoded, found = transformed(groups, transform_fn, self.plan, schema, self.ranges, digests=self.digests)
            fragments = encoded.examples | "WriteFragments" >> beam.ParDo(WriteFragments(self.plan.shards))
            found |= {FRAGMENTS: (fragments,), DONE: (groups,)}
            parts = {tag: beam.pvalue.AsList(together(tag, some)) for tag, some in found.items()}
            _ = pipeline | "Finally" >> beam.Create([None]) | "Answer" >> beam.Map(_answer, **parts)

        _answers.clear()
        progress.reset(total=self.plan.total)
        runner.run(RunnerOptions(quiet=True), build, staging=self.plan.staging, total=self.plan.total)
        return _answers.pop()

    def find(self, schema: Schema) -> dict[str, list[Any]]:
        """Nothing: what no child transforms, the job's own pipeline does."""
        return {}

    def claim(self, _: None = None) -> Iterator[Group]:
        """Those of the groups that nobody has claimed, one after the other, which are this step's then."""
        yield from filter(self.claims, self.groups)

    def claims(self, group: Group) -> bool:
        """Whether a group is this step's to transform: the first of all that ask is told so."""
        path = f"{cache_path(self.folder, group)}.claimed"
        try:
            file = open(path, "x", encoding="utf-8")  # noqa: SIM115 - it is closed below
        except FileExistsError:
            return False
        try:
            with file:
                file.write(self.path)
        except OSError:  # a full disk; a claim without a name would be nobody's
            os.remove(path)
            raise
        return True

    def claimed(self) -> Iterator[Group]:
        """The groups that this step has claimed, which has ended."""
        for group in self.groups:
            with (
                contextlib.suppress(FileNotFoundError),
                open(f"{cache_path(self.folder, group)}.claimed", encoding="utf-8") as file,
            ):
                if file.read() == self.path:
                    yield group


def _answer(_: None, **parts: list[Any]) -> None:
    _answers.append(parts)


class Share(beam.DoFn):
    """Groups -> those that this process transforms; as side outputs, what children put out that transform the others.

    Children get their steps when all groups are cached, and claim groups until none is left. What a child has claimed
    and could not do, this process does.
    """

    steps: list[Transform]  # of the children

    def __init__(self, step: Transform) -> None:
        self.step = step  # that of this process

    def setup(self) -> None:
        self.steps = []
        self.cached = frozenset(cache_path(self.step.folder, group) for group in self.step.groups)

    @property
    def children(self) -> Children:
        """Those of the job."""
        found = running(self.step.folder)
        assert found is not None  # noqa: S101 - a job that shares its groups has some
        return found

    def process(self, group: Group, _: object = None) -> Iterator[Group]:
        children = self.children
        if len(self.steps) < children.loaded and children.done(self.cached):
            name = os.path.join(self.step.folder, f"transform-{uuid.uuid4().hex}")
            self.steps.append(dataclasses.replace(self.step, path=name))
            children.add(self.steps[-1:])
        if self.step.claims(group):
            yield group
        else:
            progress.enter(ReadForTransform.phase)
            progress.add(consumed=sum(map(range_bytes, group)))  # not done: of its records, none is counted here

    def finish_bundle(self) -> Iterator[WindowedValue | beam.pvalue.TaggedOutput]:
        for step in self.steps:
            found = self.children.found(step, Observe)
            done = set(found.pop(DONE, ()))
            for tag, some in found.items():
                yield from (beam.pvalue.TaggedOutput(tag, GlobalWindows.windowed_value(value)) for value in some)
            yield from map(GlobalWindows.windowed_value, (group for group in step.claimed() if group not in done))
        self.steps = []


@dataclasses.dataclass(frozen=True)
class ColumnsOfOutputs:
    """How messages name the columns that outputs are read from, by the file. `names`: the outputs."""

    ranges: Ranges
    names: frozenset[str]

    def __call__(self, path: str) -> Mapping[str, tuple[str, ...]]:
        return {name: columns for name, columns in self.ranges.columns(path).items() if name in self.names}


def row_outputs(schema: Schema, ranges: Ranges, *, derived: bool) -> Outputs:
    """How messages name the transform's outputs. `derived`: the transform follows from the schema."""
    names = {i.name for i in (*schema.features, schema.label)} if derived else {schema.label.name}
    columns = ColumnsOfOutputs(ranges, frozenset(names))
    return Outputs(schema.label.name, columns, hints_of(schema) if derived else {})


def adapter_config(
    schema: Schema, inputs: Sequence[RawColumn], *, passthrough: bool = False, statistics: bool = False
) -> TensorAdapterConfig:
    """How tf.Transform converts the batches to a graph's inputs: `[rows]`, `[rows, width]`, or sparse."""
    widths = {column.name: column.width for column in inputs if not column.varying}
    made = arrow_schema(schema, inputs, passthrough=passthrough, statistics=statistics)
    return tensor_config(made, widths, [column.name for column in inputs if column.varying])
