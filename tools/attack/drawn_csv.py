"""Random schemas of every kind and option, and random CSV files for them, tidy and not."""

from __future__ import annotations

import dataclasses
import gzip
import json
import random
from typing import Any

Item = dict[str, Any]  # a feature or the label as it stands in the schema
WORDS = (
    "alpha",
    "beta",
    "gamma",
    "delta",
    "Cork",
    "Århus",
    "naïve",
    "x y",
    "12",
    "true",
    "-",
    "a;b",
    'say "hi"',
    "10%",
)
FOREIGN = ("日本", "Ωμέγα", "🙂", "ключ")


@dataclasses.dataclass(frozen=True)
class Plan:
    """A schema, and which columns each of its items reads.

    `columns` are the file's columns in the order that a file without a header has. `reads` gives the columns of each
    item; `labels` is what messages call a column.
    """

    csv: dict[str, Any]
    features: tuple[Item, ...]
    label: Item
    split: dict[str, Any]
    columns: tuple[str, ...]
    reads: dict[str, tuple[str, ...]]

    @property
    def items(self) -> tuple[Item, ...]:
        """The features, then the label."""
        return (*self.features, self.label)

    @property
    def missing(self) -> frozenset[bytes]:
        """The tokens that mean missing."""
        return frozenset(t.encode() for t in self.csv.get("missing", [""]))

    @property
    def named(self) -> bool:
        """Whether the columns have names, and not positions only."""
        return "num_columns" not in self.csv

    def called(self, column: str) -> str:
        """What a message calls a column."""
        return column if self.named else str(self.columns.index(column))

    def schema(self) -> str:
        """The schema file. JSON is YAML."""
        value = {
            "name": "attacked",
            "format": "csv",
            "csv": self.csv,
            "features": list(self.features),
            "label": self.label,
            "split": self.split,
        }
        return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def numeric(draw: random.Random, name: str, width: int) -> Item:
    """A numeric feature of one column or of several."""
    transforms: list[Any] = [
        "z_score",
        "min_max",
        "log",
        "none",
        {"scale": [-100.0, 1000.0]},
        {"bucketize": draw.randint(2, 20)},
        {"bucketize": sorted(draw.sample([-50.0, 0.0, 1.5, 10.0, 200.0], draw.randint(1, 5)))},
    ]
    item: Item = {"name": name, "kind": "numeric", "transform": draw.choice(transforms)}
    if draw.random() < 0.3:
        item["clip"] = draw.choice([[0.001, 0.999], [0.05, 0.9], [0, 0.98], [0.3, 1]])
    if draw.random() < 0.5:
        item["missing"] = draw.choice(["mean", "median", 7.5, -0.5])
        if draw.random() < 0.5:
            item["indicator"] = True
    if width > 1:
        item["columns"] = [f"{name}_0", f"{name}_{width - 1}"]
    return item


def category(draw: random.Random, name: str, words: tuple[str, ...]) -> Item:
    """A category by values, by hash or by vocabulary."""
    item: Item = {"name": name, "kind": "category"}
    way = draw.choice(["values", "hash", "vocabulary", "top"])
    if way == "values":
        item["values"] = draw.sample(words, draw.randint(1, len(words)))
        item["oov_buckets"] = draw.randint(1, 5)
    elif way == "hash":
        item["hash_buckets"] = draw.choice([1, 7, 1000])
    elif way == "top":
        item["top_k"] = draw.randint(1, 5)
        item["oov_buckets"] = draw.randint(1, 3)
    elif draw.random() < 0.5:
        item["frequency_threshold"] = draw.choice([1, 2, 5])
    if draw.random() < 0.4:
        item["missing"] = draw.choice(["<unknown>", words[0]])
    return item


