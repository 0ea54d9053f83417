"""What is to become of each record of a CSV file, by docs/schema.md, docs/rejects.md and Python's csv module."""

from __future__ import annotations

import csv
import ctypes
import dataclasses
import gzip
import math
import re
from collections.abc import Iterator
from typing import Any

from tools.attack.drawn_csv import Item, Plan

MAX_RECORD = 16 << 20
HEAD = 4096  # what a reject keeps of a longer record
MAC = 1 << 20  # how far a line feed is looked for
csv.field_size_limit(1 << 30)

QUOTE_FAULTS = frozenset({"unterminated_quote", "stray_quote"})
RETURN_FAULTS = frozenset({"stray_carriage_return"})


@dataclasses.dataclass(frozen=True)
class Record:
    """A record's bytes without its line end, and where they begin: in the file, or as docs/rejects.md counts."""

    offset: int
    raw: bytes


@dataclasses.dataclass(frozen=True)
class Dialect:
    """How a file is written. `quoted_newlines`: a quoted field may hold line ends."""

    delimiter: str = ","
    quote: str = '"'
    quoted_newlines: bool = False
    encoding: str = "utf-8"


def readable(data: bytes, encoding: str) -> tuple[bytes, int, bool]:
    """A file's bytes as they are counted, the length of the byte-order mark, and whether they are Latin-1."""
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    if data.startswith(b"\xef\xbb\xbf"):
        return data, 3, False
    for mark, codec in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if data.startswith(mark):
            return data.decode(codec).encode(), 3, False
    if encoding == "utf-16":
        return data.decode("utf-16-le").encode(), 0, False
    return data, 0, encoding == "latin-1"


def records(data: bytes, mark: int, dialect: Dialect) -> Iterator[Record]:
    """All records of a file, empty lines passed over; `data` and `mark` are from `readable`."""
    if dialect.quoted_newlines:
        yield from _quoted(data, mark, dialect)
        return
    first = data[mark : mark + MAC]
    if b"\n" not in first and b"\r" in first:
        data = data.replace(b"\r", b"\n")
    position = mark
    for line in data[mark:].split(b"\n"):
        raw = line.rstrip(b"\r")
        if raw:
            yield Record(position, raw)
        position += len(line) + 1


def _quoted(data: bytes, position: int, dialect: Dialect) -> Iterator[Record]:
    """Records whose quoted fields may hold line ends."""
    delimiter, quote = dialect.delimiter.encode(), dialect.quote.encode()
    signs = delimiter + quote + b"\r\n"
    start, in_quotes, at_start = position, False, True
    size = len(data)
    while position < size:
        sign = data[position : position + 1]
        if in_quotes:
            close = data.find(quote, position)
            if close < 0:
                break
            if data[close + 1 : close + 2] == quote:
                position = close + 2
            else:
                position, in_quotes = close + 1, False
            continue
        if sign == quote and at_start:
            in_quotes, at_start, position = True, False, position + 1
        elif sign in (b"\r", b"\n"):
            if position > start:
                yield Record(start, data[start:position])
            position += 1
            start, at_start = position, True
        else:
            at_start = sign == delimiter
            position += 1
            if not at_start:
                while position < size and data[position] not in signs:
                    position += 1
    if start < size:
        yield Record(start, data[start:])


def fields(raw: bytes, dialect: Dialect) -> tuple[list[bytes], frozenset[str]]:
    """A record's fields, and the reasons for which it may be rejected before its fields are counted; [] with those."""
    delimiter, quote = dialect.delimiter.encode(), dialect.quote.encode()
    if quote not in raw:
        if b"\r" in raw:
            return [], RETURN_FAULTS
        return raw.split(delimiter), frozenset()
    doubtful = _quote_faults(raw, delimiter, quote, lines=not dialect.quoted_newlines)
    if doubtful:
        return [], doubtful
    (row,) = csv.reader([raw.decode("latin-1")], delimiter=dialect.delimiter, quotechar=dialect.quote)
    return [field.encode("latin-1") for field in row], frozenset()


def _quote_faults(raw: bytes, delimiter: bytes, quote: bytes, *, lines: bool) -> frozenset[str]:
    """For what a record may be rejected whose quotes do not pair; nothing where they do."""
    faults: set[str] = set()
    position, size = 0, len(raw)
    while position <= size:
        behind_quote = raw[position : position + 1] == quote
        if behind_quote:
            position += 1
            while True:
                close = raw.find(quote, position)
                if close < 0:
                    return frozenset(faults | QUOTE_FAULTS)
                position = close + 1
                if raw[position : position + 1] != quote:
                    break
                position += 1
        end = raw.find(delimiter, position)
        rest = raw[position : size if end < 0 else end]
        if b"\r" in rest:
            faults |= RETURN_FAULTS
        if behind_quote and rest.strip():
            faults.add("stray_quote")
        if end < 0:
            break
        position = end + 1
    if lines and raw.count(quote) % 2:
        faults |= QUOTE_FAULTS
    return frozenset(faults)


