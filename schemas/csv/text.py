"""Raw columns to lines of a CSV file, which `schemas.csv.reader` reads back to the same values.

Arrow does the work per cell. Strings are always quoted, so an empty one is no empty line. Numbers are the shortest text
that is read as the same float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.csv.decode import decode_columns
from schemas.csv.header import ItemColumns
from schemas.spec.forms import CellError
from schemas.spec.table import CsvOptions, Schema


def number_cells(values: np.ndarray, missing: Sequence[str], *, delimiter: str = ",") -> pa.BinaryArray:
    """Writes float32 `[n]` or `[n, k]` as the text of each row, its k cells joined.

    NaN becomes a token of a missing value, one of `missing`, if there is any; an infinite number `inf`, which every
    reader of a schema rejects. A number that equals a token, such as -999, means missing in a request, too.
    """
    flat = np.ascontiguousarray(values, np.float32).reshape(-1)
    text = pa.array(flat, pa.float32(), from_pandas=False).cast(pa.string())
    finite = np.isfinite(flat)
    changed: dict[int, str] = {}
    if not finite.all():
        absent = next((token for token in missing if not _is_number(token)), (*missing, "")[0])
        changed = dict.fromkeys(np.flatnonzero(np.isnan(flat)).tolist(), absent)
    read = pc.if_else(pa.array(finite), text, pa.scalar("0")).cast(pa.float64()).to_numpy().astype(np.float32)
    for i in np.flatnonzero((read != flat) & finite).tolist():  # rounded twice, once to float64
        changed[i] = repr(float(flat[i]))
    if changed:
        cells = text.to_pylist()
        for i, cell in changed.items():
            cells[i] = cell
        text = pa.array(cells, pa.string())
    text = text.cast(pa.binary())
    if values.ndim == 1:
        return text
    rows, width = values.shape
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * width)
    return pc.binary_join(pa.ListArray.from_arrays(offsets, text), delimiter.encode())


def string_cells(values: Sequence[bytes] | np.ndarray, options: CsvOptions) -> pa.BinaryArray:
    """Strings -> quoted cells."""
    quote = options.quote.encode()
    array = pa.array(values, pa.binary())
    data = array.buffers()[2]
    if data is not None and quote in memoryview(data).tobytes():
        array = pc.replace_substring(array, quote.decode(), 2 * quote.decode())
    mark = pa.scalar(quote, pa.binary())
    return pc.binary_join_element_wise(mark, array, mark, pa.scalar(b"", pa.binary()))


def lines(columns: Sequence[pa.BinaryArray], options: CsvOptions) -> tuple[bytes, np.ndarray]:
    """Cells by column -> the lines, one after the other, and where each begins and the last one ends, `[n + 1]`."""
    delimiter = pa.scalar(options.delimiter.encode(), pa.binary())
    joined = pc.binary_join_element_wise(*columns, delimiter)
    return _bytes_of(pc.binary_join_element_wise(joined, pa.scalar(b"", pa.binary()), pa.scalar(b"\n", pa.binary())))


def _bytes_of(array: pa.BinaryArray) -> tuple[bytes, np.ndarray]:
    """All values one after the other, and where each begins and the last one ends."""
    offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, 4 * array.offset).astype(np.int64)
    data = array.buffers()[2]
    return (b"" if data is None else data.to_pybytes()[offsets[0] : offsets[-1]]), offsets - offsets[0]


def header_line(names: Sequence[str], options: CsvOptions) -> bytes:
    """Returns a header."""
    return lines([string_cells([name.encode()], options) for name in names], options)[0]


def problems(cells: Mapping[str, Sequence[pa.BinaryArray]], schema: Schema) -> Mapping[int, tuple[str, CellError]]:
    """Finds what the job rejects of some features, or of the label.

    Args:
      cells: binary `[rows]` for each column, by feature.
      schema: what they are.

    Returns:
      By row its first problem, and the feature's name.
    """
    items: list[ItemColumns] = []
    every = [column for feature_columns in cells.values() for column in feature_columns]
    for name, feature_columns in cells.items():
        first = sum(len(item.positions) for item in items)
        items.append(
            ItemColumns(name, tuple(range(first, first + len(feature_columns))), (name,) * len(feature_columns))
        )
    return decode_columns(dict(enumerate(every)), tuple(items), schema, len(every[0]), with_split=False).problems


def _is_number(token: str) -> bool:
    try:
        float(token)
    except ValueError:
        return False
    return True
