"""Reads files once, all columns of them: what each column holds."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.csv.columns import ColumnBatch, open_columns, read_columns
from schemas.csv.file import CsvFile, read_beginning
from schemas.csv.values import as_text
from schemas.errors import UsageError, few
from schemas.init.form import Form, NoRecordsError, detect, told_encoding
from schemas.profile.duplicates import HASH, RecordHashes
from schemas.profile.raw_columns import ColumnProfile, row_sample
from schemas.spec.split_hash import splitmix64

SAMPLE_BYTES = 8 << 20
_BLOCK_BYTES, _WIDE_BLOCK_BYTES, _WIDE = 8 << 20, 32 << 20, 2_000  # wide tables: fewer batches of more rows
_DISTINCT, _ALL_DISTINCT = 5_000, 2_000_000  # values that are counted exactly: of a column, of all columns together
_THREADS = 2

Progress = Callable[[int, float | None], None]  # records so far, and the share of the bytes where it is known


@dataclasses.dataclass
class Survey:
    """What files of one form hold.

    Attributes:
        form: how they are written.
        columns: what each column holds.
        rows: the number of valid records.
        read: the number of records.
        sample: a random sample of the rows.
        bad: by reason, the number of invalid records.
        examples: by reason, the file, the byte offset and the fault of the first of them.
        complete: whether all of the files was read.
        header_again: the file and the byte offset where the header stands once more.
    """

    form: Form
    columns: list[ColumnProfile]
    sample: RecordHashes
    rows: int = 0
    read: int = 0
    bad: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    examples: dict[str, tuple[str, int, str]] = dataclasses.field(default_factory=dict)
    complete: bool = True
    header_again: tuple[str, int] | None = None

    def name(self, position: int) -> str | None:
        """A column's name in the header; None where it has none."""
        return self.form.names[position] or None if self.form.names is not None else None

    def called(self, position: int) -> str:
        """A column, for messages."""
        name = self.name(position)
        return f"column {position}" if name is None else repr(name)


def survey(paths: Sequence[str], *, sample: bool, progress: Progress = lambda rows, share: None) -> Survey:
    """Reads files to the end, or with `sample` the first megabytes of the first of them.

    Quoted line ends, and bytes that are no UTF-8, may come after the part that shows how a file is written. It is then
    read once more.

    Raises:
        UsageError: a file is no CSV, or has other columns than the first one.
        MillraceError: a file cannot be read.
    """
    form, empty = _first_with_records(paths)
    for path in paths[len(empty) + 1 :] if not sample else ():
        beginning = read_beginning(path, form.options)
        fields = beginning.fields(form.options)
        if beginning.span[0] == beginning.span[1]:
            empty.append(path)
        elif fields != form.names if form.names is not None else len(fields) != form.width:
            raise UsageError(f"{path}: {_differs(form, detect(path), paths[0])}; give files of one form")
    if empty:
        form = dataclasses.replace(form, notes=(*form.notes, f"no record is in {few(empty)}"))
    paths = [path for path in paths if path not in empty]
    result = read_all(paths, form, sample=sample, progress=progress)
    if not form.options.quoted_newlines and result.bad["stray_quote"] + result.bad["unterminated_quote"]:
        spanning = form.options.model_copy(update={"quoted_newlines": True})
        reread = read_all(paths, dataclasses.replace(form, options=spanning), sample=sample, progress=progress)
        if reread.rows > result.rows:  # else a quote that is never closed would take the rest of a file for one record
            result = reread
    again = _other_encoding(result)
    if again is not None and again.options != result.form.options:
        result = read_all(paths, again, sample=sample, progress=progress)
    elif again is not None:
        result.form = again
    if not result.rows:
        reason = next(iter(result.examples.values()), (paths[0], 0, "it has no records"))
        raise UsageError(f"{reason[0]}: no valid record was found: {reason[2]}")
    return result


def _first_with_records(paths: Sequence[str]) -> tuple[Form, list[str]]:
    """How the first file that has records is written, and the files before it, which have none."""
    empty: list[str] = []
    for path in paths:
        try:
            return detect(path), empty
        except NoRecordsError:
            if len(paths) == 1:
                raise
            empty.append(path)
    raise UsageError(f"{paths[0]}: none of {len(paths):,} files has a record; expected CSV records")


