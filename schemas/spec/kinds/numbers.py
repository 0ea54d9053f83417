"""The kinds that a model reads as numbers: `numeric`, for a feature and for a label, and `one_hot`."""

from __future__ import annotations

import fractions
import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator

from schemas.spec.forms import CellError, ColumnRef, Dense, Ids, Input, RawColumn, Strict, as_float32
from schemas.spec.kinds.base import (
    FeatureKind,
    Ranged,
    ReadAsNumbers,
    Single,
    check_range,
    columns_of,
    numbers_of,
)

if TYPE_CHECKING:
    import numpy as np


MAX_BUCKETS = 100_000  # the largest number of buckets by quantiles


SMALLEST_NORMAL = 2.0**-126  # the smallest positive float32 that TensorFlow does not treat as 0


class Scale(Strict):
    """The transform (x - low) / (high - low), with bounds that the schema gives."""

    scale: tuple[float, float]

    @model_validator(mode="after")
    def _bounds_in_order(self) -> Scale:
        if not SMALLEST_NORMAL <= as_float32(self.scale[1] - self.scale[0]) < math.inf:
            raise ValueError("scale: [low, high] needs low < high, and a difference that is a float32, up to 3.4e38")
        return self


class Bucketize(Strict):
    """The transform to the number of a bucket.

    The buckets are quantiles of the train split, or have given boundaries.
    """

    bucketize: Annotated[int, Field(ge=2, le=MAX_BUCKETS)] | tuple[float, ...]

    @model_validator(mode="after")
    def _boundaries_rise(self) -> Bucketize:
        if isinstance(self.bucketize, tuple):
            stored = [-math.inf, *map(as_float32, self.bucketize), math.inf]
            if len(stored) == 2 or any(b <= a for a, b in itertools.pairwise(stored)):
                raise ValueError(
                    "bucketize: boundaries must be strictly increasing as float32s, and there must be at least one"
                )
        return self

    @property
    def count(self) -> int:
        """The number of buckets."""
        return self.bucketize if isinstance(self.bucketize, int) else len(self.bucketize) + 1


CLIP_PARTS = 10_000  # `clip` can give shares of the rows in steps of 1 / 10,000


def _shares(clip: tuple[float, float]) -> tuple[float, float]:
    """Refuses a value of `clip` that is not two rising shares with at most four decimals."""
    low, high = clip
    if not low < high:
        raise ValueError(f"[{low:g}, {high:g}]: give the lower share first, then a higher one")
    if clip == (0, 1):
        raise ValueError("[0, 1]: clips nothing; leave it out")
    if CLIP_PARTS % _parts(clip):
        raise ValueError(f"[{low!r}, {high!r}]: give at most four decimals")
    return clip


def _parts(clip: tuple[float, float]) -> int:
    """Returns the smallest number of equal parts of which both shares are multiples: 1,000 for [0.001, 0.98]."""
    return math.lcm(*(fractions.Fraction(repr(share)).denominator for share in clip))


Share = Annotated[float, Field(ge=0, le=1)]
Clip = Annotated[tuple[Share, Share], AfterValidator(_shares)]


