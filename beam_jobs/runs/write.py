"""The job that writes a dataset: plans the shards, and builds the pipeline that turns raw data into shards."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from beam_jobs.core import parity
from beam_jobs.core.options import JobOptions
from beam_jobs.core.source import JobSource
from beam_jobs.rows.children import Children
from beam_jobs.rows.source import RowSource
from beam_jobs.runs.run import DATASET, Kind, NewRun, OtherTransform, temporary_folder
from schemas import storage
from schemas.dataset import OpenDataset
from schemas.rejects import Reject
from schemas.spec.table import SPLITS, Schema

if TYPE_CHECKING:
    import apache_beam as beam

    from beam_jobs.core.inputs import StagedInputs
    from beam_jobs.core.shuffle_plan import ShardOptions
    from beam_jobs.core.source import KnownIds
    from beam_jobs.runs.commit import CommitDataset
    from schemas.dataset.manifest import Manifest


PreprocessingFn = Callable[[dict[str, Any]], dict[str, Any]]  # tensors by raw column -> tensors by feature


@dataclasses.dataclass(frozen=True)
class WriteDataset:
    """A job that transforms raw data and writes a new dataset, or adds the records to an existing dataset.

    Implements `beam_jobs.runs.run.PipelineJob`.

    Attributes:
      options: the job's options.
      source: the raw data.
      transform: the transform of another dataset, to apply; None: the job measures its own transform.
      function: the user's preprocessing_fn; None: the transform is derived from the schema.
      children: processes that decode the records, and end with the job; None: this process decodes them.
      onto: the dataset that the records are added to; None: the job writes a new dataset.
      tried: the rejects of `onto` that the job tries again, corrected; empty: the records are new input.
      allow_drift: True: commit even if drift exceeds a threshold to fail above.
    """

    kind: ClassVar[Kind[Manifest]] = DATASET
    options: JobOptions
    source: JobSource
    transform: OtherTransform | None
    function: PreprocessingFn | None = None
    _: dataclasses.KW_ONLY
    children: Children | None = None
    onto: OpenDataset | None = None
    tried: Sequence[Reject] = ()
    allow_drift: bool = False

    @property
    def own_function(self) -> str | None:
        """The user's preprocessing_fn, if the transform is not derived from the schema."""
        return (self.transform or self.options).preprocessing_fn

    def known_ids(self) -> Mapping[str, KnownIds]:
        """Returns the ids of the known values of each feature, with which an append counts unknown values.

        Returns {} for all other jobs, for replays, and for transforms that are not derived from the schema of rows.
        """
        from beam_jobs.transform.vocabularies import known_ids

        if (
            self.onto is None
            or self.tried
            or self.own_function is not None
            or not isinstance(self.onto.declared, Schema)
        ):
            return {}
        return known_ids(self.onto.schema, self.onto.run_dir)

    def pipeline(self, run: NewRun, inputs: StagedInputs, temp_dir: str) -> Callable[[beam.Pipeline], beam.PCollection]:
        """Writes the description of the raw data to the run's folder. Returns a function that builds the pipeline.

        Args:
          run: the run to write.
          inputs: the staged inputs.
          temp_dir: a folder for temporary files, see `temporary_folder`.
        """
        from beam_jobs.core.source import PipelinePlan
        from beam_jobs.records import result
        from beam_jobs.records.existing import copy_files

        if self.onto is not None:
            copy_files(self.onto, run.folder)

        options, source = self.options, self.source
        transform_from = self.transform.run_dir if self.transform else None
        source.write_description(run.folder, transform_from=transform_from)
        plan = PipelinePlan(
            run_dir=run.folder,
            temp_dir=temp_dir,
            inputs=inputs,
            total=source.total,
            limit=options.reject_limit,
            parity_threshold=None if self.onto else parity.threshold(source.estimated_rows),
            shards=plan_shards(options, source, run.staging, temp_dir),
            preprocessing_fn=self.function or source.preprocessing_fn(),
            derived=self.own_function is None,
            transform_from=transform_from,
            statistics=options.statistics,
            known_ids=self.known_ids(),
            leakage=options.leakage,
            cache_dir=temp_dir if options.is_local else None,
            observed_apart=bool(self.children and self.children.pids) and (options.statistics or options.leakage),
        )
        return lambda p: result.finish(p, plan, source.steps(p, plan))

    def committer(self, inputs: StagedInputs) -> CommitDataset:
        """Returns the committer of the run, which a worker can take: without listing, user's function and processes."""
        from beam_jobs.runs.commit import CommitDataset

        options = dataclasses.replace(self.options, beam_args=())
        described = self.source.described(inputs)
        return CommitDataset(options, described, self.transform, self.onto, self.tried, self.allow_drift)


@contextlib.contextmanager
def started_children(options: JobOptions, source: JobSource, run: NewRun) -> Iterator[Children | None]:
    """Starts processes that decode the rows of a local job, and ends them with the block. Yields None for other jobs.

    The processes start before TensorFlow and Beam are imported, so that they decode rows in the meantime. Prints a note
    if `--workers` asks for processes that cannot be used.
    """
    local = options.is_local and storage.is_local(run.staging)
    if not (local and isinstance(source, RowSource)):
        _note_unused_workers(options, 0)
        yield None
        return
    with (
        temporary_folder(run.staging, here=True) as folder,
        contextlib.closing(source.children(folder, options)) as children,
    ):
        _note_unused_workers(options, len(children.pids))
        yield children


def _note_unused_workers(options: JobOptions, children: int) -> None:
    """Prints a note if --workers asks for processes that this job cannot use."""
    workers = options.workers
    if workers is not None and workers > 1 and not children and not options.quiet:
        note = (
            f"note: --workers {workers}: one process does it all, as with images, output in a bucket, and input in "
            "buckets, compressed or in UTF-16, with quoted newlines, or of more than 1,000 files"
        )
        storage.print_notes([note])


def plan_shards(options: JobOptions, source: JobSource, staging: str, temp_dir: str) -> ShardOptions:
    """Plans how rows are distributed over shards, from the estimated size of the data, before the data is read.

    Args:
      options: the job's options.
      source: the raw data.
      staging: the run's staging folder.
      temp_dir: the folder for the fragments of a local job.
    """
    from beam_jobs.core.shuffle_plan import ShardOptions, plan_shuffle, shards_of

    shares = source.shares()
    shard_bytes = options.shard_size_mb * 2**20
    num_shards = options.num_shards
    # On a cluster, a bucket is one shard or more, so the number of shards must be planned before the shuffle.
    if num_shards is None and not options.is_local:
        num_shards = max(4, round(source.estimated_bytes * shares["train"] / shard_bytes))
    plan = plan_shuffle(
        shares,
        estimated_bytes=source.estimated_bytes,
        num_shards=num_shards,
        shard_bytes=shard_bytes,
        seed=options.seed,
        one_bucket_each=not options.is_local,
    )
    counts = tuple(
        None
        if options.num_shards is None or name not in shares
        else shards_of(name, shares[name] / shares["train"], options.num_shards)
        for name in SPLITS
    )
    return ShardOptions(
        plan,
        counts,
        shard_bytes,
        options.compression,
        staging,
        fragments=temp_dir if options.is_local else None,
        spills=staging if options.shuffles_in_memory else None,
    )