def _differs(first: Form, other: Form, path: str) -> str:
    """How a file is written otherwise than the first one, whose path is given."""
    if first.width != other.width:
        return f"has {other.width} columns, others than {path}"
    if first.names is not None and other.names is None:
        return f"lacks the header of {path}, {','.join(first.names)[:60]!r}"
    return f"has {'other column names' if first.names != other.names else 'another delimiter'} than {path}"


def _other_encoding(result: Survey) -> Form | None:
    """How the files should rather be read; None if the form fits."""
    options = result.form.options
    wrong = sum(column.not_utf8 for column in result.columns)
    if options.encoding == "utf-8" and wrong:
        encoding, note = told_encoding(wrong, sum(column.beyond_ascii for column in result.columns))
        options = options.model_copy(update={"encoding": encoding})
        return dataclasses.replace(result.form, options=options, notes=(*result.form.notes, note))
    return None


def read_all(
    paths: Sequence[str],
    form: Form,
    *,
    sample: bool,
    progress: Progress,
    without: Mapping[str, np.ndarray] | None = None,
) -> Survey:
    """Reads files that are written in a way that is known; see `survey`.

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
    columns = [ColumnProfile(limit) for _ in range(form.width)]
    result = Survey(form, columns, row_sample(form.width))
    block_bytes = _WIDE_BLOCK_BYTES if form.width >= _WIDE else _BLOCK_BYTES
    files = [open_columns(path, form.options, num_columns=form.width) for path in (paths[:1] if sample else paths)]
    sizes = [file.size - file.data_start if file.mode == "ranges" else file.size for file in files]
    total, done = max(1, sum(sizes)), 0
    block_bytes = min(block_bytes, SAMPLE_BYTES) if sample else block_bytes
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="columns") as pool:
        for file, size in zip(files, sizes, strict=True):
            with contextlib.closing(read_columns(file, form.options, block_bytes=block_bytes)) as batches:
                left_out = (without or {}).get(file.path, np.empty(0, np.int64))
                for batch in batches:
                    _add(result, file, _records_of(batch, result, file.path, left_out), pool)
                    progress(result.read, (done + batch.consumed) / total)
                    if sample:
                        plain = not file.gzip and not file.codec.startswith("utf-16")
                        result.complete = plain and len(paths) == 1 and batch.position >= file.size
                        break
            done += size
    return result


def _equal(batch: ColumnBatch, fields: Sequence[str]) -> np.ndarray:
    """bool `[n]`: which records have these fields."""
    same = np.ones(len(batch.offsets), bool)
    for column, field in zip(batch.columns, fields, strict=True):
        if same.any():
            same &= np.asarray(pc.equal(pc.ascii_trim_whitespace(as_text(column)).view(pa.binary()), field.encode()))
    return same


def _records_of(batch: ColumnBatch, result: Survey, path: str, left_out: np.ndarray) -> ColumnBatch:
    """The batch without lines that are no records, and without the records at some byte offsets."""
    drop = np.isin(batch.offsets, left_out)
    if result.form.names is not None:
        first, *rest = result.form.names
        headers = _equal(batch, (first, *rest)) | _equal(
            batch, (f"\ufeff{first}", *rest)
        )  # of a file in UTF-8 with mark
        if headers.any() and result.header_again is None:
            result.header_again = path, int(batch.offsets[headers.argmax()])
        drop |= headers
    if result.form.units is not None:
        drop |= _equal(batch, result.form.units)
    if not drop.any():
        return batch
    columns = tuple(column.filter(pa.array(~drop)) for column in batch.columns)
    return dataclasses.replace(batch, columns=columns, offsets=batch.offsets[~drop])


def _add(result: Survey, file: CsvFile, batch: ColumnBatch, pool: ThreadPoolExecutor) -> None:
    rows = len(batch.offsets)
    hashes = splitmix64(result.rows, rows)
    width = len(batch.columns)
    step = -(-width // (4 * _THREADS))

    def work(start: int) -> None:
        for position in range(start, min(start + step, width)):
            result.columns[position].add(batch.columns[position], hashes)

    if rows:
        list(pool.map(work, range(0, width, step)))
        result.sample.add({HASH: hashes, **{str(i): column for i, column in enumerate(batch.columns)}})
    result.rows += rows
    result.read += batch.read
    result.bad += batch.bad
    for reason, (offset, detail) in batch.examples.items():
        result.examples.setdefault(reason, (file.path, offset, detail))
