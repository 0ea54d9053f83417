"""Estimates from a sample of the input what a job would read, reject and write. Writes nothing.

A sample of rows is decoded without TensorFlow and Beam. A sample of images is decoded as in a job, which needs both
libraries.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.core.options import JobOptions
from beam_jobs.core.source import JobInput, JobSource, list_input
from beam_jobs.images.source import ImageSource
from beam_jobs.rows.children import workers_by_default
from beam_jobs.rows.source import open_row_file
from beam_jobs.runs.job import check_options, load_preprocessing, open_transform
from beam_jobs.runs.run import load_libraries, open_source
from schemas import command, storage
from schemas.display import ReadingDisplay
from schemas.errors import MillraceError, UsageError, counted
from schemas.formats import row_format
from schemas.images.listing import ImageBundle
from schemas.reject_counts import RejectCounts, fraction_needed
from schemas.rows import BATCH_BYTES, RowFile, RowRange
from schemas.spec.features import Ignore, Numeric, NumericLabel, Text
from schemas.spec.split_hash import file_split
from schemas.spec.table import SPLIT, SPLITS, FileSplit, Schema

SAMPLE_BYTES = 32 << 20  # the size of a sample of rows; a smaller input is read completely
PLACES = 16  # the number of places in the files at which rows are read
IMAGES = 500  # the number of images in a sample
START_SECONDS = 5.0  # assumed: the time for starting TensorFlow and Beam, and for the commit
TIMES_DECODING = 3.0  # assumed: the CPU time of a job on rows, as a multiple of the time for decoding alone
RECORD_BYTES = 16  # assumed: header and footer of each record in a shard
NUMBER_BYTES, ID_BYTES = 4, 2  # assumed: the bytes of a number, and of an id, in a record
FEATURE_BYTES = 10  # assumed: the bytes of each feature in a record, without its name and its values


@dataclasses.dataclass
class Tried:
    """The sample of the input, decoded as the job would decode it.

    Attributes:
      share: the sample's share of the input, from 0 to 1.
      counts: the number of records in the sample, and of rejects by reason.
      splits: the number of accepted records of each split.
      bytes: the estimated size of the accepted records in shards.
      seconds: the time that decoding took.
    """

    share: float = 0.0
    counts: RejectCounts = dataclasses.field(default_factory=RejectCounts)
    splits: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    bytes: float = 0.0
    seconds: float = 0.0

    def add_splits(self, column: np.ndarray) -> None:
        """Counts accepted records by split. `column`: the index in SPLITS of each record's split, int `[records]`."""
        for split, count in zip(SPLITS, np.bincount(column, minlength=len(SPLITS)).tolist(), strict=True):
            if count:
                self.splits[split] += count


@dataclasses.dataclass(frozen=True)
class DryRun:
    """The estimate of what a job would do.

    Attributes:
      noun: the name of the records: "rows" or "images".
      files, size: the number of input files, and their size in bytes.
      sample: the sample that was decoded.
      records: the estimated number of records in the input.
      rejected: the estimated number of rejected records.
      splits: the estimated number of written records of each split.
      bytes: the estimated size of the dataset.
      seconds: the estimated time of the job with `workers` processes on this machine. If `workers` is 0, the CPU time
        of all workers of a cluster together.
      workers: the number of processes of a local job; 0: the job would run on a cluster.
      problems: the reasons why the job would be refused; empty if the job would start.
      fraction: the --max_reject_fraction that the job needs; None if the given one is large enough.
    """

    noun: str
    files: int
    size: int
    sample: Tried
    records: int
    rejected: int
    splits: Mapping[str, int]
    bytes: int
    seconds: float
    workers: int
    problems: Sequence[str]
    fraction: float | None

    def as_text(self) -> str:
        """Returns the report as text, in several lines."""
        read, about = self.sample.counts.read, "" if self.sample.share == 1 else "about "
        part = "all" if self.sample.share == 1 else f"{100 * self.sample.share:.2g} %"
        tried = f"{counted(read, self.noun)}, {part} of it, tried"
        lines = [f"input      {counted(self.files, 'files')}, {command.size(self.size)}; {tried}"]
        if read:
            lines.append(f"read       {about}{counted(self.records, self.noun)}")
            lines += [f"{name:<10} {about}{counted(rows, self.noun)}" for name, rows in self.splits.items()]
            lines.append(f"rejected   {about}{counted(self.rejected, self.noun)}")
            for (reason, column), count in self.sample.counts.by_reason.most_common():
                where = f" in {column!r}" if column else ""
                example = self.sample.counts.examples[reason, column]
                lines.append(f"  {reason}{where}: {count:,} of {read:,} tried; first {example}")
            place = f"here (--workers {self.workers})" if self.workers else "of CPU time, of all workers together"
            lines.append(f"dataset    about {command.size(self.bytes)}")
            lines.append(f"time       about {command.duration(self.seconds)} {place}")
        lines += [f"refused    {problem}" for problem in self.problems]
        lines.append(f"the job would {'be refused' if self.problems else 'start'}; nothing was written")
        return "\n".join(lines)

    def as_data(self) -> dict[str, Any]:
        """Returns the report as JSON values, for --json."""
        counts = self.sample.counts
        return {
            "would_start": not self.problems,
            "problems": list(self.problems),
            "max_reject_fraction": self.fraction,
            "input": {"files": self.files, "bytes": self.size},
            "sample": {
                "share": self.sample.share,
                "read": counts.read,
                "rejected": [
                    {"reason": key[0], "column": key[1] or None, "records": count, "first": counts.examples[key]}
                    for key, count in counts.by_reason.most_common()
                ],
            },
            "read": self.records,
            "rejected": self.rejected,
            "splits": dict(self.splits),
            "bytes": self.bytes,
            "seconds": self.seconds,
            "workers": self.workers,
        }


