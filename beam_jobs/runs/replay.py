"""A replay: corrected rejects through the dataset's own transform, into a new run beside the old shards."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from beam_jobs.core.inputs import StagedInputs, stage_inputs
from beam_jobs.core.keeping import Keeping
from beam_jobs.core.options import ReplayOptions
from beam_jobs.engines.checks import check_cluster
from beam_jobs.output.existing import copy_files, open_base, rejects_of, statistics_of
from beam_jobs.runs.corrections import Choice, Correction, choose, read_corrections
from beam_jobs.runs.job import Work, execute, transform_of
from beam_jobs.runs.run import NewRun, load_libraries, new_run
from beam_jobs.runs.sources import open_replay
from schemas import storage
from schemas.dataset import Dataset, layout
from schemas.dataset.manifest import Manifest, read_manifest
from schemas.rejects import Reject
from schemas.spec.loader import AnySchema

if TYPE_CHECKING:
    import apache_beam as beam

    from beam_jobs.core.steps import Plan, Steps


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a replay: the manifest now, what was tried, and how many records the dataset has gained."""

    manifest: Manifest
    choice: Choice
    added: int

    @property
    def again(self) -> int:
        """How many were tried and are rejected still."""
        return len(self.choice.records) - self.added


def run_replay(options: ReplayOptions) -> Outcome:
    """Runs the replay to its end. Where no line is left to try, the dataset stays as it is.

    Raises:
      UsageError: invalid usage; nothing was done.
      MillraceError: it failed, or no corrected record could be written; the dataset is as it was.
    """
    check_cluster(options.job(), {"--append_to": (options.append_to,)})
    corrections = read_corrections(options.replay)
    base = open_base(options.append_to, trust=options.trust)
    choice = choose_from(base, corrections)
    if not choice.records:
        return Outcome(base.manifest, choice, 0)
    with new_run(options.append_to) as run:
        # Again: before the lease was ours, another job may have committed.
        base = open_base(options.append_to, trust=options.trust)
        choice = choose_from(base, corrections)
        if not choice.records:
            return Outcome(base.manifest, choice, 0)
        load_libraries(verbose=options.verbose, quiet=options.quiet)
        manifest = run.write(
            lambda: _add(options, base, choice, run),
            total=len(choice.records),
            quiet=options.quiet,
            raw_bytes=choice.raw_bytes,
            read=read_manifest,
        )
    return Outcome(manifest, choice, manifest.written - base.manifest.written)


def choose_from(base: Dataset, corrections: list[Correction]) -> Choice:
    """What of the corrections is to be tried again.

    Raises:
      UsageError: a correction is not as it must be.
    """
    source = open_replay(base)
    choice = choose(corrections, rejects_of(base), encodings=source.encodings)
    source.check(choice.records)
    return choice


@dataclasses.dataclass(frozen=True)
class Corrected:
    """Corrected rejects of a dataset as the raw data of a run. Implements `beam_jobs.core.source.Source`."""

    base: Dataset
    choice: Choice

    @property
    def schema(self) -> AnySchema:
        return self.base.declared

    @property
    def schema_text(self) -> bytes:
        return storage.read_bytes(layout.join(self.base.run_dir, layout.SCHEMA_YAML))

    @property
    def classes(self) -> tuple[str, ...]:
        return self.base.manifest.classes

    @property
    def total(self) -> int:
        return len(self.choice.records)

    @property
    def estimated_bytes(self) -> int:
        return sum(len(record.raw) for record in self.choice.records)

    @property
    def estimated_rows(self) -> int:
        return self.total

    def shares(self) -> dict[str, float]:
        return dict.fromkeys(self.base.splits, 1.0)

    def stage(self, folder: str) -> StagedInputs:
        files = open_replay(self.base).inputs(self.choice.records)
        return stage_inputs(folder, files, count=len(files))

    def preprocessing_fn(self, keeping: Keeping | None = None) -> Any:
        """None: the dataset's own transform is applied."""

    def write_description(self, run_dir: str, *, transform_from: str | None) -> None:
        """Does nothing: the dataset's description was copied."""

    def steps(self, pipeline: beam.Pipeline, plan: Plan) -> Steps:
        return open_replay(self.base).steps(pipeline, plan, self.choice.records)

    def raw_bytes(self, rejects: Sequence[Reject]) -> list[bytes]:
        return self.choice.raw_bytes(rejects)

    def incompatibility(self, other: Dataset) -> str | None:
        """None: the transform is the dataset's own."""


def _add(options: ReplayOptions, base: Dataset, choice: Choice, run: NewRun) -> Manifest:
    """Writes the corrected records beside those that are there, in one shard for each split."""
    copy_files(base, run.folder)
    job = dataclasses.replace(
        options.job(),
        num_shards=1,
        max_reject_fraction=1.0,  # what is still wrong stays rejected, however much it is
        compression=base.manifest.compression,
        seed=base.manifest.seed,
        statistics=statistics_of(base) is not None,
        leakage=False,  # what was found is about the first job's records
    )
    source = Corrected(base, choice)
    tried = tuple(record.was for record in choice.records)
    return execute(Work(job, source, source.preprocessing_fn(), transform_of(base), onto=base, tried=tried), run)
