"""What a column that is not the label should be declared as, by rules of which the first that fits decides, and why."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from schemas.errors import counted
from schemas.init.columns import FEW_ROWS, NA_NOTE, Column, distinct, na_is_a_code, number, percent, shares, shown

LISTED, _LISTED_CHARACTERS = 20, 90  # a category of at most so many values lists them, if they fit in a line
SPARSE = 0.75  # text that is missing for more than this share is no feature
SKEWED = 3.0  # numbers that are skewed by more than this, and not negative, are taken by their logarithm
WRITE_PLAINLY = "write them plainly, such as 1234.5 or -1234.5, to learn from them"
_HASHED = 20_000  # values, from which on ids are hashed
_WORDS, _BYTES = 6, 60  # of a value, on average, from which on it is a text
_UNITS = (("seconds", 1), ("milliseconds", 10**3), ("microseconds", 10**6), ("nanoseconds", 10**9))
_TIMES = 10**8, 4 * 10**9  # seconds since 1970: from 1973 to 2096
_STAND_INS = ("-999", "-9999", "-99999", "-99", "9999", "99999")
_INDICATOR = 0.05  # a share of missing numbers that is worth a feature of its own

_TRAIN = {"train", "training"}
_OTHER_SPLITS = {"valid", "validation", "val", "dev", "eval", "test", "testing", "holdout"}
_TRUE, _FALSE = {"true", "t", "yes", "y", "1"}, {"false", "f", "no", "n", "0"}
_CONTACT = re.compile(
    r"(^|[_\W])(phone|telephone|mobile|fax|e?mail|url|link|ssn|iban|uuid|guid)([_\W]|$)", re.IGNORECASE
)
_CODE = re.compile(
    r"(code|type|class|zone|region|group|cluster|category|status|month|weekday|zip|zipcode|postcode|postal)$",
    re.IGNORECASE,
)
_WEIGHT = re.compile(r"(wgt|(sample|sampling|survey|instance|person|final|case)[_ ]?(weight|wt))$", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Declaration:
    """What is declared of one column, or of several that follow each other.

    Attributes:
        first: the position of the first column.
        last: that of the last.
        kind: as in a schema.
        settings: the other keys of the feature, but for its name and its columns.
        evidence: what the data shows, in a few words.
        by_name: the columns are declared as a range of numbered names.
    """

    first: int
    last: int
    kind: str
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    evidence: str = ""
    by_name: bool = False

    @property
    def width(self) -> int:
        return self.last - self.first + 1


class Kind(NamedTuple):
    """A kind of a schema, the other keys of the feature, and why."""

    name: str
    settings: dict[str, Any]
    evidence: str


def declare(column: Column) -> Declaration:
    """What a person would declare of a column that is not the label."""
    kind, settings, evidence = _kind(column)
    if kind != "ignore":
        evidence += f"; missing {percent(column.missing, column.rows)}" if column.missing else ""
        evidence += f"; {NA_NOTE}" if na_is_a_code(column.profile) else ""
    return Declaration(column.position, column.position, kind, settings, evidence)


def _ignore(evidence: str, *, group: bool = False) -> Kind:
    return Kind("ignore", {"group": group} if group else {}, evidence)


def _kind(column: Column) -> Kind:
    if not column.present:
        return _ignore("has no value in any record")
    if column.constant and column.rows >= 2:
        return _ignore(f"is always {shown(column.ranked()[0][0])!r}")
    if _CONTACT.search(column.name or ""):
        return _ignore("by its name, an address of one person or thing")
    return _of_numbers(column) if column.numeric and not column.profile.leading_zeros else _of_strings(column)


def _of_numbers(column: Column) -> Kind:
    name, span = column.name or "", f"{number(column.low)} to {number(column.high)}"
    if _are_days(column):
        return _ignore(f"days such as {column.low:.0f}; write year, month and weekday as columns")
    if column.distinct == 2 and (column.low, column.high) == (0, 1) and not column.missing:
        false, true = column.values()
        return Kind("bool", {} if (false, true) == ("0", "1") else {"true": [true], "false": [false]}, shares(column))
    if _WEIGHT.search(name) and column.distinct > LISTED:
        evidence = f"{span}; by its name a sampling weight, which says nothing about the record"
        return _ignore(f"{evidence}. kind: weight would train by it")
    if column.row_number:
        return Kind("key", {}, f"a number of its own for each record, {span}")
    if column.whole and column.present >= FEW_ROWS:
        if column.called_id and column.distinct > LISTED:
            return _ignore(f"an identifier by its name, {span}", group=column.shared_id)
        if column.panel:
            records = column.present // column.distinct
            return _ignore(f"{column.distinct:,} numbers of {records} records each", group=True)
        coded = column.distinct == 2 or (3 <= column.distinct <= 5 and column.low == 1 and column.consecutive)
        if coded or (_CODE.search(name) and column.distinct <= 50):
            return category(column)
    if times := as_times(column):
        return _ignore(times)
    skew, of_log = column.profile.numbers.skewness, column.profile.logs.skewness
    mean = f"{span}, mean {number(column.profile.numbers.mean)}"
    evidence = mean if column.low < column.high else f"always {number(column.low)}"
    settings: dict[str, Any] = {"transform": "z_score"}
    if column.low >= 0 and skew >= SKEWED and abs(of_log) < skew:
        settings["transform"] = "log"
        evidence += f", a long tail: skewness {skew:.1f}, of log(1 + x) {of_log:.1f}"
    if column.missing:
        settings["missing"] = "median" if settings["transform"] == "log" else "mean"
        if column.missing >= _INDICATOR * column.rows:
            settings["indicator"] = True
    return Kind("numeric", settings, evidence + _stand_in(column) + merged([column]))


def _are_days(column: Column) -> bool:
    """Whether its numbers are days, written YYYYMMDD."""
    if not (column.whole and column.known and column.low >= 19000101 and column.high <= 21001231):
        return False
    days = np.array([int(float(value)) for value, _ in column.ranked()])
    months, of_month = days // 100 % 100, days % 100
    return bool(((months >= 1) & (months <= 12) & (of_month >= 1) & (of_month <= 31)).all())


def _stand_in(column: Column) -> str:
    """A note about a number far from all others that may stand for a missing one."""
    for value, n in column.ranked()[:3]:
        text, numbers = value.decode("utf-8", "replace"), column.profile.numbers
        if text in _STAND_INS and n >= 5 and abs(float(text) - numbers.mean) > 2 * numbers.deviation:
            return f"; {text} occurs {n:,} times: add it to csv: missing if it means that"
    return ""


def names_split(column: Column) -> bool:
    """Whether its values are the names of splits, the train split's among them."""
    values = {value.decode("utf-8", "replace").lower() for value, _ in column.ranked()}
    return bool(values & _TRAIN) and bool(values - _TRAIN) and values <= _TRAIN | _OTHER_SPLITS


