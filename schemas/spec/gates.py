"""The key `promote` of a schema file: what a model must reach before it is put in service.

Thresholds of drift: how far a feature's values may be from those that a model is trained on.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from schemas.spec.forms import Name, Strict

Threshold = Annotated[float, Field(gt=0, le=1)]


class Limits(Strict):
    """A distance above which a job or a comparison warns, one above which it fails, or both."""

    warn: Threshold | None = None
    fail: Threshold | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Limits:
        if self.warn is None and self.fail is None:
            raise ValueError("give `warn`, `fail` or both, each more than 0 and at most 1")
        if self.warn is not None and self.fail is not None and not self.warn < self.fail:
            raise ValueError(f"warn: {self.warn:g} must be less than fail: {self.fail:g}")
        return self


Drift = Threshold | Limits | Literal["none"]


def limits_of(declared: Drift | None) -> Limits | None:
    """The thresholds that are declared; a number alone is the one to fail above."""
    if declared is None or declared == "none":
        return None
    return declared if isinstance(declared, Limits) else Limits(fail=declared)


Share = Annotated[float, Field(ge=0, le=1)]
AtLeastZero = Annotated[float, Field(ge=0)]
NOT_METRICS = ("margin", "slices", "slice_margin")


class PromoteRules(Strict):
    """What `millrace promote` asks of an export.

    It says nothing about the data, so it is no part of a schema's fingerprint: it may change without writing a dataset
    again. A metric's value is the least that is accepted; of a loss or an error, the most.

    Attributes:
      margin: how much worse than the model in service an export may be: an absolute difference, of losses and errors a
        share of the value in service.
      slices: features by whose values the rows are divided; on none of the parts may an export surely be worse.
      slice_margin: the margin on each part; None: three times `margin`.
    """

    accuracy: Share | None = None
    balanced_accuracy: Share | None = None
    macro_f1: Share | None = None
    auc: Share | None = None
    log_loss: AtLeastZero | None = None
    r2: Annotated[float, Field(le=1)] | None = None
    root_mean_squared_error: AtLeastZero | None = None
    mean_absolute_error: AtLeastZero | None = None
    margin: AtLeastZero = 0.01
    slices: tuple[Name, ...] = ()
    slice_margin: AtLeastZero | None = None

    @model_validator(mode="after")
    def _each_slice_once(self) -> PromoteRules:
        if len(set(self.slices)) != len(self.slices):
            raise ValueError("`slices` must name each feature once")
        return self

    @property
    def thresholds(self) -> dict[str, float]:
        """The metrics that have a threshold, with it."""
        values = {name: getattr(self, name) for name in type(self).model_fields if name not in NOT_METRICS}
        return {name: value for name, value in values.items() if value is not None}
