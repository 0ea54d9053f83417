"""What a dataset holds, read without the project's readers, and held to what the oracle expects of its input."""

from __future__ import annotations

import base64
import bisect
import collections
import ctypes
import dataclasses
import gzip
import itertools
import json
import math
import re
import struct
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import google_crc32c

from tools.attack.drawn_csv import Item, Plan
from tools.attack.oracle_rows import HUGE, Expected, Why

EXAMPLES = 5  # of one kind of difference


@dataclasses.dataclass
class Found:
    """What differs from what is expected: titles, each with some examples and how many there are."""

    examples: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    counts: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)

    def add(self, title: str, example: str) -> None:
        """Notes one."""
        self.counts[title] += 1
        if self.counts[title] <= EXAMPLES:
            self.examples.setdefault(title, []).append(example)


class Unreadable(Exception):
    """A dataset that does not read back."""


@dataclasses.dataclass(frozen=True)
class Stored:
    """A stored record: its split and the values of its features."""

    split: str
    values: dict[str, list[Any]]


@dataclasses.dataclass(frozen=True)
class Rejected:
    """A line of a rejects file."""

    source: str
    offset: int
    stage: str
    reason: str
    column: str | None
    raw: bytes


def manifest(folder: Path) -> dict[str, Any]:
    """The manifest's JSON."""
    return json.loads((folder / "manifest.json").read_bytes())


