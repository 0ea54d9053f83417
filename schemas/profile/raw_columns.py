"""A column of raw cells as `init` sees it, before there is a schema: numbers, text, and what stands for no value."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.csv.values import DECIMAL, as_text, in_one_spelling, is_utf8
from schemas.profile.duplicates import HASH, RecordHashes, value_hashes
from schemas.profile.sketches import Moments, Sizes, summed
from schemas.profile.summary import Summary

# They mean missing wherever they stand.
ALWAYS = ("", "?", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NAN", "NULL", "null", "Null", "\\N", "NaT")
# They mean missing where everything else is a number; elsewhere they may be a category of their own.
AMONG_NUMBERS = ("None", "none", "-", "--", ".", "*", "unknown", "Unknown", "missing", "Missing", "inf", "-inf", "Inf")
ALL = ALWAYS + AMONG_NUMBERS

_SET = pa.array([token.encode() for token in ALL], pa.binary())


def count_tokens(values: pa.BinaryArray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which trimmed distinct values are tokens.

    Args:
        values: binary `[n]`.
        counts: int64 `[n]`, how often each value occurs.

    Returns:
        bool `[n]`, and int64 `[len(ALL)]`: how often each token occurs.
    """
    places = pc.index_in(values, value_set=_SET)
    sums = np.zeros(len(ALL), np.int64)
    if places.null_count == len(values):
        return np.zeros(len(values), bool), sums
    is_token = places.is_valid().to_numpy(zero_copy_only=False)
    np.add.at(sums, places.drop_null().to_numpy(), counts[is_token])
    return is_token, sums


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
_ODD = 50  # distinct values that are no numbers, in a column of numbers
_HASHES = 1024  # that estimate the number of distinct values, to 3 %
_COMPARED = 1024  # numbers of a batch that are compared with what they are as float32
_LARGEST = float(np.finfo(np.float32).max)


