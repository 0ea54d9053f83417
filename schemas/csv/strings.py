"""Decodes text columns: each distinct value is checked once."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.spec.features import CategoryLabel, ReadAsStrings
from schemas.spec.forms import CellError, absent_value, shown
from schemas.spec.split_hash import hash_strings


@dataclasses.dataclass(frozen=True)
class Distinct:
    """A dictionary-encoded column.

    Attributes:
        codes: int32 `[n]`: each cell's index in `values`.
        values: the distinct values, as in the file.
        trimmed: the same without surrounding white space.
        absent: bool: which of them mean a missing value.
    """

    codes: np.ndarray
    values: pa.BinaryArray
    trimmed: pa.BinaryArray
    absent: np.ndarray

    @property
    def canonical(self) -> pa.BinaryArray:
        """The distinct values as the split hashes them: trimmed, and b"" for every missing value."""
        return pc.if_else(pa.array(self.absent), pa.scalar(b"", pa.binary()), self.trimmed)


def distinct(cells: pa.BinaryArray, missing: pa.BinaryArray) -> Distinct:
    """The distinct values of binary `[n]`."""
    encoded = cells.dictionary_encode()
    values = encoded.dictionary
    text = pa.StringArray.from_buffers(len(values), *values.buffers()[1:], None, 0, values.offset)
    trimmed = pc.ascii_trim_whitespace(text).view(pa.binary())
    absent = pc.is_in(trimmed, value_set=missing).to_numpy(zero_copy_only=False)
    return Distinct(encoded.indices.to_numpy(zero_copy_only=False), values, trimmed, absent)


def not_utf8(column: Distinct) -> dict[int, CellError]:
    """An error for each distinct value that is not UTF-8."""
    try:
        column.values.cast(pa.string())
        return {}
    except pa.ArrowInvalid:
        return {
            i: CellError("not_utf8", f"found {shown(value)}, expected UTF-8 (or declare csv: {{encoding: latin-1}})")
            for i, value in enumerate(column.values.to_pylist())
            if not _is_utf8(value)
        }


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode("utf-8")
        return True
    except UnicodeDecodeError:
        return False


def absent_values(column: Distinct, reason: str) -> dict[int, CellError]:
    """An error with this reason for each distinct value that means missing."""
    return {i: absent_value(column.values[i].as_py(), reason) for i in np.flatnonzero(column.absent).tolist()}


def vocabulary_errors(values: pa.BinaryArray, *, empty_reason: str | None) -> dict[int, CellError]:
    """An error for each distinct value that a vocabulary file, with one value per line, cannot hold.

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
    """Each distinct value as the split hashes it (b"" for a missing or invalid one), and the errors."""
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
    """The label of each distinct value, and the errors: missing_label, label_not_in_values."""
    aliases = {spelling.encode().strip(): value.encode().strip() for spelling, value in label.aliases.items()}
    values = None if label.values is None else {v.encode().strip(): v.encode() for v in label.values}
    problems = {}
    canonical = []
    for i, spelling in enumerate(column.trimmed.to_pylist()):
        value = aliases.get(spelling, spelling)
        known = value if values is None else values.get(value)
        canonical.append(value if known is None else known)
        if column.absent[i] and spelling not in aliases and (values is None or known is None):
            problems[i] = absent_value(column.values[i].as_py(), "missing_label")
        elif known is None:
            expected = ", ".join((label.values or ())[:20])
            problems[i] = CellError(
                "label_not_in_values", f"found {shown(column.values[i].as_py())}, expected one of {expected}"
            )
    return canonical, problems


def hash_distinct(values: pa.BinaryArray | list[bytes], codes: np.ndarray) -> np.ndarray:
    """uint64 `[n]`: the string hash of each row; each distinct value is hashed once."""
    return hash_strings(pa.array(values, pa.binary()))[codes] if len(values) else np.empty(0, np.uint64)


def take(values: list[bytes], codes: np.ndarray) -> pa.BinaryArray:
    """binary `[n]`: the value of each row."""
    return pa.array(values, pa.binary()).take(pa.array(codes))
