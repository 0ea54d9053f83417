"""Declares a column that is not the label, by rules of which the first that fits decides, and says why."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from schemas.errors import counted
from schemas.init.columns import FEW_ROWS, ColumnFacts
from schemas.init.writing import number, percent, shown

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
        first, last: the positions of the first and the last column.
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
        """The number of columns."""
        return self.last - self.first + 1

    def ignored(self, evidence: str, note: str = "") -> Declaration:
        """Returns the same columns, ignored."""
        return Declaration(self.first, self.last, "ignore", {}, evidence, note)

    def shortened(self) -> Declaration:
        """Returns the same without evidence and without the settings that a schema can do without."""
        settings = {k: v for k, v in self.settings.items() if k != "values" and (k, v) != ("transform", "z_score")}
        return dataclasses.replace(self, settings=settings, evidence="")


def declare(column: ColumnFacts) -> Declaration:
    """Returns what a person would declare of a column that is not the label."""
    of_numbers = column.numeric and not column.evidence.leading_zeros
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
        return _of(column, "bool", column.shares(), **spelled)
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
    numbers, of_log = column.cells.numbers, column.evidence.log_skewness
    evidence = f"{span}, mean {number(numbers.mean)}" if column.low < column.high else f"always {number(column.low)}"
    settings: dict[str, Any] = {"transform": "z_score"}
    if column.low >= 0 and numbers.skewness >= SKEWED and abs(of_log) < numbers.skewness:
        settings["transform"] = "log"
        evidence += f", a long tail: skewness {numbers.skewness:.1f}, of log(1 + x) {of_log:.1f}"
    if column.missing:
        settings["missing"] = "median" if settings["transform"] == "log" else "mean"
        if column.missing >= _INDICATOR * column.rows:
            settings["indicator"] = True
    lost = lost_digits([column])
    evidence = "; ".join(filter(None, (evidence, _stand_in(column), lost)))
    return dataclasses.replace(
        _of(column, "numeric", evidence, **settings), note=f"loses digits: {lost}" if lost else ""
    )


def _stand_in(column: ColumnFacts) -> str:
    """A note about a number far from all others that may stand for a missing one."""
    numbers = column.cells.numbers
    for value, n in column.ranked()[:3]:
        text = value.decode("utf-8", "replace")
        if text in _STAND_INS and n >= 5 and abs(float(text) - numbers.mean) > 2 * numbers.deviation:
            return f"{text} occurs {n:,} times: add it to csv: missing if it means that"
    return ""


def _of_strings(column: ColumnFacts) -> Declaration:
    evidence, present = column.evidence, column.present
    values = {value.decode("utf-8", "replace").lower() for value, _ in column.ranked()}
    if values & _TRAIN and values - _TRAIN and values <= _TRAIN | _OTHER_SPLITS:
        note = (
            "names the split of each record, and is ignored, since the schema splits anew. To keep these splits, write "
            "a file for each of them, and say split: {by: file, train: ..., eval: ..., test: ...}"
        )
        return _ignore(column, f"names the split of each record: {column.shares()}", note)
    if not column.missing and len(values) == 2 and len(_TRUE & values) == len(_FALSE & values) == 1:
        return _of(column, "bool", column.shares())
    if evidence.dates >= 0.95 * evidence.cells > 0:
        example = shown(column.ranked()[0][0]) if column.countable else "2026-01-31"
        return _ignore(column, f"dates or times such as {example}; write year, month, weekday or hour as columns")
    if amounts := as_amounts(column):
        return _ignore(column, amounts, f"is ignored: {amounts}")
    if column.missing > SPARSE * column.rows:
        missing = f"missing {percent(column.missing, column.rows)}"
        return _ignore(column, f"{missing}, {column.about_distinct} distinct values")
    cells = max(evidence.text_cells, 1)
    wordy, long = evidence.words >= _WORDS * cells, evidence.text_bytes >= _BYTES * cells
    if (wordy or long) and present >= FEW_ROWS and column.distinct > max(LISTED, 0.1 * present):
        # Long texts of few words: a script without spaces, addresses, code.
        lengths = {"ngrams": [1, 2]} if wordy else {"characters": [2, 4]}
        average = f"{evidence.words / cells:.0f} words on average, {column.about_distinct} distinct texts"
        return _of(column, "text", average, **lengths, top_k=20_000)
    if column.unique:
        return _of(column, "key", "a value of its own for nearly every record")
    if column.one_of_a_kind:
        of_a_kind = f"mostly one of a kind: {column.about_distinct} distinct values of {present:,}"
        return _ignore(column, of_a_kind, groups=column.shared_id)
    if column.called_id and column.distinct > LISTED and present >= FEW_ROWS:
        identifier = f"an identifier by its name, {column.about_distinct} distinct values"
        return _ignore(column, identifier, groups=column.shared_id)
    return category(column)


def category(column: ColumnFacts) -> Declaration:
    """Declares a category; its values are listed where they are few."""
    settings: dict[str, Any] = {}
    fit = column.countable and sum(len(value) + 2 for value, _ in column.ranked()) <= _LISTED_CHARACTERS
    if column.distinct > _HASHED:
        settings["hash_buckets"] = 1 << int(np.ceil(np.log2(column.distinct)))
    elif fit and column.distinct <= LISTED:
        settings["values"] = column.values()
    if column.missing:
        settings["missing"] = "<unknown>"
    listed = f"{counted(column.distinct, 'value')}: {column.shares()}"
    return _of(column, "category", listed if column.countable else f"{column.about_distinct} values", **settings)


def as_amounts(column: ColumnFacts) -> str:
    """Says how numbers are written that are not written as numbers; empty if there are none."""
    evidence = column.evidence
    if column.numeric or not evidence.amounts or column.distinct <= LISTED:
        return ""
    if evidence.amounts + evidence.cells - evidence.text_cells < 0.95 * evidence.cells:
        return ""
    comma = " with a decimal comma" if 2 * evidence.decimal_commas >= evidence.amounts else ""
    return (
        f"numbers written{comma} as {shown(evidence.amount)!r}; write them plainly, such as 1234.5 or -1234.5, to "
        "learn from them"
    )


def lost_digits(columns: Sequence[ColumnFacts]) -> str:
    """Says what is lost where numbers are too close to each other for a float32; empty if nothing is."""
    lost = [column.evidence for column in columns if column.merges]
    if not lost:
        return ""
    before, after = sum(e.distinct_numbers for e in lost), sum(e.distinct_float32s for e in lost)
    return (
        f"of {before:,} distinct numbers {after:,} are left as float32, with 7 digits: subtract a number near them "
        "from all of them, or declare kind: category"
    )
