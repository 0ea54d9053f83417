"""Random schemas: every kind, option and way to write a CSV file that docs/schema.md names."""

from __future__ import annotations

import dataclasses
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
    """A text, as a bag or cut to a length."""
    item: Item = {"name": name, "kind": "text", "lower": draw.random() < 0.7}
    if draw.random() < 0.5:
        item["length"] = draw.randint(1, 6)
    if draw.random() < 0.5:
        item["top_k"] = draw.randint(1, 8)
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
