"""A new analysis over all input of a dataset and more: a new transform, and all records written again.

What earlier runs have kept of their analyses is taken as measured, so that only new input is read for it.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence

from beam_jobs.core.inputs import Kept, Outdated
from beam_jobs.core.options import JobOptions
from beam_jobs.core.source import RawFiles, Source
from beam_jobs.output.existing import copy_folder, is_complete, kept_of
from beam_jobs.rows.source import RowSource
from beam_jobs.runs.job import Work, execute, load_preprocessing
from beam_jobs.runs.run import NewRun
from beam_jobs.runs.sources import open_source
from schemas import storage
from schemas.dataset import Dataset, layout
from schemas.dataset.input_files import read_inputs
from schemas.dataset.manifest import Manifest
from schemas.errors import MillraceError, UsageError
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
    job = dataclasses.replace(raw.options, transform_from=None)
    return open_source(base.declared, dataclasses.replace(raw, options=job, listing=listing))


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
    read = sum(base.manifest.analyzed.values())
    return kept_of(base), f"the analysis takes {read:,} records of {len(base.manifest.analyzed):,} runs as measured"


def write(
    options: JobOptions,
    base: Dataset,
    source: Source,
    new: storage.Listing,
    run: NewRun,
    report: Report,
    *,
    allow_drift: bool,
) -> Manifest:
    """Writes the dataset. Where what is known cannot be used, it says so, and measures all.

    Args:
      options: the job's; its transform is that of the dataset, and is not used.
      base: the dataset.
      source: all input.
      new: what of it no run has measured.
      run: the run to write.
      report: called with notes about the analysis.
      allow_drift: no threshold of drift fails it.
    """
    own = base.manifest.preprocessing_fn
    options = dataclasses.replace(options, transform_from=None, preprocessing_fn=own, leakage=True)
    manifest = layout.join(base.path, layout.MANIFEST)
    function = load_preprocessing(options, source, asked=f"{manifest}: preprocessing_fn")
    work = Work(options, source, function, None, allow_drift=allow_drift, keeps_analysis=own is None)
    known, note = known_analyses(base)
    report([note])
    if known:
        assert isinstance(source, RowSource)  # noqa: S101 - see `open_all`
        try:
            copy_folder(base, layout.ANALYSIS, run.folder)
            reads, fresh = base.manifest.analyzed, dataclasses.replace(source, listing=new)
            return execute(dataclasses.replace(work, known=known, known_reads=reads, to_analyze=fresh), run)
        except Outdated as error:
            report([f"the analysis reads all input after all: {error}"])
            folders.remove(layout.join(run.folder, layout.ANALYSIS))
    return execute(work, run)
