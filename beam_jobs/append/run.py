"""An append: new input through the dataset's own transform, into a new run beside the old shards."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from beam_jobs.append.known import NewFiles, choose_new
from beam_jobs.append.options import AppendOptions
from beam_jobs.core import progress
from beam_jobs.core.source import RawFiles, Source
from beam_jobs.output.base import copy_files, open_base, statistics_of
from beam_jobs.runtime.cluster_checks import check_cluster
from beam_jobs.runtime.job import OtherTransform, Work, execute
from beam_jobs.runtime.new_run import load_libraries, new_run
from beam_jobs.runtime.sources import open_source
from schemas import storage
from schemas.dataset import Dataset, layout
from schemas.dataset.manifest import Manifest
from schemas.errors import UsageError
from schemas.spec.images import ImagePairsSchema

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
        """The records that were written."""
        return self.manifest.written - self.before.written


def run_append(options: AppendOptions, *, report: Report = storage.print_notes) -> Outcome:
    """Runs the append to its end. Where all input is known, and is to be skipped, the dataset stays as it is.

    Raises:
      UsageError: invalid usage; nothing was done.
      MillraceError: it failed; the dataset is as it was.
    """
    base = open_base(options.append_to, trust=options.trust)
    source, new = prepare(options, base, report)
    if source is None:
        return Outcome(base.manifest, base.manifest, new.skipped)
    with new_run(options.append_to) as run:
        now = open_base(options.append_to, trust=options.trust)
        if now.run != base.run:  # before the lease was ours, another job has committed
            base = now
            source, new = prepare(options, base, report)
            if source is None:
                return Outcome(base.manifest, base.manifest, new.skipped)
        if not options.quiet:
            progress.say("starting TensorFlow and Beam")
        load_libraries(verbose=options.verbose)
        job = options.job(base, statistics=statistics_of(base) is not None)
        transform = OtherTransform(base.graphs_dir, base.run, base.manifest.preprocessing_fn)
        work = Work(job, source, source.preprocessing_fn(), transform, onto=base, allow_drift=options.allow_drift)

        def body() -> Manifest:
            copy_files(base, run.folder)
            return execute(work, run)

        manifest = run.write(body, total=source.total, quiet=options.quiet, raw_bytes=source.raw_bytes)
    return Outcome(base.manifest, manifest, new.skipped)


def prepare(options: AppendOptions, base: Dataset, report: Report) -> tuple[Source | None, NewFiles]:
    """What is to be read: the new files, opened or listed. None if all are known.

    Raises:
      UsageError: the input does not match the schema, or is known and not to be skipped.
    """
    if isinstance(base.declared, ImagePairsSchema):
        raise UsageError(
            f"--append_to {base.path}: holds pairs of images, which are drawn from all images at once: with more "
            "images they would be others, and identities could change their splits. Write the dataset again with "
            "--overwrite."
        )
    job = options.job(base, statistics=True)
    check_cluster(job, {"--input": options.input, "--append_to": (options.append_to,)})
    duplicates: list[tuple[str, str]] = []
    listing = storage.list_files(options.input, on_duplicate=lambda *paths: duplicates.append(paths))
    report([storage.duplicate_note(kept, path) for kept, path in duplicates])
    new = choose_new(base, listing, skip_known=options.skip_known)
    report(new.notes)
    if not len(new.listing):
        return None, new
    text = storage.read_bytes(layout.join(base.run_dir, layout.SCHEMA_YAML))
    raw = RawFiles(job, text, new.listing, duplicates, report, classes=base.manifest.classes)
    return open_source(base.declared, raw), new
