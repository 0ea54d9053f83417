"""Random CSV files for a schema: tidy rows, and among them whatever a file may hold."""

from __future__ import annotations

import dataclasses
import gzip
import random

from tools.attack.plans import FOREIGN, WORDS, Item, Plan

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
