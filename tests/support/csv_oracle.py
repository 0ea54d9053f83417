"""What becomes of each record of a CSV file, by docs/schema.md and docs/rejects.md, without the project's code.

Records and fields are those of Python's csv module. The strategies draw schemas of every kind of item, and rows for
them, tidy and not.
"""

from __future__ import annotations

import csv
import ctypes
import dataclasses
import math
import re
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

csv.field_size_limit(1 << 30)

QUOTE_FAULTS = frozenset({"unterminated_quote", "stray_quote"})
RETURN_FAULTS = frozenset({"stray_carriage_return"})
MAC = 1 << 20  # how far a line feed is looked for


@dataclasses.dataclass(frozen=True)
class Record:
    """A record's bytes without its line end, and where they begin in the text."""

    offset: int
    raw: bytes


@dataclasses.dataclass(frozen=True)
class Dialect:
    """How a file is written. `quoted_newlines`: a quoted field may hold line ends."""

    delimiter: str = ","
    quote: str = '"'
    quoted_newlines: bool = False
    encoding: str = "utf-8"


def records(data: bytes, mark: int, dialect: Dialect) -> Iterator[Record]:
    """All records of a text behind a byte-order mark of `mark` bytes, empty lines passed over."""
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


WHITE = b" \t\n\v\f\r"
DECIMAL = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
WHOLE = re.compile(rb"[+-]?[0-9]+\.0*")
TRUTH = {b"true": b"True", b"TRUE": b"True", b"false": b"False", b"FALSE": b"False"}

Item = dict[str, Any]  # a feature or the label as it stands in the schema
Why = tuple[str, str]  # reason and column


class Missing:
    """A missing value."""


def narrow(value: float) -> float:
    """The float32 nearest to a number, never -0."""
    return ctypes.c_float(value).value + 0.0


def word(text: bytes) -> bytes:
    """A category, a key or a class in its one spelling: 2.0 is 2, and TRUE is True."""
    return text.split(b".")[0] if WHOLE.fullmatch(text) else TRUTH.get(text, text)


def number(cell: bytes, tokens: list[str]) -> float | type[Missing] | str:
    """A float32, Missing, or the reason why it is none."""
    value = cell.strip(WHITE)
    absent = {token.encode().strip(WHITE) for token in tokens}
    if value in absent:
        return Missing
    if not DECIMAL.fullmatch(value):
        return "not_a_number"
    single = narrow(float(value))
    if single in [narrow(float(token)) for token in absent if DECIMAL.fullmatch(token)]:
        return Missing
    return single if math.isfinite(single) else "out_of_range"


def value_of(item: Item, cells: list[bytes], columns: list[str], tokens: list[str]) -> tuple[Any, set[Why]]:
    """What is read of an item's cells, and the reasons to reject the record.

    A number is a float, or nan where it is missing; several columns give a list of them. Anything else is bytes without
    the white space around it; None: the item is not read.
    """
    tokens = item.get("missing_tokens", tokens)
    if item["kind"] == "ignore":
        return None, set()
    if item["kind"] in ("numeric", "weight", "one_hot"):
        return _numbers(item, cells, columns, tokens)
    value, reasons = _string(item, cells[0], tokens)
    return value, {(reason, columns[0]) for reason in reasons}


def _numbers(item: Item, cells: list[bytes], columns: list[str], tokens: list[str]) -> tuple[Any, set[Why]]:
    """The numbers of an item's columns."""
    may_miss = item["kind"] == "numeric" and "missing" in item
    values: list[float] = []
    why: set[Why] = set()
    for cell, column in zip(cells, columns, strict=True):
        value = number(cell, tokens)
        if value is Missing and not may_miss:
            why.add(("missing_label" if item["name"] == "y" else "missing_value", column))
        elif isinstance(value, str):
            why.add((value, column))
        values.append(value if isinstance(value, float) else math.nan)
    if item["kind"] == "weight" and values[0] < 0:
        why.add(("negative_weight", columns[0]))
    if item["kind"] == "one_hot" and sorted(values) != [0.0] * (len(values) - 1) + [1.0]:
        why.add(("not_one_hot", columns[0]))
    if item["name"] == "y" and item.get("transform") == "log" and values[0] <= 0:
        why.add(("label_not_positive", columns[0]))
    if item["name"] == "y" and item.get("transform") == "log1p" and values[0] <= -1:
        why.add(("label_too_small", columns[0]))
    return values if len(values) > 1 else values[0], why


