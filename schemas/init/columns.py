"""Gathers the facts that `init` judges a column by: its cells, its name, and the tokens that mean missing in it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from schemas.csv.values import is_utf8
from schemas.init.cells import ALWAYS, TOKENS, SurveyedColumn
from schemas.init.writing import percent, shown

FEW_ROWS = 20  # of fewer records, uniqueness says nothing
_ONE_OF_A_KIND = 0.3  # distinct values a record, from which on a category has nothing to learn
_UNIQUE = 0.99  # distinct values a record, from which on a column names its record
_ESTIMATE = 0.2  # how far off the number of distinct values may be, where they are too many to be counted
_APART = 0.99  # of the distinct numbers of a column, at least, are different float32s
_FEW_CODES = 3  # values of two capital letters, from which on NA is one of them
NA = "NA"
_CODE_OF_TWO = re.compile(rb"[A-Z]{2}")
_ID = re.compile(r"(^|[_\W])(id|ids|uuid|guid|key|index|idx|no|nr|num|number|serial)$|[a-z](ID|Id|No|Nr)$|^unnamed")
_SHARED_ID = re.compile(r"(^|[_\W])(id|uuid|guid)$|[a-z](ID|Id)$")
_COUNTED = re.compile(r"(^|[_\W])(num|number|count|no)[_\W]", re.IGNORECASE)  # num_rooms is a count, room_num a name


class ColumnFacts:
    """A column of a table, by the tokens that mean missing in it.

    Attributes:
        position: counted from 0.
        name: in the header; None if it has none.
        called: the name, or the position where it has none.
        described: the same for messages.
        cells: what was counted of its cells.
        evidence: what its values look like.
        tokens: those that mean missing.
        missing, present: the number of cells that do, and that do not.
        numeric: whether it holds numbers, but for a few cells.
        whole: whether these are whole numbers.
        low, high: the smallest and the largest number.
        countable: whether all its values are known; else only how many there are, about.
        distinct: the number of its values.
        constant: whether all cells have one value.
    """

    def __init__(self, position: int, name: str | None, cells: SurveyedColumn, tokens: frozenset[str]) -> None:
        self.position, self.name, self.cells, self.evidence = position, name, cells, cells.evidence
        self.called = name or str(position)
        self.described = f"column {position}" if name is None else repr(name)
        self.tokens = tokens - {NA} if _na_is_a_code(cells) else tokens
        self.rows, self.missing = cells.rows, cells.count(self.tokens)
        self.present = self.rows - self.missing
        self.numeric, self.countable = cells.numeric, cells.values.known
        self.whole = self.numeric and self.evidence.whole
        self.low, self.high = cells.numbers.low, cells.numbers.high
        self._token_values = [
            (token.encode(), int(n))
            for token, n in zip(TOKENS, cells.tokens, strict=True)
            if n and token not in self.tokens
        ]
        # What is no UTF-8 is no value of the column: a job rejects its record.
        self._broken = {v for v, _ in cells.values.ranked() if not is_utf8(v)} if cells.not_utf8 else set()
        self.distinct = cells.values.distinct - len(self._broken) + len(self._token_values)
        self.constant = self.distinct == 1 and not self.missing

    def ranked(self) -> list[tuple[bytes, int]]:
        """Returns the values that are present, the most frequent first; none if they are too many to be known."""
        pairs = [pair for pair in self.cells.values.ranked() if pair[0] not in self._broken]
        pairs = [pair for pair in pairs if pair[0].decode() not in self.tokens] + self._token_values
        return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))

    def values(self) -> tuple[str, ...]:
        """Returns the values that are present: numbers in their order, others by the alphabet."""
        values = [value.decode("utf-8", "replace") for value, _ in self.ranked()]
        return tuple(sorted(values, key=float) if self.numeric and not self.evidence.text_cells else sorted(values))

    def shares(self, most: int = 4) -> str:
        """Returns the most frequent values, with their shares of the records that have one."""
        ranked = self.ranked()
        listed = ", ".join(f"{shown(value, 20)} {percent(n, self.present)}" for value, n in ranked[:most])
        return listed + (", ..." if len(ranked) > most else "")

    @property
    def about_distinct(self) -> str:
        """How many values it has, or about how many, in words."""
        return f"{self.distinct:,}" if self.countable else f"about {float(f'{self.distinct:.2g}'):,.0f}"

    @property
    def unique(self) -> bool:
        """Whether nearly every value occurs once."""
        once = self.distinct >= _UNIQUE * self.present or (not self.countable and self.cells.values.once > 0.999)
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
        return self.whole and abs(span - self.distinct) <= (0 if self.countable else _ESTIMATE * span)

    @property
    def panel(self) -> bool:
        """Whether its numbers count up, each for as many records: one for each person who was asked several times."""
        times = {count for _, count in self.ranked()}
        return self.countable and self.consecutive and self.distinct > 50 and len(times) == 1 and min(times) >= 2

    @property
    def merges(self) -> bool:
        """Whether many of its numbers are the same float32, as which a job stores them."""
        return self.numeric and self.evidence.distinct_float32s < _APART * self.evidence.distinct_numbers

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
        """That NA is one of its codes; empty if it is not."""
        if NA in self.tokens or not self.cells.tokens[TOKENS.index(NA)]:
            return ""
        return "NA is taken for a code like the others; list it in `missing_tokens` if it means missing"

    def _is_named(self, pattern: re.Pattern[str]) -> bool:
        return self.name is not None and bool(pattern.search(self.name.lower()) or pattern.search(self.name))


def _na_is_a_code(column: SurveyedColumn) -> bool:
    """Whether NA is one of a column's codes, such as Namibia's: all its other values are two capital letters."""
    values = [value for value, _ in column.values.ranked()] if column.tokens[TOKENS.index(NA)] else []
    return len(values) >= _FEW_CODES and all(map(_CODE_OF_TWO.fullmatch, values))


def missing_values(columns: Sequence[SurveyedColumn]) -> tuple[str, ...]:
    """Returns what the files write where a value is missing: the usual tokens, and what recurs among numbers."""
    tokens: dict[str, None] = {}
    for column in columns:
        meaning_missing = {*(TOKENS if column.numeric else ALWAYS)} - ({NA} if _na_is_a_code(column) else set())
        tokens |= {t: None for t, n in zip(TOKENS, column.tokens, strict=True) if n and t in meaning_missing}
        if column.numeric:
            often = max(10, column.evidence.cells // 100)
            recurring = (value for value, n in column.evidence.other_values if n >= often and len(value) < 40)
            tokens |= dict.fromkeys(value.decode("utf-8", "replace") for value in recurring)
    return (*filter(None, tokens), "")
