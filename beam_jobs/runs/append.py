"""An append: new input through the dataset's own transform, into a new run beside the old shards.

With --reanalyze the transform is measured anew over all input, and all records are written again. What earlier runs
have kept of their analyses is taken as measured, so that only new input is read for it.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence

from beam_jobs.core.children import Children
from beam_jobs.core.inputs import Kept, Outdated
from beam_jobs.core.options import AppendOptions, JobOptions
from beam_jobs.core.source import RawFiles, Source, list_input
from beam_jobs.engines.checks import check_cluster
from beam_jobs.images.source import FolderSource
from beam_jobs.records.existing import copy_folder, is_complete, kept_of, open_base, statistics_of
from beam_jobs.rows.source import RowSource
from beam_jobs.runs.job import load_preprocessing
from beam_jobs.runs.known import choose_new, choose_new_images
from beam_jobs.runs.run import DATASET, NewRun, OtherTransform, execute, load_libraries, new_run, open_source
from beam_jobs.runs.write import WriteDataset, started_children
from schemas import storage
from schemas.dataset import Dataset, layout
from schemas.dataset.manifest import Manifest, read_inputs
from schemas.errors import MillraceError, UsageError, counted
from schemas.spec.images import ImageFolderSchema, ImagePairsSchema
from schemas.storage import folders
from schemas.storage.content import digest_file

Report = Callable[[Sequence[str]], None]


def check_function(base: Dataset, given: str | None) -> None:
    """Refuses to import a function because a manifest names it: somebody must have named or trusted it, too.

    Args:
      base: the dataset.
      given: the function that the command line names.

    Raises:
      UsageError: the manifest names another function, or one that nobody has said to trust.
    """
    own = base.manifest.preprocessing_fn
    manifest = layout.join(base.path, layout.MANIFEST)
    if given is not None and given != own:
        raise UsageError(
            f"--preprocessing_fn {given}: {manifest} names {own or 'none'}. "
            f"{f'Give {own}' if own else 'Leave it out'}, or write the dataset again with --output."
        )
    if own is not None and given is None and not base.trust:
        raise UsageError(
            f"--reanalyze: {manifest} names the preprocessing_fn {own!r}, a function that would be imported and "
            f"called. If you trust it, give --preprocessing_fn {own}, or --trust."
        )


def open_all(base: Dataset, raw: RawFiles) -> Source:
    """All input: that of the dataset, and what is new.

    Raises:
      UsageError: records of the dataset are in no input, or an input of it is gone or has changed.
    """
    replayed = replays(base.manifest)
    if replayed:
        raise UsageError(
            f"--reanalyze: records of {base.path} were added by --replay (in {', '.join(replayed)}), and are in none "
            "of its input files, so they would be lost. Correct them there, and write the dataset again."
        )
    new = ((file.path, storage.FileStat(file.size, file.version)) for file in raw.listing)
    listing = storage.Listing(itertools.chain(still_there(base), new))
    return open_source(base.declared, dataclasses.replace(raw, measures=True, listing=listing))


def replays(manifest: Manifest) -> list[str]:
    """The runs of a dataset that replays have added: those with shards that are neither the first nor appends."""
    runs = {shard.path.partition("/")[0] for split in manifest.splits.values() for shard in split.shards}
    return sorted(runs - set(manifest.appended))[1:]  # a run's name begins with its time


def still_there(base: Dataset) -> Iterator[tuple[str, storage.FileStat]]:
    """The inputs of a dataset, which hold what was read of them.

    Raises:
      UsageError: one is gone, or has other content.
    """
    for part in read_inputs(base.path, base.manifest):
        for file in part.inputs:
            try:
                found = storage.stat(file.path)
                same = found.size == file.bytes and (
                    found.version == file.version
                    or (file.digest is not None and file.digest == digest_file(file.path, size=found.size))
                )
            except MillraceError as error:
                raise UsageError(f"--reanalyze reads all input again, and this is gone: {error}") from error
            if not same:
                raise UsageError(
                    f"--reanalyze: {file.path} is not what was read from it any more. Put the file back, or write "
                    "the dataset again with --output from what there is."
                )
            yield file.path, found


def known_analyses(base: Dataset) -> tuple[tuple[Kept, ...], str]:
    """What the dataset's runs have kept of their analyses, if that is all of it, and a note about it."""
    if base.manifest.preprocessing_fn is not None:
        return (), "the analysis reads all input, since what a preprocessing_fn of your own measures cannot be kept"
    if not is_complete(base.manifest):
        return (), "the analysis reads all input, since not all runs of the dataset have kept theirs (--keep_analysis)"
    read = base.manifest.analyzed.values()
    told = f"the analysis takes {counted(sum(read), 'records')} of {counted(len(read), 'runs')} as measured"
    return kept_of(base), told


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
      job: the options of the job that reads the input.
      source: what is read; None if nothing is.
      new: the files that no run has measured.
      skipped: see `Outcome`.
    """

    base: Dataset
    job: JobOptions
    source: Source | None
    new: storage.Listing
    skipped: tuple[tuple[str, str], ...]


def run_append(options: AppendOptions, *, report: Report = storage.print_notes) -> Outcome:
    """Runs the append to its end. Where all input is known, and is to be skipped, the dataset stays as it is.

    Raises:
      UsageError: invalid usage; nothing was done.
      MillraceError: it failed; the dataset is as it was.
    """
    base = open_base(options.append_to, trust=options.trust)
    found = prepare(options, base, report)
    if found.source is None:
        return Outcome(base.manifest, base.manifest, found.skipped)
    with new_run(options.append_to) as run:
        now = open_base(options.append_to, trust=options.trust)
        if now.run != base.run:  # before the lease was ours, another job has committed
            found = prepare(options, now, report)
        source = found.source
        if source is None:
            return Outcome(now.manifest, now.manifest, found.skipped)
        with started_children(found.job, source, run, reanalyze=options.reanalyze) as children:
            load_libraries(verbose=options.verbose, quiet=options.quiet)
        write = _add_anew if options.reanalyze else functools.partial(_add, children=children)
        body = functools.partial(write, found, source, run, report, allow_drift=options.allow_drift)
        manifest = run.write(body, source, quiet=options.quiet, kind=DATASET)
    return Outcome(found.base.manifest, manifest, found.skipped)


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
        check_function(base, options.preprocessing_fn)
    job = options.job(base, statistics=statistics_of(base) is not None)
    storage.check_apart(options.input, options.append_to, inside=layout.EXAMPLES, flag="--append_to")
    check_cluster(job, {"--input": options.input, "--append_to": (options.append_to,)})
    listing, duplicates = list_input(options.input, report)
    text = storage.read_bytes(layout.join(base.run_dir, layout.SCHEMA_YAML))
    raw = RawFiles.of(job, text, listing, duplicates, report, classes=base.manifest.classes)
    if isinstance(base.declared, ImageFolderSchema):
        if options.reanalyze:
            raise UsageError(
                f"--reanalyze: {base.path} holds images, which are measured while they are read, and not in an "
                "analysis of its own. Write the dataset again with --output and all images."
            )
        source = open_source(base.declared, raw)
        assert isinstance(source, FolderSource)  # noqa: S101 - the source of these schemas
        images = choose_new_images(base, source, skip_known=options.skip_known)
        report(images.notes)
        return Prepared(base, job, images.rest, listing, images.skipped)
    listing.check_names()
    files = choose_new(base, listing, skip_known=options.skip_known)
    report(files.notes)
    raw = dataclasses.replace(raw, listing=files.rest)
    if options.reanalyze:
        return Prepared(base, job, open_all(base, raw), files.rest, files.skipped)
    some = open_source(base.declared, raw) if len(files.rest) else None
    return Prepared(base, job, some, files.rest, files.skipped)


def _add(
    found: Prepared,
    source: Source,
    run: NewRun,
    report: Report,
    *,
    allow_drift: bool,
    children: Children | None,
) -> Manifest:
    """Writes the new records beside the old ones."""
    base, job = found.base, found.job
    if job.num_shards is None and source.estimated_bytes < job.shard_size_mb * 2**20:
        job = dataclasses.replace(job, num_shards=1)  # or many small appends would make very many small shards
    keeps = bool(base.manifest.analyzed)
    transform = OtherTransform.of(base)
    work = WriteDataset(
        job, source, transform, onto=base, allow_drift=allow_drift, keeps_analysis=keeps, children=children
    )
    return work.execute(run)


def _add_anew(found: Prepared, source: Source, run: NewRun, report: Report, *, allow_drift: bool) -> Manifest:
    """Writes all records again, by a transform that is measured anew.

    Where what is known cannot be used, it says so, and measures all.
    """
    base, own = found.base, found.base.manifest.preprocessing_fn
    options = dataclasses.replace(found.job, transform_from=None, preprocessing_fn=own, leakage=True)
    manifest = layout.join(base.path, layout.MANIFEST)
    function = load_preprocessing(own, asked=f"{manifest}: preprocessing_fn")
    work = WriteDataset(options, source, None, function, allow_drift=allow_drift, keeps_analysis=own is None)
    known, note = known_analyses(base)
    report([note])
    if known:
        assert isinstance(source, RowSource)  # noqa: S101 - see `open_all`
        try:
            copy_folder(base, layout.ANALYSIS, run.folder)
            reads, fresh = base.manifest.analyzed, dataclasses.replace(source, listing=found.new)
            return execute(dataclasses.replace(work, known=known, known_reads=reads, to_analyze=fresh), run)
        except Outdated as error:
            report([f"the analysis reads all input after all: {error}"])
            folders.remove(layout.join(run.folder, layout.ANALYSIS))
    return execute(work, run)
