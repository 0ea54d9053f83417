"""`kind: ignore`, `weight` and `key`: columns that no model reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

from schemas.spec.forms import CellError, Input
from schemas.spec.kinds.base import FeatureKind, Ranged, ReadAsNumbers, ReadAsStrings, Single

if TYPE_CHECKING:
    import numpy as np


class SetAside(FeatureKind):
    """A feature that is no input of a model, and stays as it is."""

    is_input: ClassVar[bool] = False

    def inputs(self, words: int) -> tuple[Input, ...]:
        return ()


class Ignore(Ranged, SetAside):
    """Columns that are in the file and are no feature."""

    kind: Literal["ignore"]

    @property
    def raw(self) -> None:
        return None


class Weight(Single, ReadAsNumbers, SetAside):
    """The example's weight, a float32 of 0 or more."""

    kind: Literal["weight"]

    def row_errors(self, rows: np.ndarray) -> Iterator[tuple[int, CellError]]:
        import numpy as np

        for row in np.flatnonzero(rows[:, 0] < 0).tolist():
            yield row, CellError("negative_weight", f"found {rows[row, 0]:g}, expected 0 or more")


class Key(Single, ReadAsStrings, SetAside):
    """A string that names the example; it passes through to the records and the predictions."""

    kind: Literal["key"]

    @property
    def if_missing(self) -> None:
        return None
