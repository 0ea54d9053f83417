"""`kind: numeric`, of a feature and of a label."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from schemas.spec.forms import Dense, Ids, Input, RawColumn
from schemas.spec.kinds.base import FeatureKind, Ranged, ReadAsNumbers, Single
from schemas.spec.strict import Strict

MAX_BUCKETS = 100_000  # of quantiles


class Scale(Strict):
    """(x - low) / (high - low), by bounds that the schema gives."""

    scale: tuple[float, float]

    @model_validator(mode="after")
    def _bounds_in_order(self) -> Scale:
        if not self.scale[0] < self.scale[1]:
            raise ValueError("scale: [low, high] needs low < high")
        return self


class Bucketize(Strict):
    """A bucket's number: by this many quantiles of the train split, or by given boundaries."""

    bucketize: Annotated[int, Field(ge=2, le=MAX_BUCKETS)] | tuple[float, ...]

    @model_validator(mode="after")
    def _boundaries_rise(self) -> Bucketize:
        if isinstance(self.bucketize, tuple) and (
            not self.bucketize or any(b <= a for a, b in zip(self.bucketize, self.bucketize[1:], strict=False))
        ):
            raise ValueError("bucketize: boundaries must be strictly increasing, and there must be at least one")
        return self

    @property
    def count(self) -> int:
        """How many buckets there are."""
        return self.bucketize if isinstance(self.bucketize, int) else len(self.bucketize) + 1


class Numeric(Ranged, ReadAsNumbers, FeatureKind):
    """A float32, or a vector of them when `columns` names several. Raw: NaN is missing."""

    by_column: ClassVar[bool] = True

    kind: Literal["numeric"]
    transform: Literal["z_score", "min_max", "log", "none"] | Scale | Bucketize = "z_score"
    missing: Literal["mean", "median"] | float | None = None  # None: a missing value rejects its row
    indicator: bool = False  # adds the feature <name>_missing, 1.0 where the value was missing

    @model_validator(mode="after")
    def _indicator_needs_a_filling(self) -> Numeric:
        if self.indicator and self.missing is None:
            raise ValueError("indicator: true needs `missing:` (mean, median or a number) to replace the missing value")
        return self

    @property
    def raw(self) -> RawColumn:
        return RawColumn(self.name, "float32", None if self.columns is None else self.width)

    @property
    def if_missing(self) -> str | None:
        return "missing_value" if self.missing is None else None

    @property
    def measures(self) -> bool:
        quantiles = isinstance(self.transform, Bucketize) and isinstance(self.transform.bucketize, int)
        return quantiles or self.transform in ("z_score", "min_max") or self.missing in ("mean", "median")

    @property
    def indicator_name(self) -> str:
        """The feature that an indicator is stored as."""
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
        value: Input = Dense(self.name, self.width)
        if isinstance(self.transform, Bucketize):
            value = Ids(self.name, self.transform.count, self.width, positional=self.width > 1)
        return (value, Dense(self.indicator_name, self.width)) if self.indicator else (value,)

    def doubtful_rows(self, good: Sequence[float]) -> Iterator[tuple[float, ...]]:
        for place in {0, len(good) - 1} if self.transform == "log" else ():
            for value in (-1.0, -5.0):
                yield (*good[:place], value, *good[place + 1 :])


class NumericLabel(Single, ReadAsNumbers):
    """A float32 to be predicted by regression."""

    kind: Literal["numeric"]

    @property
    def if_missing(self) -> str:
        return "missing_label"

    @property
    def measures(self) -> bool:
        return False
