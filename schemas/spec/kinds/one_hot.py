"""`kind: one_hot`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import model_validator

from schemas.spec.forms import CellError, ColumnRef, Ids, Input, RawColumn
from schemas.spec.kinds.base import FeatureKind, ReadAsNumbers, check_range, columns_of, numbers_of

if TYPE_CHECKING:
    import numpy as np


class OneHot(ReadAsNumbers, FeatureKind):
    """A group of 0/1 columns of which exactly one is 1, to the position of the 1."""

    columns_are: ClassVar[str] = "the column with the 1 is"

    kind: Literal["one_hot"]
    columns: tuple[ColumnRef, ColumnRef]

    @model_validator(mode="after")
    def _at_least_two(self) -> OneHot:
        check_range(self.columns)
        if self.width < 2:
            raise ValueError("a one_hot group needs two or more columns")
        return self

    @property
    def refs(self) -> tuple[ColumnRef, ...]:
        return columns_of(self.columns)

    @property
    def width(self) -> int:
        return len(numbers_of(self.columns))

    @property
    def raw(self) -> RawColumn:
        return RawColumn(self.name, "float32", self.width)

    @property
    def crossable(self) -> bool:
        return True

    def inputs(self, words: int) -> tuple[Input, ...]:
        return (Ids(self.name, self.width),)

    def row_errors(self, rows: np.ndarray) -> Iterator[tuple[int, CellError]]:
        import numpy as np

        ones = rows == 1
        good = (np.count_nonzero(ones, axis=1) == 1) & (np.count_nonzero(rows, axis=1) == 1)
        for row in np.flatnonzero(~good).tolist():
            found = f"found {np.count_nonzero(ones[row])} ones and {np.count_nonzero(rows[row] == 0)} zeros"
            yield row, CellError("not_one_hot", f"{found} in {self.width} columns, expected one 1, and 0 elsewhere")

    def split_values(self, rows: np.ndarray) -> np.ndarray:
        """The position of the 1."""
        position: np.ndarray = (rows == 1).argmax(axis=1)
        return position.astype("float32")

    def doubtful_rows(self, good: Sequence[float]) -> Iterator[tuple[float, ...]]:
        yield from ((value,) * self.width for value in (0.0, 1.0))
