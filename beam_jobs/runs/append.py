"""Appends to a dataset: new input, or corrected rejects.

The new records go through the dataset's own transform. Their shards are written to a new run; the old shards stay where
they are, and the new manifest names both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from beam_jobs.core.options import AppendOptions, JobOptions
from beam_jobs.core.source import JobInput, JobSource, list_input
from beam_jobs.engines.checks import check_cluster
from beam_jobs.images.source import ImageSource
from beam_jobs.records.existing import open_base, statistics_of
from beam_jobs.rows.children import Children
from beam_jobs.runs.corrections import Choice, choose_corrected
from beam_jobs.runs.execute import execute
from beam_jobs.runs.known import choose_new, choose_new_images
from beam_jobs.runs.run import OtherTransform, load_libraries, new_run, open_source
from beam_jobs.runs.write import WriteDataset, started_children
from schemas import storage
from schemas.dataset import OpenDataset, layout
from schemas.dataset.manifest import Manifest
from schemas.spec.images import ImageSchema

Report = Callable[[Sequence[str]], None]


@dataclasses.dataclass(frozen=True)
class AppendOutcome:
    """The outcome of an append.

    Attributes:
      before, manifest: the dataset's manifest before the append and after it; equal if there was nothing to add.
      skipped: the input files that were left out, each with the path under which the dataset holds the same content.
      choice: the corrected lines that a replay tried; empty for new input.
    """

    before: Manifest
    manifest: Manifest
    skipped: tuple[tuple[str, str], ...]
    choice: Choice

    @property
    def added(self) -> int:
        """The number of records that the append wrote."""
        return self.manifest.written - self.before.written


@dataclasses.dataclass(frozen=True)
class Prepared:
    """An append that has checked its input and has not begun to write.

    Attributes:
      base: the dataset, as it was when the input was checked.
      job: the options of the job that reads the input.
      source: the new input, or the corrected rejects; None if there is nothing to add.
      skipped, choice: see `AppendOutcome`.
    """

    base: OpenDataset
    job: JobOptions
    source: JobSource | None
    skipped: tuple[tuple[str, str], ...] = ()
    choice: Choice = dataclasses.field(default_factory=Choice)

    def outcome(self, manifest: Manifest) -> AppendOutcome:
        """Returns the outcome. `manifest`: the dataset's manifest after the append."""
        return AppendOutcome(self.base.manifest, manifest, self.skipped, self.choice)


def run_append(options: AppendOptions, *, report: Report = storage.print_notes) -> AppendOutcome:
    """Appends new input or corrected rejects to a dataset. If there is nothing to add, the dataset does not change.

    The input is checked before the lease is taken. If another job has committed to the dataset in the meantime, the
    input is checked again, because that job may have added the same files.

    Raises:
      UsageError: invalid usage; nothing was done.
      MillraceError: the append failed, or no corrected record could be written; the dataset has not changed.
    """
    base = open_base(options.append_to, trust=options.trust)
    prepared = prepare(options, base, report)
    if prepared.source is None:
        return prepared.outcome(base.manifest)
    with new_run(options.append_to, break_lease=options.break_lease) as run:
        now = open_base(options.append_to, trust=options.trust)
        if now.run != base.run:  # another job has committed before this process got the lease
            prepared = prepare(options, now, report)
        source = prepared.source
        if source is None:
            return prepared.outcome(now.manifest)
        with started_children(prepared.job, source, run) as children:
            load_libraries(verbose=options.verbose, quiet=options.quiet)
            job = _addition(prepared, source, children, allow_drift=options.allow_drift)
            manifest = execute(job, run)
    return prepared.outcome(manifest)


def prepare(options: AppendOptions, base: OpenDataset, report: Report) -> Prepared:
    """Finds out which input or which corrected rejects the dataset lacks, and opens them as the source of a job.

    Args:
      options: the options of the append.
      base: the dataset.
      report: called with notes about the input.

    Raises:
      UsageError: the input does not match the schema; or the dataset holds a file already, without --skip_known; or a
        corrected reject is invalid.
    """
    job = options.job(base, statistics=statistics_of(base) is not None)
    if options.replay:
        check_cluster(job, {"--append_to": (options.append_to,)})
        choice, corrected = choose_corrected(base, options.replay)
        job = dataclasses.replace(job, max_reject_fraction=1.0)  # records that are still wrong just stay rejected
        return Prepared(base, job, corrected, choice=choice)
    storage.check_apart(options.input, options.append_to, inside=layout.EXAMPLES, flag="--append_to")
    check_cluster(job, {"--input": options.input, "--append_to": (options.append_to,)})
    listing, duplicates = list_input(options.input, report)
    text = storage.read_bytes(layout.join(base.run_dir, layout.SCHEMA_YAML))
    raw = JobInput(job, text, listing, duplicates, report, classes=base.manifest.classes)
    if isinstance(base.declared, ImageSchema):
        folders = open_source(base.declared, raw)
        assert isinstance(folders, ImageSource)  # noqa: S101 - the source of these schemas
        images = choose_new_images(base, folders, skip_known=options.skip_known)
        return Prepared(base, job, images.rest, images.skipped)
    listing.check_names()
    files = choose_new(base, listing, skip_known=options.skip_known)
    raw = dataclasses.replace(raw, listing=files.rest)
    source = open_source(base.declared, raw) if len(files.rest) else None
    return Prepared(base, job, source, files.skipped)


def _addition(prepared: Prepared, source: JobSource, children: Children | None, *, allow_drift: bool) -> WriteDataset:
    """Makes the job that writes the new records in a run of the dataset."""
    base, job = prepared.base, prepared.job
    if job.num_shards is None and source.estimated_bytes < job.shard_size_mb * 2**20:
        job = dataclasses.replace(job, num_shards=1)  # so that many small appends do not make very many small shards
    return WriteDataset(
        job,
        source,
        OtherTransform.of(base),
        onto=base,
        tried=prepared.choice.rejects,
        allow_drift=allow_drift,
        children=children,
    )