def dry_run(options: JobOptions) -> DryRun:
    """Checks the options, the schema and the input of a job, decodes a sample of the input, and estimates the rest.

    Problems with the input, such as a file that does not fit the schema, are in the result and are not raised.

    Raises:
      UsageError: an option, the schema or the output is invalid, or there is no such input.
      MillraceError: the input cannot be read.
    """
    options, schema = check_options(options)
    listing, duplicates = list_input(options.input, storage.print_notes)
    listing.check_names()
    problems: list[str] = []
    files: list[RowFile] = []
    if isinstance(schema, Schema):
        files = _open_files(schema, sorted(file.path for file in listing), options, problems)
    source = None
    if not problems:
        text = storage.read_bytes(options.schema)
        raw = JobInput(options, text, listing, duplicates, storage.print_notes)
        with _noted(problems):
            source = open_source(schema, raw)
    if source is not None:
        open_transform(options, source)
        load_preprocessing(options.preprocessing_fn)
    if isinstance(schema, Schema):
        sample = _sample_rows(schema, files)
        workers = (options.workers or workers_by_default(listing.bytes)) if options.is_local else 0
        work = TIMES_DECODING * sample.seconds
    else:
        sample = _sample_images(source, options) if isinstance(source, ImageSource) else Tried()
        workers = int(options.is_local)
        work = sample.seconds
    noun = "rows" if isinstance(schema, Schema) else "images"
    return _estimate(options, sample, source, problems, noun, work, workers, listing)


def _estimate(
    options: JobOptions,
    sample: Tried,
    source: JobSource | None,
    problems: list[str],
    noun: str,
    work: float,
    workers: int,
    listing: storage.Listing,
) -> DryRun:
    """Estimates the results for the whole input, in proportion to the sample.

    Adds a problem if too many records would be rejected, or if a split would be empty.

    Args:
      options: the job's options.
      sample: the sample.
      source: the source of the job; None: it could not be opened.
      problems: the problems found so far; new ones are added to this list.
      noun: the name of the records.
      work: the CPU time in seconds that a job needs for the sample.
      workers: the number of processes of a local job; 0: the job would run on a cluster.
      listing: the input files.
    """
    counts, share, complete = sample.counts, sample.share or 1.0, sample.share == 1
    records, rejected = counts.read / share, counts.rejected / share
    fraction = None
    if counts.read and counts.rejected == counts.read:
        problems.append(f"all {noun} that were tried would be rejected: {counts.read:,}")
    elif counts.read and not options.reject_limit.allows(round(rejected), round(records)):
        fraction = fraction_needed(rejected, records, complete=complete)
        about = "" if complete else "about "
        problems.append(
            f"{about}{rejected:,.0f} of {counted(round(records), noun)} would be rejected, more than --max_rejects "
            f"{options.max_rejects} and --max_reject_fraction {options.max_reject_fraction:g} allow; correct the input "
            f"or the schema, or give --max_reject_fraction {fraction:g}"
        )
    elif source is not None and complete:
        problems += [
            f"the split {split!r} is empty: it got none of {counted(counts.read, noun)}. Increase its fraction in the "
            "schema, set it to 0 to drop the split, or add input"
            for split in source.schema.split_names
            if not sample.splits[split]
        ]
    return DryRun(
        noun,
        len(listing),
        listing.bytes,
        sample,
        records=round(records),
        rejected=round(rejected),
        splits={split: round(sample.splits[split] / share) for split in SPLITS if sample.splits[split]},
        bytes=round(sample.bytes / share),
        seconds=START_SECONDS + work / share / max(1, workers),
        workers=workers,
        problems=problems,
        fraction=fraction,
    )


