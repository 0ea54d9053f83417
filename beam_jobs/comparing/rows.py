"""The statistics of raw files of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from beam_jobs.comparing.raw import Progress, RawFiles
from beam_jobs.statistics.collect import Collector, Described
from beam_jobs.statistics.columns import columns_of
from schemas.errors import UsageError
from schemas.formats import row_format
from schemas.rows import RowRange
from schemas.spec.features import Key, Weight
from schemas.spec.table import Schema

RANGE_BYTES = 8 << 20
SAMPLE_BYTES = 256 << 10  # of the ranges that a sample is read from


def read_rows(
    paths: Sequence[str],
    schema: Schema,
    *,
    max_input_ratio: float,
    sample: int | None = None,
    progress: Progress = lambda done, share: None,
) -> RawFiles:
    """Reads files of rows as a job would read them, up to its transform.

    Args:
      paths: the files. They may lack the label, the weight and the key, and have other columns.
      schema: of the dataset that they are compared with.
      max_input_ratio: how many times its size a gzip file may decompress to.
      sample: how many records are enough, spread over the files; None: all.
      progress: called with the records read so far and the share of the bytes.

    Raises:
      UsageError: a file does not fit the schema, or no record can be read.
      MillraceError: a file cannot be read.
    """
    form = row_format(schema)
    files = [form.open_file(path, schema, label="as_found", max_input_ratio=max_input_ratio) for path in paths]
    filled = [file for file in files if file.labels]
    known = {name for file in filled for name, _ in file.labels}
    for file in filled:
        if known != {name for name, _ in file.labels}:
            lacking = sorted(known - {name for name, _ in file.labels})
            raise UsageError(
                f"{file.path}: has no column of {', '.join(lacking)}, which other files have; compare them one by one"
            )
    result = RawFiles(len(paths), lacks=_lacking(schema, known) if filled else ())
    columns = tuple(column for column in columns_of(schema) if column.name in known)
    collector = Collector(Described(columns))
    parts = [part for file in filled for part in form.plan_ranges(file, range_bytes=_range_bytes(sample))]
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
                collector.add(batch, np.zeros(batch.num_rows, np.int8))
            progress(result.read, min(1.0, (done + decoded.consumed) / total))
        done += part.covers
    result.describe(collector.finish().to_bytes())
    return result.check(paths[0])


def _lacking(schema: Schema, known: set[str]) -> tuple[str, ...]:
    optional = [item for item in schema.items if item is schema.label or isinstance(item, Key | Weight)]
    return tuple(item.name for item in optional if item.name not in known)


def _range_bytes(sample: int | None) -> int:
    return RANGE_BYTES if sample is None else SAMPLE_BYTES


def _spread(parts: Sequence[RowRange]) -> Iterator[RowRange]:
    """The ranges in an order in which the first ones are from all over the files: the same one each time."""
    yield from (parts[i] for i in np.random.default_rng(0).permutation(len(parts)))
