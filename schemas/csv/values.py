"""Decodes cells: text to float32, plain decimal numbers only; and strings, each distinct value once."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.spec.features import CategoryLabel, ReadAsStrings
from schemas.spec.forms import CellError, absent_value, shown
from schemas.spec.split_hash import hash_strings
from schemas.spec.words import TRUTH, WHOLE

DECIMAL = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_ZERO, _NINE, _SPACE = 48, 9, 32  # all other ASCII white space has codes below the space's


@dataclasses.dataclass(frozen=True)
class MissingTokens:
    """The tokens of a missing value.

    Attributes:
        tokens: binary, compared after trimming.
        numbers: float32: those that are numbers, such as -999; a number that equals one means missing, however written.
    """

    tokens: pa.BinaryArray
    numbers: np.ndarray


@functools.lru_cache(maxsize=16)
def missing_tokens(tokens: tuple[str, ...]) -> MissingTokens:
    """Prepares a schema's tokens, once."""
    array = pa.array([t.encode().strip() for t in tokens], pa.binary())
    decimal = array.filter(pc.match_substring_regex(array, DECIMAL))
    return MissingTokens(array, _narrowed(decimal.cast(pa.string()).cast(pa.float64())))


def numbers(
    cells: pa.BinaryArray, missing: MissingTokens, *, if_absent: str | None
) -> tuple[np.ndarray, dict[int, CellError]]:
    """Decodes one column.

    Args:
        cells: binary `[n]`; white space around a number is ignored.
        missing: the tokens of a missing value.
        if_absent: the reason code that rejects a missing value; None: it becomes NaN.

    Returns:
        float32 or uint8 `[n]`, never -0, and the problems by row: not_a_number, out_of_range, `if_absent`. A number is
        `[+-]digits[.digits][e[+-]digits]`, rounded through float64 as in a client's JSON.
    """
    values = clean_numbers(cells, missing)
    return _one_by_one(as_text(cells), missing, if_absent) if values is None else (values, {})


def clean_numbers(cells: pa.BinaryArray, missing: MissingTokens) -> np.ndarray | None:
    """Does what `numbers` does if every cell is a number and none is missing; otherwise returns None."""
    if len(missing.numbers):  # a valid number may still mean missing
        return None
    digits = _single_digits(cells)
    return _cast(_trimmed(as_text(cells))) if digits is None else digits


def _single_digits(cells: pa.BinaryArray) -> np.ndarray | None:
    """uint8 `[n]` if every cell is a single digit, as in flags and one-hot columns; otherwise None."""
    count = len(cells)
    _, offset_buffer, data = cells.buffers()
    if not count or data is None:
        return None
    offsets = np.frombuffer(offset_buffer, np.int32, count + 1, 4 * cells.offset)
    first = int(offsets[0])
    if offsets[-1] - first != count or not (np.diff(offsets) == 1).all():
        return None
    digits = np.frombuffer(data, np.uint8, count, first) - np.uint8(_ZERO)
    return digits if (digits <= _NINE).all() else None


def as_text(cells: pa.BinaryArray) -> pa.StringArray:
    """Returns the bytes as a string array, without a UTF-8 check."""
    return pa.StringArray.from_buffers(len(cells), *cells.buffers()[1:], None, 0, cells.offset)


def _trimmed(text: pa.StringArray) -> pa.StringArray:
    """Trims white space, which the cast rejects with an error that costs as much as parsing twenty numbers."""
    _, offset_buffer, data_buffer = text.buffers()
    if not len(text) or data_buffer is None:
        return text
    offsets = np.frombuffer(offset_buffer, np.int32, len(text) + 1, text.offset * 4)
    codes = np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]]
    return pc.ascii_trim_whitespace(text) if (codes <= _SPACE).any() else text


def _cast(text: pa.StringArray) -> np.ndarray | None:
    """float32 `[n]` if every cell is null (which becomes NaN) or a decimal number that fits; otherwise None.

    Arrow's cast accepts nothing else except inf and nan, which the count of finite values finds.
    """
    try:
        values = _narrowed(text.cast(pa.float64()))
    except pa.ArrowInvalid:
        return None
    return values if np.count_nonzero(np.isfinite(values)) + text.null_count == len(text) else None


def _narrowed(wide: pa.DoubleArray) -> np.ndarray:
    """float32 `[n]`, never -0; NaN for null."""
    with np.errstate(over="ignore"):
        values = wide.to_numpy(zero_copy_only=False).astype(np.float32)
    values += np.float32(0)
    return values


_EXACT_BYTES = 7  # a float32 tells numbers apart that are written in so many bytes: they have 7 digits at most


def distinct_counts(cells: pa.BinaryArray, values: np.ndarray) -> tuple[int, int] | None:
    """Counts the distinct numbers that cells hold, as they are written and as they are decoded.

    Args:
        cells: binary `[n]`.
        values: float32 `[n]`, decoded of them; cells without a finite number are passed over.

    Returns:
        The counts, as float64 and as float32; None if it is plain that both are the same.
    """
    if not len(cells) or pc.max(pc.binary_length(cells)).as_py() <= _EXACT_BYTES:
        return None
    finite = np.isfinite(values)
    text = _trimmed(as_text(cells if finite.all() else cells.filter(pa.array(finite))))
    wide = np.sort(text.cast(pa.float64()).to_numpy(zero_copy_only=False))
    narrow = wide.astype(np.float32)
    if (wide == narrow).all():
        return None
    return int((np.diff(wide) > 0).sum()) + 1, int((np.diff(narrow) > 0).sum()) + 1