def boolean(draw: random.Random, name: str) -> Item:
    """A bool, with the tokens that are given or others."""
    item: Item = {"name": name, "kind": "bool"}
    if draw.random() < 0.4:
        item |= {"true": ["Sí", "ja", "ÄR"], "false": ["No", "NEJ"]}
    if draw.random() < 0.5:
        item["missing"] = draw.random() < 0.5
    return item


def text(draw: random.Random, name: str) -> Item:
    """A text, as a bag, cut to a length, or as weighted n-grams."""
    item: Item = {"name": name, "kind": "text", "lower": draw.random() < 0.7}
    for key in ("ngrams", "characters"):
        if draw.random() < 0.3:
            item[key] = sorted(draw.choices(range(1, 5), k=2))
    if draw.random() < 0.5:
        item["top_k"] = draw.randint(1, 8)
    if "ngrams" in item or "characters" in item:
        return item
    if draw.random() < 0.5:
        item["length"] = draw.randint(1, 6)
    item["oov_buckets"] = draw.randint(1, 3)
    return item


def label(draw: random.Random) -> Item:
    """A label of classes, given or of the train split, or a number."""
    if draw.random() < 0.3:
        return {"name": "y", "kind": "numeric"}
    item: Item = {"name": "y", "kind": "category"}
    if draw.random() < 0.7:
        item |= {"values": ["no", "yes", "maybe"], "aliases": {"no.": "no", "JA": "yes"}}
    return item


def draw_plan(draw: random.Random) -> Plan:
    """A schema of one kind of everything at most, or a narrow one."""
    words = WORDS + (FOREIGN if draw.random() < 0.5 else ())
    narrow = draw.random() < 0.2
    features: list[Item] = [{"name": "id", "kind": "key"}]
    reads: dict[str, tuple[str, ...]] = {"id": ("id",)}

    def add(item: Item, columns: tuple[str, ...] | None = None) -> None:
        features.append(item)
        reads[item["name"]] = (item["name"],) if columns is None else columns

    if narrow:
        add(category(draw, "c0", words))
    else:
        for i in range(draw.randint(1, 4)):
            width = draw.choice([1, 1, 1, 3])
            add(numeric(draw, f"n{i}", width), tuple(f"n{i}_{j}" for j in range(width)) if width > 1 else None)
        for i in range(draw.randint(0, 3)):
            add(category(draw, f"c{i}", words))
        if draw.random() < 0.5:
            add(boolean(draw, "b"))
        if draw.random() < 0.4:
            add({"name": "o", "kind": "one_hot", "columns": ["o_0", "o_2"]}, ("o_0", "o_1", "o_2"))
        if draw.random() < 0.4:
            add(text(draw, "t"))
        if draw.random() < 0.3:
            add({"name": "w", "kind": "weight"})
        if draw.random() < 0.4:
            add({"name": "skip", "kind": "ignore"})
        crossable = [f["name"] for f in features if f["kind"] in ("category", "one_hot")]
        if len(crossable) > 1 and draw.random() < 0.6:
            add({"name": "x", "kind": "cross", "of": draw.sample(crossable, 2), "buckets": 50}, ())
    y = label(draw)
    reads["y"] = ("y",)
    columns = [c for columns in reads.values() for c in columns]
    draw.shuffle(columns)
    return _written(draw, tuple(features), y, tuple(columns), reads)