def _string(item: Item, cell: bytes, tokens: list[str]) -> tuple[bytes, set[str]]:
    """The text of an item's cell, and the reasons to reject it."""
    value = cell.strip(WHITE) if item["kind"] == "text" else word(cell.strip(WHITE))
    spelled = {token.encode().strip(WHITE) for token in tokens}
    absent = value in spelled | {word(token) for token in spelled}
    reasons: set[str] = set()
    try:
        cell.decode()
    except UnicodeDecodeError:
        reasons.add("not_utf8")
    if item["name"] == "y":
        aliases = {k.encode(): v.encode() for k, v in item.get("aliases", {}).items()}
        label = aliases.get(value, value)
        listed = [v.encode() for v in item["values"]] if "values" in item else None
        if absent and value not in aliases and (listed is None or label not in listed):
            return label, reasons | {"missing_label"}
        if listed is not None:
            return label, set() if label in listed else {"label_not_in_values"}
        return label, reasons | _of_vocabulary(label, "missing_label")
    if item["kind"] == "bool" and not absent:
        truths = {t.lower() for t in (*item.get("true", TRUE), *item.get("false", FALSE))}
        if word(value).decode("utf-8", "replace").lower() not in truths:
            reasons.add("not_a_bool")
    if item["kind"] in ("bool", "category") and absent and item.get("missing") is None:
        reasons.add("missing_value")
    if item["kind"] == "category" and "values" not in item and "hash_buckets" not in item:
        reasons |= _of_vocabulary(value, "missing_value" if item.get("missing") is None else None)
    return value, reasons


def _of_vocabulary(value: bytes, reason_if_empty: str | None) -> set[str]:
    """Why a vocabulary, a file with a value in each line, cannot hold a value."""
    if b"\n" in value or b"\r" in value:
        return {"line_end_in_value"}
    return {reason_if_empty} if not value and reason_if_empty else set()


TRUE, FALSE = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")
TOKENS = st.sampled_from([[""], ["", "?"], ["NA"], ["", "-999"], ["2.0", " "], ["1"], []])
WORDS = st.sampled_from(["alpha", "Århus", "x y", "12", "True", "-", 'say "hi"', "日本", "🙂", "-5"])
TRANSFORMS: list[Any] = ["z_score", "min_max", "log", "none", {"scale": [-100.0, 1000.0]}, {"bucketize": [0.0, 1.5]}]


