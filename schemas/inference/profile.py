"""What one column holds, gathered batch by batch in bounded memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.inference.hashing import value_hashes
from schemas.inference.moments import Moments
from schemas.inference.tokens import ALL, ALWAYS, AMONG_NUMBERS, count_tokens
from schemas.inference.value_counts import MAX_BYTES, ValueCounts

_DECIMAL = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_LEADING_ZERO = r"^[+-]?0[0-9]"
_DATE = (
    r"^([0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}|[0-9]{1,2}[-/.][0-9]{1,2}[-/.]([0-9]{4}|[0-9]{2})"
    r"|[0-9]{1,2}[- ][A-Za-z]{3,9}\.?[- ,]+([0-9]{4}|[0-9]{2})|[A-Za-z]{3,9}\.? [0-9]{1,2},? [0-9]{4})"
    r"([T ,].*)?$|^[0-9]{1,2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?( ?[AaPp][Mm])?$"
)
_AMOUNT = (
    r"^[$\x{20ac}\x{a3}\x{a5}]? ?[+-]?[0-9]+([,. '][0-9]{3})*([.,][0-9]+)?"
    r" ?(%|\x{20ac}|\$|\x{a3}|[kKmM]|kg|km|cm|mm|g|s|h|lbs?|min)?$"
)
_ODD = 50  # distinct values that are no numbers, in a column of numbers
_LARGEST = float(np.finfo(np.float32).max)


class ColumnProfile:
    """A column as far as it has been read.

    Attributes:
        rows: the number of cells.
        tokens: int64, how often each token of `schemas.inference.tokens.ALL` occurs.
        values: the counts of all trimmed values that are no token.
        numbers: the moments of the numbers.
        logs: those of log(1 + x), of the numbers above -1.
        low: the smallest number.
        high: the largest.
        whole: whether all numbers are whole.
        leading_zeros: the number of cells such as 007.
        odd: the counts of what is neither a number nor a token.
        text_cells: how many cells `odd` counts.
        text_bytes: their length together.
        words: their words together.
        dates: how many of them are dates.
        amounts: how many are numbers with a unit, a currency's sign, or commas.
        line_ends: how many hold a line end.
        not_utf8: how many are no UTF-8.
        beyond_ascii: how many are UTF-8 and hold a character beyond ASCII.
        signature: a sum of the values' hashes, each times a random number of its row: equal for equal columns.
        ones: the same sum over the rows whose number is 1; of columns that hold 0 and 1 only.
        binary: whether there is nothing but 0 and 1.
    """

    def __init__(self, distinct_limit: int, max_bytes: int = MAX_BYTES) -> None:
        self.rows = 0
        self.tokens = np.zeros(len(ALL), np.int64)
        self.values = ValueCounts(distinct_limit, max_bytes)
        self.numbers = Moments()
        self.logs = Moments()
        self.low, self.high = np.inf, -np.inf
        self.whole = True
        self.leading_zeros = 0
        self.odd = ValueCounts(_ODD, max_bytes)
        self.text_cells = self.text_bytes = self.words = self.dates = self.amounts = self.line_ends = 0
        self.not_utf8 = self.beyond_ascii = 0
        self.signature = self.ones = 0
        self.binary = True

    def add(self, cells: pa.BinaryArray, row_hashes: np.ndarray) -> None:
        """Adds a batch: the cells, binary `[n]`, and the hashes of their rows, uint64 `[n]`."""
        self.rows += len(cells)
        encoded = cells.dictionary_encode()
        codes = encoded.indices.to_numpy()
        text = _as_text(encoded.dictionary)
        trimmed = pc.ascii_trim_whitespace(text)
        counts = np.bincount(codes, minlength=len(trimmed)).astype(np.int64)
        values = trimmed.view(pa.binary())
        is_token, tokens = count_tokens(values, counts)
        self.tokens += tokens
        numbers = _numbers(trimmed, is_token)
        is_number = ~np.isnan(numbers)
        hashes = value_hashes(values)
        self.signature = _plus(self.signature, row_hashes * hashes[codes])
        if self.binary:
            self.binary = bool((is_number & ((numbers == 0) | (numbers == 1))).all())
            self.ones = _plus(self.ones, row_hashes[(numbers == 1)[codes]])
        if is_token.any():
            values, counts = values.filter(pa.array(~is_token)), counts[~is_token]
            numbers, is_number = numbers[~is_token], is_number[~is_token]
        self.values.add(values, counts)
        self._add_numbers(numbers[is_number], counts[is_number])
        if not is_number.all():
            self._add_text(values.filter(pa.array(~is_number)), counts[~is_number])
        if self.numbers.count and self.whole:
            zeros = pc.match_substring_regex(values, _LEADING_ZERO).to_numpy(zero_copy_only=False)
            self.leading_zeros += int(counts[zeros].sum())

    def _add_numbers(self, numbers: np.ndarray, counts: np.ndarray) -> None:
        if not len(numbers):
            return
        self.numbers.add(numbers, counts)
        above = numbers > -1
        self.logs.add(np.log1p(numbers[above]), counts[above])
        self.low, self.high = min(self.low, float(numbers.min())), max(self.high, float(numbers.max()))
        self.whole = self.whole and bool((numbers == np.floor(numbers)).all())

    def _add_text(self, values: pa.BinaryArray, counts: np.ndarray) -> None:
        self.odd.add(values, counts)
        self.text_cells += int(counts.sum())
        self.text_bytes += int(np.asarray(pc.binary_length(values)) @ counts)
        try:
            values.cast(pa.string())
        except pa.ArrowInvalid:
            wrong = np.array([not _is_utf8(value) for value in values.to_pylist()])
            self.not_utf8 += int(counts[wrong].sum())
            values = values.filter(pa.array(~wrong))
            counts = counts[~wrong]
        self.words += int((np.asarray(pc.count_substring_regex(values, r"\s+")) + 1) @ counts)
        self.dates += int(counts[np.asarray(pc.match_substring_regex(values, _DATE))].sum())
        text = _as_text(values)  # whose signs have several bytes
        self.beyond_ascii += int(counts[np.asarray(pc.utf8_length(text)) < np.asarray(pc.binary_length(values))].sum())
        self.amounts += int(counts[np.asarray(pc.match_substring_regex(text, _AMOUNT))].sum())
        self.line_ends += int(counts[np.asarray(pc.match_substring_regex(values, "[\r\n]"))].sum())

    def missing(self, tokens: frozenset[str]) -> int:
        """How many cells hold one of these tokens, or of the odd values that are taken for one."""
        found = sum(int(n) for token, n in zip(ALL, self.tokens, strict=True) if token in tokens)
        others = {token.encode() for token in tokens} - {token.encode() for token in ALL}
        if others and self.values.exact:
            found += sum(count for value, count in self.values.ranked() if value in others)
        elif others:
            found += sum(count for value, count in self.odd.ranked() if value in others)
        return found

    def token_count(self, names: tuple[str, ...]) -> int:
        """How many cells hold one of these tokens."""
        return int(sum(self.tokens[ALL.index(name)] for name in names))

    @property
    def always_missing(self) -> int:
        """How many cells hold a token that means missing wherever it stands."""
        return int(self.tokens[: len(ALWAYS)].sum())

    @property
    def among_numbers(self) -> int:
        """How many cells hold a token that means missing among numbers."""
        return int(self.tokens[len(ALWAYS) :].sum())

    def found_tokens(self, *, numeric: bool) -> tuple[str, ...]:
        """The tokens that occur and mean missing here."""
        meant = ALWAYS + (AMONG_NUMBERS if numeric else ())
        return tuple(token for token, count in zip(ALL, self.tokens, strict=True) if count and token in meant)


def _plus(total: int, terms: np.ndarray) -> int:
    return (total + int(terms.sum(dtype=np.uint64))) & 0xFFFFFFFFFFFFFFFF


def _as_text(values: pa.BinaryArray) -> pa.StringArray:
    """The same bytes as strings, without a check: what is no UTF-8 is counted elsewhere."""
    return pa.StringArray.from_buffers(len(values), *values.buffers()[1:], None, 0, values.offset)


def _numbers(text: pa.StringArray, is_token: np.ndarray) -> np.ndarray:
    """float64 `[n]`: NaN for what is no decimal number that fits a float32."""
    if is_token.any():
        text = pc.if_else(pa.array(~is_token), text, pa.scalar(None, pa.string()))
    try:
        found = text.cast(pa.float64())
    except pa.ArrowInvalid:
        decimal = pc.match_substring_regex(text.view(pa.binary()), _DECIMAL)
        found = pc.if_else(decimal, text, pa.scalar(None, pa.string())).cast(pa.float64())
    numbers: np.ndarray = found.to_numpy(zero_copy_only=False)
    beyond = ~(np.abs(numbers) <= _LARGEST)
    return np.where(beyond, np.nan, numbers) if beyond.any() else numbers


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
