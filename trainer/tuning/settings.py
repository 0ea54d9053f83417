"""How a study is searched."""

from __future__ import annotations

import dataclasses
import math

from schemas.errors import UsageError
from trainer.tuning.space import SEARCHES, Parameter, check_grid

PRUNERS = ("median", "hyperband", "none")
KEEP = ("all", "best")
TRIALS = 20
FIRST_FAILURES = 5  # trials that have all failed, before any has succeeded: the others would fail likewise


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """How a study is searched; `python -m trainer.tune --help` describes each.

    Raises:
      UsageError: a number is out of its range, or the search cannot be made over these parameters.
    """

    study: str
    parameters: tuple[Parameter, ...]
    trials: int = TRIALS
    parallel_trials: int = 1
    failed_trials: int | None = None
    search: str = SEARCHES[0]
    pruner: str = PRUNERS[0]
    timeout_hours: float | None = None
    keep_models: str = KEEP[0]

    def __post_init__(self) -> None:
        if not self.parameters:
            raise UsageError("--space: names nothing to search; give one hyper-parameter or more")
        for flag in ("trials", "parallel_trials", "failed_trials"):
            count = getattr(self, flag)
            if count is not None and count < 1:
                raise UsageError(f"--{flag} {count}: must be 1 or more")
        if self.timeout_hours is not None and not 0 < self.timeout_hours < math.inf:
            raise UsageError(f"--timeout_hours {self.timeout_hours:g}: must be more than 0, and finite")
        if self.search == "grid":
            check_grid(self.parameters)

    @property
    def combinations(self) -> float:
        """How many trials there can be that differ; infinity if a parameter is any number of a range."""
        return math.prod(parameter.count for parameter in self.parameters)

    @property
    def is_grid(self) -> bool:
        """Whether all combinations are tried in turn, as far as there are trials: there is nothing to choose then."""
        return self.search == "grid" or self.combinations <= self.trials

    @property
    def most(self) -> int:
        """How many trials there are at most."""
        return int(min(self.trials, self.combinations)) if self.is_grid else self.trials