@contextlib.contextmanager
def _noted(problems: list[str]) -> Iterator[None]:
    """Adds the message of a UsageError in the block to `problems`."""
    try:
        yield
    except UsageError as error:
        problems.append(str(error))


def _open_files(schema: Schema, paths: Sequence[str], options: JobOptions, problems: list[str]) -> list[RowFile]:
    """Opens every file, and returns those that fit the schema. Adds the errors of the other files to `problems`."""

    def opened(path: str) -> RowFile | MillraceError:
        try:
            if isinstance(schema.split, FileSplit):
                file_split(path, schema.split)
            return open_row_file(path, schema, options.max_input_ratio)
        except MillraceError as error:
            return error

    files: list[RowFile] = []
    with ReadingDisplay(quiet=options.quiet, what="files", doing="opening") as display:
        for start in range(0, len(paths), PLACES):
            for result in storage.for_each(paths[0], opened, paths[start : start + PLACES]):
                if isinstance(result, MillraceError):
                    problems.append(str(result))
                else:
                    files.append(result)
            display(start, start / len(paths))
    return files


def _sample_rows(schema: Schema, files: Sequence[RowFile]) -> Tried:
    """Decodes rows at about PLACES places, spread over the files, or all rows of a small input."""
    sample, form = Tried(), row_format(schema)
    files = [file for file in files if file.covers]
    total = sum(file.covers for file in files)
    whole = total <= SAMPLE_BYTES
    # `-(-a // b)` divides and rounds up. With many files, reads one place in every n-th file; with few files, several
    # places in each file. A file is cut into as many ranges as it has places, and only the start of a range is read.
    chosen = files if whole else files[:: -(-len(files) // PLACES)]
    places = -(-PLACES // max(1, len(chosen)))
    budget = SAMPLE_BYTES // (places * max(1, len(chosen)))  # the bytes to read at each place
    taken = 0
    for file in chosen:
        ranges: Sequence[RowRange] = form.plan_ranges(file, range_bytes=max(budget, -(-file.size // places)))
        for part in ranges:
            read, began = part.covers, time.process_time()
            for decoded in form.read_range(part, schema, with_split=True, batch_bytes=min(budget, BATCH_BYTES)):
                sample.seconds += time.process_time() - began
                sample.counts.add_rows(file.path, decoded, schema)
                sample.add_splits(np.asarray(decoded.batch.column(SPLIT)))
                sample.bytes += _stored_bytes(schema, decoded.batch)
                if not whole and decoded.consumed >= budget:
                    read = min(read, decoded.consumed)
                    break
                began = time.process_time()
            taken += read
    sample.share = min(1.0, taken / total) if total else 0.0
    return sample


def _stored_bytes(schema: Schema, batch: pa.RecordBatch) -> float:
    """Estimates the size of rows in shards: 4 bytes for a number, 2 for an id, half of its length for a text."""
    size = 0.0
    for item in schema.items:
        if isinstance(item, Ignore):
            continue
        size += batch.num_rows * (FEATURE_BYTES + len(item.name))
        values = batch.column(item.name).flatten() if item.name in batch.schema.names else None
        if isinstance(item, Numeric | NumericLabel) and values is not None:
            size += NUMBER_BYTES * len(values)
        elif isinstance(item, Text) and values is not None:
            size += (pc.sum(pc.binary_length(values)).as_py() or 0) / 2
        else:
            size += ID_BYTES * batch.num_rows
    return size + RECORD_BYTES * batch.num_rows


def _sample_images(source: ImageSource, options: JobOptions) -> Tried:
    """Decodes about IMAGES images, evenly spaced in the listing."""
    load_libraries(verbose=options.verbose, quiet=options.quiet)
    from beam_jobs.images.reader import ImageReader

    step = -(-source.total // IMAGES)
    bundle = _every(source.bundles(), step)
    listed = itertools.chain.from_iterable(source.listed.rejects())
    sample = Tried(share=len(bundle.paths) / source.total)
    refused = list(itertools.islice(listed, 0, None, step))
    sample.counts.add_images(len(refused), refused)
    began = time.monotonic()
    with ImageReader(source.schema.images, classes=source.classes, split=source.schema.split) as reader:
        for batch in reader.read(bundle):
            sample.counts.add_images(batch.read, batch.rejects)
            sample.add_splits(np.asarray(batch.records.column(SPLIT).flatten()))
            sample.bytes += batch.records.nbytes
    sample.seconds = time.monotonic() - began
    return sample


def _every(bundles: Iterator[ImageBundle], step: int) -> ImageBundle:
    """Returns every `step`-th image of the bundles, as one bundle."""
    images = (
        (bundle.paths[i], bundle.names[i], bundle.labels[i]) for bundle in bundles for i in range(len(bundle.paths))
    )
    paths, names, labels = zip(*itertools.islice(images, 0, None, step), strict=True)
    return ImageBundle(0, paths, names, labels)
