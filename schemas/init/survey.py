"""Reads files once, all columns of them, and gathers what each column holds."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from schemas.csv.columns import ColumnBatch, open_columns, read_columns
from schemas.csv.file import CsvFile
from schemas.errors import UsageError
from schemas.init.dialect import Found, detect, told_encoding
from schemas.profile.duplicates import HASH, RecordHashes
from schemas.profile.raw_columns import MAX_BYTES, ColumnProfile, row_sample
from schemas.spec.split_hash import splitmix64

SAMPLE_BYTES = 8 << 20
_BLOCK_BYTES, _WIDE_BLOCK_BYTES, _WIDE = 8 << 20, 32 << 20, 2_000  # wide tables: fewer batches of more rows
_DISTINCT, _ALL_DISTINCT = 5_000, 2_000_000  # values that are counted exactly: of a column, of all columns together
_ALL_BYTES = 256 << 20  # of these values
_THREADS = 2

Progress = Callable[[int, float | None], None]  # records so far, and the share of the bytes where it is known


@dataclasses.dataclass
class Survey:
    """What files of one form hold.

    Attributes:
        found: how they are written.
        columns: what each column holds.
        rows: the number of valid records.
        read: the number of records.
        sample: a random sample of the rows.
        bad: by reason, the number of invalid records.
        examples: by reason, the file, the byte offset and the fault of the first of them.
        complete: whether all of the files was read.
    """

    found: Found
    columns: list[ColumnProfile]
    sample: RecordHashes
    rows: int = 0
    read: int = 0
    bad: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    examples: dict[str, tuple[str, int, str]] = dataclasses.field(default_factory=dict)
    complete: bool = True

    def name(self, position: int) -> str | None:
        """A column's name in the header; None where it has none."""
        return self.found.names[position] or None if self.found.names is not None else None

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
    found = detect(paths[0])
    for path in paths[1:] if not sample else ():
        other = detect(path)
        if (other.names, other.width, other.options.delimiter) != (found.names, found.width, found.options.delimiter):
            raise UsageError(f"{path}: {_differs(found, other)} than {paths[0]}; give files of one form")
    result = _read(paths, found, sample=sample, progress=progress)
    again = _correction(result)
    if again is not None and again.options == result.found.options:
        result.found = again
    elif again is not None:
        reread = _read(paths, again, sample=sample, progress=progress)
        if sum(reread.bad.values()) <= sum(result.bad.values()):
            result = reread
    if not result.rows:
        reason = next(iter(result.examples.values()), (paths[0], 0, "it has no records"))
        raise UsageError(f"{reason[0]}: no valid record was found: {reason[2]}")
    return result


def _differs(first: Found, other: Found) -> str:
    if first.width != other.width:
        return f"has {other.width} columns, others"
    return "has other column names" if first.names != other.names else "has another delimiter"


def _correction(result: Survey) -> Found | None:
    """How the files should rather be read; None if what was found fits."""
    options = result.found.options
    if not options.quoted_newlines and result.bad["stray_quote"] + result.bad["unterminated_quote"]:
        return dataclasses.replace(result.found, options=options.model_copy(update={"quoted_newlines": True}))
    wrong = sum(column.not_utf8 for column in result.columns)
    if options.encoding == "utf-8" and wrong:
        encoding, note = told_encoding(wrong, sum(column.beyond_ascii for column in result.columns))
        options = options.model_copy(update={"encoding": encoding})
        return dataclasses.replace(result.found, options=options, notes=(*result.found.notes, note))
    return None


def _read(paths: Sequence[str], found: Found, *, sample: bool, progress: Progress) -> Survey:
    limit = max(64, min(_DISTINCT, _ALL_DISTINCT // found.width))
    max_bytes = max(4096, min(MAX_BYTES, _ALL_BYTES // found.width))
    columns = [ColumnProfile(limit, max_bytes) for _ in range(found.width)]
    result = Survey(found, columns, row_sample(found.width))
    block_bytes = _WIDE_BLOCK_BYTES if found.width >= _WIDE else _BLOCK_BYTES
    files = [open_columns(path, found.options, num_columns=found.width) for path in (paths[:1] if sample else paths)]
    sizes = [file.size - file.data_start if file.mode == "ranges" else file.size for file in files]
    total, done = max(1, sum(sizes)), 0
    block_bytes = min(block_bytes, SAMPLE_BYTES) if sample else block_bytes
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="columns") as pool:
        for file, size in zip(files, sizes, strict=True):
            with contextlib.closing(read_columns(file, found.options, block_bytes=block_bytes)) as batches:
                for batch in batches:
                    _add(result, file, batch, pool)
                    progress(result.read, (done + batch.consumed) / total)
                    if sample:
                        plain = not file.gzip and not file.codec.startswith("utf-16")
                        result.complete = plain and len(paths) == 1 and batch.position >= file.size
                        break
            done += size
    return result


def _add(result: Survey, file: CsvFile, batch: ColumnBatch, pool: ThreadPoolExecutor) -> None:
    hashes = splitmix64(result.rows, batch.rows)
    width = len(batch.columns)
    step = -(-width // (4 * _THREADS))

    def work(start: int) -> None:
        for position in range(start, min(start + step, width)):
            result.columns[position].add(batch.columns[position], hashes)

    if batch.rows:
        list(pool.map(work, range(0, width, step)))
        result.sample.add({HASH: hashes, **{str(i): column for i, column in enumerate(batch.columns)}})
    result.rows += batch.rows
    result.read += batch.read
    result.bad += batch.bad
    for reason, (offset, detail) in batch.examples.items():
        result.examples.setdefault(reason, (file.path, offset, detail))
