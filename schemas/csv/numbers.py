"""Parses text to float32: plain decimal numbers only, without guessing."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.spec.forms import CellError, absent_value, shown

_DECIMAL = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_ZERO, _NINE, _SPACE = 48, 9, 32  # all other ASCII white space has codes below the space's


@dataclasses.dataclass(frozen=True)
class MissingTokens:
    """The tokens of a missing value (binary, compared after trimming), and whether one is a number, such as -999."""

    tokens: pa.BinaryArray
    numeric: bool


@functools.lru_cache(maxsize=16)
def missing_tokens(tokens: tuple[str, ...]) -> MissingTokens:
    """The schema's tokens, prepared once."""
    array = pa.array([t.encode().strip() for t in tokens], pa.binary())
    return MissingTokens(array, bool(tokens) and any(pc.match_substring_regex(array, _DECIMAL).to_pylist()))


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
    return _one_by_one(_as_text(cells), missing.tokens, if_absent) if values is None else (values, {})


def clean_numbers(cells: pa.BinaryArray, missing: MissingTokens) -> np.ndarray | None:
    """The same as `numbers` if every cell is a number and none is missing; otherwise None."""
    if missing.numeric:  # a valid number may still mean missing
        return None
    digits = _single_digits(cells)
    return _cast(_trimmed(_as_text(cells))) if digits is None else digits


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


def _as_text(cells: pa.BinaryArray) -> pa.StringArray:
    """The same bytes as a string array, without a UTF-8 check: what is not a number is rejected anyway."""
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


def _one_by_one(
    text: pa.StringArray, missing: pa.BinaryArray, if_absent: str | None
) -> tuple[np.ndarray, dict[int, CellError]]:
    trimmed = pc.ascii_trim_whitespace(text)
    cells = trimmed.view(pa.binary())
    absent = pc.is_in(cells, value_set=missing)
    decimal, null = pc.invert(absent), pa.scalar(None, pa.string())
    values = _cast(pc.if_else(decimal, trimmed, null))
    if values is None:  # some of the cells that are present are not numbers or do not fit
        decimal = pc.and_(pc.match_substring_regex(cells, _DECIMAL), decimal)
        values = _narrowed(pc.if_else(decimal, trimmed, null).cast(pa.float64()))
    is_number = decimal.to_numpy(zero_copy_only=False)
    is_absent = absent.to_numpy(zero_copy_only=False)

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