def frames(data: bytes) -> Iterator[bytes]:
    """The records of a TFRecord file, whose checksums must match."""
    position = 0
    while position < len(data):
        length, sum_of_length = struct.unpack_from("<QI", data, position)
        record = data[position + 12 : position + 12 + length]
        (sum_of_record,) = struct.unpack_from("<I", data, position + 12 + length)
        for part, found in ((data[position : position + 8], sum_of_length), (record, sum_of_record)):
            crc = google_crc32c.value(part)
            if (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF != found:
                raise Unreadable(f"the checksum at byte {position} does not match")
        yield record
        position += 16 + length


def stored(folder: Path, told: dict[str, Any]) -> Iterator[Stored]:
    """Every record of every shard that the manifest names."""
    from tensorflow.core.example.example_pb2 import Example

    for split, content in told["splits"].items():
        for shard in content["shards"]:
            data = (folder / shard["path"]).read_bytes()
            if told["compression"] == "gzip":
                data = gzip.decompress(data)
            for record in frames(data):
                features = Example.FromString(record).features.feature
                yield Stored(split, {name: _values(feature) for name, feature in features.items()})


def _values(feature: Any) -> list[Any]:
    kind = feature.WhichOneof("kind")
    return [] if kind is None else list(getattr(feature, kind).value)


def reject_files(folder: Path) -> list[Path]:
    """The rejects files of a dataset directory's run."""
    return sorted((folder / manifest(folder)["run"]).glob("rejects-*.jsonl"))


def rejects(*paths: Path) -> Iterator[Rejected]:
    """The lines of rejects files."""
    for path in paths:
        for line in path.read_bytes().split(b"\n"):
            if line:
                row = json.loads(line)
                raw = base64.b64decode(row["raw_base64"]) if "raw_base64" in row else row["raw"].encode()
                yield Rejected(row["source"], row["offset"], row["stage"], row["reason"], row["column"], raw)


Told = Callable[[str, str], None]
Pair = tuple[Any, list[Any], str]  # a raw value, what is stored of it, its split


def check_values(plan: Plan, pairs: list[tuple[Expected, Stored]], tell: Told, *, measured: bool) -> None:
    """Compares every value of every pair; `measured`: these are all the rows that statistics were taken of."""
    names = _stored_names(plan)
    for record, found in pairs:
        if set(found.values) != names:
            tell("a record's features are others", f"{sorted(set(found.values) ^ names)} of {record.raw[:60]!r}")
            return
    for item in plan.items:
        name, kind = item["name"], item["kind"]
        if kind in ("ignore", "key"):
            continue
        if kind == "cross":
            _ids(
                name,
                [(tuple(str(f.values[o]) for o in item["of"]), f.values[name], f.split) for _, f in pairs],
                item,
                tell,
            )
            continue
        rows: list[Pair] = [(r.values[name], f.values[name], f.split) for r, f in pairs]
        if (item is plan.label and kind == "numeric") or kind == "weight":
            _exact(name, rows, lambda raw: raw, tell)
        elif kind == "numeric":
            _numeric(name, item, rows, tell, measured=measured)
            if item.get("indicator"):
                flags = [
                    (r, f.values[f"{name}_missing"], f.split) for (r, _, _), (_, f) in zip(rows, pairs, strict=True)
                ]
                _exact(f"{name}_missing", flags, lambda raw: [float(v is None) for v in raw], tell)
        elif kind == "one_hot":
            _exact(name, rows, lambda raw: [raw], tell)
        elif kind == "bool":
            _exact(name, rows, lambda raw: [float(raw)], tell)
        elif kind == "text" and _weighted(item):
            weights = [f.values[f"{name}_tfidf"] for _, f in pairs]
            _ngrams(name, item, rows, weights, tell, measured=measured)
        elif kind == "text":
            _words(name, item, rows, tell)
        elif item.get("values") is not None:
            _given(name, item, rows, tell, classes=item is plan.label)
        else:
            _ids(name, rows, item, tell)
            if "hash_buckets" not in item and measured:
                _vocabulary(name, item, rows, tell)


def _stored_names(plan: Plan) -> set[str]:
    names = {i["name"] for i in plan.items if i["kind"] != "ignore"}
    names |= {f"{i['name']}_tfidf" for i in plan.features if _weighted(i)}
    return names | {f"{i['name']}_missing" for i in plan.features if i.get("indicator")}


def _weighted(item: Item) -> bool:
    return "ngrams" in item or "characters" in item


def _exact(name: str, rows: list[Pair], becomes: Callable[[Any], list[Any]], tell: Told) -> None:
    for raw, found, _ in rows:
        if becomes(raw) != found:
            tell(f"a value is another: {name[0]}", f"{name}: {raw!r} is stored as {found}, expected {becomes(raw)}")


def _given(name: str, item: Item, rows: list[Pair], tell: Told, *, classes: bool) -> None:
    """Ids by the values' places, others behind them."""
    ids = {value.encode(): i for i, value in enumerate(item["values"])}
    last = len(ids) + (0 if classes else item.get("oov_buckets", 1))
    for raw, (found, *more), _ in rows:
        expected = ids.get(raw)
        good = found == expected if expected is not None else len(ids) <= found < last
        if not good or more:
            wanted = f"expected {expected}, or {len(ids)} to {last - 1}"
            tell("an id is another", f"{name}: {raw!r} has the id {found}, {wanted}")


def _ids(name: str, rows: list[Pair], item: Item, tell: Told) -> None:
    """One value has one id, within its range."""
    limit = item.get("buckets", item.get("hash_buckets", math.inf))
    ids: dict[Any, Any] = {}
    for raw, found, _ in rows:
        if len(found) != 1 or not 0 <= found[0] < limit:
            tell("an id is out of its range", f"{name}: {raw!r} has {found}")
        elif ids.setdefault(raw, found[0]) != found[0]:
            tell("one value has two ids", f"{name}: {raw!r} has {ids[raw]} and {found[0]}")


def _vocabulary(name: str, item: Item, rows: list[Pair], tell: Told) -> None:
    """The values of the train split, the most frequent first; two values share an id only out of the vocabulary."""
    counts = collections.Counter(raw for raw, _, split in rows if split == "train")
    ids = {raw: found[0] for raw, found, _ in rows if found}
    frequent = [raw for raw, n in counts.items() if n >= (item.get("frequency_threshold") or 1) and raw]
    size = min(len(frequent), item.get("top_k") or len(frequent))
    known = {raw: i for raw, i in ids.items() if i < size}
    if len(set(known.values())) != len(known):
        shared = [v for v, n in collections.Counter(known.values()).items() if n > 1]
        tell("two values share an id", f"{name}: {[r for r, i in known.items() if i in shared][:4]}")
    ranked = sorted((i, counts[raw]) for raw, i in known.items())
    if any(a < b for (_, a), (_, b) in itertools.pairwise(ranked)):
        tell("a vocabulary is not in the order of frequency", f"{name}: {ranked[:10]}")
    if "top_k" not in item:
        for raw in frequent:
            if raw not in known:
                tell("a value of the train split is not in its vocabulary", f"{name}: {raw!r}, {counts[raw]} times")


def _words(name: str, item: Item, rows: list[Pair], tell: Told) -> None:
    """An id for each word, cut or padded to the length where there is one."""
    length = item.get("length")
    ids: dict[bytes, int] = {}
    for raw, found, _ in rows:
        words = raw.decode().lower().encode().split() if item.get("lower", True) else raw.split()
        wanted = len(words) if length is None else length
        used = found[: len(words)]
        if len(found) != wanted or any(i < 1 for i in used) or any(found[len(words) :]):
            tell("a text has another number of words", f"{name}: {raw[:60]!r} has {found}")
            continue
        for word, number in zip(words, used, strict=False):
            if ids.setdefault(word, number) != number:
                tell("one word has two ids", f"{name}: {word[:60]!r} has {ids[word]} and {number}")


def _ngrams(name: str, item: Item, rows: list[Pair], weights: list[list[float]], tell: Told, *, measured: bool) -> None:
    """The distinct known n-grams of each text, and the weights that they have by how many train rows hold them."""
    bags = [collections.Counter(_grams(item, raw.decode())) for raw, _, _ in rows]
    train = [bag for bag, (_, _, split) in zip(bags, rows, strict=True) if split == "train"]
    held = collections.Counter(gram for bag in train for gram in bag)
    for bag, (raw, found, _), weight in zip(bags, rows, weights, strict=True):
        if found != sorted(set(found)) or any(i < 1 for i in found) or len(found) != len(weight):
            tell("n-grams have no weights, or not each its own", f"{name}: {raw[:60]!r} has {found}, {weight}")
        elif len(found) > len(bag):
            tell("a text has more n-grams than there are", f"{name}: {raw[:60]!r} has {found} of {[*bag]}")
        elif measured and "top_k" not in item:
            of = [n * (1 + math.log((1 + len(train)) / (1 + held[gram]))) for gram, n in bag.items() if held[gram] > 1]
            length = math.hypot(*of)
            expected = sorted(x / length for x in of)
            alike = len(of) == len(found) and all(
                abs(a - b) < 1e-5 for a, b in zip(sorted(weight), expected, strict=True)
            )
            if not alike:
                tell("n-grams have other weights", f"{name}: {raw[:60]!r} has {sorted(weight)}, expected {expected}")


def _grams(item: Item, value: str) -> Iterator[str]:
    """The n-grams of a text, one by one."""
    value = value.lower() if item.get("lower", True) else value
    if "ngrams" in item:
        kept = "".join(c if c == "_" or unicodedata.category(c)[0] in "LMN" else " " for c in value)
        words = kept.split()
        for n in range(item["ngrams"][0], item["ngrams"][1] + 1):
            yield from (" ".join(words[i : i + n]) for i in range(len(words) - n + 1))
    if "characters" in item:
        for word in re.split("[ \t\n\r\v\f]+", value):
            spaced = f" {word} " if word else ""
            for n in range(item["characters"][0], item["characters"][1] + 1):
                yield from ("~" + spaced[i : i + n] for i in range(len(spaced) - n + 1))


def _numeric(name: str, item: Item, rows: list[Pair], tell: Told, *, measured: bool) -> None:
    """Each column by itself."""
    transform, width = item["transform"], len(rows[0][0]) if rows else 0
    fill = item.get("missing")
    for j in range(width):
        column = [(raw[j], found[j] if len(found) == width else None, split) for raw, found, split in rows]
        train = [v for v, _, split in column if split == "train" and v is not None]
        if isinstance(fill, float) and transform == "z_score":  # it measures what replaces missing numbers, too
            train += [ctypes.c_float(fill).value for v, _, split in column if split == "train" and v is None]
        clip, plain = item.get("clip"), not _measures(transform, fill)
        # What is measured of clipped values is not known: their bounds are known to within an error alone.
        known = measured and plain if clip else measured or plain
        formula, slack = _formula(transform, fill, train) if known else (None, 0.0)
        low, high = _inside(sorted(train), clip)
        for raw, found, _ in column:
            if found is None or not math.isfinite(found):
                tell(f"a number is not finite: {_called(transform)}", f"{name}: {raw} is stored as {found}")
                continue
            if formula is None or (raw is not None and (abs(raw) > HUGE or not low <= raw <= high)):
                continue
            expected = formula(raw)
            if expected is None:
                continue
            if abs(found - expected) > 1e-5 * abs(expected) + 1e-6 + slack * (1 + abs(raw or 0)):
                tell(f"a number is another: {_called(transform)}", f"{name}: {raw} is {found}, expected {expected}")
        if clip:
            pairs = sorted((v, f) for v, f, _ in column if v is not None and f is not None)
            if any(a[1] > b[1] for a, b in itertools.pairwise(pairs)):
                tell("clipped numbers do not rise with the number", f"{name}: {pairs[:3]} to {pairs[-3:]}")
        if isinstance(transform, dict) and isinstance(transform.get("bucketize"), int):
            pairs = sorted((v, f) for v, f, _ in column if v is not None and f is not None)
            falls = any(a[1] > b[1] for a, b in itertools.pairwise(pairs))
            if falls or any(not 0 <= f < transform["bucketize"] for _, f in pairs):
                tell("buckets do not rise with the number", f"{name}: {pairs[:3]} to {pairs[-3:]}")


def _inside(train: list[float], clip: list[float] | None) -> tuple[float, float]:
    """Between which numbers none is clipped, whatever the error of the quantiles."""
    low, high = clip or (0, 1)
    error = 0.002 * len(train) + 2
    first, last = math.ceil(low * len(train) + error), math.floor(high * len(train) - error)
    below = -math.inf if low == 0 else train[first] if first < len(train) else math.inf
    return below, math.inf if high == 1 else train[last] if last >= 0 else -math.inf


def _called(transform: Any) -> str:
    return next(iter(transform)) if isinstance(transform, dict) else transform


def _measures(transform: Any, fill: Any) -> bool:
    return transform in ("z_score", "min_max") or fill in ("mean", "median")


def _formula(
    transform: Any, fill: Any, train: list[float]
) -> tuple[Callable[[float | None], float | None] | None, float]:
    """What a raw number becomes (None: it cannot be told), and the error that float32 makes for each unit of it."""
    apply: Callable[[float], float]
    mean = math.fsum(train) / len(train) if train else 0.0
    slack = 0.0
    match transform:
        case "none":
            apply = float
        case "log":
            apply = math.log1p
        case {"scale": [low, high]}:
            apply, slack = (lambda x: (x - low) / (high - low)), 1e-6 / (high - low)
        case {"bucketize": list(bounds)}:
            narrow = [ctypes.c_float(b).value for b in bounds]
            apply = lambda x: float(bisect.bisect_right(narrow, x))  # noqa: E731
        case "min_max" if train:
            low, high = min(train), max(train)
            span = high - low if high > low else 1.0
            if not math.isfinite(ctypes.c_float(span).value) or span > HUGE:
                return None, 0.0
            apply, slack = (lambda x: (x - low) / span), 1e-6 * (1 + abs(low)) / span
        case "z_score" if train:
            deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in train) / len(train))
            if deviation <= 1e-6 * abs(mean) or deviation > HUGE:
                return None, 0.0
            apply, slack = (lambda x: (x - mean) / deviation), 1e-6 * (1 + abs(mean)) / deviation
        case _:
            return None, 0.0

    def becomes(raw: float | None) -> float | None:
        if raw is None and isinstance(fill, float):
            raw = ctypes.c_float(fill).value
        if raw is None and fill == "mean" and train:
            raw = mean
        return None if raw is None else apply(raw)

    return becomes, slack


