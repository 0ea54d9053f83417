"""The facts of a column that `init` judges it by: its profile and its name, and how they are written in a comment."""

from __future__ import annotations

import re
from collections.abc import Sequence

from schemas.csv.values import is_utf8
from schemas.display import readable
from schemas.profile.raw_columns import ALL, ColumnProfile

FEW_ROWS = 20  # of fewer records, uniqueness says nothing
_ONE_OF_A_KIND = 0.3  # distinct values a record, from which on a category has nothing to learn
_UNIQUE = 0.99  # distinct values a record, from which on a column names its record
_ESTIMATE = 0.2  # how far off the number of distinct values may be, where they are too many to be counted
_APART = 0.99  # of the distinct numbers of a column, at least, are different float32s
_FEW_CODES = 3  # values of two capital letters, from which on NA is one of them
NA = "NA"
NA_NOTE = "NA is taken for a code like the others; list it in `missing_tokens` if it means missing"
_CODE_OF_TWO = re.compile(rb"[A-Z]{2}")
_ID = re.compile(r"(^|[_\W])(id|ids|uuid|guid|key|index|idx|no|nr|num|number|serial)$|[a-z](ID|Id|No|Nr)$|^unnamed")
_SHARED_ID = re.compile(r"(^|[_\W])(id|uuid|guid)$|[a-z](ID|Id)$")
_COUNTED = re.compile(r"(^|[_\W])(num|number|count|no)[_\W]", re.IGNORECASE)  # num_rooms is a count, room_num a name


class ColumnFacts:
    """A column's profile, by the tokens that mean missing in it.

    Attributes:
        position: counted from 0.
        name: in the header; None if it has none.
        called: the name, or the position where it has none.
        described: the same for messages.
        tokens: those that mean missing.
        missing, present: the number of cells that do, and that do not.
        numeric: whether it holds numbers, but for a few cells.
        whole: whether these are whole numbers.
        known: whether all its values are known; else only how many there are, about.
        distinct: the number of its values.
        constant: whether all cells have one value.
    """

    def __init__(self, position: int, name: str | None, profile: ColumnProfile, tokens: frozenset[str]) -> None:
        self.position, self.name, self.profile = position, name, profile
        self.called = name or str(position)
        self.described = f"column {position}" if name is None else repr(name)
        self.tokens = tokens - {NA} if _na_is_a_code(profile) else tokens
        self.rows, self.missing = profile.rows, profile.missing(self.tokens)
        self.present = self.rows - self.missing
        self.numeric, self.known = is_numeric(profile), profile.values.known
        self.whole = self.numeric and profile.whole
        self.low, self.high = profile.low, profile.high
        self._token_values = [
            (token.encode(), int(n))
            for token, n in zip(ALL, profile.tokens, strict=True)
            if n and token not in self.tokens
        ]
        # What is no UTF-8 is no value of the column: a job rejects its record.
        self._broken = {v for v, _ in profile.values.ranked() if not is_utf8(v)} if profile.not_utf8 else set()
        self.distinct = profile.values.distinct - len(self._broken) + len(self._token_values)
        self.constant = self.distinct == 1 and not self.missing

    def ranked(self) -> list[tuple[bytes, int]]:
        """The values that are present, the most frequent first; none if they are too many to be known."""
        pairs = [pair for pair in self.profile.values.ranked() if pair[0] not in self._broken]
        pairs = [pair for pair in pairs if pair[0].decode() not in self.tokens] + self._token_values
        return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))

    def values(self) -> tuple[str, ...]:
        """The values that are present: numbers in their order, others by the alphabet."""
        values = [value.decode("utf-8", "replace") for value, _ in self.ranked()]
        return tuple(sorted(values, key=float) if self.numeric and not self.profile.text_cells else sorted(values))

    @property
    def unique(self) -> bool:
        """Whether nearly every value occurs once."""
        once = self.distinct >= _UNIQUE * self.present or (not self.known and self.profile.values.once > 0.999)
        return self.present >= FEW_ROWS and once

    @property
    def one_of_a_kind(self) -> bool:
        """Whether values recur too rarely for a model to learn anything of each."""
        return self.present >= FEW_ROWS and self.distinct > _ONE_OF_A_KIND * self.present

    @property
    def row_number(self) -> bool:
        """Whether it is a whole number of its own for each record, by its name or without a gap."""
        return self.whole and self.unique and (self.called_id or self.consecutive)

    @property
    def consecutive(self) -> bool:
        """Whether its numbers count up without a gap."""
        span = self.high - self.low + 1
        return self.whole and abs(span - self.distinct) <= (0 if self.known else _ESTIMATE * span)

    @property
    def panel(self) -> bool:
        """Whether its numbers count up, each for as many records: one for each person who was asked several times."""
        times = {count for _, count in self.ranked()}
        return self.known and self.consecutive and self.distinct > 50 and len(times) == 1 and min(times) >= 2

    @property
    def merges(self) -> bool:
        """Whether many of its numbers are the same float32, as which a job stores them."""
        return self.numeric and self.profile.sampled_float32 < _APART * self.profile.sampled

    @property
    def called_id(self) -> bool:
        """Whether it is an identifier by its name."""
        return self._is_named(_ID) and not _COUNTED.search(self.name or "")

    @property
    def shared_id(self) -> bool:
        """Whether it names something that several records are about, which a split should keep together."""
        return self._is_named(_SHARED_ID) and self.distinct < self.present / 1.5

    @property
    def na_note(self) -> str:
        """That NA is one of its codes; else nothing."""
        return NA_NOTE if NA not in self.tokens and self.profile.tokens[ALL.index(NA)] else ""

    def _is_named(self, pattern: re.Pattern[str]) -> bool:
        return self.name is not None and bool(pattern.search(self.name.lower()) or pattern.search(self.name))


