"""What the cells of a column show before there is a schema: numbers, text, and words that stand for a missing value.

A `SurveyedColumn` takes batch after batch and counts what must be exact. `Evidence` judges the values themselves, once:
all of them, or those of sampled rows where a column has too many.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.csv.values import DECIMAL, as_text, in_one_spelling, is_utf8
from schemas.profile.sketches import Moments, Sizes, summed
from schemas.profile.summary import Summary

# They mean missing wherever they stand.
ALWAYS = ("", "?", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NAN", "NULL", "null", "Null", "\\N", "NaT")
# They mean missing where everything else is a number; elsewhere they may be a category of their own.
AMONG_NUMBERS = ("None", "none", "-", "--", ".", "*", "unknown", "Unknown", "missing", "Missing", "inf", "-inf", "Inf")
TOKENS = ALWAYS + AMONG_NUMBERS

_TOKEN_SET = pa.array([token.encode() for token in TOKENS], pa.binary())
_LEADING_ZERO = r"^[+-]?0[0-9]"
_DATE = (
    r"^([0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}|[0-9]{1,2}[-/.][0-9]{1,2}[-/.]([0-9]{4}|[0-9]{2})"
    r"|[0-9]{1,2}[- ][A-Za-z]{3,9}\.?[- ,]+([0-9]{4}|[0-9]{2})|[A-Za-z]{3,9}\.? [0-9]{1,2},? [0-9]{4})"
    r"([T ,].*)?$|^[0-9]{1,2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?( ?[AaPp][Mm])?$"
)
_CURRENCY = r"[$\x{20ac}\x{a3}\x{a5}\x{20b9}]|USD|EUR|GBP|CHF"
_AMOUNT = (
    rf"^[-+\x{{2212}}]?\(?({_CURRENCY})? ?[(+-]?[0-9]+([,. '\x{{a0}}\x{{202f}}\x{{2019}}][0-9]{{3}})*([.,][0-9]+)?"
    rf"[ \x{{a0}}]?(%|{_CURRENCY}|[kKmM]|kg|km|cm|mm|g|s|h|lbs?|min|CR|DR)?[-)]?$"
)
_DECIMAL_COMMA = r"^[^,]*[0-9],([0-9]{1,2}|[0-9]{4,})([^0-9,].*)?$|^[^0-9,]*0,[0-9]"  # 1,234 may be a thousand
_HASHES = 1024  # that estimate the number of distinct values, to 3 %
_LARGEST = float(np.finfo(np.float32).max)
MASK = (1 << 64) - 1


class Evidence:
    """What the values of a column look like: all values, or the values of sampled rows where there are too many.

    Args:
        values: the distinct values, trimmed and without tokens of missing values, binary `[n]`.
        counts: int64 `[n]`, how often each value occurs.

    Attributes:
        cells: how many cells hold these values.
        whole: whether all numbers are whole.
        leading_zeros: whether whole numbers are written like 007.
        log_skewness: the skewness of log(1 + x), of the numbers above -1.
        distinct_numbers, distinct_float32s: how many numbers there are, and how many are left as float32.
        other_values: those that are no numbers with their counts, the most frequent first.
        text_cells, text_bytes, words: how many cells these are; their bytes and words together.
        dates: how many of them are dates or times.
        amounts: how many are numbers with a unit, a currency's sign, or commas; `amount` is the first.
        decimal_commas: how many of the amounts surely have a comma before their decimals.
    """

    def __init__(self, values: pa.BinaryArray, counts: np.ndarray) -> None:
        self.cells = int(counts.sum())
        numbers = numbers_of(as_text(values))
        is_number, logs, above = ~np.isnan(numbers), Moments(), numbers > -1
        logs.add(np.log1p(numbers[above]), counts[above])
        self.log_skewness = logs.skewness
        numbers = np.unique(numbers[is_number])
        self.whole = bool((numbers == np.floor(numbers)).all())
        self.leading_zeros = self.whole and bool(_matches(values, _LEADING_ZERO).any())
        self.distinct_numbers, self.distinct_float32s = len(numbers), len(np.unique(numbers.astype(np.float32)))
        text, counts = values.filter(pa.array(~is_number)), counts[~is_number]
        self.other_values = sorted(zip(text.to_pylist(), counts.tolist(), strict=True), key=lambda pair: -pair[1])
        self.text_cells, self.text_bytes = int(counts.sum()), int(np.asarray(pc.binary_length(text)) @ counts)
        broken = _broken(text)
        text, counts = text.filter(pa.array(~broken)), counts[~broken]
        self.words = int((np.asarray(pc.count_substring_regex(text, r"\s+")) + 1) @ counts)
        self.dates = int(counts[_matches(text, _DATE)].sum())
        text = as_text(text)  # whose signs have several bytes
        is_amount = _matches(text, _AMOUNT)
        self.amounts = int(counts[is_amount].sum())
        self.amount = text[int(is_amount.argmax())].as_py().encode() if self.amounts else b""
        self.decimal_commas = int(counts[is_amount & _matches(text, _DECIMAL_COMMA)].sum())


def _matches(values: pa.Array, pattern: str) -> np.ndarray:
    return np.asarray(pc.match_substring_regex(values, pattern))


def _broken(values: pa.BinaryArray) -> np.ndarray:
    """bool `[n]`: which values are no UTF-8."""
    try:
        values.cast(pa.string())
        return np.zeros(len(values), bool)
    except pa.ArrowInvalid:
        return np.array([not is_utf8(value) for value in values.to_pylist()])


class SurveyedColumn:
    """A column as far as it has been read.

    Attributes:
        rows: the number of cells.
        tokens: int64, how often each of TOKENS occurs.
        values: all trimmed values that are no token.
        numbers: the moments of those that are numbers.
        respelled: how many cells a category has in another spelling than others of the same value, such as 1.0 for 1.
        respelling: the first such cell as it is written, and the value that is read.
        not_utf8: how many cells are no UTF-8.
        beyond_ascii: how many are UTF-8 and hold a character beyond ASCII.
        binary: whether there is nothing but 0 and 1.
        ones: the sum of the hashes of the rows whose number is 1, of columns that are binary.
        evidence: what the values look like, once all cells have been read.
    """

    evidence: Evidence

    def __init__(self, distinct_limit: int) -> None:
        self.rows = 0
        self.tokens = np.zeros(len(TOKENS), np.int64)
        self.values = Summary(Sizes(_HASHES, distinct_limit), numeric=False)
        self.numbers = Moments()
        self.respelled, self.respelling = 0, (b"", b"")
        self.not_utf8 = self.beyond_ascii = 0
        self.binary, self.ones = True, 0

    def add(self, cells: pa.BinaryArray, row_hashes: np.ndarray) -> None:
        """Adds a batch: the cells, binary `[n]`, and the hashes of their rows, uint64 `[n]`."""
        self.rows += len(cells)
        encoded = cells.dictionary_encode()
        codes = encoded.indices.to_numpy()
        counts = np.bincount(codes, minlength=len(encoded.dictionary)).astype(np.int64)
        written = pc.ascii_trim_whitespace(as_text(encoded.dictionary)).view(pa.binary())
        values = in_one_spelling(written)
        if values is not written and pc.count_distinct(values).as_py() < len(values):
            self._add_respelled(written, values, counts)
        tokens = pc.index_in(values, value_set=_TOKEN_SET)
        is_token = np.asarray(tokens.is_valid())
        places = np.asarray(tokens.fill_null(0))[is_token]
        self.tokens += np.bincount(places, counts[is_token], len(TOKENS)).astype(np.int64)
        text = as_text(written)
        if is_token.any():
            text = pc.if_else(pa.array(~is_token), text, pa.scalar(None, pa.string()))
        numbers = numbers_of(text)
        if self.binary:
            self.binary = bool(((numbers == 0) | (numbers == 1)).all())
            self.ones = (self.ones + int(row_hashes[(numbers == 1)[codes]].sum(dtype=np.uint64))) & MASK
        is_number = ~np.isnan(numbers)
        self.numbers.add(numbers[is_number], counts[is_number])
        is_text = ~is_number & ~is_token
        if is_text.any():
            self._add_text(values.filter(pa.array(is_text)), counts[is_text])
        if is_token.any():
            values, counts = values.filter(pa.array(~is_token)), counts[~is_token]
        self.values.add_counted(*summed(values, counts))  # trimmed, two may have become one

    def _add_respelled(self, written: pa.BinaryArray, values: pa.BinaryArray, counts: np.ndarray) -> None:
        places = np.flatnonzero(np.asarray(pc.not_equal(written, values)))
        if not self.respelled and len(places):
            self.respelling = written[int(places[0])].as_py(), values[int(places[0])].as_py()
        self.respelled += int(counts[places].sum())

    def _add_text(self, text: pa.BinaryArray, counts: np.ndarray) -> None:
        broken = _broken(text)
        self.not_utf8 += int(counts[broken].sum())
        beyond = np.asarray(pc.utf8_length(as_text(text))) < np.asarray(pc.binary_length(text))
        self.beyond_ascii += int(counts[beyond & ~broken].sum())

    def close(self, sampled: pa.BinaryArray) -> None:
        """Looks at the values once all cells have been read. `sampled`: the cells of a random sample of the rows."""
        if self.values.counted is not None:
            self.evidence = Evidence(*self.values.counted)
            return
        values = in_one_spelling(pc.ascii_trim_whitespace(as_text(sampled)).view(pa.binary()))
        values = values.filter(pc.invert(pc.is_in(values, value_set=_TOKEN_SET)))
        self.evidence = Evidence(*summed(values, np.ones(len(values))))

    def count(self, tokens: frozenset[str]) -> int:
        """Returns how many cells hold one of these tokens, or a value that is taken for one."""
        own = sum(int(n) for token, n in zip(TOKENS, self.tokens, strict=True) if token in tokens)
        counts = self.values.counts() if len(tokens.difference(TOKENS)) else {}
        return own + sum(counts.get(token.encode(), 0) for token in tokens.difference(TOKENS))

    @property
    def numeric(self) -> bool:
        """Whether it holds numbers: all but a few values, or but a few that may stand for a missing one."""
        present = self.rows - int(self.tokens.sum())
        share = 0.9 if len(self.evidence.other_values) <= 3 else 0.99
        return self.numbers.count > 0 and self.numbers.count >= share * present


def numbers_of(text: pa.StringArray) -> np.ndarray:
    """Reads trimmed cells as numbers.

    Returns:
        float64 `[n]`: NaN for null, and for what is no decimal number that fits a float32.
    """
    try:
        floats = text.cast(pa.float64())
    except pa.ArrowInvalid:
        decimal = pc.match_substring_regex(text.view(pa.binary()), DECIMAL)
        floats = pc.if_else(decimal, text, pa.scalar(None, pa.string())).cast(pa.float64())
    numbers: np.ndarray = floats.to_numpy(zero_copy_only=False)
    beyond = ~(np.abs(numbers) <= _LARGEST)
    return np.where(beyond, np.nan, numbers) if beyond.any() else numbers