def matches(told: Why, why: Iterable[Why]) -> bool:
    """Whether a reject's stage, reason and column are among the expected ones."""
    stage, reason, column = told
    return any(
        s in ("*", stage) and r in (None, reason) and (c is None or c == column or column is None) for s, r, c in why
    )


def check_rejects(expected: list[Expected], rejected: Iterable[Rejected], found: Found) -> set[int]:
    """Holds rejects to the records that they stand for; returns the places in `expected` of the rejected ones."""
    places = {(e.source, e.offset): i for i, e in enumerate(expected)}
    gone: set[int] = set()
    for reject in rejected:
        shown = f"{reject.source} at {reject.offset}: {reject.stage}, {reject.reason}, {reject.column}: "
        shown += f"{reject.raw[:80]!r}"
        place = places.get((reject.source, reject.offset))
        if place is None:
            found.add("a reject where no record begins", shown)
            continue
        record = expected[place]
        if place in gone:
            found.add("a record is rejected twice", shown)
        gone.add(place)
        if reject.raw != record.raw:
            found.add("a reject's raw bytes are not the record's", f"{shown}, record {record.raw[:80]!r}")
        if not record.may_reject:
            found.add(f"a good record is rejected as {reject.reason}", shown)
        elif not matches((reject.stage, reject.reason, reject.column), record.why):
            found.add("a reject has a reason that is not true of it", f"{shown}; true: {set(record.why)}")
    for i, record in enumerate(expected):
        if not record.may_write and i not in gone:
            reasons = ", ".join(sorted({w[1] or "no finite result" for w in record.why}))
            found.add(f"a bad record is no reject: {reasons}", f"{record.raw[:100]!r} at {record.offset}")
    return gone