def _one_by_one(
    text: pa.StringArray, missing: MissingTokens, if_absent: str | None
) -> tuple[np.ndarray, dict[int, CellError]]:
    trimmed = pc.ascii_trim_whitespace(text)
    cells = trimmed.view(pa.binary())
    absent = pc.is_in(cells, value_set=missing.tokens)
    decimal, null = pc.invert(absent), pa.scalar(None, pa.string())
    values = _cast(pc.if_else(decimal, trimmed, null))
    if values is None:  # some of the cells that are present are not numbers or do not fit
        decimal = pc.and_(pc.match_substring_regex(cells, DECIMAL), decimal)
        values = _narrowed(pc.if_else(decimal, trimmed, null).cast(pa.float64()))
    equal = np.isin(values, missing.numbers)
    values[equal] = np.nan
    is_number = decimal.to_numpy(zero_copy_only=False) & ~equal
    is_absent = absent.to_numpy(zero_copy_only=False) | equal

    def cell(row: int) -> bytes:
        return text[row].as_buffer().to_pybytes()

    problems: dict[int, CellError] = {}
    for row in np.flatnonzero(~is_number & ~is_absent).tolist():
        problems[row] = CellError("not_a_number", f"found {shown(cell(row))}, expected a decimal number")
    for row in np.flatnonzero(is_number & ~np.isfinite(values)).tolist():
        problems[row] = CellError("out_of_range", f"found {shown(cell(row))}, expected a number that fits a float32")
    if if_absent is not None:
        for row in np.flatnonzero(is_absent).tolist():
            problems[row] = absent_value(cell(row), if_absent)
    return values, problems


@dataclasses.dataclass(frozen=True)
class Distinct:
    """A dictionary-encoded column.

    Attributes:
        codes: int32 `[n]`: each cell's index in `values`.
        values: the distinct values, as in the file.
        trimmed: the same without surrounding white space, and words as `schemas.spec.words` spells them.
        absent: bool: which of them mean a missing value.
        respelled: bool: which of them `schemas.spec.words` spells otherwise than the file.
    """

    codes: np.ndarray
    values: pa.BinaryArray
    trimmed: pa.BinaryArray
    absent: np.ndarray
    respelled: np.ndarray | None = None

    def cells(self, cells: pa.BinaryArray) -> pa.BinaryArray:
        """Returns the column's cells with the words that are spelled otherwise."""
        if self.respelled is None:
            return cells
        return pc.if_else(pa.array(self.respelled), self.trimmed, self.values).take(pa.array(self.codes))

    @property
    def canonical(self) -> pa.BinaryArray:
        """The distinct values as the split hashes them: trimmed, and b"" for every missing value."""
        return pc.if_else(pa.array(self.absent), pa.scalar(b"", pa.binary()), self.trimmed)


def distinct(cells: pa.BinaryArray, missing: pa.BinaryArray, *, words: bool = False) -> Distinct:
    """Finds the distinct values of binary `[n]`. `words`: spelled as `schemas.spec.words` says."""
    encoded = cells.dictionary_encode()
    values = encoded.dictionary
    trimmed = pc.ascii_trim_whitespace(as_text(values)).view(pa.binary())
    respelled = _other_spellings(trimmed) if words else None
    if respelled is not None:
        trimmed = _respelled(trimmed)
    absent = pc.is_in(trimmed, value_set=missing).to_numpy(zero_copy_only=False)
    return Distinct(encoded.indices.to_numpy(zero_copy_only=False), values, trimmed, absent, respelled)


_TRUTH = pa.array([spelling.encode() for spelling in TRUTH], pa.binary())
_TRUTH_WORDS = pa.array([word.encode() for word in TRUTH.values()], pa.binary())
_WHOLE = f"^{WHOLE}$"


def _other_spellings(words: pa.BinaryArray) -> np.ndarray | None:
    """bool `[n]`: which words have another spelling; None if none has, as in most columns."""
    other = pc.is_in(words, value_set=_TRUTH)
    data = words.buffers()[2]
    if data is not None and b"." in memoryview(data).tobytes():
        other = pc.or_(other, pc.match_substring_regex(words, _WHOLE))
    return other.to_numpy(zero_copy_only=False) if pc.any(other).as_py() else None


def in_one_spelling(words: pa.BinaryArray) -> pa.BinaryArray:
    """Returns trimmed cells in the one spelling that `schemas.spec.words` says, where they are words."""
    return words if _other_spellings(words) is None else _respelled(words)


def _respelled(words: pa.BinaryArray) -> pa.BinaryArray:
    """Words in the one spelling that `schemas.spec.words` says."""
    truth = _TRUTH_WORDS.take(pc.index_in(words, value_set=_TRUTH))
    return pc.coalesce(truth, pc.replace_substring_regex(words, _WHOLE, r"\1"))


