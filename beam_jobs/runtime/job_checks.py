"""What a job is refused for before it begins, and its input, listed or opened. Imports nothing heavy."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence

from beam_jobs.core.options import JobOptions
from beam_jobs.core.source import RawFiles, Source
from beam_jobs.runtime.cluster_checks import check_cluster, read_or_written
from beam_jobs.runtime.sources import open_source
from schemas import storage
from schemas.dataset import layout
from schemas.dataset.prune import foreign
from schemas.errors import MillraceError, UsageError
from schemas.predictions.manifest import is_predictions
from schemas.spec import shipped
from schemas.spec.loader import AnySchema, load_schema
from schemas.spec.table import Schema


def check_inputs(options: JobOptions, report: Callable[[Sequence[str]], None] = storage.print_notes) -> Source:
    """Reads the schema and lists or opens the input. Imports nothing heavy.

    Raises:
      UsageError: the schema, the input or the output is invalid.
    """
    options = dataclasses.replace(options, schema=shipped.find(options.schema))
    schema = load_schema(options.schema, for_job=True)
    check_cluster(options, read_or_written(options, schema))
    check_output(options)
    storage.check_apart(options.input, options.output, inside=layout.EXAMPLES)
    check_comparison(options, schema)
    check_keeping(options, schema)

    duplicates: list[tuple[str, str]] = []
    listing = storage.list_files(options.input, on_duplicate=lambda *paths: duplicates.append(paths))
    report([storage.duplicate_note(kept, path) for kept, path in duplicates])
    return open_source(schema, RawFiles(options, storage.read_bytes(options.schema), listing, duplicates, report))


def check_output(options: JobOptions) -> None:
    """Refuses an output folder that contains other files, or a dataset, unless --overwrite is given."""
    names = storage.listdir(options.output)
    if storage.is_local(options.output) and os.path.lexists(options.output):
        if not os.path.isdir(options.output):
            raise UsageError(f"--output {options.output}: is not a folder; use a folder or a new name")
        storage.check_output(layout.join(options.output, layout.MANIFEST))
    if layout.MANIFEST in names and is_predictions(options.output):
        raise UsageError(f"--output {options.output}: holds predictions, and no dataset; use another folder")
    if layout.MANIFEST in names and not options.overwrite:
        raise UsageError(
            f"--output {options.output}: already contains a dataset. Give --overwrite to replace it "
            "once the new one is complete, or use another folder."
        )
    others = foreign(options.output)
    if others and layout.MANIFEST not in names:
        raise UsageError(
            f"--output {options.output}: holds {others[0]!r}, which is not part of a dataset. Use an empty or a new "
            "folder."
        )


def check_comparison(options: JobOptions, schema: AnySchema) -> None:
    """Refuses thresholds of drift without statistics, and a dataset to compare with that has none.

    Raises:
      UsageError: as above, or there is no such dataset.
    """
    if not options.statistics and schema.limits_drift:
        raise UsageError(
            f"--no_statistics: {options.schema} sets thresholds of drift, which need statistics; leave out either"
        )
    if options.compare_to is None:
        return
    if not options.statistics:
        raise UsageError("--compare_to compares statistics; leave out --no_statistics")
    from schemas.comparison import stored_samples
    from schemas.dataset import read_checked

    try:
        stored_samples(options.compare_to, read_checked(options.compare_to))
    except MillraceError as error:
        raise UsageError(f"--compare_to: {error}") from error


def check_keeping(options: JobOptions, schema: AnySchema) -> None:
    """Refuses to keep an analysis where there is none that could be kept.

    Raises:
      UsageError: the transform is given, the user's own function measures it, or these are images.
    """
    why = None
    if options.transform_from is not None:
        why = "with --transform_from nothing is measured"
    elif options.preprocessing_fn is not None:
        why = "what a --preprocessing_fn of your own measures cannot be kept"
    elif not isinstance(schema, Schema):
        why = "images are measured while they are read, once, and not in an analysis of its own"
    if options.keep_analysis and why is not None:
        raise UsageError(f"--keep_analysis: {why}; leave it out")