def check_dataset(
    plan: Plan,
    expected: list[Expected],
    told: dict[str, Any],
    stored: Iterable[Stored],
    rejected: Iterable[Rejected],
    found: Found,
) -> None:
    """Notes all that differs between a dataset and what its input says."""
    gone = check_rejects(expected, rejected, found)
    if told["read"] != len(expected):
        found.add("the count of records is wrong", f"read {told['read']}, and there are {len(expected)}")
    if told["read"] != told["written"] + told["rejected"] or told["rejected"] != len(gone):
        sums = f"read {told['read']}, written {told['written']}, rejected {told['rejected']}; rejects {len(gone)}"
        found.add("the manifest does not add up", sums)
    wanted: dict[bytes, list[Expected]] = collections.defaultdict(list)
    for i, record in enumerate(expected):
        if i not in gone and "id" in record.values:
            wanted[record.values["id"]].append(record)
    rows: dict[bytes, list[Stored]] = collections.defaultdict(list)
    for row in stored:
        rows[row.values["id"][0]].append(row)
    number = sum(map(len, rows.values()))
    if number != told["written"]:
        found.add("the shards hold another number of records", f"{number}, written {told['written']}")
    pairs = []
    for key in wanted.keys() | rows.keys():
        here, there = wanted[key], rows[key]
        if not there:
            found.add("a record is lost", f"{key[:60]!r}: {here[0].raw[:100]!r}")
        elif not here:
            found.add("a record is stored that nobody wrote", f"{key[:60]!r}: {str(there[0].values)[:200]}")
        elif len(here) != len(there):
            found.add("a record is doubled or lost", f"{key[:60]!r}: {len(here)} became {len(there)}")
        elif len(here) == 1:
            pairs.append((here[0], there[0]))
    # What the transform rejects was measured with the rest (docs/rejects.md); "*" is any stage, that one among them.
    measured = not any(w[0] in ("transform", "*") for i in gone for w in expected[i].why)
    check_values(plan, pairs, found.add, measured=measured and len(pairs) == number == told["written"])
    by = plan.split["by"]
    if by == "row" or any(name not in plan.reads for name in by):
        return
    splits: dict[tuple[Any, ...], str] = {}
    for record, row in pairs:  # records that share what the split is made by are in one split
        if all(name in record.values for name in by):
            group = tuple(str(record.values[name]) for name in by)
            if splits.setdefault(group, row.split) != row.split:
                found.add("one group is in two splits", f"{group}: {splits[group]}, {row.split}")
