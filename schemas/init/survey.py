"""Reads all columns of CSV files once, and counts what each column holds."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from schemas.csv.columns import ColumnBatch, open_columns, read_columns
from schemas.csv.file import CsvFile, read_beginning
from schemas.errors import UsageError, few
from schemas.init.cells import MASK, SurveyedColumn
from schemas.init.form import Form, NoRecordsError, detect, likelier_encoding
from schemas.profile.duplicates import HASH, RecordHashes
from schemas.spec.split_hash import splitmix64

SAMPLE_BYTES = 8 << 20
_BLOCK_BYTES, _WIDE_BLOCK_BYTES, _WIDE = 8 << 20, 32 << 20, 2_000  # wide tables: fewer batches of more rows
_DISTINCT, _ALL_DISTINCT = 5_000, 2_000_000  # values that are counted exactly: of a column, of all columns together
_SAMPLE_ROWS, _CELLS, _SAMPLE_MEMORY = 20_000, 4_000_000, 64 << 20  # of the random sample
_THREADS = 2

Progress = Callable[[int, float | None], None]  # records so far, and the share of the bytes where it is known


@dataclasses.dataclass
class Survey:
    """What files of one form hold.

    Attributes:
        form: how they are written.
        columns: what each column holds.
        sample: a random sample of the rows.
        rows: the number of valid records.
        read: the number of records.
        bad: by reason, the number of invalid records.
        hashes: the sum of the rows' hashes, modulo 2^64.
        fault: the file and the fault of the first of these.
        complete: whether all of the files was read.
    """

    form: Form
    columns: list[SurveyedColumn]
    sample: RecordHashes
    rows: int = 0
    read: int = 0
    bad: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    hashes: int = 0
    fault: str = ""
    complete: bool = True


def survey(paths: Sequence[str], *, sample: bool, progress: Progress = lambda rows, share: None) -> Survey:
    """Reads files to the end, or with `sample` the first megabytes of the first of them.

    Quoted line ends, and bytes that are no UTF-8, may come after the part that shows how a file is written. It is then
    read once more.

    Raises:
        UsageError: a file is no CSV, or has other columns than the first one.
        MillraceError: a file cannot be read.
    """
    form, paths = _common_form(paths, sample=sample)
    result = read_all(paths, form, sample=sample, progress=progress)
    if not form.options.quoted_newlines and result.bad["stray_quote"] + result.bad["unterminated_quote"]:
        spanning = form.with_options(quoted_newlines=True)
        reread = read_all(paths, spanning, sample=sample, progress=progress)
        if reread.rows > result.rows:  # else a quote that is never closed would take the rest of a file for one record
            result = reread
    if result.form.options.encoding == "utf-8" and (broken := sum(column.not_utf8 for column in result.columns)):
        encoding, note = likelier_encoding(broken, sum(column.beyond_ascii for column in result.columns))
        form = result.form.with_options(note, encoding=encoding)
        if encoding == "utf-8":
            result.form = form
        else:
            result = read_all(paths, form, sample=sample, progress=progress)
    if not result.rows:
        raise UsageError(f"no valid record was found in {result.fault or f'{paths[0]}: it has no records'}")
    return result


def _common_form(paths: Sequence[str], *, sample: bool) -> tuple[Form, list[str]]:
    """How files are written, and the files that have records; with `sample`, the first such file."""
    form, filled, empty = None, [], []
    for path in paths:
        try:
            if form is None:
                form = detect(path)
            else:
                _check_alike(path, form, filled[0])
            filled.append(path)
        except NoRecordsError:
            if len(paths) == 1:
                raise
            empty.append(path)
        if sample and filled:
            break
    if form is None:
        raise UsageError(f"{paths[0]}: none of {len(paths):,} files has a record; expected CSV records")
    return (form.with_options(f"no record is in {few(empty)}") if empty else form), filled


def _check_alike(path: str, form: Form, first: str) -> None:
    """Raises UsageError unless a file begins as the first one does; NoRecordsError if it is empty."""
    beginning = read_beginning(path, form.options)
    if beginning.span[0] == beginning.span[1]:
        raise NoRecordsError(f"{path}: the file is empty")
    fields = beginning.fields(form.options)
    if fields != form.names if form.names is not None else len(fields) != form.width:
        delimiter = "" if detect(path).options.delimiter == form.options.delimiter else ", and another delimiter"
        expected = f"the header {','.join(form.names)[:60]!r}" if form.names is not None else f"{form.width} columns"
        raise UsageError(
            f"{path}: begins with {form.options.delimiter.join(fields)[:60]!r}{delimiter}, but {first} has {expected}; "
            "give files of one form"
        )


def read_all(
    paths: Sequence[str],
    form: Form,
    *,
    sample: bool,
    progress: Progress,
    without: Mapping[str, np.ndarray] | None = None,
) -> Survey:
    """Reads files of a known form; see `survey`.

    Args:
        paths: the files.
        form: how they are written.
        sample: read the first megabytes of the first of them only.
        progress: called after each batch of records.
        without: by file, the byte offsets of records that are left out, int64 `[n]`.

    Raises:
        MillraceError: a file cannot be read.
    """
    limit = max(64, min(_DISTINCT, _ALL_DISTINCT // form.width))
    result = Survey(form, [SurveyedColumn(limit) for _ in range(form.width)], _row_sample(form.width))
    files = [open_columns(path, form.options, num_columns=form.width) for path in (paths[:1] if sample else paths)]
    sizes = [file.size - file.data_start if file.mode == "ranges" else file.size for file in files]
    total, done = max(1, sum(sizes)), 0
    block_bytes = SAMPLE_BYTES if sample else _WIDE_BLOCK_BYTES if form.width >= _WIDE else _BLOCK_BYTES
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="columns") as pool:
        for file, size in zip(files, sizes, strict=True):
            left_out = (without or {}).get(file.path, np.empty(0, np.int64))
            with contextlib.closing(read_columns(file, form.options, block_bytes=block_bytes)) as batches:
                for batch in batches:
                    _add(result, file, batch, np.isin(batch.offsets, left_out), pool)
                    progress(result.read, (done + batch.consumed) / total)
                    if sample:
                        plain = not file.gzip and not file.codec.startswith("utf-16")
                        result.complete = plain and len(paths) == 1 and batch.position >= file.size
                        break
            done += size
    for i, column in enumerate(result.columns):
        column.close(result.sample.table.column(str(i)).combine_chunks())
    return result


def _row_sample(width: int) -> RecordHashes:
    """An empty random sample of a table's rows, for columns of many values and for what columns show together."""
    fields = [(HASH, pa.uint64()), *((str(i), pa.binary()) for i in range(width))]
    return RecordHashes(pa.schema(fields), budget=_SAMPLE_MEMORY, most=max(200, min(_SAMPLE_ROWS, _CELLS // width)))


def _add(result: Survey, file: CsvFile, batch: ColumnBatch, drop: np.ndarray, pool: ThreadPoolExecutor) -> None:
    """Adds a batch to the columns and the sample, without the rows of `drop`."""
    keep = pa.array(~drop)
    columns = [column.filter(keep) for column in batch.columns] if drop.any() else batch.columns
    rows, width = len(columns[0]), len(columns)
    hashes = splitmix64(result.rows, rows)
    step = -(-width // (4 * _THREADS))

    def work(start: int) -> None:
        for position in range(start, min(start + step, width)):
            result.columns[position].add(columns[position], hashes)

    if rows:
        list(pool.map(work, range(0, width, step)))
        result.sample.add({HASH: hashes, **{str(i): column for i, column in enumerate(columns)}})
    result.hashes = (result.hashes + int(hashes.sum(dtype=np.uint64))) & MASK
    result.rows += rows
    result.read += batch.read
    result.bad += batch.bad
    if batch.fault is not None and not result.fault:
        offset, detail = batch.fault
        result.fault = f"{file.path} at byte {offset:,}: {detail}"