class Numeric(Ranged, ReadAsNumbers, FeatureKind):
    """A number, float32, or a vector of numbers if `columns` names several columns. In raw data NaN means missing."""

    by_column: ClassVar[bool] = True

    kind: Literal["numeric"]
    transform: Literal["z_score", "min_max", "log", "none"] | Scale | Bucketize = "z_score"
    # Before the transform, values are limited to the range between these two quantiles of the train split, given as
    # shares of its rows. 0 sets no lower limit, and 1 no upper limit.
    clip: Clip | None = None
    missing: Literal["mean", "median"] | float | None = None  # None: a missing value rejects its row
    indicator: bool = False  # adds the feature <name>_missing, 1.0 where the value was missing

    @model_validator(mode="after")
    def _indicator_needs_a_filling(self) -> Numeric:
        if self.indicator and self.missing is None:
            raise ValueError("indicator: true needs `missing:` (mean, median or a number) to replace the missing value")
        return self

    def not_meant(self) -> Iterator[tuple[str, str]]:
        if not isinstance(self.missing, float):
            return
        if math.isinf(as_float32(self.missing)):
            yield "missing", f"found {self.missing:g}; a number is stored as a float32, which ends at 3.4e38"
        elif self.transform == "log" and self.missing <= -1:
            message = "its logarithm is not finite, which rejects each row that lacks it"
            yield "missing", f"found {self.missing:g}; {message}"

    @property
    def clip_parts(self) -> int:
        """The number of equal parts into which quantiles must cut the rows, so that both shares of `clip` are cuts."""
        return _parts(self.clip or (0, 1))

    @property
    def raw(self) -> RawColumn:
        return RawColumn(self.name, "float32", None if self.columns is None else self.width)

    @property
    def measures(self) -> bool:
        quantiles = isinstance(self.transform, Bucketize) and isinstance(self.transform.bucketize, int)
        scaled = self.transform in ("z_score", "min_max") or self.clip is not None
        return quantiles or scaled or self.missing in ("mean", "median")

    @property
    def indicator_name(self) -> str:
        """The name of the feature that says where a value was missing."""
        return f"{self.name}_missing"

    @property
    def made(self) -> tuple[str, ...]:
        return (self.name, self.indicator_name) if self.indicator else (self.name,)

    @property
    def stored_length(self) -> int:
        return self.width

    @property
    def crossable(self) -> bool:
        return isinstance(self.transform, Bucketize) and self.width == 1

    @property
    def not_finite_hint(self) -> str:
        return "; `transform: log` is for values above -1" if self.transform == "log" else ""

    def inputs(self, words: int) -> tuple[Input, ...]:
        value: Input = Dense(self.name, self.width, z_score=self.transform == "z_score")
        if isinstance(self.transform, Bucketize):
            value = Ids(self.name, self.transform.count, self.width, positional=self.width > 1, ordered=True)
        return (value, Dense(self.indicator_name, self.width)) if self.indicator else (value,)


class NumericLabel(Single, ReadAsNumbers):
    """A label that is a number, float32, to be predicted by regression.

    Records hold the number unchanged; `transform` says what a model learns to predict. `log` is ln(x) and `log1p` is
    ln(1 + x). These two change the dataset, because rows with a label that has no logarithm are rejected. So only these
    two are part of the schema's fingerprint.
    """

    kind: Literal["numeric"]
    transform: Literal["z_score", "log", "log1p", "none"] = Field(
        default="z_score", exclude_if=lambda value: value not in ("log", "log1p")
    )

    @property
    def if_missing(self) -> str:
        return "missing_label"

    @property
    def lower_bound(self) -> float:
        """The bound that all labels must be larger than."""
        return {"log": 0.0, "log1p": -1.0}.get(self.transform, -math.inf)

    @property
    def bound_hint(self) -> str:
        """The explanation of the lower bound in a message."""
        if self.transform == "log":
            return (
                "`transform: log` of a label is ln(x), for values above 0; `log1p`, ln(1 + x), is for values above -1"
            )
        return f"`transform: {self.transform}` of a label is for values above {self.lower_bound:g}"

    def row_errors(self, rows: np.ndarray) -> Iterator[tuple[int, CellError]]:
        import numpy as np

        for row in np.flatnonzero((rows <= self.lower_bound).any(axis=1)).tolist():
            reason = "label_not_positive" if self.transform == "log" else "label_too_small"
            yield row, CellError(reason, f"found {rows[row, 0]:g}; {self.bound_hint}")


class OneHot(ReadAsNumbers, FeatureKind):
    """A group of 0/1 columns of which exactly one is 1. The feature becomes the position of the 1."""

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
        # Exactly one 1, and exactly one value other than 0 (NaN counts as such).
        good = (np.count_nonzero(ones, axis=1) == 1) & (np.count_nonzero(rows, axis=1) == 1)
        for row in np.flatnonzero(~good).tolist():
            counts_text = f"found {np.count_nonzero(ones[row])} ones and {np.count_nonzero(rows[row] == 0)} zeros"
            yield (
                row,
                CellError("not_one_hot", f"{counts_text} in {self.width} columns, expected one 1, and 0 elsewhere"),
            )

    def split_values(self, rows: np.ndarray) -> np.ndarray:
        """Returns the position of the 1 in each row, float32 `[rows]`."""
        position: np.ndarray = (rows == 1).argmax(axis=1)
        return position.astype("float32")