def _written(
    draw: random.Random, features: tuple[Item, ...], y: Item, columns: tuple[str, ...], reads: dict[str, Any]
) -> Plan:
    """The plan with the way its files are written and split."""
    csv: dict[str, Any] = {"header": draw.choice(["present", "auto", "none", "none"])}
    if csv["header"] == "none":
        csv["columns"] = list(columns)
    csv["missing"] = draw.choice([[""], ["", "?"], ["NA"], ["", "-999"]])
    if draw.random() < 0.3:
        csv["delimiter"] = draw.choice([";", "\t", "|"])
    if draw.random() < 0.2:
        csv["quote"] = "'"
    if draw.random() < 0.2:
        csv["quoted_newlines"] = True
    csv["encoding"] = draw.choice(["utf-8", "utf-8", "utf-8", "latin-1", "utf-16"])
    split: dict[str, Any] = {"by": "row", "train": 0.7, "eval": 0.2, "test": 0.1}
    by = [f["name"] for f in features if f["kind"] in ("category", "key", "ignore", "bool")]
    if draw.random() < 0.5:
        split = {"by": [draw.choice(by)], "train": 1.0, "eval": 0.0, "test": 0.0}
        if split["by"] == ["id"]:
            split |= {"train": 0.6, "eval": 0.2, "test": 0.2}
    places = {name: [columns.index(c) for c in read] for name, read in reads.items()}
    adjacent = all(p == list(range(p[0], p[0] + len(p))) for p in places.values() if p)
    if csv["header"] == "none" and adjacent and draw.random() < 0.5:
        csv["num_columns"] = len(csv.pop("columns"))
        features = tuple(_by_position(f, places[f["name"]]) for f in features)
        y = _by_position(y, places["y"])
    return Plan(csv, features, y, split, columns, reads)


def _by_position(item: Item, places: list[int]) -> Item:
    """The same item, whose columns are told by their positions."""
    if not places:
        return item
    return {**item, "column": places[0]} if len(places) == 1 else {**item, "columns": [places[0], places[-1]]}


