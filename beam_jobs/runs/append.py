"""An append: new input through the dataset's own transform, into a new run beside the old shards."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

from beam_jobs.core.options import AppendOptions
from beam_jobs.core.source import RawFiles, Source
from beam_jobs.engines.checks import check_cluster
from beam_jobs.images.source import FolderSource
from beam_jobs.output.existing import copy_files, open_base, statistics_of
from beam_jobs.runs import reanalyze
from beam_jobs.runs.job import Work, execute, transform_of
from beam_jobs.runs.known import NewFiles, choose_new, choose_new_images
from beam_jobs.runs.run import NewRun, load_libraries, new_run
from beam_jobs.runs.sources import open_source
from schemas import storage
from schemas.dataset import Dataset, layout
from schemas.dataset.manifest import Manifest, read_manifest
from schemas.errors import UsageError
from schemas.spec.images import ImageFolderSchema, ImagePairsSchema

Report = Callable[[Sequence[str]], None]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of an append.

    Attributes:
      before, manifest: the dataset's manifest before and now; the same if there was nothing to add.
      skipped: the files that were left out, each with the path under which the dataset holds its content.
    """

    before: Manifest
    manifest: Manifest
    skipped: tuple[tuple[str, str], ...]

    @property
    def added(self) -> int:
        """The records that were written, beyond those that were there."""
        return self.manifest.written - self.before.written


@dataclasses.dataclass(frozen=True)
class Prepared:
    """What is to be done, once nothing else writes to the dataset.

    Attributes:
      base: the dataset.
      new: what of the input is new.
      source: what is read; None if nothing is.
    """

    base: Dataset
    new: NewFiles
    source: Source | None


def run_append(options: AppendOptions, *, report: Report = storage.print_notes) -> Outcome:
    """Runs the append to its end. Where all input is known, and is to be skipped, the dataset stays as it is.

    Raises:
      UsageError: invalid usage; nothing was done.
      MillraceError: it failed; the dataset is as it was.
    """
    base = open_base(options.append_to, trust=options.trust)
    found = prepare(options, base, report)
    if found.source is None:
        return Outcome(base.manifest, base.manifest, found.new.skipped)
    with new_run(options.append_to) as run:
        now = open_base(options.append_to, trust=options.trust)
        if now.run != base.run:  # before the lease was ours, another job has committed
            found = prepare(options, now, report)
        source = found.source
        if source is None:
            return Outcome(now.manifest, now.manifest, found.new.skipped)
        load_libraries(verbose=options.verbose, quiet=options.quiet)

        add = functools.partial(_reanalyze if options.reanalyze else _add, options, found, source, run, report)
        manifest = run.write(
            add, total=source.total, quiet=options.quiet, raw_bytes=source.raw_bytes, read=read_manifest
        )
    return Outcome(found.base.manifest, manifest, found.new.skipped)


def prepare(options: AppendOptions, base: Dataset, report: Report) -> Prepared:
    """Finds out what of the input is new, and opens or lists what is to be read.

    Raises:
      UsageError: the input does not match the schema, or is known and not to be skipped.
    """
    if isinstance(base.declared, ImagePairsSchema):
        raise UsageError(
            f"--append_to {base.path}: holds pairs of images, which are drawn from all images at once: with more "
            "images they would be others, and identities could change their splits. Write the dataset again with "
            "--overwrite."
        )
    if options.reanalyze:
        reanalyze.check_function(base, options.preprocessing_fn)
    job = options.job(base, statistics=statistics_of(base) is not None)
    storage.check_apart(options.input, options.append_to, inside=layout.EXAMPLES, flag="--append_to")
    check_cluster(job, {"--input": options.input, "--append_to": (options.append_to,)})
    duplicates: list[tuple[str, str]] = []
    listing = storage.list_files(options.input, on_duplicate=lambda *paths: duplicates.append(paths))
    report([storage.duplicate_note(kept, path) for kept, path in duplicates])
    text = storage.read_bytes(layout.join(base.run_dir, layout.SCHEMA_YAML))
    raw = RawFiles(job, text, listing, duplicates, report, classes=base.manifest.classes)
    if isinstance(base.declared, ImageFolderSchema):
        return _images(options, base, raw)
    listing.check_names()
    new = choose_new(base, listing, skip_known=options.skip_known)
    report(new.notes)
    raw = dataclasses.replace(raw, listing=new.listing)
    if options.reanalyze:
        return Prepared(base, new, reanalyze.open_all(base, raw))
    return Prepared(base, new, open_source(base.declared, raw) if len(new.listing) else None)


def _images(options: AppendOptions, base: Dataset, raw: RawFiles) -> Prepared:
    """As `prepare`, of images."""
    if options.reanalyze:
        raise UsageError(
            f"--reanalyze: {base.path} holds images, which are measured while they are read, and not in an analysis of "
            "its own. Write the dataset again with --output and all images."
        )
    source = open_source(base.declared, raw)
    assert isinstance(source, FolderSource)  # noqa: S101 - the source of these schemas
    found = choose_new_images(base, source, skip_known=options.skip_known)
    raw.report(found.notes)
    return Prepared(base, NewFiles(raw.listing, found.skipped, found.notes), found.source)


def _add(options: AppendOptions, found: Prepared, source: Source, run: NewRun, report: Report) -> Manifest:
    """Writes the new records beside the old ones."""
    base = found.base
    copy_files(base, run.folder)
    job = options.job(base, statistics=statistics_of(base) is not None)
    if job.num_shards is None and source.estimated_bytes < job.shard_size_mb * 2**20:
        job = dataclasses.replace(job, num_shards=1)  # or many small appends would make very many small shards
    work = Work(
        job,
        source,
        source.preprocessing_fn(),
        transform_of(base),
        onto=base,
        allow_drift=options.allow_drift,
        keeps_analysis=bool(base.manifest.analyzed),
    )
    return execute(work, run)


def _reanalyze(options: AppendOptions, found: Prepared, source: Source, run: NewRun, report: Report) -> Manifest:
    """Writes all records again, by a transform that is measured anew."""
    job = options.job(found.base, statistics=statistics_of(found.base) is not None)
    return reanalyze.write(job, found.base, source, found.new.listing, run, report, allow_drift=options.allow_drift)
