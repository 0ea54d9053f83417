"""Thresholds of drift: how far a feature's values may be from those that a model is trained on."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from schemas.spec.strict import Strict

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