DECIMAL = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
HUGE = 1e30  # what is larger may leave the range of a float32 in its transform

ABSENT = object()
Why = tuple[str, str | None, str | None]  # stage, reason and column; None: the documents do not say which


@dataclasses.dataclass(frozen=True)
class Expected:
    """What is to become of a record. Neither `written` nor `rejected`: the documents leave it open.

    `why` are the reasons to reject it that are true of it; `values` its parsed values by item: a float or None for a
    number, lists of them for several columns, trimmed bytes for strings.
    """

    source: str
    offset: int
    raw: bytes
    may_write: bool
    may_reject: bool
    why: frozenset[Why]
    values: dict[str, Any]


@dataclasses.dataclass
class Judge:
    """Judges the records of files of one schema. `prediction`: neither label nor weight is read."""

    plan: Plan
    prediction: bool = False

    def __post_init__(self) -> None:
        csv = self.plan.csv
        self.dialect = Dialect(
            csv.get("delimiter", ","), csv.get("quote", '"'), csv.get("quoted_newlines", False), csv["encoding"]
        )
        self._numbers: dict[bytes, Any] = {}
        self._strings: dict[tuple[str, bytes, bool], Any] = {}

    def file(self, source: str, data: bytes, order: tuple[str, ...]) -> list[Expected]:
        """What is to become of each record of a file."""
        text, mark, latin = readable(data, self.dialect.encoding)
        found = records(text, mark, self.dialect)
        if self.plan.csv["header"] != "none":
            next(found, None)
        return [self.record(source, record, order, latin=latin) for record in found]

    def record(self, source: str, record: Record, order: tuple[str, ...], *, latin: bool) -> Expected:
        """What is to become of one record."""
        raw = record.raw

        def rejected(stage: str, reasons: frozenset[str], kept: bytes = raw) -> Expected:
            return Expected(source, record.offset, kept, False, True, frozenset((stage, r, None) for r in reasons), {})

        if len(raw) > MAX_RECORD:
            return rejected("parse", frozenset({"record_too_long"}), raw[:HEAD])
        cells, faults = fields(raw, self.dialect)
        if faults:
            return rejected("parse", faults)
        if len(cells) != len(order):
            reason = "too_few_columns" if len(cells) < len(order) else "too_many_columns"
            return rejected("parse", frozenset({reason}))
        places = dict(zip(order, cells, strict=True))
        why: set[Why] = set()
        unsure: set[Why] = set()
        values: dict[str, Any] = {}
        for item in self.plan.items:
            if self.prediction and (item["kind"] == "weight" or item is self.plan.label):
                continue
            columns = self.plan.reads[item["name"]]
            if columns and item["kind"] != "ignore":
                value, bad, doubt = self.item(item, [places[c] for c in columns], columns, latin=latin)
                values[item["name"]] = value
                why |= bad
                unsure |= doubt
        return Expected(source, record.offset, raw, not why, bool(why or unsure), frozenset(why | unsure), values)

    def item(
        self, item: Item, cells: list[bytes], columns: tuple[str, ...], *, latin: bool
    ) -> tuple[Any, set[Why], set[Why]]:
        """One item's value; the reasons to reject its record; and those for which it may be rejected."""
        called = [self.plan.called(c) for c in columns]
        match item["kind"]:
            case "numeric" if item is self.plan.label:
                return *self._numeric(cells, called, absent="missing_label"), set()
            case "numeric":
                value, bad = self._numeric(cells, called, absent=None if "missing" in item else "missing_value")
                doubt: set[Why] = set()
                if not bad:
                    for cell, column in zip(value, called, strict=True):
                        filled = item["missing"] if cell is None and isinstance(item.get("missing"), float) else cell
                        if filled is None:
                            continue
                        if item["transform"] == "log" and filled <= -1:
                            lifted = "clip" in item and cell is not None  # perhaps, above -1
                            (doubt if lifted else bad).add(("*", None, column))
                        elif abs(filled) > HUGE and item["transform"] not in ("none", "log"):
                            doubt.add(("*", None, column))
                return value, bad, doubt
            case "weight":
                value, bad = self._numeric(cells, called, absent="missing_value")
                if not bad and value[0] < 0:
                    bad.add(("decode", "negative_weight", called[0]))
                return value, bad, set()
            case "one_hot":
                value, bad = self._numeric(cells, called, absent="missing_value")
                ones = [i for i, v in enumerate(value) if v == 1]
                if len(ones) != 1 or any(v not in (0, 1) for v in value):
                    bad |= {("decode", "not_one_hot", c) for c in called}
                return ones[0] if ones else None, bad, set()
            case _:
                key = (item["name"], cells[0], latin)
                if key not in self._strings:
                    if len(self._strings) > 100_000:
                        self._strings.clear()
                    self._strings[key] = self._string(item, cells[0], called[0], latin=latin)
                value, reasons, doubts = self._strings[key]
                return value, set(reasons), set(doubts)

    def _numeric(self, cells: list[bytes], called: list[str], *, absent: str | None) -> tuple[list[Any], set[Why]]:
        values: list[Any] = []
        bad: set[Why] = set()
        for cell, column in zip(cells, called, strict=True):
            value = self._numbers.get(cell, cell)
            if value is cell:
                value = number(cell, self.plan.missing)
                if len(self._numbers) < 100_000 and len(cell) < 100:
                    self._numbers[cell] = value
            reason = absent if value is ABSENT else value if isinstance(value, str) else None
            if reason is not None:
                bad.add(("decode", reason, column))
            values.append(None if value is ABSENT or isinstance(value, str) else value)
        return values, bad

    def _string(self, item: Item, cell: bytes, column: str, *, latin: bool) -> tuple[bytes, set[Why], set[Why]]:
        bad: set[Why] = set()
        doubt: set[Why] = set()
        if latin:
            cell = cell.decode("latin-1").encode()
        value = cell.strip(b" \t\n\r\v\f")
        if item["kind"] == "key":
            value = cell
        is_label = item is self.plan.label
        given = item.get("values") if item["kind"] == "category" else None
        if not is_utf8(cell):
            bad.add(("decode", "not_utf8", column))
        absent = value in self.plan.missing or (value == b"" and b"" in self.plan.missing)
        if is_label and item["kind"] == "category":
            value = {k.encode(): v.encode() for k, v in item.get("aliases", {}).items()}.get(value, value)
            known = given is None or value.decode("utf-8", "replace") in given
            if absent and not (given and known):
                bad.add(("decode", "missing_label", column))
            elif not known:
                bad.add(("decode", "label_not_in_values", column))
            elif given is None and re.search(rb"[\r\n]|^$", value):
                doubt.add(("*", None, column))
            elif given is None:
                doubt.add(("transform", None, column))
            return value, bad, doubt
        if absent and item["kind"] in ("category", "bool"):
            if item.get("missing") is None:
                bad.add(("decode", "missing_value", column))
            elif item["kind"] == "category":
                value = item["missing"].encode()
        if item["kind"] == "bool":
            value = truth(item, value, absent=absent)
            if value == b"?":
                bad.add(("decode", "not_a_bool", column))
        elif item["kind"] == "text" and absent:
            value = b""
        measured = item["kind"] == "category" and "values" not in item and "hash_buckets" not in item
        if measured and not bad and re.search(rb"[\r\n]|^$", value):
            doubt.add(("*", None, column))  # a vocabulary's file has a line for each value, and none for nothing
        return value, bad, doubt


def number(cell: bytes, missing: frozenset[bytes]) -> Any:
    """A float32, ABSENT, or the reason why it is none."""
    value = cell.strip(b" \t\n\r\v\f")
    if value in missing:
        return ABSENT
    if not DECIMAL.fullmatch(value):
        return "not_a_number"
    narrow = ctypes.c_float(float(value)).value
    return narrow + 0.0 if math.isfinite(narrow) else "out_of_range"


def truth(item: Item, value: bytes, *, absent: bool) -> bytes:
    """b"1", b"0", or b"?" where it is neither."""
    if absent and "missing" in item:
        return b"1" if item["missing"] else b"0"
    word = value.decode("utf-8", "replace").lower()
    if word in [t.lower() for t in item.get("true", ("true", "t", "yes", "y", "1"))]:
        return b"1"
    return b"0" if word in [f.lower() for f in item.get("false", ("false", "f", "no", "n", "0"))] else b"?"


def is_utf8(cell: bytes) -> bool:
    """Whether bytes are UTF-8."""
    try:
        cell.decode()
        return True
    except UnicodeDecodeError:
        return False