def not_utf8(column: Distinct) -> dict[int, CellError]:
    """Returns an error for each distinct value that is not UTF-8."""
    try:
        column.values.cast(pa.string())
        return {}
    except pa.ArrowInvalid:
        return {
            i: CellError("not_utf8", f"found {shown(value)}, expected UTF-8 (or declare csv: {{encoding: latin-1}})")
            for i, value in enumerate(column.values.to_pylist())
            if not is_utf8(value)
        }


def too_long(column: Distinct, most: int) -> dict[int, CellError]:
    """Returns an error for each distinct value of more than `most` bytes."""
    lengths = pc.binary_length(column.values).to_numpy(zero_copy_only=False)
    return {
        i: CellError("too_long", f"found a text of {lengths[i]:,} bytes, expected {most:,} at most (see max_bytes)")
        for i in np.flatnonzero(lengths > most).tolist()
    }


def is_utf8(value: bytes) -> bool:
    """Returns whether bytes are UTF-8."""
    try:
        value.decode("utf-8")
        return True
    except UnicodeDecodeError:
        return False


def absent_values(column: Distinct, reason: str) -> dict[int, CellError]:
    """Returns an error with this reason for each distinct value that means missing."""
    return {i: absent_value(column.values[i].as_py(), reason) for i in np.flatnonzero(column.absent).tolist()}


def vocabulary_errors(values: pa.BinaryArray, *, empty_reason: str | None) -> dict[int, CellError]:
    """Returns an error for each distinct value that a vocabulary file, with one value per line, cannot hold.

    Args:
        values: the distinct values as they are looked up. One with a CR or LF is a line_end_in_value.
        empty_reason: the reason code for an empty value, which a graph treats as missing; None: it is filled in.
    """
    problems = {}
    data = values.buffers()[2]
    everything = b"" if data is None else data.to_pybytes()
    if b"\n" in everything or b"\r" in everything:  # ten times faster than checking each value
        for i, value in enumerate(values.to_pylist()):
            if b"\n" in value or b"\r" in value:
                detail = f"found {shown(value)}, expected no line end: a vocabulary has one value per line"
                problems[i] = CellError("line_end_in_value", detail)
    if empty_reason is not None:
        empty = pc.equal(pc.binary_length(values), 0).to_numpy(zero_copy_only=False)
        problems |= {i: absent_value(b"", empty_reason) for i in np.flatnonzero(empty).tolist()}
    return problems


def rows_of(problems: dict[int, CellError], codes: np.ndarray) -> dict[int, CellError]:
    """Errors by distinct value -> errors by row."""
    if not problems:
        return {}
    rows = np.flatnonzero(np.isin(codes, list(problems)))
    return {row: problems[code] for row, code in zip(rows.tolist(), codes[rows].tolist(), strict=True)}


def read_values(column: Distinct, item: ReadAsStrings) -> tuple[pa.BinaryArray | list[bytes], dict[int, CellError]]:
    """Returns each distinct value as the split hashes it (b"" for a missing or invalid one), and the errors."""
    read = item.read_values(column.trimmed)
    if read is None:
        return column.canonical, {}
    canonical: list[bytes] = []
    errors = {}
    for i, value in enumerate(read):
        if isinstance(value, CellError):
            canonical.append(b"")
            if not column.absent[i]:
                errors[i] = value
        else:
            canonical.append(b"" if column.absent[i] else value)
    return canonical, errors


def label_values(column: Distinct, label: CategoryLabel) -> tuple[list[bytes], dict[int, CellError]]:
    """Returns the label of each distinct value, and the errors: missing_label, label_not_in_values."""
    aliases = {spelling.encode().strip(): value.encode().strip() for spelling, value in label.aliases.items()}
    values = None if label.values is None else {v.encode().strip(): v.encode() for v in label.values}
    problems = {}
    canonical = []
    for i, spelling in enumerate(column.trimmed.to_pylist()):
        value = aliases.get(spelling, spelling)
        canonical_value = value if values is None else values.get(value)
        canonical.append(value if canonical_value is None else canonical_value)
        if column.absent[i] and spelling not in aliases and (values is None or canonical_value is None):
            problems[i] = absent_value(column.values[i].as_py(), "missing_label")
        elif canonical_value is None:
            expected = ", ".join((label.values or ())[:20])
            problems[i] = CellError(
                "label_not_in_values", f"found {shown(column.values[i].as_py())}, expected one of {expected}"
            )
    return canonical, problems


def hash_distinct(values: pa.BinaryArray | list[bytes], codes: np.ndarray) -> np.ndarray:
    """Hashes the string of each row, uint64 `[n]`, but each distinct value once."""
    return hash_strings(pa.array(values, pa.binary()))[codes] if len(values) else np.empty(0, np.uint64)


def take(values: list[bytes], codes: np.ndarray) -> pa.BinaryArray:
    """Returns the value of each row, binary `[n]`."""
    return pa.array(values, pa.binary()).take(pa.array(codes))
