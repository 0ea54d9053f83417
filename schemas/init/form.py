"""Finds out how a CSV file is written: its delimiter and quote, encoding and header.

The delimiter and the quote are found by CleverCSV (van den Burg, Nazabal and Sutton, "Wrangling messy CSV files by
detecting row and type patterns", 2019); the encoding, the header and the number of columns by reading the first records
with the job's own reader.
"""

from __future__ import annotations

import codecs
import collections
import dataclasses
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Literal

from schemas import storage
from schemas.csv.file import binary_kind, check_text, first_bytes, signature
from schemas.csv.header import DELIMITERS
from schemas.csv.lines import START, QuotedScanner
from schemas.csv.parse import explain, split_fields
from schemas.csv.values import is_utf8
from schemas.errors import UsageError, counted
from schemas.init.cells import TOKENS
from schemas.init.writing import shown
from schemas.spec.table import CsvOptions

FIRST_BYTES = 1 << 20
_SNIFFED = 1 << 14  # bytes whose delimiter and quote are looked for: enough for any table, and done in 0.1 s
_SNIFFED_RECORDS, _SNIFFED_MOST = 4, 1 << 18  # of long records, at least this many, up to so many bytes
# A longer run without space, quote or delimiter says no more; CleverCSV's time for addresses grows with its cube.
_LONG_RUN = re.compile(r"""([^\s"',;|^]{200})[^\s"',;|^]+""")
_RECORDS = 200  # that a header is compared with
_NO_QUOTE = "\x01"  # stands for a quote in files that have none
_GAP = re.compile(rb"[^\s] {2,}[^\s]")
_QUOTED = re.compile(rb'"[^"]*"')
_NUMBER = re.compile(rb"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_TOKENS = frozenset(token.encode() for token in TOKENS)
Encoding = Literal["utf-8", "utf-16", "latin-1"]


@dataclasses.dataclass(frozen=True)
class Form:
    """How a file is written.

    Attributes:
        options: for the reader; `header` is `present` or `none`.
        names: the header's names; of a file without one, None.
        width: the number of columns.
        notes: what a person should know about it.
    """

    options: CsvOptions
    names: tuple[str, ...] | None
    width: int
    notes: tuple[str, ...] = ()

    def name(self, position: int) -> str | None:
        """Returns a column's name in the header; None where it has none."""
        return self.names[position] or None if self.names is not None else None

    def with_options(self, note: str = "", **options: object) -> Form:
        """Returns a form with other options for the reader, and with one more note."""
        notes = (*self.notes, note) if note else self.notes
        return dataclasses.replace(self, options=self.options.model_copy(update=options), notes=notes)


class NoRecordsError(UsageError):
    """A file is empty, or has a header and nothing below it."""


def detect(path: str) -> Form:
    """Reads the first megabyte of a file to find out how it is written.

    Raises:
        NoRecordsError: the file is empty, or has a header and nothing below it.
        UsageError: the file is no CSV, has one column, or names a column twice.
        MillraceError: the file cannot be read.
    """
    data, encoding, notes = _beginning(path)
    if not data.strip():
        raise NoRecordsError(f"{path}: the file is empty; expected CSV records")
    delimiter, quote = _delimiter_and_quote(data)
    if _aligned(data, delimiter):
        raise UsageError(
            f"{path}: the cells are aligned by several spaces, as in {_shown(data.splitlines()[0])}; expected one "
            'delimiter between two cells. Write them with commas: python3 -c "import csv, shlex, sys; '
            f'csv.writer(sys.stdout).writerows(map(shlex.split, sys.stdin))" < {shlex.quote(path)} > table.csv'
        )
    if _quotes_are_letters(data, delimiter, quote):
        quote = _NO_QUOTE
        notes.append(f"quotes stand inside cells and are read like letters: csv: {{quote: {json.dumps(quote)}}}")
    options = CsvOptions(delimiter=delimiter, quote=quote, encoding=encoding)
    records, quoted_newlines = _records(data, options)
    if len(records) < 2 and ((fault := _first_invalid(data, options)) or not records):
        raise UsageError(
            f"{path}: no record could be read with the delimiter {delimiter!r}{f', such as {fault}' if fault else ''}; "
            "is this a CSV file?"
        )
    width = collections.Counter(map(len, records[1:] or records)).most_common(1)[0][0]
    names = tuple(field.decode("utf-8", "replace").strip() for field in records[0])
    present = _is_header(records, width)
    if fault := _lines_above(path, data, records, width) or (_fault_of_header(names, width) if present else ""):
        raise UsageError(f"{path}: {fault}")
    if width < 2:
        raise UsageError(
            f"{path}: found one column ({names[0][:60]!r} is its first line); expected at least two, "
            f"a feature and a label, between one of {' '.join(map(repr, DELIMITERS))}"
        )
    if present and len(records) == 1:
        raise NoRecordsError(f"{path}: found a header and no records; expected records below it")
    if not present:
        notes.append(
            f"the first line is no header, {_shown(b','.join(records[0]))}: columns are called by their positions, "
            "until the schema names them by csv: {columns: [...]}"
        )
    form = Form(options, names if present else None, width, tuple(notes))
    return form.with_options(header="present" if present else "none", quoted_newlines=quoted_newlines)


def _fault_of_header(names: Sequence[str], width: int) -> str:
    if len(names) != width:
        return (
            f"the header has {len(names)} names, but most records have {width} fields; "
            "is this a CSV file? If so, give the header a name for each column"
        )
    twice = [repr(name) for name, count in sorted(collections.Counter(names).items()) if count > 1 and name]
    if twice:
        return f"the header names {', '.join(twice[:5])} more than once; give each column a name of its own"
    return ""


def _lines_above(path: str, data: bytes, records: Sequence[list[bytes]], width: int) -> str:
    """What to do about lines above the header, such as a title, comments, Excel's `sep=;`; else nothing.

    Such lines have other lengths, or one field.
    """
    place = next((i for i, record in enumerate(records) if len(record) == width and any(record[1:])), 0)
    if not place or not _is_header(records[place:], width):
        return ""
    lines = data.splitlines()
    at = next((i for i, line in enumerate(lines) if all(name in line for name in records[place])), place) + 1
    return (
        f"the header stands in line {at}, below {_shown(next(line for line in lines if line.strip()))}; expected it in "
        f"the first line. Remove the lines above it: tail -n +{at} {shlex.quote(path)} > table.csv"
    )


def _aligned(data: bytes, delimiter: str) -> bool:
    """Whether several spaces align the cells, which a single delimiter would shift."""
    lines = [line for line in data.splitlines()[:_RECORDS] if line.strip()]
    delimited = sum(delimiter.encode() in line for line in lines) * 2 > len(lines)
    if delimited and delimiter not in " \t":
        return False
    words = collections.Counter(len(_QUOTED.sub(b"x", line).split()) for line in lines)
    alike = words.most_common(1)[0][1] > 0.9 * len(lines) and max(words) > 1
    gaps = sum(bool(_GAP.search(line)) for line in lines) * 2 > len(lines)
    return gaps and (alike or (delimited and delimiter == " "))


def _quotes_are_letters(data: bytes, delimiter: str, quote: str) -> bool:
    """Whether a tab-separated file quotes no cells: all lines have the same tabs, and cells hold stray quotes."""
    lines = [line for line in data.splitlines()[:-1] if line]
    if delimiter != "\t" or _NO_QUOTE.encode() in data or len({line.count(b"\t") for line in lines}) != 1:
        return False
    sign = quote.encode()
    quoted = sum(any(len(c) > 1 and c[:1] == c[-1:] == sign for c in line.split(b"\t")) for line in lines)
    stray = any(isinstance(split_fields(line.rstrip(b"\r"), delimiter, quote), str) for line in lines if sign in line)
    return stray and 2 * quoted < len(lines)


def _first_invalid(data: bytes, options: CsvOptions) -> str:
    """What is wrong with the first line that is no record; empty if there is none."""
    for line in data.splitlines():
        reason = split_fields(line, options.delimiter, options.quote)
        if isinstance(reason, str):
            return f"{_shown(line)}: {explain(reason, line)}"
    return ""


def _shown(line: bytes) -> str:
    return f"'{shown(line.strip(), 60)}'"


def _beginning(path: str) -> tuple[bytes, Encoding, list[str]]:
    """The first megabyte as UTF-8 without its byte-order mark, the encoding as a schema names it, and notes."""
    stat = storage.stat(path)
    gzipped, codec, bom = signature(path, stat, CsvOptions())
    data = first_bytes(path, stat, gzipped=gzipped, codec=codec, bom=bom, limit=FIRST_BYTES)
    if bom:
        return data, "utf-8" if codec == "utf-8" else "utf-16", []
    if (what := binary_kind(data)) is not None:
        raise UsageError(f"{path}: is {what}; expected a CSV file, or images")
    if data[1::2].count(0) > len(data) // 4 and data[::2].count(0) * 10 < len(data):
        wide = first_bytes(path, stat, gzipped=gzipped, codec="utf-16-le", bom=0, limit=FIRST_BYTES)
        return wide, "utf-16", []
    check_text(path, data, "a CSV file, or images")
    lines = [line for line in data[: data.rfind(b"\n") + 1].splitlines() or [data] if not line.isascii()]
    broken = sum(not is_utf8(line) for line in lines)
    encoding, note = likelier_encoding(broken, len(lines) - broken) if broken else ("utf-8", "")
    if encoding == "utf-8":  # the note comes with the counts of all cells
        return data, "utf-8", []
    return data.decode("latin-1").encode(), encoding, [note]


def likelier_encoding(wrong: int, right: int) -> tuple[Literal["utf-8", "latin-1"], str]:
    """Returns the likelier encoding of text that is not all UTF-8, and a note about it.

    Letters of another encoding hardly ever make valid UTF-8, so valid ones show that the others are broken.

    Args:
        wrong: how many parts of the text are no UTF-8.
        right: how many others are, and hold a character beyond ASCII.
    """
    if right > wrong:
        broken = f"{counted(wrong, 'cell')} {'is' if wrong == 1 else 'are'} no UTF-8"
        note = f"{broken}, and {right:,} others are beyond ASCII and valid: the file is read as UTF-8"
        return "utf-8", f"{note}, and a job rejects a record whose features hold such a cell"
    note = "some bytes are no UTF-8, and are read as Latin-1; if letters look wrong, convert the file to UTF-8"
    return "latin-1", note


def _delimiter_and_quote(data: bytes) -> tuple[str, str]:
    """The delimiter and the quote; a comma and a double quote where nothing tells them."""
    import clevercsv

    first = b"".join(data.splitlines(keepends=True)[:_SNIFFED_RECORDS])
    text = data[: min(max(_SNIFFED, len(first)), _SNIFFED_MOST)].decode("utf-8", "replace")
    if len(data) > len(text) and "\n" in text:
        text = text[: text.rindex("\n") + 1]
    text = _LONG_RUN.sub(r"\1", text.replace("\0", " "))  # CleverCSV refuses NUL
    lines = [line for line in text.splitlines() if line.strip()][:50]
    frequent = [sign for sign in DELIMITERS if sum(sign in line for line in lines) * 2 > len(lines)]
    dialect = clevercsv.Detector().detect(text, delimiters=frequent or list(DELIMITERS))
    delimiter = dialect.delimiter if dialect is not None and dialect.delimiter else ","
    quote = dialect.quotechar if dialect is not None and dialect.quotechar else '"'
    return delimiter, quote if quote in "\"'" else '"'


def _records(data: bytes, options: CsvOptions) -> tuple[list[list[bytes]], bool]:
    """The fields of the first records, and whether quotes hold line ends: as more of the bytes make records then."""
    whole, quote = len(data) < FIRST_BYTES, options.quote.encode()
    data = data.lstrip(b"\r\n")
    lines = re.split(rb"\r\n|\n" if b"\n" in data else rb"\r", data)
    lines = [line.rstrip(b"\r") for line in (lines if whole else lines[:-1]) if line.strip(b"\r")][: 10 * _RECORDS]

    def fields(record: bytes) -> list[bytes]:
        parts = split_fields(record, options.delimiter, options.quote)
        return [] if isinstance(parts, str) else parts  # a str says why the record is invalid

    records, spans = [(len(line), [] if line.count(quote) % 2 else fields(line)) for line in lines], False
    if not all(parts for _, parts in records):
        spanning = [(len(record), fields(record)) for record in _spanning(data, options, whole=whole) if record]
        spans = _agreement(spanning) > _agreement(records)
        records = spanning if spans else records
    return [parts for _, parts in records if parts][:_RECORDS], spans


def _spanning(data: bytes, options: CsvOptions, *, whole: bool) -> Iterator[bytes]:
    """The first records where quotes may hold line ends."""
    scanner = QuotedScanner(delimiter=options.delimiter, quote=options.quote)
    start = 0
    for _ in range(10 * _RECORDS):
        end, _ = scanner.scan(data, start, START) if start < len(data) else (-1, 0)
        if end < 0:
            break
        yield data[start:end]
        start = end + 1
    else:
        return
    if whole and start < len(data):
        yield data[start:]


def _agreement(records: Sequence[tuple[int, list[bytes]]]) -> float:
    """The share of the bytes that are in records with as many fields as most of them."""
    widths = collections.Counter(len(fields) for _, fields in records if fields)
    if not widths:
        return 0.0
    width = widths.most_common(1)[0][0]
    return sum(size for size, fields in records if len(fields) == width) / sum(size for size, _ in records)


def _is_header(records: Sequence[list[bytes]], width: int) -> bool:
    """Whether the first record names the columns: it is unlike what stands below it."""
    first = [field.strip() for field in records[0]]
    # Where files were joined, the header stands once more, perhaps behind a byte-order mark.
    again = (records[0], [codecs.BOM_UTF8 + records[0][0], *records[0][1:]])
    rest = [record for record in records[1:] if len(record) == width and record not in again]
    if [str(i).encode() for i in range(len(first))] == first:
        return True  # as pandas writes columns without names
    if not rest:
        return len(records) == 1 and not any(_NUMBER.fullmatch(field) for field in first)
    votes = 0
    for field, column in zip(first, zip(*rest, strict=True), strict=False):
        values = [value.strip() for value in column]
        present = [value for value in values if value not in _TOKENS]
        if _NUMBER.fullmatch(field):
            votes -= 2  # a name is no number
        elif field in _TOKENS:
            votes -= field != b""  # an index of pandas has no name
        elif present and sum(bool(_NUMBER.fullmatch(value)) for value in values) > 0.8 * len(present):
            votes += 2
        elif field in values:
            votes -= 1
        elif len(set(values)) < len(values) or len({len(value) for value in values} | {len(field)}) > 1:
            votes += 1
    return votes > 0
