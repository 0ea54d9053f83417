"""One line of a schema's features, before it is text: what is declared of which columns, and why."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from schemas.csv.values import is_utf8
from schemas.display import readable
from schemas.errors import counted
from schemas.profile.raw_columns import ALL, ColumnProfile
from schemas.spec.forms import NAME


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


_NAME_LENGTH = 100  # of a name; a file's may be longer


def feature_name(name: str | None, declared: Declaration) -> str:
    """A name that a schema takes, from the header's, or from the columns' positions."""
    if name is None:
        places = f"{declared.first}" if declared.width == 1 else f"{declared.first}_to_{declared.last}"
        return f"column{'' if declared.width == 1 else 's'}_{places}"
    if NAME.fullmatch(name) and len(name) <= _NAME_LENGTH:
        return name
    plain = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").lower()[:_NAME_LENGTH]
    return plain if NAME.fullmatch(plain) else f"column_{plain or declared.first}"


def unique(name: str, taken: set[str], *, indicator: bool = False) -> str:
    """The name, with a number behind it where it is taken; the name, and that of its indicator, are then taken."""
    found, number = name, 2
    while found in taken or (indicator and f"{found}_missing" in taken):
        found, number = f"{name}_{number}", number + 1
    taken |= {found, f"{found}_missing"} if indicator else {found}
    return found


def percent(part: float, whole: float) -> str:
    """A share as a percentage of two digits or so: 0.04 %, 5.7 %, 77 %."""
    share = 100 * part / whole if whole else 0.0
    digits = 0 if share >= 10 or share == 0 else 1 if share >= 1 else 2
    text = f"{share:.{digits}f}"
    return f"{'less than 0.01' if share and float(text) == 0 else text} %"


def number(value: float) -> str:
    """A number in a few digits."""
    return f"{value:,.0f}" if abs(value) < 1e15 and value == round(value) else readable(value, 4)


def shown(value: bytes, length: int = 30) -> str:
    """A value for a comment: on one line, cut where it is long."""
    text = value.decode("utf-8", "replace")
    text = "".join(c if c.isprintable() else " " for c in text)
    return text if len(text) <= length else f"{text[: length - 3]}..."


LISTED, _LISTED_CHARACTERS = 20, 90  # a category of at most so many values lists them, if they fit in a line
FEW_ROWS = 20  # of fewer records, uniqueness says nothing
SPARSE = 0.75  # text that is missing for more than this share is no feature
SKEWED = 3.0  # numbers that are skewed by more than this, and not negative, are taken by their logarithm
WRITE_PLAINLY = "write them plainly, such as 1234.5 or -1234.5, to learn from them"
_ONE_OF_A_KIND = 0.3  # distinct values a record, from which on a category has nothing to learn
_UNIQUE = 0.99  # distinct values a record, from which on a column names its record
_HASHED = 20_000  # values, from which on ids are hashed
_ESTIMATE = 0.2  # how far off the number of distinct values may be, where they are too many to be counted
_WORDS, _BYTES = 6, 60  # of a value, on average, from which on it is a text
_APART = 0.99  # of the distinct numbers of a column, at least, are different float32s
_UNITS = (("seconds", 1), ("milliseconds", 10**3), ("microseconds", 10**6), ("nanoseconds", 10**9))
_TIMES = 10**8, 4 * 10**9  # seconds since 1970: from 1973 to 2096
FEW_CODES = 3  # values of two capital letters, from which on NA is one of them
NA_NOTE = "NA is taken for a code like the others; list it in `missing_tokens` if it means missing"
_INDICATOR = 0.05  # a share of missing numbers that is worth a feature of its own

_TRAIN, _OTHER_SPLITS = (
    {"train", "training"},
    {"valid", "validation", "val", "dev", "eval", "test", "testing", "holdout"},
)
_TRUE, _FALSE = {"true", "t", "yes", "y", "1"}, {"false", "f", "no", "n", "0"}
_ID = re.compile(r"(^|[_\W])(id|ids|uuid|guid|key|index|idx|no|nr|num|number|serial)$|[a-z](ID|Id|No|Nr)$|^unnamed")
_SHARED_ID = re.compile(r"(^|[_\W])(id|uuid|guid)$|[a-z](ID|Id)$")
_CONTACT = re.compile(
    r"(^|[_\W])(phone|telephone|mobile|fax|e?mail|url|link|ssn|iban|uuid|guid)([_\W]|$)", re.IGNORECASE
)
_CODE = re.compile(
    r"(code|type|class|zone|region|group|cluster|category|status|month|weekday|zip|zipcode|postcode|postal)$",
    re.IGNORECASE,
)
_COUNTED = re.compile(r"(^|[_\W])(num|number|count|no)[_\W]", re.IGNORECASE)  # num_rooms is a count, room_num a name
_WEIGHT = re.compile(r"(wgt|(sample|sampling|survey|instance|person|final|case)[_ ]?(weight|wt))$", re.IGNORECASE)


class Column:
    """A column's profile, seen with the tokens that mean missing in it."""

    def __init__(self, position: int, name: str | None, profile: ColumnProfile, tokens: frozenset[str]) -> None:
        self.position, self.name, self.profile = position, name, profile
        self.rows = profile.rows
        self.missing = profile.missing(tokens)
        self.present = self.rows - self.missing
        self.tokens = tokens
        kept = [
            (token.encode(), int(n)) for token, n in zip(ALL, profile.tokens, strict=True) if n and token not in tokens
        ]
        self._kept = kept
        self.numeric = is_numeric(profile)
        # What is no UTF-8 is no value of the column: a job rejects its record.
        self._broken = (
            {value for value, _ in profile.values.ranked() if not is_utf8(value)} if profile.not_utf8 else set()
        )
        self.distinct = profile.values.distinct - len(self._broken) + len(kept)

    def ranked(self) -> list[tuple[bytes, int]]:
        """The values that are present, the most frequent first; none if they are too many to be known."""
        known = [pair for pair in self.profile.values.ranked() if pair[0] not in self._broken]
        ranked = [(value, n) for value, n in known if value.decode() not in self.tokens]
        return sorted([*ranked, *self._kept], key=lambda pair: (-pair[1], pair[0])) if known or self._kept else []

    @property
    def known(self) -> bool:
        """Whether all its values are known."""
        return self.profile.values.known

    @property
    def unique(self) -> bool:
        """Whether nearly every value occurs once."""
        enough = self.present >= FEW_ROWS and self.distinct >= _UNIQUE * self.present
        return enough or (self.present >= FEW_ROWS and not self.known and self.profile.values.once > 0.999)

    @property
    def one_of_a_kind(self) -> bool:
        """Whether values recur too rarely for a model to learn anything of each."""
        return self.present >= FEW_ROWS and self.distinct > _ONE_OF_A_KIND * self.present

    @property
    def row_number(self) -> bool:
        """Whether it is a whole number of its own for each record, by its name or without a gap."""
        return self.numeric and self.profile.whole and self.unique and (self.called_id or self.consecutive)

    @property
    def consecutive(self) -> bool:
        """Whether its numbers count up without a gap."""
        p = self.profile
        if not (self.numeric and p.whole):
            return False
        span = p.high - p.low + 1
        return span == self.distinct if self.known else abs(span - self.distinct) < _ESTIMATE * span

    @property
    def merges(self) -> bool:
        """Whether many of its numbers are the same float32, as which a job stores them."""
        return self.numeric and self.profile.sampled_float32 < _APART * self.profile.sampled

    @property
    def called_id(self) -> bool:
        name = self.name or ""
        return bool(_ID.search(name.lower()) or _ID.search(name)) and not _COUNTED.search(name)

    @property
    def shared_id(self) -> bool:
        """Whether it names something that several records are about, which a split should keep together."""
        name = self.name or ""
        return bool(_SHARED_ID.search(name.lower()) or _SHARED_ID.search(name)) and self.distinct < self.present / 1.5

    @property
    def constant(self) -> bool:
        return self.distinct == 1 and not self.missing