NUMBERS = (
    *("", " ", "?", "NA", "-999", "inf", "-inf", "nan", "NaN", "1e400", "-1e400", "3.4028235e38", "3.4028236e38"),
    *(
        "3.5e38",
        "1e-400",
        "1e-45",
        "0x10",
        "1,000",
        "1_000",
        "+5",
        ".5",
        "5.",
        "1e3",
        "1E-3",
        "1e",
        "e1",
        "-",
        "+",
        ".",
    ),
    *("--1", "1.2.3", "1 2", " 7 ", "\t7", "7\x00", "\x007", "\x00", "-0", "-0.0", "-1", "-1.0", "-5", "-0.99999999"),
    *(
        "0.1e1",
        "1d3",
        "1f",
        "0b1",
        "\uff11\uff12",
        "\u0661",
        "\ufeff7",
        "\u00a07",
        "TRUE",
        "0" * 300 + "1",
        "1" + "0" * 310,
    ),
    *("1" + "0" * 310, "16777217", "9007199254740993", "0." + "3" * 400, "1e+3", "1e 3", "infinity", "1\v", "\f2"),
)
STRINGS = (
    *("", " ", "?", "NA", " NA ", "na", "<unknown>", " alpha ", "ALPHA", "\talpha", "alpha\x00", "\x00", "a\x00b"),
    *(
        "\ufeffalpha",
        "a\u00a0b",
        "\u2028",
        "a\x0bb",
        "a\x0cb",
        "a\x1cb",
        "é" * 50,
        "x" * 5000,
        "%s%n",
        "a,b",
        'a"b',
        '"',
    ),
    *("'", "a'b", "a;b", "a\tb", "a|b", "-1", "true", "TRUE", "Yes", "sí", "SÍ", "är", "Är", "JA", "nej", "maybe?"),
)
INVALID = (b"\xff", b"caf\xe9", b"\xc3", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\x80abc")


@dataclasses.dataclass(frozen=True)
class Shape:
    """How a file is written, beside what the schema says of it."""

    rows: int
    odd_cells: float  # the share of rows with an odd value
    odd_lines: float  # the share of lines that are no tidy record
    line_end: str
    bom: bool
    gzip: bool
    last_line_end: bool
    quote_all: bool
    random_bytes: bool


def draw_shape(draw: random.Random, plan: Plan, *, rows: int) -> Shape:
    """A shape that the schema allows."""
    quoted = plan.csv.get("quoted_newlines", False)
    ends = ["\n", "\n", "\r\n", "mixed"] + (["\r"] if rows < 5000 or quoted else [])
    return Shape(
        rows=rows,
        odd_cells=draw.choice([0.0, 0.0005, 0.01, 0.2]),
        odd_lines=draw.choice([0.0, 0.0002, 0.01, 0.1]),
        line_end=draw.choice(ends),
        bom=draw.random() < 0.3,
        gzip=draw.random() < 0.2,
        last_line_end=draw.random() < 0.7,
        quote_all=draw.random() < 0.1,
        random_bytes=draw.random() < 0.3,
    )


def tidy_cell(draw: random.Random, item: Item, row: int) -> str:
    """A value that the item reads."""
    match item["kind"]:
        case "key":
            return f"k{row:07d}"
        case "numeric":
            return f"{draw.gauss(50, 30):.2f}" if draw.random() < 0.7 else str(draw.randint(0, 999))
        case "weight":
            return draw.choice(("1", "0.5", "2"))
        case "category" if item["name"] == "y":
            return draw.choice((*item.get("values", ("no", "yes")), *item.get("aliases", ())))
        case "category":
            return draw.choice(WORDS)
        case "bool":
            return draw.choice((*item.get("true", ("true", "Y", "1")), *item.get("false", ("false", "N", "0"))))
        case "text":
            return " ".join(draw.choices(WORDS + FOREIGN, k=draw.randint(1, 4)))
        case _:
            return draw.choice(WORDS)


def tidy_row(draw: random.Random, plan: Plan, row: int) -> dict[str, str]:
    """One row, by column. `log` is given numbers that it takes."""
    cells: dict[str, str] = {}
    for item in plan.items:
        columns = plan.reads[item["name"]]
        if item["kind"] == "one_hot":
            one = draw.choice(columns)
            cells |= {c: "1" if c == one else "0" for c in columns}
        elif item["kind"] == "numeric" and item.get("transform") == "log":
            cells |= {c: str(draw.randint(0, 500)) for c in columns}
        else:
            cells |= {c: tidy_cell(draw, item, row) for c in columns}
    return cells


class Writer:
    """Writes rows in a plan's dialect, as bytes of UTF-8 that may hold what is none."""

    def __init__(self, draw: random.Random, plan: Plan, shape: Shape, order: tuple[str, ...]) -> None:
        self.draw, self.plan, self.shape, self.order = draw, plan, shape, order
        self.delimiter, self.quote = plan.csv.get("delimiter", ","), plan.csv.get("quote", '"')
        self.lines = not plan.csv.get("quoted_newlines", False)

    def quoted(self, cell: bytes) -> bytes:
        """A cell in quotes where it needs them."""
        q = self.quote.encode()
        if self.shape.quote_all or any(s in cell for s in (q, self.delimiter.encode(), b"\n", b"\r")):
            return q + cell.replace(q, q + q) + q
        return cell

    def join(self, cells: list[bytes]) -> bytes:
        """A line."""
        return self.delimiter.encode().join(map(self.quoted, cells))

    def row(self, number: int) -> bytes:
        """A tidy row, or one with an odd value."""
        cells = tidy_row(self.draw, self.plan, number)
        if self.draw.random() >= self.shape.odd_cells:
            return self.join([cells[c].encode() for c in self.order])
        odd = {c: v.encode() for c, v in cells.items()}
        for _ in range(self.draw.randint(1, 2)):
            odd[self.draw.choice(self.order)] = self.odd_cell()
        return self.join([odd[c] for c in self.order])

    def odd_cell(self) -> bytes:
        """A value that most columns would not expect."""
        draw = self.draw
        match draw.randrange(12):
            case 0:
                return draw.choice(INVALID)
            case 1:
                return b"y" * draw.choice([100, 70_000, 300_000])
            case 2:
                return b"two\rlines" if self.lines else draw.choice([b"two\nlines", b"two\r\nlines", b"\n", b"a\rb"])
            case 3 | 4 | 5 | 6 | 7:
                return draw.choice(NUMBERS).encode()
            case _:
                return draw.choice(STRINGS).encode()

    def odd_line(self, number: int) -> bytes:
        """A line that is no tidy record."""
        draw = self.draw
        d, q, row = self.delimiter.encode(), self.quote.encode(), self.row(number)
        width = len(self.order)
        middle = draw.randrange(len(row) + 1)
        forms = (
            lambda: row + d + b"more",
            lambda: d.join(row.split(d)[:-1]),
            lambda: row[:middle] + q + row[middle:],
            lambda: row[:middle] + q + q + row[middle:],
            lambda: q + row,
            lambda: row + q,
            lambda: q + b"a" + q + b"b" + d + row,
            lambda: q + b"k-" + str(number).encode() + q + b" " + row[row.find(d) :] if d in row else q,
            lambda: row[:middle] + b"\x00" + row[middle:],
            lambda: row.replace(d, d + b"\x00", 1),
            lambda: b"first te\x00in" + d + row,
            lambda: row[:middle] + b"\r" + row[middle:],
            lambda: b"\r" + row,
            lambda: b"\xef\xbb\xbf" + row,
            lambda: b"",
            lambda: b"\r\r",
            lambda: b"  ",
            lambda: d * (width - 1),
            lambda: d * draw.choice([width, 1000]),
            lambda: b"".join(draw.choices([b"a", d, q, b"\x00", b"1", b" ", b"\xff", b"\r"], k=draw.randint(1, 40))),
            lambda: row[:middle],
            lambda: b"\\" + row,
            lambda: b"#" + row,
        )
        return draw.choice(forms)()


def csv_file(draw: random.Random, plan: Plan, shape: Shape, *, first: int) -> tuple[bytes, tuple[str, ...]]:
    """A file's bytes, and its columns in their order. Keys count from `first`."""
    order = list(plan.columns)
    if plan.csv["header"] != "none":
        draw.shuffle(order)
    writer = Writer(draw, plan, shape, tuple(order))
    lines = [writer.join([c.encode() for c in order])] if plan.csv["header"] != "none" else []
    for number in range(first, first + shape.rows):
        if draw.random() < shape.odd_lines:
            lines.append(writer.odd_line(number))
        lines.append(writer.row(number))
    ends = {"mixed": [b"\n", b"\r\n"]}.get(shape.line_end, [shape.line_end.encode()])
    data = b"".join(line + draw.choice(ends) for line in lines[:-1]) + lines[-1]
    if shape.line_end == "\r" and writer.lines:
        data = data.replace(b"\n", b" ")
    if shape.last_line_end:
        data += ends[0]
    if shape.random_bytes:
        data = _scattered(draw, data, keep=len(lines[0]) if plan.csv["header"] != "none" else 0)
    data = _encoded(plan.csv["encoding"], data, bom=shape.bom)
    if shape.gzip:
        half = len(data) // 2
        data = gzip.compress(data[:half], 1) + gzip.compress(data[half:], 6)
    return data, tuple(order)


def _scattered(draw: random.Random, data: bytes, *, keep: int) -> bytes:
    """A few bytes changed anywhere behind the header."""
    changed = bytearray(data)
    for _ in range(draw.randint(1, 6)):
        if keep + 2 < len(changed):
            changed[draw.randrange(keep + 2, len(changed))] = draw.choice(b"\x00\"\x01\t,;\x7f\xc3\xff 0a\\'")
    return bytes(changed)


def _encoded(encoding: str, data: bytes, *, bom: bool) -> bytes:
    if encoding == "utf-8":
        return (b"\xef\xbb\xbf" if bom else b"") + data
    text = data.decode("utf-8", "replace")
    if encoding == "latin-1":
        return text.encode("latin-1", "replace")
    return ("\ufeff" if bom else "").encode("utf-16-le") + text.encode("utf-16-le")
