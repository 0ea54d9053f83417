"""Reads raw files by the schema of a dataset and collects their statistics, to compare the files with the dataset."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from schemas.comparison import Sample, samples_of
from schemas.errors import UsageError, counted
from schemas.formats import row_format
from schemas.images.listing import ImageBundle, list_csv, list_folders
from schemas.profile.columns import columns_of
from schemas.profile.statistics import Statistics
from schemas.rejects import Reject
from schemas.rows import RowRange
from schemas.spec import images as key
from schemas.spec.features import Key, Weight
from schemas.spec.images import ImageSchema
from schemas.spec.table import Schema

Progress = Callable[[int, float | None], None]  # takes the number of records read so far, and the share of the input


@dataclasses.dataclass
class RawContents:
    """The contents of raw files, summarized.

    Attributes:
      files: the number of files.
      sample: the statistics of the accepted records; None if no record was accepted.
      read: the number of records that were read.
      rejected: the number of rejected records, by reason.
      examples: the first rejected record of each reason: its file, its place, and what is wrong with it.
      lacks: the names of the label, the weight and the key if the files have no such columns.
      complete: whether all records were read; False for a sample.
    """

    files: int
    sample: Sample | None = None
    read: int = 0
    rejected: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    examples: dict[str, tuple[str, int, str]] = dataclasses.field(default_factory=dict)
    lacks: tuple[str, ...] = ()
    complete: bool = True

    def refuse(self, rejects: Sequence[Reject]) -> None:
        """Counts rejects by reason, and keeps the first one of each reason as an example."""
        for reject in rejects:
            self.rejected[reject.reason] += 1
            self.examples.setdefault(reject.reason, (reject.source, reject.offset, reject.detail))

    def describe(self, statistics: Statistics) -> None:
        """Sets `sample` to the statistics of the records, which are all counted under the same split."""
        self.sample = next(iter(samples_of(statistics).values()), None)

    def check(self, first: str) -> RawContents:
        """Returns this object if it holds a record. `first`: the first path, for the message.

        Raises:
          UsageError: no record was accepted.
        """
        if self.sample is None:
            bad = next(iter(self.examples.values()), None)
            why = f"; {bad[0]}, at {bad[1]:,}: {bad[2]}" if bad else ""
            raise UsageError(f"{first}: none of {counted(self.read, 'records')} can be compared{why}")
        return self


RANGE_BYTES = 8 << 20  # the size of the ranges of files that are read
SAMPLE_BYTES = 256 << 10  # the size of the ranges if only a sample is read


def read_rows(
    paths: Sequence[str],
    schema: Schema,
    *,
    max_input_ratio: float,
    sample: int | None = None,
    progress: Progress = lambda done, share: None,
) -> RawContents:
    """Reads files of rows as a job would read them, up to its transform.

    Args:
      paths: the files. They may lack the label, the weight and the key, and have other columns.
      schema: the schema of the dataset that the files are compared with.
      max_input_ratio: how many times its size a gzip file may decompress to.
      sample: stop after about this many records, from ranges spread over the files; None: read all records.
      progress: called with the number of records read so far and the share of the bytes.

    Raises:
      UsageError: a file does not fit the schema, or no record can be read.
      MillraceError: a file cannot be read.
    """
    form = row_format(schema)
    files = [form.open_file(path, schema, label="if_present", max_input_ratio=max_input_ratio) for path in paths]
    filled = [file for file in files if file.labels]
    present = {name for file in filled for name, _ in file.labels}
    for file in filled:
        if present != {name for name, _ in file.labels}:
            lacking = sorted(present - {name for name, _ in file.labels})
            raise UsageError(
                f"{file.path}: has no column of {', '.join(lacking)}, which other files have; compare them one by one"
            )
    result = RawContents(len(paths), lacks=_lacking(schema, present) if filled else ())
    columns = tuple(column for column in columns_of(schema) if column.name in present)
    statistics = Statistics(columns)
    range_bytes = RANGE_BYTES if sample is None else SAMPLE_BYTES
    parts = [part for file in filled for part in form.plan_ranges(file, range_bytes=range_bytes)]
    done, total = 0, max(1, sum(part.covers for part in parts))
    for part in _spread(parts) if sample is not None else parts:
        if sample is not None and result.read >= sample:
            result.complete = False
            break
        for decoded in form.read_range(part, schema, with_split=False):
            result.read += decoded.read
            result.refuse(decoded.rejects)
            if decoded.batch.num_rows:
                batch = decoded.batch.select([column.name for column in columns])
                statistics.add(batch, np.zeros(batch.num_rows, np.int8))
            progress(result.read, min(1.0, (done + decoded.consumed) / total))
        done += part.covers
    result.describe(statistics)
    return result.check(paths[0])


def _lacking(schema: Schema, present: set[str]) -> tuple[str, ...]:
    """The names of the label, weight and key that are not among the columns `present`."""
    optional = [item for item in schema.items if item is schema.label or isinstance(item, Key | Weight)]
    return tuple(item.name for item in optional if item.name not in present)


def _spread(parts: Sequence[RowRange]) -> Iterator[RowRange]:
    """Yields the ranges in a random order, which is the same in each run, so that the first ones are a sample."""
    yield from (parts[i] for i in np.random.default_rng(0).permutation(len(parts)))


AT_ONCE = 64  # the number of images that are read at once


def read_images(
    paths: Sequence[str],
    schema: ImageSchema,
    classes: Sequence[str],
    *,
    sample: int | None,
    progress: Progress,
) -> RawContents:
    """Decodes and resizes images as the dataset's job did, and measures them.

    Args:
      paths: images in folders of their classes, or the CSV file that lists them, as the schema says.
      schema: the schema of the dataset that the images are compared with.
      classes: the classes of that dataset. If no image has one of these labels, the images count as unlabelled.
      sample: read a random sample of this many images; None: read all images.
      progress: called with the number of images read so far and their share.

    Raises:
      UsageError: no image can be read.
    """
    from beam_jobs.images.facts import described_images, facts_columns
    from beam_jobs.images.reader import ImageReader

    listed = list_folders(paths) if schema.images.root is None else list_csv(paths[0], schema.images.root)
    labelled = bool(set(listed.labels) & set(classes))
    result = RawContents(len(paths), lacks=() if labelled else (key.TEXT,))
    result.refuse(listed.rejects)
    result.read = len(listed.rejects)
    places = np.arange(len(listed.paths))
    if sample is not None and len(places) > sample:
        places = np.sort(np.random.default_rng(0).permutation(places)[:sample])
        result.complete = False
    statistics = Statistics(column for column in described_images() if labelled or column.role != "label")
    every = {*classes, *listed.labels}  # new classes are not rejected here; the comparison shows them as unseen values
    with ImageReader(schema.images, classes=sorted(every), split=schema.split) as reader:
        for start in range(0, len(places), AT_ONCE):
            chosen = places[start : start + AT_ONCE].tolist()
            names = (
                tuple(listed_column[i] for i in chosen) for listed_column in (listed.paths, listed.names, listed.labels)
            )
            for batch in reader.read(ImageBundle(start, *names)):
                result.read += batch.read
                result.refuse(batch.rejects)
                if batch.records.num_rows:
                    arrays = facts_columns(batch.facts) | {key.TEXT: batch.records.column(key.TEXT)}
                    described = pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
                    statistics.add(described, np.zeros(described.num_rows, np.int8))
            progress(result.read, min(1.0, (start + len(chosen)) / len(places)))
    result.describe(statistics)
    return result.check(paths[0] if paths else "the input")