class ColumnProfile:
    """A column as far as it has been read.

    Attributes:
        rows: the number of cells.
        tokens: int64, how often each token of `schemas.profile.raw_columns.ALL` occurs.
        values: all trimmed values that are no token.
        numbers: the moments of the numbers.
        logs: those of log(1 + x), of the numbers above -1.
        whole: whether all numbers are whole.
        sampled: how many distinct numbers samples of the batches hold, together.
        sampled_float32: how many they are as float32.
        leading_zeros: the number of cells such as 007.
        respelled: how many cells a category has in another spelling than others of the same value, such as 1.0 for 1.
        respelling: the first of them, as it is written and as it is read.
        odd: what is neither a number nor a token.
        text_cells: how many cells `odd` counts.
        text_bytes: their length together.
        words: their words together.
        dates: how many of them are dates.
        amounts: how many are numbers with a unit, a currency's sign, or commas.
        amount: the first of them.
        decimal_commas: how many of them surely have a comma before their decimals.
        line_ends: how many hold a line end.
        not_utf8: how many are no UTF-8.
        beyond_ascii: how many are UTF-8 and hold a character beyond ASCII.
        signature: a sum of the values' hashes, each times a random number of its row: equal for equal columns.
        ones: the same sum over the rows whose number is 1; of columns that hold 0 and 1 only.
        binary: whether there is nothing but 0 and 1.
    """

    def __init__(self, distinct_limit: int) -> None:
        self.rows = 0
        self.tokens = np.zeros(len(ALL), np.int64)
        self.values = Summary(Sizes(_HASHES, distinct_limit), numeric=False)
        self.numbers = Moments()
        self.logs = Moments()
        self.whole = True
        self.sampled = self.sampled_float32 = 0
        self.leading_zeros = 0
        self.respelled, self.respelling = 0, (b"", b"")
        self.odd = Summary(Sizes(_HASHES, _ODD), numeric=False)
        self.text_cells = self.text_bytes = self.words = self.dates = self.amounts = self.line_ends = 0
        self.amount, self.decimal_commas = b"", 0
        self.not_utf8 = self.beyond_ascii = 0
        self.signature = self.ones = 0
        self.binary = True

    def add(self, cells: pa.BinaryArray, row_hashes: np.ndarray) -> None:
        """Adds a batch: the cells, binary `[n]`, and the hashes of their rows, uint64 `[n]`."""
        self.rows += len(cells)
        encoded = cells.dictionary_encode()
        codes = encoded.indices.to_numpy()
        text = as_text(encoded.dictionary)
        trimmed = pc.ascii_trim_whitespace(text)
        counts = np.bincount(codes, minlength=len(trimmed)).astype(np.int64)
        written = trimmed.view(pa.binary())
        values = in_one_spelling(written)
        if values is not written and pc.count_distinct(values).as_py() < len(values):
            self._add_respelled(written, values, counts)
        is_token, tokens = count_tokens(values, counts)
        self.tokens += tokens
        numbers = numbers_of(trimmed, is_token)
        is_number = ~np.isnan(numbers)
        hashes = value_hashes(values)
        self.signature = _plus(self.signature, row_hashes * hashes[codes])
        if self.binary:
            self.binary = bool((is_number & ((numbers == 0) | (numbers == 1))).all())
            self.ones = _plus(self.ones, row_hashes[(numbers == 1)[codes]])
        if is_token.any():
            values, counts = values.filter(pa.array(~is_token)), counts[~is_token]
            numbers, is_number = numbers[~is_token], is_number[~is_token]
        self.values.add_counted(*summed(values, counts))  # trimmed, two may have become one
        self._add_numbers(numbers[is_number], counts[is_number])
        if not is_number.all():
            self._add_text(values.filter(pa.array(~is_number)), counts[~is_number])
        if self.numbers.count and self.whole:
            zeros = pc.match_substring_regex(values, _LEADING_ZERO).to_numpy(zero_copy_only=False)
            self.leading_zeros += int(counts[zeros].sum())

    def _add_respelled(self, written: pa.BinaryArray, values: pa.BinaryArray, counts: np.ndarray) -> None:
        places = np.flatnonzero(np.asarray(pc.not_equal(written, values)))
        if not self.respelled and len(places):
            self.respelling = written[int(places[0])].as_py(), values[int(places[0])].as_py()
        self.respelled += int(counts[places].sum())

    def _add_numbers(self, numbers: np.ndarray, counts: np.ndarray) -> None:
        if not len(numbers):
            return
        self.numbers.add(numbers, counts)
        sample = np.unique(numbers[:_COMPARED])
        self.sampled += len(sample)
        self.sampled_float32 += len(np.unique(sample.astype(np.float32)))
        above = numbers > -1
        self.logs.add(np.log1p(numbers[above]), counts[above])
        self.whole = self.whole and bool((numbers == np.floor(numbers)).all())

    def _add_text(self, values: pa.BinaryArray, counts: np.ndarray) -> None:
        self.odd.add_counted(*summed(values, counts))
        self.text_cells += int(counts.sum())
        self.text_bytes += int(np.asarray(pc.binary_length(values)) @ counts)
        try:
            values.cast(pa.string())
        except pa.ArrowInvalid:
            wrong = np.array([not is_utf8(value) for value in values.to_pylist()])
            self.not_utf8 += int(counts[wrong].sum())
            values = values.filter(pa.array(~wrong))
            counts = counts[~wrong]
        self.words += int((np.asarray(pc.count_substring_regex(values, r"\s+")) + 1) @ counts)
        self.dates += int(counts[np.asarray(pc.match_substring_regex(values, _DATE))].sum())
        text = as_text(values)  # whose signs have several bytes
        self.beyond_ascii += int(counts[np.asarray(pc.utf8_length(text)) < np.asarray(pc.binary_length(values))].sum())
        if (amounts := np.asarray(pc.match_substring_regex(text, _AMOUNT))).any():
            self.amounts += int(counts[amounts].sum())
            self.amount = self.amount or values[int(amounts.argmax())].as_py()
            amounts &= np.asarray(pc.match_substring_regex(text, _DECIMAL_COMMA))
            self.decimal_commas += int(counts[amounts].sum())
        self.line_ends += int(counts[np.asarray(pc.match_substring_regex(values, "[\r\n]"))].sum())

    @property
    def low(self) -> float:
        """The smallest number."""
        return self.numbers.low

    @property
    def high(self) -> float:
        """The largest number."""
        return self.numbers.high

    def missing(self, tokens: frozenset[str]) -> int:
        """How many cells hold one of these tokens, or of the odd values that are taken for one."""
        count = sum(int(n) for token, n in zip(ALL, self.tokens, strict=True) if token in tokens)
        counts = (self.values if self.values.known else self.odd).counts()
        return count + sum(counts.get(token.encode(), 0) for token in tokens if token not in ALL)

    @property
    def always_missing(self) -> int:
        """How many cells hold a token that means missing wherever it stands."""
        return int(self.tokens[: len(ALWAYS)].sum())

    @property
    def among_numbers(self) -> int:
        """How many cells hold a token that means missing among numbers."""
        return int(self.tokens[len(ALWAYS) :].sum())

    def missing_tokens(self, *, numeric: bool) -> tuple[str, ...]:
        """The tokens that occur and mean missing here."""
        meaning_missing = ALWAYS + (AMONG_NUMBERS if numeric else ())
        return tuple(token for token, count in zip(ALL, self.tokens, strict=True) if count and token in meaning_missing)


MASK = (1 << 64) - 1


def _plus(total: int, terms: np.ndarray) -> int:
    return (total + int(terms.sum(dtype=np.uint64))) & MASK


def numbers_of(text: pa.StringArray, is_token: np.ndarray) -> np.ndarray:
    """float64 `[n]`: NaN for what is no decimal number that fits a float32."""
    if is_token.any():
        text = pc.if_else(pa.array(~is_token), text, pa.scalar(None, pa.string()))
    try:
        floats = text.cast(pa.float64())
    except pa.ArrowInvalid:
        decimal = pc.match_substring_regex(text.view(pa.binary()), DECIMAL)
        floats = pc.if_else(decimal, text, pa.scalar(None, pa.string())).cast(pa.float64())
    numbers: np.ndarray = floats.to_numpy(zero_copy_only=False)
    beyond = ~(np.abs(numbers) <= _LARGEST)
    return np.where(beyond, np.nan, numbers) if beyond.any() else numbers


MAX_ROWS, MAX_CELLS, MAX_SAMPLE_BYTES = 20_000, 4_000_000, 64 << 20


def row_sample(width: int) -> RecordHashes:
    """An empty random sample of a table's rows: for what shows only in several columns together."""
    fields = [(HASH, pa.uint64()), *((str(i), pa.binary()) for i in range(width))]
    return RecordHashes(pa.schema(fields), budget=MAX_SAMPLE_BYTES, most=max(200, min(MAX_ROWS, MAX_CELLS // width)))
