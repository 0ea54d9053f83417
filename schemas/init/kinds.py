"""What a column that is not the label should be declared as, and why: rules, of which the first that fits decides."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from schemas.errors import counted
from schemas.init.columns import FEW_ROWS, ColumnFacts, distinct, number, percent, shares, shown

LISTED, _LISTED_CHARACTERS = 20, 90  # a category of at most so many values lists them, if they fit in a line
SPARSE = 0.75  # text that is missing for more than this share is no feature
SKEWED = 3.0  # numbers that are skewed by more than this, and not negative, are taken by their logarithm
_HASHED = 20_000  # values, from which on ids are hashed
_WORDS, _BYTES = 6, 60  # of a value, on average, from which on it is a text
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
        note: what a person should look at, after the column's name; empty: nothing.
        by_name: the columns are declared as a range of numbered names.
        groups: whether records that share its value should be in one split.
    """

    first: int
    last: int
    kind: str
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    evidence: str = ""
    note: str = ""
    by_name: bool = False
    groups: bool = False

    @property
    def width(self) -> int:
        return self.last - self.first + 1

    def ignored(self, evidence: str, note: str = "") -> Declaration:
        """The same columns, ignored."""
        return Declaration(self.first, self.last, "ignore", {}, evidence, note)


def declare(column: ColumnFacts) -> Declaration:
    """What a person would declare of a column that is not the label."""
    of_numbers = column.numeric and not column.profile.leading_zeros
    declared = _unused(column) or (_of_numbers(column) if of_numbers else _of_strings(column))
    if declared.kind == "ignore":
        return declared
    missing = f"missing {percent(column.missing, column.rows)}" if column.missing else ""
    evidence = "; ".join(filter(None, (declared.evidence, missing, column.na_note)))
    return dataclasses.replace(declared, evidence=evidence)


def _of(column: ColumnFacts, kind: str, evidence: str, **settings: Any) -> Declaration:
    return Declaration(column.position, column.position, kind, settings, evidence)


def _ignore(column: ColumnFacts, evidence: str, note: str = "", *, groups: bool = False) -> Declaration:
    return Declaration(column.position, column.position, "ignore", {}, evidence, note, groups=groups)


def _unused(column: ColumnFacts) -> Declaration | None:
    """Why a column is ignored, whatever its values are; None if it is not."""
    if not column.present:
        return _ignore(column, "has no value in any record")
    if column.constant and column.rows >= 2:
        return _ignore(column, f"is always {shown(column.ranked()[0][0])!r}")
    if _CONTACT.search(column.name or ""):
        return _ignore(column, "by its name, an address of one person or thing")
    return None


def _of_numbers(column: ColumnFacts) -> Declaration:
    name, span = column.name or "", f"{number(column.low)} to {number(column.high)}"
    if column.distinct == 2 and (column.low, column.high) == (0, 1) and not column.missing:
        false, true = column.values()
        spelled = {} if (false, true) == ("0", "1") else {"true": [true], "false": [false]}
        return _of(column, "bool", shares(column), **spelled)
    if _WEIGHT.search(name) and column.distinct > LISTED:
        evidence = f"{span}; by its name a sampling weight, which says nothing about the record"
        return _ignore(column, f"{evidence}. kind: weight would train by it")
    if column.row_number:
        return _of(column, "key", f"a number of its own for each record, {span}")
    if column.whole and column.present >= FEW_ROWS:
        if column.called_id and column.distinct > LISTED:
            return _ignore(column, f"an identifier by its name, {span}", groups=column.shared_id)
        if column.panel:
            records = column.present // column.distinct
            return _ignore(column, f"{column.distinct:,} numbers of {records} records each", groups=True)
        coded = column.distinct == 2 or (3 <= column.distinct <= 5 and column.low == 1 and column.consecutive)
        if coded or (_CODE.search(name) and column.distinct <= 50):
            return category(column)
    if column.whole and column.merges:
        evidence = (
            f"whole numbers from {span}, which a float32 cannot tell apart; of dates or times, write year, month, "
            "weekday or hour as columns; subtract a number near them from others, or declare kind: category"
        )
        return _ignore(column, evidence, f"is ignored: {evidence}")
    return _numeric(column, span)


def _numeric(column: ColumnFacts, span: str) -> Declaration:
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
    lost = merged([column])
    evidence = "; ".join(filter(None, (evidence, _stand_in(column), lost)))
    return dataclasses.replace(
        _of(column, "numeric", evidence, **settings), note=f"loses digits: {lost}" if lost else ""
    )