def _item(kind: str, needed: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[Item]:
    """An item of a kind, with its own missing tokens or without."""
    return st.fixed_dictionaries({"kind": st.just(kind), **needed}, optional={"missing_tokens": TOKENS, **optional})


INPUT = st.one_of(
    _item("numeric", {"transform": st.sampled_from(TRANSFORMS)}, {"missing": st.sampled_from(["mean", 7.5])}),
    _item("numeric", {"width": st.just(3)}, {"missing": st.sampled_from(["median", -0.5])}),
    st.just({"kind": "one_hot", "width": 3}),
    _item("category", {}, {"missing": st.just("<unknown>"), "top_k": st.integers(1, 5)}),
    _item("category", {"values": st.lists(WORDS, min_size=1, unique=True)}, {"missing": st.just("<unknown>")}),
    _item("category", {"hash_buckets": st.sampled_from([1, 7])}, {"missing": st.just("<unknown>")}),
    _item("bool", {}, {"missing": st.booleans()}),
    _item("bool", {"true": st.just(["Sí", "ja", "2.0"]), "false": st.just(["No", "ÄR", "3"])}, {}),
    _item("text", {}, {"length": st.integers(1, 6)}),
)
SET_ASIDE = [_item("ignore", {}, {}), _item("weight", {}, {}), _item("key", {}, {})]
CLASSES = {"values": st.just(["no", "yes", "2", "True"])}
LABEL = st.one_of(
    _item("numeric", {}, {"transform": st.sampled_from(["z_score", "log", "log1p", "none"])}),
    _item("category", {}, {}),
    _item("category", CLASSES, {"aliases": st.just({"no.": "no", "JA": "yes", "NA": "no"})}),
)
NUMBERS = "0 1 -1 5. .5 +5 -0 -0.0 2 2.0 2.000 2.50 -999 -999.0 -9.99e2 1e3 1E-3 1e400 -1e400 3.4028235e38 3.5e38"
NUMBERS += (
    " 1e-400 inf nan NaN 0x10 1,000 1_000 1e e1 - + . --1 1.2.3 1d3 \uff11 16777217 9007199254740993 -0.99999999 1e+3"
)
STRINGS = ["", " ", "?", "NA", " NA ", "na", "<unknown>", " alpha ", "ALPHA", "alpha\0", "\ufeffalpha", "a\u00a0b"]
STRINGS += ["\u2028", "a\vb", "\fa", "1\v", " 7 ", "7\0", "\0", "é" * 50, "a,b", 'a"b', '"', "'", "a;b", "%s", "2.5.0"]
STRINGS += ["true", "TRUE", "True", "Yes", "sí", "är", "JA", "no.", "no", "yes", "maybe", "0.0", "1.0", "+2.", "1 2"]
INVALID = [
    b"\xff",
    b"caf\xe9",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xf8\x88\x80\x80\x80",
    b"\x80abc",
    b"a\nb",
    b"\r\n",
    b"a\rb",
]
CELL = st.one_of(
    st.sampled_from(NUMBERS.split()).map(str.encode),
    st.sampled_from(NUMBERS.split()).map(lambda text: f" {text}\t".encode()),
    st.sampled_from(STRINGS).map(str.encode),
    WORDS.map(str.encode),
    st.sampled_from(INVALID),
)


@dataclasses.dataclass(frozen=True)
class Table:
    """A schema's parts, and the cells of rows for it: those of an item are as many as its columns."""

    tokens: list[str]
    features: list[Item]
    label: Item
    rows: list[list[list[bytes]]]

    @property
    def items(self) -> list[Item]:
        """The features in their order, then the label."""
        return [*self.features, self.label]

    def columns(self, item: Item) -> list[str]:
        """The names of an item's columns."""
        return [f"{item['name']}_{i}" for i in range(item["width"])] if "width" in item else [item["name"]]

    @property
    def header(self) -> list[str]:
        """The names of all columns."""
        return [column for item in self.items for column in self.columns(item)]

    def declared(self, item: Item) -> Item:
        """An item as a schema declares it."""
        own = {key: value for key, value in item.items() if key != "width"}
        columns = self.columns(item)
        return {**own, "columns": [columns[0], columns[-1]]} if "width" in item else own

    def data(self) -> bytes:
        """The rows as records of quoted fields."""
        quoted = ([b'"' + c.replace(b'"', b'""') + b'"' for cells in row for c in cells] for row in self.rows)
        return b"".join(b",".join(row) + b"\n" for row in quoted)

    def expected(self) -> Iterator[tuple[dict[str, Any], set[Why]]]:
        """The values of each row, and the reasons to reject it."""
        for row in self.rows:
            values: dict[str, Any] = {}
            why: set[Why] = set()
            for item, cells in zip(self.items, row, strict=True):
                value, reasons = value_of(item, cells, self.columns(item), self.tokens)
                why |= reasons
                if value is not None:
                    values[item["name"]] = value
            yield values, why


GOOD = {
    "numeric": [b"1.5", b"7", b" 3e2 "],
    "weight": [b"1", b"0.5", b"-1"],
    "one_hot": [b"0", b"0.0", b"1"],
    "bool": [b"1", b"2.0", b"No", b"true", b"ja"],
}


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Any schema of up to seven features, with up to eight rows in which most cells are as they should be."""
    drawn = draw(st.lists(INPUT, min_size=1, max_size=4))
    drawn += [draw(item) for item in SET_ASIDE if draw(st.booleans())]
    features = [{**item, "name": f"f{i}"} for i, item in enumerate(drawn)]
    label = {**draw(LABEL), "name": "y"}

    def cell(item: Item) -> st.SearchStrategy[bytes]:
        words = [w.encode() for w in item.get("values", ["alpha", "2.0", "2", "b c"])]
        good = st.sampled_from(GOOD.get(item["kind"], words))
        return st.one_of(good, good, good, good, CELL)

    rows = [
        [draw(st.lists(cell(i), min_size=i.get("width", 1), max_size=i.get("width", 1))) for i in (*features, label)]
        for _ in range(draw(st.integers(1, 8)))
    ]
    return Table(draw(TOKENS), features, label, rows)