def _of_strings(column: Column) -> Kind:
    profile, present = column.profile, column.present
    if names_split(column):
        return _ignore(f"names the split of each record: {shares(column)}")
    values = {value.decode("utf-8", "replace").lower() for value, _ in column.ranked()[:7]}
    if not column.missing and len(values) == 2 and len(_TRUE & values) == len(_FALSE & values) == 1:
        return Kind("bool", {}, shares(column))
    if profile.dates >= 0.95 * present:
        example = shown(column.ranked()[0][0]) if column.known else "2026-01-31"
        return _ignore(f"dates or times such as {example}; write year, month, weekday or hour as columns")
    if amounts := as_amounts(column):
        return _ignore(amounts)
    if column.missing > SPARSE * column.rows:
        return _ignore(f"missing {percent(column.missing, column.rows)}, {distinct(column)} distinct values")
    cells = max(profile.text_cells, 1)
    wordy, long = profile.words >= _WORDS * cells, profile.text_bytes >= _BYTES * cells
    if (wordy or long) and present >= FEW_ROWS and column.distinct > max(LISTED, 0.1 * present):
        # Long texts of few words: a script without spaces, addresses, code.
        settings = {"ngrams": [1, 2]} if wordy else {"characters": [2, 4]}
        evidence = f"{profile.words / cells:.0f} words on average, {distinct(column)} distinct texts"
        return Kind("text", {**settings, "top_k": 20_000}, evidence)
    if column.unique:
        return Kind("key", {}, "a value of its own for nearly every record")
    if column.one_of_a_kind:
        evidence = f"mostly one of a kind: {distinct(column)} distinct values of {present:,}"
        if not column.shared_id and column.distinct < present / 1.2 and column.missing < 0.05 * column.rows:
            evidence += "; a split by it would keep those that share one together"
        return _ignore(evidence, group=column.shared_id)
    if column.called_id and column.distinct > LISTED and present >= FEW_ROWS:
        return _ignore(f"an identifier by its name, {distinct(column)} distinct values", group=column.shared_id)
    return category(column)


def category(column: Column) -> Kind:
    """Declares a category; its values are listed where they are few."""
    settings: dict[str, Any] = {}
    fit = column.known and sum(len(value) + 2 for value, _ in column.ranked()) <= _LISTED_CHARACTERS
    if column.distinct > _HASHED:
        settings["hash_buckets"] = 1 << int(np.ceil(np.log2(column.distinct)))
    elif fit and column.distinct <= LISTED:
        settings["values"] = column.values()
    if column.missing:
        settings["missing"] = "<unknown>"
    values = counted(column.distinct, "value") if column.known else f"{distinct(column)} values"
    return Kind("category", settings, f"{values}: {shares(column)}" if column.known else values)


def as_amounts(column: Column) -> str:
    """How its numbers are written, where they are not written as numbers; else nothing."""
    profile = column.profile
    plain = column.numeric or not profile.amounts or column.distinct <= LISTED
    if plain or profile.amounts + profile.numbers.count < 0.95 * column.present:
        return ""
    comma = " with a decimal comma" if 2 * profile.decimal_commas >= profile.amounts else ""
    return f"numbers written{comma} as {shown(profile.amount)!r}; {WRITE_PLAINLY}"


def as_times(column: Column) -> str:
    """Which times its numbers are, where a float32 does not tell them apart; else nothing."""
    low, high = column.profile.low, column.profile.high
    for unit, per_second in _UNITS:
        if column.merges and column.profile.whole and _TIMES[0] <= low / per_second and high / per_second <= _TIMES[1]:
            first, last = (
                f"{dt.datetime.fromtimestamp(end / per_second, dt.UTC):%Y-%m-%d %H:%M}" for end in (low, high)
            )
            return (
                f"its numbers look like {unit} since 1970 ({first} to {last}), and a float32 cannot tell them apart; "
                f"write year, month, weekday or hour as columns, or the {unit} since {first}"
            )
    return ""


def merged(columns: Sequence[Column]) -> str:
    """What is lost where numbers are too close to each other for a float32, and what to do; else nothing."""
    lost = [column.profile for column in columns if column.merges]
    if not lost:
        return ""
    before, after = sum(p.sampled for p in lost), sum(p.sampled_float32 for p in lost)
    return (
        f"; of {before:,} distinct numbers {after:,} are left as float32, with 7 digits: subtract a number near them "
        "from all of them, or declare kind: category"
    )