def _stand_in(column: ColumnFacts) -> str:
    """A note about a number far from all others that may stand for a missing one."""
    for value, n in column.ranked()[:3]:
        text, numbers = value.decode("utf-8", "replace"), column.profile.numbers
        if text in _STAND_INS and n >= 5 and abs(float(text) - numbers.mean) > 2 * numbers.deviation:
            return f"{text} occurs {n:,} times: add it to csv: missing if it means that"
    return ""


def _names_splits(column: ColumnFacts) -> bool:
    """Whether its values are the names of splits, the train split's among them."""
    values = {value.decode("utf-8", "replace").lower() for value, _ in column.ranked()}
    return bool(values & _TRAIN) and bool(values - _TRAIN) and values <= _TRAIN | _OTHER_SPLITS


def _of_strings(column: ColumnFacts) -> Declaration:
    profile, present = column.profile, column.present
    if _names_splits(column):
        note = (
            "names the split of each record, and is ignored, since the schema splits anew. To keep these splits, write "
            "a file for each of them, and say split: {by: file, train: ..., eval: ..., test: ...}"
        )
        return _ignore(column, f"names the split of each record: {shares(column)}", note)
    values = {value.decode("utf-8", "replace").lower() for value, _ in column.ranked()[:7]}
    if not column.missing and len(values) == 2 and len(_TRUE & values) == len(_FALSE & values) == 1:
        return _of(column, "bool", shares(column))
    if profile.dates >= 0.95 * present:
        example = shown(column.ranked()[0][0]) if column.known else "2026-01-31"
        return _ignore(column, f"dates or times such as {example}; write year, month, weekday or hour as columns")
    if amounts := as_amounts(column):
        return _ignore(column, amounts, f"is ignored: {amounts}")
    if column.missing > SPARSE * column.rows:
        missing = f"missing {percent(column.missing, column.rows)}"
        return _ignore(column, f"{missing}, {distinct(column)} distinct values")
    cells = max(profile.text_cells, 1)
    wordy, long = profile.words >= _WORDS * cells, profile.text_bytes >= _BYTES * cells
    if (wordy or long) and present >= FEW_ROWS and column.distinct > max(LISTED, 0.1 * present):
        # Long texts of few words: a script without spaces, addresses, code.
        lengths = {"ngrams": [1, 2]} if wordy else {"characters": [2, 4]}
        evidence = f"{profile.words / cells:.0f} words on average, {distinct(column)} distinct texts"
        return _of(column, "text", evidence, **lengths, top_k=20_000)
    if column.unique:
        return _of(column, "key", "a value of its own for nearly every record")
    if column.one_of_a_kind:
        evidence = f"mostly one of a kind: {distinct(column)} distinct values of {present:,}"
        return _ignore(column, evidence, groups=column.shared_id)
    if column.called_id and column.distinct > LISTED and present >= FEW_ROWS:
        evidence = f"an identifier by its name, {distinct(column)} distinct values"
        return _ignore(column, evidence, groups=column.shared_id)
    return category(column)


def category(column: ColumnFacts) -> Declaration:
    """Declares a category; its values are listed where they are few."""
    settings: dict[str, Any] = {}
    fit = column.known and sum(len(value) + 2 for value, _ in column.ranked()) <= _LISTED_CHARACTERS
    if column.distinct > _HASHED:
        settings["hash_buckets"] = 1 << int(np.ceil(np.log2(column.distinct)))
    elif fit and column.distinct <= LISTED:
        settings["values"] = column.values()
    if column.missing:
        settings["missing"] = "<unknown>"
    values = f"{counted(column.distinct, 'value')}: {shares(column)}" if column.known else f"{distinct(column)} values"
    return _of(column, "category", values, **settings)


def as_amounts(column: ColumnFacts) -> str:
    """How its numbers are written, where they are not written as numbers; else nothing."""
    profile = column.profile
    plain = column.numeric or not profile.amounts or column.distinct <= LISTED
    if plain or profile.amounts + profile.numbers.count < 0.95 * column.present:
        return ""
    comma = " with a decimal comma" if 2 * profile.decimal_commas >= profile.amounts else ""
    return (
        f"numbers written{comma} as {shown(profile.amount)!r}; write them plainly, such as 1234.5 or -1234.5, to learn "
        "from them"
    )


def merged(columns: Sequence[ColumnFacts]) -> str:
    """What is lost where numbers are too close to each other for a float32, and what to do; else nothing."""
    lost = [column.profile for column in columns if column.merges]
    if not lost:
        return ""
    before, after = sum(p.sampled for p in lost), sum(p.sampled_float32 for p in lost)
    return (
        f"of {before:,} distinct numbers {after:,} are left as float32, with 7 digits: subtract a number near them "
        "from all of them, or declare kind: category"
    )