def is_numeric(profile: ColumnProfile) -> bool:
    """Whether it holds numbers: all but a few values, or but a few that may stand for a missing one."""
    present = profile.rows - profile.always_missing - profile.among_numbers
    count = profile.numbers.count
    if not count:
        return False
    few = profile.odd.known and profile.odd.distinct <= 3 and profile.rows >= FEW_ROWS
    return count == present or count >= 0.99 * present or (few and count >= 0.9 * present)


NA = "NA"
_CODE_OF_TWO = re.compile(rb"[A-Z]{2}")


def na_is_a_code(profile: ColumnProfile) -> bool:
    """Whether NA is one of a column's codes, such as Namibia's: all its other values are two capital letters."""
    others = [value for value, _ in profile.values.ranked()]
    return bool(profile.tokens[ALL.index(NA)]) and len(others) >= FEW_CODES and all(map(_CODE_OF_TWO.fullmatch, others))


def missing_values(profiles: Sequence[ColumnProfile]) -> tuple[str, ...]:
    """What the files write where a value is missing: the usual tokens, and what recurs among numbers."""
    found: dict[str, None] = {}
    for profile in profiles:
        numeric = is_numeric(profile)
        code = {NA} if na_is_a_code(profile) else set()
        found |= dict.fromkeys(token for token in profile.found_tokens(numeric=numeric) if token not in code)
        if numeric:
            often = max(10, profile.rows // 100)
            found |= {v.decode("utf-8", "replace"): None for v, n in profile.odd.ranked() if n >= often and len(v) < 40}
    return (*(token for token in found if token), "")


def declare(column: Column) -> Declaration:
    """What a person would declare of a column that is not the label."""
    kind, settings, evidence = _kind(column)
    if kind != "ignore" and column.missing:
        evidence += f"; missing {percent(column.missing, column.rows)}"
    if kind != "ignore" and na_is_a_code(column.profile):
        evidence += f"; {NA_NOTE}"
    return Declaration(column.position, column.position, kind, settings, evidence)


Kind = tuple[str, dict[str, Any], str]


def _kind(column: Column) -> Kind:
    if not column.present:
        return "ignore", {}, "has no value in any record"
    if column.constant and column.rows >= 2:
        return "ignore", {}, f"is always {shown(column.ranked()[0][0])!r}"
    if _CONTACT.search(column.name or ""):
        return "ignore", {}, "by its name, an address of one person or thing"
    return _number(column) if column.numeric else _string(column)


def _number(column: Column) -> Kind:
    profile, name = column.profile, column.name or ""
    span = f"{number(profile.low)} to {number(profile.high)}"
    if profile.leading_zeros:
        return _string(column)
    if _is_day(column):
        return (
            "ignore",
            {},
            f"days such as {number(profile.low).replace(',', '')}; write year, month and weekday as columns",
        )
    if column.distinct == 2 and (profile.low, profile.high) == (0, 1) and not column.missing:
        false, true = in_order(column)
        return "bool", {} if (false, true) == ("0", "1") else {"true": [true], "false": [false]}, shares(column)
    if _WEIGHT.search(name) and column.distinct > LISTED:
        evidence = f"{span}; by its name a sampling weight, which says nothing about the record"
        return "ignore", {}, f"{evidence}. kind: weight would train by it"
    if column.row_number:
        return "key", {}, f"a number of its own for each record, {span}"
    if profile.whole and column.present >= FEW_ROWS:
        if column.called_id and column.distinct > LISTED:
            return "ignore", {"group": column.shared_id}, f"an identifier by its name, {span}"
        if _is_panel(column):
            return (
                "ignore",
                {"group": True},
                f"{column.distinct:,} numbers of {column.present // column.distinct} records each",
            )
        coded = 3 <= column.distinct <= 5 and profile.low == 1 and column.consecutive
        if (
            coded
            or (column.distinct == 2 and column.rows >= FEW_ROWS)
            or (_CODE.search(name) and column.distinct <= 50)
        ):
            return category(column)
    if times := as_times(column):
        return "ignore", {}, times
    evidence = (
        f"{span}, mean {number(profile.numbers.mean)}"
        if profile.low < profile.high
        else f"always {number(profile.low)}"
    )
    settings: dict[str, Any] = {"transform": "z_score"}
    skew = profile.numbers.skewness
    if profile.low >= 0 and skew >= SKEWED and abs(profile.logs.skewness) < skew:
        settings["transform"] = "log"
        evidence += f", a long tail: skewness {skew:.1f}, of log(1 + x) {profile.logs.skewness:.1f}"
    if column.missing:
        settings["missing"] = "median" if settings["transform"] == "log" else "mean"
        if column.missing >= _INDICATOR * column.rows:
            settings["indicator"] = True
    return "numeric", settings, evidence + _sentinel(column) + merged([column])


def names_split(column: Column) -> bool:
    """Whether its values are the names of splits, the train split's among them."""
    values = {value.decode("utf-8", "replace").lower() for value, _ in column.ranked()}
    return bool(values & _TRAIN) and bool(values - _TRAIN) and values <= _TRAIN | _OTHER_SPLITS


def _string(column: Column) -> Kind:
    profile, present = column.profile, column.present
    if names_split(column):
        return "ignore", {}, f"names the split of each record: {shares(column)}"
    values = {value.decode("utf-8", "replace").lower() for value, _ in column.ranked()[:7]}
    if not column.missing and len(values) == 2 and len(_TRUE & values) == len(_FALSE & values) == 1:
        return "bool", {}, shares(column)
    if profile.dates >= 0.95 * present:
        examples = shown(column.ranked()[0][0]) if column.known else "2026-01-31"
        return "ignore", {}, f"dates or times such as {examples}; write year, month, weekday or hour as columns"
    if amounts := as_amounts(column):
        return "ignore", {}, amounts
    if column.missing > SPARSE * column.rows:
        return (
            "ignore",
            {},
            f"missing {percent(column.missing, column.rows)}, {distinct(column)} distinct values",
        )
    cells = max(profile.text_cells, 1)
    wordy = profile.words >= _WORDS * cells or profile.text_bytes >= _BYTES * cells
    if wordy and present >= FEW_ROWS and column.distinct > max(LISTED, 0.1 * present):
        words = f"{profile.words / cells:.0f} words on average"
        # Long texts of few words: a script without spaces, addresses, code.
        ngrams = {"ngrams": [1, 2]} if profile.words >= _WORDS * cells else {"characters": [2, 4]}
        return "text", {**ngrams, "top_k": 20_000}, f"{words}, {distinct(column)} distinct texts"
    if column.unique:
        return "key", {}, "a value of its own for nearly every record"
    if column.one_of_a_kind:
        evidence = f"mostly one of a kind: {distinct(column)} distinct values of {present:,}"
        if not column.shared_id and column.distinct < present / 1.2 and column.missing < 0.05 * column.rows:
            evidence += "; a split by it would keep those that share one together"
        return "ignore", {"group": column.shared_id}, evidence
    if column.called_id and column.distinct > LISTED and present >= FEW_ROWS:
        return (
            "ignore",
            {"group": column.shared_id},
            f"an identifier by its name, {distinct(column)} distinct values",
        )
    return category(column)


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


def category(column: Column) -> Kind:
    """Declares a category; its values are listed where they are few."""
    settings: dict[str, Any] = {}
    if column.distinct > _HASHED:
        settings["hash_buckets"] = 1 << int(np.ceil(np.log2(column.distinct)))
    elif (
        column.known and column.distinct <= LISTED and sum(len(v) + 2 for v, _ in column.ranked()) <= _LISTED_CHARACTERS
    ):
        settings["values"] = in_order(column)
    if column.missing:
        settings["missing"] = "<unknown>"
    values = counted(column.distinct, "value") if column.known else f"{distinct(column)} values"
    return "category", settings, f"{values}: {shares(column)}" if column.known else values


def in_order(column: Column) -> tuple[str, ...]:
    """The values that are present: numbers in their order, others by the alphabet."""
    values = [value.decode("utf-8", "replace") for value, _ in column.ranked()]
    numeric = column.numeric and not column.profile.text_cells
    return tuple(sorted(values, key=float) if numeric else sorted(values))


def shares(column: Column, most: int = 4) -> str:
    """The most frequent values, with their shares of the records that have one."""
    ranked = column.ranked()
    told = ", ".join(f"{shown(value, 20)} {percent(n, column.present)}" for value, n in ranked[:most])
    return told + (", ..." if len(ranked) > most else "")


def distinct(column: Column) -> str:
    """How many values it has, or about how many."""
    return f"{column.distinct:,}" if column.known else f"about {float(f'{column.distinct:.2g}'):,.0f}"


def _is_day(column: Column) -> bool:
    """Whether its numbers are days, written YYYYMMDD."""
    low, high = column.profile.low, column.profile.high
    if not (column.profile.whole and low >= 19000101 and high <= 21001231 and column.known):
        return False
    days = np.array([int(float(value)) for value, _ in column.ranked()])
    months, of_month = days // 100 % 100, days % 100
    return bool(((months >= 1) & (months <= 12) & (of_month >= 1) & (of_month <= 31)).all())


def _is_panel(column: Column) -> bool:
    """Whether its numbers count up, each for as many records: a number for each person who was asked several times."""
    counts = column.profile.values.frequent.counts
    return column.known and column.consecutive and len(counts) > 50 and int(counts.min()) == int(counts.max()) >= 2


def _sentinel(column: Column) -> str:
    """A note about a number far from all others that may stand for a missing one."""
    profile = column.profile
    deviation = profile.numbers.deviation
    for value, n in column.ranked()[:3]:
        text = value.decode("utf-8", "replace")
        far = text in ("-999", "-9999", "-99999", "-99", "9999", "99999") and n >= 5
        if far and abs(float(text) - profile.numbers.mean) > 2 * deviation:
            return f"; {text} occurs {n:,} times: add it to csv: missing if it means that"
    return ""