def is_numeric(profile: ColumnProfile) -> bool:
    """Whether it holds numbers: all but a few values, or but a few that may stand for a missing one."""
    present = profile.rows - profile.always_missing - profile.among_numbers
    few = profile.odd.known and profile.odd.distinct <= 3
    count = profile.numbers.count
    return count > 0 and (count == present or count >= (0.9 if few else 0.99) * present)


def _na_is_a_code(profile: ColumnProfile) -> bool:
    """Whether NA is one of a column's codes, such as Namibia's: all its other values are two capital letters."""
    values = [value for value, _ in profile.values.ranked()] if profile.tokens[ALL.index(NA)] else []
    return len(values) >= _FEW_CODES and all(map(_CODE_OF_TWO.fullmatch, values))


def missing_values(profiles: Sequence[ColumnProfile]) -> tuple[str, ...]:
    """What the files write where a value is missing: the usual tokens, and what recurs among numbers."""
    tokens: dict[str, None] = {}
    for profile in profiles:
        numeric, code = is_numeric(profile), {NA} if _na_is_a_code(profile) else set()
        tokens |= dict.fromkeys(token for token in profile.missing_tokens(numeric=numeric) if token not in code)
        if numeric:
            often = max(10, profile.rows // 100)
            recurring = (value for value, n in profile.odd.ranked() if n >= often and len(value) < 40)
            tokens |= dict.fromkeys(value.decode("utf-8", "replace") for value in recurring)
    return (*filter(None, tokens), "")


def percent(part: float, whole: float) -> str:
    """A share as a percentage of two digits or so: 0.04 %, 5.7 %, 77 %."""
    share = 100 * part / whole if whole else 0.0
    digits = 0 if share >= 10 or share == 0 else 1 if share >= 1 else 2
    text = f"{share:.{digits}f}"
    return f"{'less than 0.01' if share and float(text) == 0 else text} %"


def number(value: float) -> str:
    """A number in a few digits."""
    return f"{value:,.0f}" if abs(value) < 1e15 and value == round(value) else readable(value, 4)


def printable(text: str) -> str:
    """Text on one line."""
    return "".join(c if c.isprintable() else " " for c in text)


def shown(value: bytes, length: int = 30) -> str:
    """A value for a comment: on one line, cut where it is long."""
    text = printable(value.decode("utf-8", "replace"))
    return text if len(text) <= length else f"{text[: length - 3]}..."


def shares(column: ColumnFacts, most: int = 4) -> str:
    """The most frequent values, with their shares of the records that have one."""
    listed = ", ".join(f"{shown(value, 20)} {percent(n, column.present)}" for value, n in column.ranked()[:most])
    return listed + (", ..." if len(column.ranked()) > most else "")


def distinct(column: ColumnFacts) -> str:
    """How many values it has, or about how many."""
    return f"{column.distinct:,}" if column.known else f"about {float(f'{column.distinct:.2g}'):,.0f}"
